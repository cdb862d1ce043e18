"""The pages of results: what they name exists."""

import re
from pathlib import Path

from benchmarks import rollouts_baselines

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "results").glob("*.md"))


def missing(pattern, path_of):
    """Names in the pages that have no file."""
    for page in PAGES:
        for name in set(re.findall(pattern, page.read_text())):
            if not any((ROOT / path).exists() for path in path_of(name)):
                yield page.name, name


def test_files_that_pages_of_results_name_exist():
    pattern = r"\b(?:opjax|benchmarks|experiments|tests)/[\w/]+\.py\b"
    assert not list(missing(pattern, lambda name: [name]))


def test_programs_that_pages_of_results_name_exist():
    def places(name):
        path = name.replace(".", "/")
        return f"{path}.py", f"{path}/__main__.py"

    pattern = r"python -m ((?:benchmarks|experiments|tests)\.[a-z][\w.]*\w)"
    assert not list(missing(pattern, places))


def test_the_runs_on_spots_are_told_what_moves_them():
    page = ROOT / "results" / "time.md"
    (spots,) = re.findall(r'SPOTS="([^"]*)"', page.read_text())
    told = dict(re.findall(r"--(\w+)_names=(\w+)", spots))
    options = rollouts_baselines.READERS["advection"].keywords["options"]
    names = {"target": options.target, "feature": options.features}
    names["scalar"] = options.scalars
    assert {name: (value,) for name, value in told.items()} == names
