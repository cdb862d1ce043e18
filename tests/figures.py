"""Figures of the programs that tests run."""

from collections.abc import Iterator

import pytest

from opjax.learn.report import drawing


@pytest.fixture(scope="package", autouse=True)
def unarranged() -> Iterator[None]:
    """Leaves out the arrangement of axes, which takes half of drawing a figure."""
    new_figure = drawing.new_figure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "new_figure", lambda w, h, *_: new_figure(w, h, None))
        yield
