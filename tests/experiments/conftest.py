"""Programs in tests draw quickly."""

import pytest

from tests.figures import unarranged  # noqa: F401


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))
