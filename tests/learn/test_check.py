"""`opjax-check`: what data hold, what would be refused, and a command that works."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys
import typing
from pathlib import Path

import h5py
import numpy as np
import pytest

from opjax.files import checking
from opjax.learn.cli import check, train
from tests.solved import blocks, pyvista, solved, table

FOLDER = Path(__file__).parents[1] / "datasets" / "solvers"


def command(line):
    """The configuration of a line of `opjax-train`, of the preset smoke."""
    program, *words = shlex.split(line)
    assert program == "opjax-train"
    hints = typing.get_type_hints(train.Config)
    values = {}
    for word in words:
        key, _, value = word.removeprefix("--").partition("=")
        if key != "workdir":
            values[key] = hints[key](value)
    return dataclasses.replace(train.PRESETS["smoke"], **values)


def of(folder, **options):
    return check.run(check.CheckOptions(str(folder), json=True, **options))


def test_fields_scalars_boundaries_and_times_are_said_and_the_command_works(tmp_path):
    solved(tmp_path / "my cases", count=5, times=(0, 1))
    rows = [f"case_{i},{i},{2 * i},a" for i in range(5)]
    table(tmp_path / "my cases", rows, "case,load,drag,kind")
    found = of(tmp_path / "my cases")
    assert (found["cases"], found["looked_at"], found["suffix"]) == (5, 5, ".vtm")
    assert found["num_points"] == (24, 24)
    assert found["cells"] == {"voxel": 30}
    assert found["times"] == (0.01, 0.01)
    assert found["frames"] == (2, 2)
    assert found["boundaries"] == {"wall": 5}
    assert found["columns"] == ["kind"]
    assert [(s["name"], s["low"], s["high"]) for s in found["scalars"]] == [
        ("load", 0, 4),
        ("drag", 0, 8),
    ]
    cells = next(f for f in found["fields"] if f["location"] == "cells")
    # 10 i + 1 + x of the centres, 0.5, 1.5 and 2.5, of five cases.
    values = 10 * np.arange(5)[:, None] + 1 + np.array([0.5, 1.5, 2.5])
    values = np.repeat(values.ravel(), 2)
    assert (cells["low"], cells["high"]) == ([values.min()], [values.max()])
    np.testing.assert_allclose(cells["mean"], [values.mean()], rtol=1e-6)
    np.testing.assert_allclose(cells["std"], [values.std(ddof=1)], rtol=1e-6)
    assert found["refused"] == []
    assert "last time" in found["doubtful"][0]["text"]
    config = command(found["command"])
    assert (config.target_names, config.location) == ("p", "cells")
    assert (config.scalar_names, config.target_scalars) == ("load", "drag")
    assert config.boundary_names == "wall"
    with pytest.warns(UserWarning, match="last time"):
        splits, names = train.load(config)
    assert len(splits.train) >= config.batch_size
    assert names["scalars"] == ("load",)
    json.dumps(found, allow_nan=False)


def arrays(count, **more):
    points = np.random.default_rng(0).random((count, 2))
    return {"mesh_points": points, "u": points[:, 0], "c": np.ones(count)} | more


def save(folder, count=6):
    for i in range(count):
        np.savez(folder / f"{i}.npz", **arrays(20 + i, nu=float(i)))
    return folder


def test_constants_zeros_copies_and_planes_are_told(tmp_path):
    save(tmp_path)
    np.savez(tmp_path / "0.npz", **arrays(20, nu=0.0, u=np.zeros(20)))
    np.savez(tmp_path / "copy.npz", **arrays(21, nu=1.0))
    found = of(tmp_path)
    fields = {field["name"]: field for field in found["fields"]}
    assert fields["c"]["constant"] == [0]
    assert (fields["u"]["zero"], fields["u"]["zero_in"]) == (1, str(tmp_path / "0.npz"))
    (said,) = (p["text"] for p in found["doubtful"] if "copies" in p["text"])
    assert "copy.npz is equal to" in said
    assert command(found["command"]).target_names == "u"
    text = check.text(checking.check([str(tmp_path)]), ["data"], "", "")
    assert "zero everywhere in 1 cases, such as 0.npz" in text
    for number, name in enumerate("ab"):
        (tmp_path / "planes").mkdir(exist_ok=True)
        mesh = pyvista.Plane(i_resolution=2, j_resolution=2).cast_to_unstructured_grid()
        mesh["u"] = mesh.points[:, 0]
        mesh.rotate_x(90 * number, inplace=True)
        mesh.save(tmp_path / "planes" / f"{name}.vtu")
    (refused,) = of(tmp_path / "planes")["refused"]
    assert "all meshes must lie in the same plane" in refused["text"]


def test_what_would_be_refused_is_one_line_for_each_kind(tmp_path):
    save(tmp_path)
    for name in "xyz":
        (tmp_path / f"{name}.npz").write_bytes(b"PK\x03\x04garbage" + name.encode())
    for name, count in (("n1", 30), ("n2", 31)):
        u = np.full(count, np.nan)
        np.savez(tmp_path / f"{name}.npz", **arrays(count, u=u, nu=9.0))
    np.savez(tmp_path / "other.npz", mesh_points=np.eye(3, 2), c=np.ones(3), nu=7.0)
    found = of(tmp_path)
    assert found["cases"] == 12
    counts = {p["text"].split(":")[0][:40]: p["cases"] for p in found["refused"]}
    assert sorted(counts.values()) == [1, 2, 3]
    texts = [problem["text"] for problem in found["refused"]]
    assert any("x.npz" in text and "damaged" in text for text in texts)
    assert any("n1.npz: u has 30 non-finite values" in text for text in texts)
    assert any("u at points are not in all" in t and "other.npz" in t for t in texts)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "has no .npz"),
        (lambda folder: save(folder, 2), "Too few cases for a training"),
        (
            lambda folder: (folder / "a.frd").write_text(""),
            "ccx2paraview.Converter('a.frd'",
        ),
        (lambda folder: (folder / "a.vtu").write_text("x"), "Cannot read"),
    ],
)
def test_without_a_training_there_is_no_command(make, said, tmp_path, capsys):
    make(tmp_path)
    assert check.run(check.CheckOptions(str(tmp_path))) is None
    text = capsys.readouterr().out
    assert said in text
    assert "opjax-train" not in text


def test_a_large_set_is_looked_at_in_part(tmp_path):
    save(tmp_path, 9)
    found = of(tmp_path, most=4)
    assert (found["cases"], found["looked_at"]) == (9, 4)
    assert found["scalars"][0]["high"] == 8  # the last one


@pytest.mark.parametrize(("count", "few"), [(19, False), (20, True)])
def test_the_recipe_for_few_cases_is_proposed_for_as_many(count, few, tmp_path):
    save(tmp_path, count)
    words = shlex.split(of(tmp_path)["command"])
    assert ("--preset=small" in words) == few
    assert (101 in train.FEW, 100 in train.FEW) == (False, True)


def test_fields_on_grids_and_names_with_commas(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(6):
        np.savez(tmp_path / f"{i}.npz", **{"k, mean": rng.random((4, 5))})
    found = of(tmp_path)
    assert found["grid_axes"] == 2
    config = command(found["command"])
    assert config.target_names == '"k, mean"'
    with pytest.warns(UserWarning, match="have the same input as others"):
        assert len(train.load(config)[0].train)


def test_frames_of_a_solver_are_counted(tmp_path):
    found = of(FOLDER / "times" / "VTK")
    assert found["frames"] == (3, 3)
    assert {field["name"] for field in found["fields"]} == {"p", "U"}
    assert found["command"] == ""


@pytest.mark.nightly
def test_the_line_that_is_printed_trains_when_it_is_pasted(tmp_path):
    for i in range(6):
        (tmp_path / "cases" / f"c{i}" / "VTK").mkdir(parents=True)
        blocks(tmp_path / "cases" / f"c{i}" / "VTK" / "a.vtm", float(i), 1)
    table(tmp_path / "cases", [f"c{i},{i}" for i in range(6)])
    run = [sys.executable, "-m", "opjax.learn.cli.check", "cases"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    line = next(row for row in done.stdout.splitlines() if "opjax-train" in row)
    words = [*shlex.split(line)[1:], "--preset=smoke", "--num_epochs=1"]
    run = [sys.executable, "-m", "opjax.learn.cli.train", *words]
    subprocess.run(run, cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "runs" / "cases" / "result.json").is_file()


def test_times_and_numbers_of_steps_are_no_scalars(tmp_path):
    for i in range(3):
        mesh = pyvista.ImageData(dimensions=(3, 3, 1)).cast_to_unstructured_grid()
        mesh["u"] = mesh.points[:, 0] + i
        data = {"TIME": 0.1 * i**2, "CYCLE": i, "nu": i}  # of VisIt, and one scalar
        for name, value in data.items():
            mesh.field_data[name] = [value]
        mesh.save(tmp_path / f"u_{i}.vtu")
    found = of(tmp_path)
    assert [scalar["name"] for scalar in found["scalars"]] == ["nu"]
    assert found["times"] == (0, 0.4)


def test_coordinates_in_arrays_of_their_own_are_refused(tmp_path):
    for i in range(3):
        x, y, u = np.random.default_rng(i).random((3, 7))
        np.savez(tmp_path / f"{i}.npz", x=x, y=y, u=u)
    found = of(tmp_path)
    (problem,) = found["refused"]
    assert "x and y look like coordinates: stack them" in problem["text"]
    assert (problem["cases"], found["cases"], found["command"]) == (3, 3, "")


def test_integers_and_booleans_are_fields_but_numbers_of_points_are_not(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(6):
        whole = {"damage": rng.integers(0, 9, 20), "hole": rng.random(20) > 0.5}
        whole |= {"proc_id": rng.integers(0, 2, 20), "number": np.arange(20) + i}
        whole |= {"GlobalPointIds": rng.integers(0, 20, 20), "FLUID": whole["hole"] * 1}
        for name, more in {"both": {"u": rng.random(20)}, "whole": {}}.items():
            (tmp_path / name).mkdir(exist_ok=True)
            np.savez(
                tmp_path / name / f"{i}.npz",
                mesh_points=rng.random((20, 2)),
                **whole,
                **more,
            )
    found = of(tmp_path / "both")
    names = {field["name"]: field["whole"] for field in found["fields"]}
    assert names == {"damage": True, "hole": True, "FLUID": True, "u": False}
    assert command(found["command"]).target_names == "u"
    config = command(of(tmp_path / "whole")["command"])
    assert config.target_names == "damage,hole"
    assert train.load(config)[0].train[0].target.shape == (20, 2)


def test_what_keeps_all_fields_from_being_read_is_said(tmp_path):
    points, u = np.random.default_rng(0).random((10, 2)), np.arange(10.0)
    pair = np.zeros(10, [("x", "f4"), ("y", "f4")])
    said = {
        "turned": r"u has 10 rows, but mesh_points 2: .* shape (2, 10): store it trans",
        "pairs": "u has dtype [('x', '<f4'), ('y', '<f4')], expected real numbers",
        "nested": "nested.h5/cases has no arrays, only groups such as a. Store all",
        "below": "'mesh' is not an array stored in this file, but a group; store",
    }
    arrays = {
        "turned": {"mesh_points": points.T, "u": u},
        "pairs": {"mesh_points": points, "u": pair},
        "nested": {"cases/a/mesh_points": points, "cases/b/u": u},
        "below": {"a/mesh/mesh_points": points, "a/u": u},
    }
    for name, content in arrays.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            for key, array in content.items():
                file[key] = array
        found = of(tmp_path / f"{name}.h5")
        (problem,) = found["refused"]
        assert re.search(re.escape(said[name]).replace(r"\.\*", ".*"), problem["text"])
        assert (found["cases"], problem["cases"]) == (1, 1)
