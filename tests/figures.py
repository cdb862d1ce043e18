"""Figures of the programs that tests run."""

from collections.abc import Iterator
from unittest import mock

import pytest

from opjax.learn.report import drawing, figures


@pytest.fixture(scope="package", autouse=True)
def unarranged() -> Iterator[None]:
    """Leaves out the arrangement of axes, which takes half of drawing a figure."""
    new_figure = drawing.new_figure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "new_figure", lambda w, h, *_: new_figure(w, h, None))
        yield


@pytest.fixture(scope="module", autouse=True)
def undrawn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs draw no figures, a quarter of a small training, where none is looked at.

    A file of tests that looks at them says `DRAWN = True`.
    """
    if getattr(request.module, "DRAWN", False):
        yield
        return
    with mock.patch.object(figures, "draw", return_value=[]):
        yield
