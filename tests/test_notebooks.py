import os
import pathlib
import re

import pytest

jupytext = pytest.importorskip(
    "jupytext", reason="notebooks need `pip install 'opjax[notebooks]'`"
)
pytest.importorskip(
    "nbclient", reason="notebooks need `pip install 'opjax[notebooks]'`"
)

from tests import notebooks  # noqa: E402 - needs both

# Tests train for fewer steps; what is committed has trained for all of them, as
# `FULL_NOTEBOOKS=1 python -m pytest -m nightly tests/test_notebooks.py` does. `.ci/run`
# executes two notebooks in each commit, and all of them in eight.
FULL = os.environ.get("FULL_NOTEBOOKS") == "1"
FEWER = {
    "00_quickstart": {
        "NUM_PLATES = 300": "NUM_PLATES = 60",
        "NUM_EPOCHS = 8": "NUM_EPOCHS = 1",
    },
    "01_functional_attention": {"num_steps = 1024, 64, 512": "num_steps = 64, 64, 32"},
    "02_bases": {"steps=300": "steps=10"},
    "03_schwarz": {"num_steps=1000": "num_steps=20"},
    "04_super_resolution": {"batch_size = 12, 8": "batch_size = 2, 8"},
    "05_your_own_mesh": {"NUM_EPOCHS = 480, 26": "NUM_EPOCHS = 24, 1"},
    "08_cases": {"NUM_STEPS = 160, 1500": "NUM_STEPS = 16, 4"},
    "09_error_bars": {"NUM_EPOCHS = 400, 20": "NUM_EPOCHS = 20, 1"},
    "10_time": {
        "NUM_TRAIN = 40": "NUM_TRAIN = 4",
        '"num_epochs": 8': '"num_epochs": 1',
    },
    "11_design": {
        "NUM_STEPS, NUM_DESIGNS = 300, 1500, 10": "NUM_STEPS, NUM_DESIGNS = 40, 20, 2"
    },
    "07_which_attention": {"BATCH = 480, 6, 4": "BATCH = 12, 6, 4"},
    "12_inversion": {
        "NUM_STEPS = 1000": "NUM_STEPS = 60",
        "COUNT = 40": "COUNT = 3",
        "500, 800, 10": "60, 12, 2",
    },
    "13_a_real_solver": {"NUM_STEPS = 1500": "NUM_STEPS = 30"},
    "14_surfaces": {"NUM_STEPS = 160, 1500": "NUM_STEPS = 12, 4"},
}
# What the committed runs must have found: the number behind these words of a result.
AT_MOST = [
    ("00_quickstart", "relative L2 error", 3.0),
    ("05_your_own_mesh", "relative L2 error", 5.0),
    ("08_cases", "pressure error", 5.0),
    ("09_error_bars", "bands of", 10.0),
    ("10_time", "relative L2 error of", 5.0),
    ("12_inversion", "median miss of", 40.0),
    ("12_inversion", "36 sensors with an error of", 18.0),
    ("13_a_real_solver", "an error of", 7.0),
    ("14_surfaces", "relative L2 error of", 10.0),
]
AT_LEAST = [
    ("08_cases", "R²", 0.99),
    ("09_error_bars", "hold", 85.0),
    ("11_design", "confirms", 9),
    ("12_inversion", "plate of two metres;", 75.0),
]
gallery = notebooks.gallery()
PAGES = {page.name: page for page in gallery.notebooks()}
WRITE = "run `python -m tests.notebooks` and commit the .ipynb"
sources = pytest.mark.parametrize(
    "source", notebooks.SOURCES, ids=lambda path: path.stem
)


def cells(path: pathlib.Path, kind: str) -> list[str]:
    return [c.source for c in jupytext.read(path).cells if c.cell_type == kind]


def test_there_are_notebooks():
    assert notebooks.SOURCES, f"no *.py in {notebooks.FOLDER}"


@sources
@pytest.mark.parametrize("kind", ["code", "markdown"])
def test_notebook_is_in_sync_with_its_source(source, kind):
    pair = source.with_suffix(".ipynb")
    assert pair.is_file(), f"{pair} is missing; {WRITE}"
    assert cells(pair, kind) == cells(source, kind), f"{pair} is out of date; {WRITE}"


@sources
def test_committed_outputs_are_complete_and_small(source):
    pair = source.with_suffix(".ipynb")
    code = [c for c in jupytext.read(pair).cells if c.cell_type == "code"]
    counts = [c.execution_count for c in code]
    assert counts == list(range(1, len(code) + 1)), f"not run top to bottom; {WRITE}"
    outputs = [output for c in code for output in c.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert pair.stat().st_size < 1e6


@sources
def test_committed_results_reach_their_bars(source):
    found = "\n".join(PAGES[source.stem].results)
    assert found, f"{source} prints no line that begins with 'Result: '"

    def number(words):
        return float(re.search(rf"{words} ([\d.]+)", found)[1])

    for stem, words, bar in AT_MOST:
        assert stem != source.stem or number(words) <= bar
    for stem, words, bar in AT_LEAST:
        assert stem != source.stem or number(words) >= bar


@sources
def test_the_gallery_has_the_result_the_time_and_the_file(source):
    page = PAGES[source.stem]
    card = gallery.gallery([page])
    assert page.cpu_seconds is not None
    assert page.cpu_seconds <= 180
    for text in (*page.results, page.duration, f"({source.stem}.ipynb)"):
        assert text in card


# Asyncio and ZeroMQ sockets of nbclient may outlive the test for an instant.
@pytest.mark.filterwarnings("default")
@pytest.mark.nightly
@pytest.mark.parametrize("source", notebooks.SOURCES, ids=lambda path: path.stem)
def test_notebook_executes(source):
    # Raises CellExecutionError, with the cell's traceback.
    notebooks.execute(source, {} if FULL else FEWER.get(source.stem))
