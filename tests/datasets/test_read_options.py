"""Options of readers: declared once, checked once, and added in two files."""

import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import opjax
from opjax import files
from opjax.files import ReadOptions
from opjax.files.series import read_series
from opjax.learn.config.reading import read_options
from tests.refused import value_error

# A new option, `scale`: where it is declared, and where the reader uses it.
PATCH = {
    "files/options.py": (
        "    max_bytes: int = MAX_BYTES\n",
        "    max_bytes: int = MAX_BYTES\n    scale: float = 1.0\n",
    ),
    "files/building.py": (
        "        target=target.values,\n",
        "        target=target.values * options.scale,\n",
    ),
}
PROGRAM = """
import dataclasses
import sys

from opjax import files
from opjax.files.series import read_series
from opjax.learn.config.reading import read_options

folder = sys.argv[1]
options = read_options({"scale": 3.0})
every = files.read(folder, options), files.stored(folder, options)
every += (files.splits([folder], (), options).train, )
assert all(sample.target.max() == 3 for found in every for sample in found)
with files.extended(f"{folder}/a.npz", f"{folder}/out/a.npz", options) as (each,):
    assert each.sample.target.max() == 3
for read in (read_series, files.read_sliced):
    try:
        read(f"{folder}/h5", options)
    except ValueError as error:
        print(error)
"""


@pytest.fixture
def folder(tmp_path):
    """Four samples, and one of another format."""
    h5py = pytest.importorskip("h5py", reason='needs `pip install "opjax[h5]"`')
    (tmp_path / "data" / "h5").mkdir(parents=True)
    for name in "abcd":
        points = np.random.default_rng(ord(name)).uniform(size=(5, 2))
        arrays = {"mesh_points": points, "target": np.linspace(0, 1, 5)}
        np.savez(tmp_path / "data" / f"{name}.npz", **arrays)
    with h5py.File(tmp_path / "data" / "h5" / "a.h5", "w") as file:
        for key, array in (arrays | {"times": np.arange(5.0)}).items():
            file[key] = array
    return tmp_path / "data"


@pytest.mark.nightly
def test_a_new_option_touches_two_files(folder, tmp_path):
    tree = tmp_path / "tree" / "opjax"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(pathlib.Path(opjax.__file__).parent, tree, ignore=ignore)
    for name, (before, after) in PATCH.items():
        text = (tree / name).read_text()
        assert text.count(before) == 1
        (tree / name).write_text(text.replace(before, after))
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        cwd=tree.parent,
        env={"PYTHONPATH": str(tree.parent), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "scale=3.0 has no effect on series; omit it.",
        "scale=3.0 has no effect on meshes that are read in slices; omit it.",
    ]


def test_names_are_kept_as_tuples_whatever_is_given():
    options = ReadOptions(features='k, "a,b"', target=["u"])
    assert (options.features, options.target) == (("k", "a,b"), ("u",))
    assert options == ReadOptions(features=("k", "a,b"), target="u")
    assert options.given() == ["features", "target"]


def test_options_are_those_of_the_flags():
    flags = {"feature_names": "k", "scalar_names": None, "point_dim": 0, "geometry": ""}
    flags |= {"location": "cells", "num_epochs": 3}
    expected = ReadOptions(features="k", location="cells")
    assert read_options(flags) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"location": "faces"}, "choose from points, cells"),
        ({"location": "cells", "quadrature": True}, "has no effect"),
        ({"location": "cells", "grid_axes": 2}, "location has no effect"),
        ({"grid_axes": 4}, "grid_axes=4 must be 1, 2 or 3"),
        ({"geometry": "curvature"}, "unknown; choose from"),
        ({"features": "k,k"}, "only once"),
        ({"scalars": "U", "features": "U"}, "U has two roles.*to U_inlet in cases.csv"),
        ({"boundary": "a: 1 < x", "boundary_names": "a"}, "a is in boundary_names and"),
        ({"boundary": "a: x"}, "a number, expected a condition"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with value_error(message):
        ReadOptions(**options)


@pytest.mark.parametrize("name", ["location", "boundary_names", "stacked"])
def test_options_without_effect_are_refused(name, folder):
    values = {"location": "cells", "boundary_names": "wall", "stacked": True}
    options = ReadOptions(**{name: values[name]})
    of_series = [read_series] if name == "stacked" else []  # which have the others
    for read in (*of_series, files.read_sliced):
        with value_error(f"{name}=.* has no effect on"):
            read(folder / "h5", options)


@pytest.mark.parametrize(
    "shares", [{"test_fraction": 1.0}, {"validation_fraction": 0.0}, {"num_test": -1}]
)
def test_shares_that_divide_nothing_are_refused(shares):
    ((name, value),) = shares.items()
    with value_error(f"{name}={value} must be"):
        files.Shares(**shares)
