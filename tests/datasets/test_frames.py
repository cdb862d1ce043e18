"""Frames named by their number or their time, and lists of frames."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.files.frames import numbers
from tests.datasets.reading import read_series
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista", reason="needs opjax[vtk]")

TIMES = [
    ("u_0.0 u_0.1 u_0.2 u_0.3", [0, 0.1, 0.2, 0.3]),
    ("u_0.0 u_0.5 u_1.0 u_1.5", [0, 0.5, 1, 1.5]),
    ("u_0.9 u_1.0 u_1.1", [0.9, 1, 1.1]),
    ("u_0 u_0.5 u_1 u_10.25", [0, 0.5, 1, 10.25]),
    ("u_t0.000 u_t10.000 u_t2.5", [0, 2.5, 10]),
    ("u_1.0e-3 u_2.5e-3", [0.001, 0.0025]),
    ("0.0 0.25", [0, 0.25]),
    ("0000_u 0001_u", [0, 1]),
    ("u_0008 u_0009 u_0010", [8, 9, 10]),
    ("u_8 u_9 u_10", [8, 9, 10]),
    ("case2.0000 case2.0001", [0, 1]),
    ("flow.0010 flow.0020", [10, 20]),
    ("run_000_1280 run_000_1312", [1280, 1312]),
]


def frame(path, value=0.0, time=None, name="TimeValue"):
    mesh = pyvista.ImageData(dimensions=(3, 3, 1)).cast_to_unstructured_grid()
    mesh["u"] = np.full(9, value)
    if time is not None:
        mesh.field_data[name] = [time]
    mesh.save(path)


@pytest.mark.parametrize(("names", "times"), TIMES)
def test_frames_have_the_times_of_their_names(names, times, tmp_path):
    for name, value in zip(names.split(), range(9), strict=False):
        frame(tmp_path / f"{name}.vtu", value)
    ((series,), _) = read_series(tmp_path, target="u")
    assert_allclose(series.times, times)
    values = {name: value for value, name in enumerate(names.split())}
    known = numbers(tmp_path, [tmp_path / f"{name}.vtu" for name in values])
    ordered = [value for _, value in sorted(zip(known, values.values(), strict=True))]
    assert_array_equal(series.values[:, 0, 0], ordered)  # pyright: ignore


@pytest.mark.parametrize("name", ["TimeValue", "TIME", "Time", "time"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_the_time_in_a_file_goes_before_that_of_its_name(name, in_memory, tmp_path):
    for number in range(3):
        frame(tmp_path / f"u_{number / 10}.vtu", number, 5.0 + number, name)
    ((series,), _) = read_series(tmp_path, in_memory=in_memory, target="u")
    assert_array_equal(series.times, [5, 6, 7])
    assert series.values[2][0, 0] == 2


def test_frames_of_two_series_in_one_folder_are_refused(tmp_path):
    for case in "ab":
        for number in range(2):
            frame(tmp_path / f"{case}_{number}.vtu")
    with value_error("have the same number, 0, but a folder must"):
        read_series(tmp_path, target="u")


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
def test_lists_of_paraview_give_files_their_times(suffix, tmp_path):
    (tmp_path / "sub").mkdir()
    for number in range(3):
        frame(tmp_path / "sub" / f"f_{number}{suffix}", number)
    rows = [{"name": f"sub/f_{i}{suffix}", "time": i / 4} for i in range(3)]
    text = json.dumps({"file-series-version": "1.0", "files": rows})
    (tmp_path / f"case{suffix}.series").write_text(text)
    pieces = [
        f'<DataSet timestep="{r["time"]}" part="0" file="{r["name"]}"/>'.replace(
            "/", "\\", 1
        )
        for r in rows
    ]
    text = f"<VTKFile type='Collection'><Collection>{''.join(pieces)}"
    (tmp_path / "case.pvd").write_text(f"{text}</Collection></VTKFile>")
    for name in ("case.pvd", f"case{suffix}.series"):
        for in_memory in (True, False):
            ((series,), _) = read_series(
                tmp_path / name, in_memory=in_memory, target="u"
            )
            assert_array_equal(series.times, [0, 0.25, 0.5])
            assert series.values[2][0, 0] == 2
    (tmp_path / "case.pvd").unlink()
    assert len(read_series(tmp_path, target="u").series) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "damaged"),
        ("{}", "damaged"),
        ('{"files": [{"name": "../a.vtu", "time": 0}]}', "not in its folder"),
        ('{"files": [{"name": "/etc/a.vtu", "time": 0}]}', "not in its folder"),
        ('{"files": [{"name": "a.vtu", "time": 0}]}', "frame 0, .a.vtu., is missing"),
        ('{"files": [{"name": "a.sh", "time": 0}]}', "frames are .vtu files"),
        ('{"files": []}', "lists no frames"),
        ("[" * 100_000, "damaged"),
    ],
)
def test_lists_of_paraview_are_not_trusted(text, said, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.vtu.series").write_text(text)
    with value_error(said):
        read_series(tmp_path / "x" / "a.vtu.series", target="u")


def test_patterns_of_series_are_found(tmp_path):
    for case in "ab":
        (tmp_path / f"case [{case}]" / "VTK").mkdir(parents=True)
        for number in range(2):
            frame(tmp_path / f"case [{case}]" / "VTK" / f"u_{number}.vtu", number)
    found = read_series(tmp_path / "*" / "VTK", target="u").series
    assert len(found) == 2
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        read_series(tmp_path / "*" / "vtk", target="u")


def write_source(folder, sources):
    """Frames of `u`, a vector `F` and a `source`, which a frame may lack."""
    for number, source in enumerate(sources):
        mesh = pyvista.ImageData(dimensions=(3, 3, 1)).cast_to_unstructured_grid()
        mesh["u"] = mesh.points[:, 0] * number
        if source is not None:
            mesh["source"] = np.full(9, float(source))
            mesh["F"] = np.full((9, 3), float(source))
            mesh.cell_data["heat"] = np.full(4, float(source))
        mesh.cell_data["T"] = np.arange(4.0) * number
        mesh.save(folder / f"f_{number}.vtu")


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize(
    ("location", "target", "feature"),
    [("points", "u", "source"), ("points", "u", "F_x"), ("cells", "T", "heat")],
)
def test_features_that_change_in_time_are_refused(
    in_memory, location, target, feature, tmp_path
):
    given = {"in_memory": in_memory, "location": location}
    write_source(tmp_path, [5, 5, None, 7])
    said = rf"{feature} changes .* frame 0 and frame 3 \(f_3.vtu\)"
    with value_error(said):
        read_series(tmp_path, target=target, features=feature, **given)
    write_source(tmp_path, [5, 6, 7, 8])  # as the message says
    both = f"{target},{feature}"
    assert read_series(tmp_path, target=both, **given).channels["target"] == (
        target,
        feature,
    )
    write_source(tmp_path, [5, 5, None, 5])  # constant, or in the first frame only
    ((series,), _) = read_series(tmp_path, target=target, features=feature, **given)
    assert series.features is not None
    assert_array_equal(series.features, 5)
