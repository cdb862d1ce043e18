"""Pictures are drawn, named, and shown where they are explained."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs `pip install 'opjax[learn]'`")

from benchmarks import pictures, pictures_style  # noqa: E402

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(r"!\[([^]]*)\]\((\S*pictures/(\w+)\.png)\)")


def test_every_picture_is_committed_and_shown_with_words():
    files = {path.stem for path in pictures.FOLDER.glob("*.png")}
    assert files == pictures.PICTURES.keys()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = [hit for page in pages for hit in SHOWN.findall(page.read_text())]
    assert {name for _, _, name in found} == files
    assert all(len(words.split()) > 5 for words, _, _ in found)


def test_pictures_of_the_repository_are_small():
    sizes = [path.stat().st_size for path in (ROOT / "results").rglob("*.png")]
    assert sum(sizes) < 3e6


def test_an_unknown_picture_is_refused_by_name():
    with pytest.raises(ValueError, match="--only=cosst is unknown"):
        pictures.chosen(["cost", "cosst"])
    assert list(pictures.chosen(["cost"])) == ["cost"]
    assert pictures.chosen([]) == pictures.PICTURES


def test_every_run_of_a_picture_has_a_command():
    needed = {one.run for one in pictures.PICTURES.values() if one.run}
    assert needed == {*pictures.RUNS, "scale"}


def test_zero_is_white_whatever_the_values():
    colours = pictures_style.around_zero(np.array([-1.0, 3.0]))
    assert (colours["vmin"], colours["vmax"]) == (-3.0, 3.0)
    assert pictures_style.around_zero(np.zeros(3))["vmax"] > 0
