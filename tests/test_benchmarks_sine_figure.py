"""The figure of the sine waves reads what the page says."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs `pip install 'opjax[learn]'`")

from benchmarks import sine_figure  # noqa: E402
from tests import refused

PAGE = """# Sine waves

## The authors' settings, some attention

Text.

| model | parameters | rate | 5 | 40 | mean of 10 to 40 | ms per step |
| --- | --- | --- | --- | --- | --- | --- |
| some | 10 | 0.1 | 0.5 [0.25, 1] | 0.125 | 0.3 | 7 |

## Another table
"""


def test_medians_and_ranges_are_those_of_the_page():
    ((name, (sizes, errors)),) = sine_figure.tables(PAGE).items()
    assert (name, sizes) == ("some attention", [5, 40])
    np.testing.assert_array_equal(errors.T, [[0.25, 0.5, 1], [0.125] * 3])


def test_all_models_of_the_page_are_drawn():
    found = sine_figure.tables(sine_figure.PAGE.read_text())
    (axis,) = sine_figure.figure(found).axes
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == list(found)
    assert "functional attention" in labels


def test_a_page_without_tables_or_with_another_cell_is_refused():
    refused.each(
        (lambda: sine_figure.tables("# Sine waves"), "No table has a title"),
        (
            lambda: sine_figure.tables(
                PAGE.replace("0.5 [0.25, 1]", "about 0.5 or so")
            ),
            "no median with a range",
        ),
    )
