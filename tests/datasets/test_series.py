"""Series: checked, cut into windows, read from files of all formats, written again."""

import dataclasses

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from opjax.datasets import heat
from opjax.files import ReadOptions, series_writing
from opjax.files.series import series_splits
from opjax.files.stored_frames import StoredFrames
from opjax.samples import Sample, Series
from opjax.samples import series as rules
from opjax.samples.series import Window, Windows
from tests.datasets.reading import read_series
from tests.refused import value_error

POINTS = np.random.default_rng(0).uniform(size=(6, 2)).astype(np.float32)
CELLS = np.array([[0, 1, 2], [2, 3, 4], [3, 4, 5]])


def make(frames=5, name="case", **given):
    rng = np.random.default_rng(frames)
    values = rng.normal(size=(frames, 6, 2)).astype(np.float32)
    return Series(POINTS, np.arange(frames) * 0.5, values, name=name, **given)


def changed(array, place, value):
    array = np.array(array)
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            {"times": np.arange(4.0)},
            r"5 frames, but times has shape \(4,\): frames or",
        ),
        ({"times": np.array([0, 1, 2, 2, 3.0])}, "frame 3 is at time 2, not after"),
        ({"times": np.array([0, 1, 3, 2, 4.0])}, "frame 3 is at time 2, not after fr"),
        ({"times": np.array([0, 1, 2, np.nan, 4])}, "times must be finite"),
        ({"values": make().values[:, :4]}, r"\(5, 4, 2\), expected \(frames, 6"),
        (
            {"values": changed(make().values, (3, 1, 0), np.nan)},
            "frame 3 has 1 non-finite values, the first one at point 1",
        ),
        ({"features": np.ones((4, 1), np.float32)}, "features has shape"),
        ({"scalars": {"nu": 1.0, "b": 2.0}}, r"has the scalars \['b', 'nu'\], but"),
        ({"scalars": {"nu": 1.0}}, r"has the scalars \['nu'\], but series 0 has \[\]"),
        (
            {"quadrature_weights": -np.ones(6, np.float32)},
            "has no|with quadrature|must",
        ),
    ],
)
def test_bad_series_are_named_with_the_frame(change, match):
    bad = make(name="second")._replace(**change)
    with value_error(match) as error:
        rules.check([make(), bad])
    assert "series 1 (second)" in str(error.value)


def test_too_few_frames_and_no_series_are_refused():
    with value_error("has 5 frames, but at least 6"):
        rules.check([make()], min_frames=6)
    with value_error("at least one series"):
        rules.check([])


def test_an_interval_that_changes_is_named():
    assert rules.equal_interval([make(), make(7)]) == 0.5
    gap = make()._replace(times=np.array([0, 0.5, 1.5, 2, 2.5]), name="gap")
    with value_error(r"gap: frame 2 is 1 after frame 1, .* 0.5 ap"):
        rules.equal_interval([make(7), gap])


@pytest.mark.parametrize(
    ("mode", "history", "expected"),
    [
        ("one_step", 1, [(0, (1,)), (1, (2,)), (2, (3,)), (3, (4,))]),
        ("one_step", 3, [(0, (3,)), (1, (4,))]),
        ("unrolled", 1, [(0, (1, 2)), (1, (2, 3)), (2, (3, 4))]),
        (
            "time_conditional",
            2,
            [(0, (2,)), (0, (3,)), (1, (3,)), (1, (4,)), (2, (4,))],
        ),
        ("one_shot", 2, [(0, (2,)), (0, (3,)), (0, (4,))]),
        ("one_shot", 0, [(0, (0,)), (0, (1,)), (0, (2,)), (0, (3,)), (0, (4,))]),
    ],
)
def test_the_windows_of_every_mode(mode, history, expected):
    found = rules.places([make()], mode, history=history, unroll=2)
    assert list(found) == [Window(0, *one) for one in expected]


def test_scalars_are_finite_and_in_the_order_of_their_names():
    first, second = {"b": 1.0, "a": 2.0}, {"a": 3.0, "b": 4.0}
    first, second = make(scalars=first), make(scalars=second)
    rules.check([first, second])
    assert_array_equal(first.seen([0]).scalars, [2, 1])
    assert_array_equal(second.seen([0]).scalars, [3, 4])
    bad = make(scalars={"a": 3.0, "b": float("inf")}, name="hot")
    with value_error(r"\(hot\): the scalar b is inf, which is not"):
        rules.check([first, bad])


def test_windows_are_cut_from_their_series():
    constant = np.full((6, 1), 7, np.float32)
    series = [make(), make(8, features=constant)._replace(scalars={"nu": 3.0})]
    series[0] = series[0]._replace(features=constant, scalars={"nu": 2.0})
    found = Windows(series, [Window(0, 0, (2, 3)), Window(1, 4, (6, 7))], history=2)
    sample, values = found[1], series[1].values
    assert_array_equal(sample.features[:, :4], np.hstack(values[4:6]))
    assert_array_equal(sample.features[:, 4:], [[7]] * 6)
    assert_array_equal(sample.scalars, [3])
    assert_array_equal(sample.target, np.hstack(values[6:8]))
    assert_allclose(found.lags(1), [0.5, 1.0])
    assert found.summaries[1].channels == {
        "mesh_points": 2,
        "features": 5,
        "target": 4,
        "scalars": 1,
    }
    assert found[1:].where == found.where[1:]


def test_without_history_windows_have_what_is_constant_and_times_from_the_first_frame():
    constant = np.arange(6, dtype=np.float32)[:, None]
    series = make(features=constant)
    series = series._replace(times=series.times + 3)
    found = Windows([series], [Window(0, 0, (0, 4))], history=0)
    assert_array_equal(found[0].features, constant)
    assert_array_equal(found[0].target, np.hstack(series.values[[0, 4]]))
    assert_array_equal(found.lags(0), [0, 2])
    known = found.summaries[0]
    assert known.channels == {"mesh_points": 2, "features": 1, "target": 4}
    assert_allclose(known.sums["features"][1], [2.5])
    with pytest.raises(AssertionError, match="something that the model sees"):
        Windows([make()], [Window(0, 0, (0,))], history=0)


def test_memory_does_not_grow_with_the_number_of_windows():
    """Windows share the arrays and the summaries of their series."""
    series = [make(50)]
    where = list(rules.places(series, "unrolled", history=1, unroll=4))
    found = Windows(series, where * 10, history=1)
    assert len(found) == 460
    assert len({id(summary) for summary in found.summaries}) == 1
    assert found.series[0].values is series[0].values


def write_npz(path, series, **more):
    arrays = {"mesh_points": series.mesh_points, "times": series.times}
    np.savez(path, **arrays, target=series.values, **more)


def write_vtu(folder, series, *, pvd):
    with series_writing.pvd(folder, "flow", series, ["u", "v"]) as write:
        for time, values in zip(series.times, series.values, strict=True):
            write(time, values)
    if not pvd:
        (folder / "flow.pvd").unlink()


@pytest.mark.parametrize("kind", ["h5", "vtu"])
def test_frames_may_stay_on_disk(kind, tmp_path, monkeypatch):
    """They are those in memory, and the summaries of their windows too."""
    series, paths = make(cells=CELLS), tmp_path / "case"
    if kind == "vtu":
        write_vtu(paths, series, pvd=True)
    else:
        paths = tmp_path / "case.h5"
        with h5py.File(paths, "a") as file:
            file["mesh_points"], file["times"] = POINTS, series.times
            file["u"], file["v"] = np.moveaxis(series.values, 2, 0)
    whole, stored = (
        read_series(paths, in_memory=kept, target="u,v").series[0]
        for kept in (True, False)
    )
    assert isinstance(stored.values, StoredFrames)
    assert stored.values.shape == whole.values.shape
    where = list(rules.places([whole], "unrolled", history=2, unroll=2))
    one, other = (Windows([s], where, history=2) for s in (whole, stored))
    for a, b in zip(one, other, strict=True):
        assert_array_equal(a.features, b.features)
        assert_array_equal(a.target, b.target)
    assert str(one.summaries[0]) == str(other.summaries[0])
    # A window reads its own frames and no others.
    seen = []
    read = stored.values._read
    monkeypatch.setattr(
        stored.values, "_read", lambda frame: seen.append(frame) or read(frame)
    )
    assert other[1].target.shape == (6, 4)
    assert sorted(seen) == [1, 2, 3, 4]


def test_frames_of_archives_do_not_stay_on_disk(tmp_path):
    write_npz(tmp_path / "a.npz", make())
    with value_error("a.npz: frames of an .npz archive cannot be"):
        read_series(tmp_path, in_memory=False)


def test_frames_that_change_while_they_are_read_are_named(tmp_path):
    write_vtu(tmp_path / "a", make(cells=CELLS), pvd=True)
    (series,), _ = read_series(tmp_path / "a", in_memory=False, target="u,v")
    write_vtu(tmp_path / "b", make(), pvd=True)
    points = np.concatenate([POINTS, POINTS + 1])
    fields = np.ones((12, 2), np.float32)
    (tmp_path / "a" / "flow_0003.vtu").unlink()
    files.write(
        tmp_path / "a" / "flow_0003.vtu", Sample(points), fields, names=["u", "v"]
    )
    with value_error("flow.pvd: frame 3 has different points"):
        series.values[3]


def test_grids_constants_and_scalars(tmp_path):
    frames = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
    force = np.ones((3, 5), np.float32)
    arrays = {"times": np.arange(4.0), "w": frames, "f": force, "nu": 0.25}
    np.savez(tmp_path / "a.npz", **arrays)
    (series,), channels = read_series(
        tmp_path, target="w", features="f", scalars="nu", grid_axes=2
    )
    assert series.grid_shape == (3, 5)
    assert_array_equal(series.values[..., 0], frames.reshape(4, 15))
    assert_array_equal(series.features, [[1]] * 15)
    assert series.scalars == {"nu": 0.25}
    assert channels == {"features": ("f",), "target": ("w",), "scalars": ("nu",)}
    with value_error(r"a.npz: nu is one .* --scalar_names=nu"):
        read_series(tmp_path, target="w", features="f,nu", grid_axes=2)


def write_cases(folder, kind, frames=(5, 7, 6)):
    """Cases of a format, with the scalar `nu` in archives and HDF5 files.

    Returns what a table calls the cases.
    """
    rows = []
    for i, count in enumerate(frames):
        series, place = make(count, cells=CELLS), folder / f"case_{i}"
        if kind == "npz":
            write_npz(folder / f"case_{i}.npz", series, cells=CELLS, nu=0.1 * i)
            rows.append(f"case_{i}.npz")
        elif kind == "h5":
            with h5py.File(folder / "all.h5", "a") as file:
                group = file.create_group(f"case_{i}")
                group["mesh_points"], group["cells"] = POINTS, CELLS
                group["times"], group["target"] = series.times, series.values
                group["nu"] = [0.1 * i]
            rows.append(f"all.h5/case_{i}")
        else:
            write_vtu(place, series, pvd=kind == "pvd")
            rows.append(f"case_{i}/flow.pvd" if kind == "pvd" else f"case_{i}")
    return rows


@pytest.mark.parametrize("kind", ["npz", "h5", "pvd", "vtu"])
def test_series_of_every_format_have_scalars_in_the_file_or_in_a_table(kind, tmp_path):
    rows, own = write_cases(tmp_path, kind), kind in ("npz", "h5")
    lines = ["file,split,mu" if own else "file,split,mu,nu"]
    for i, part in enumerate(["test", "train", "validation"]):
        lines.append(f"{rows[i]},{part},{2 * i}" + ("" if own else f",{0.1 * i}"))
    (tmp_path / "cases.csv").write_text("\n".join(lines))
    options = {"target": "target" if own else "u,v", "scalars": "nu,mu"}
    found, channels = read_series(tmp_path, **options)
    assert channels["target"] == (("target",) * 2 if own else ("u", "v"))
    assert channels["scalars"] == ("nu", "mu")
    for i, (series, count) in enumerate(zip(found, (5, 7, 6), strict=True)):
        expected = make(count)
        assert_array_equal(series.values, expected.values)
        assert_array_equal(series.mesh_points, POINTS)
        assert_array_equal(series.cells, CELLS)
        times = np.arange(count) if kind == "vtu" else expected.times
        assert_array_equal(series.times, times)
        assert series.scalars == pytest.approx({"nu": 0.1 * i, "mu": 2 * i}, rel=1e-6)
        assert series.scalar_names == ("mu", "nu")
    splits = series_splits([tmp_path], options=ReadOptions(**options))
    lengths = [[one.num_frames for one in part] for part in splits[:3]]
    assert lengths == [[7], [6], [5]]


def test_scalars_of_frames_are_field_data_that_do_not_change(tmp_path):
    pyvista = pytest.importorskip("pyvista")
    write_vtu(tmp_path / "a", make(cells=CELLS), pvd=True)
    for number, value in enumerate([0.5, 0.5, 0.5, 0.75]):
        file = tmp_path / "a" / f"flow_{number:04d}.vtu"
        mesh = pyvista.read(file)
        mesh.field_data["nu"] = [value]
        mesh.save(file)
    with value_error(r"scalar nu changes .* 0.5 to 0.75 at frame 3 \(flow_0003"):
        read_series(tmp_path, target="u", scalars="nu")
    mesh.field_data["nu"] = [0.5]
    mesh.save(file)
    (series,), _ = read_series(tmp_path, target="u", scalars="nu")
    assert series.scalars == {"nu": 0.5}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("file,nu\ncase_0,1\n", "cases.csv has no row for case_1; add it"),
        ("file,mu\ncase_0,1\ncase_1,1\n", "has no scalar 'nu'.*no column for it"),
        ("file,nu\ncase_0,1\ncase_1,nan\n", "the scalar nu is nan.* not finite"),
        ("file,nu\ncase_0,1\ncase_1,x\n", "the scalar nu is 'x' .* is not a number"),
        ("file,nu\ncase_0,1\ncase_9,1\n", "line 3 names case_9, which does not"),
    ],
)
def test_bad_tables_of_series_are_named(text, match, tmp_path):
    write_cases(tmp_path, "pvd", frames=(3, 3))
    (tmp_path / "cases.csv").write_text(text)
    with value_error(match):
        read_series(tmp_path, target="u", scalars="nu")


def test_the_first_frame_alone_needs_no_times(tmp_path):
    np.savez(tmp_path / "a.npz", mesh_points=POINTS, target=make().values[0])
    (series,), _ = read_series(tmp_path, min_frames=1)
    assert_array_equal(series.values, make().values[:1])
    with value_error("has no array 'times'"):
        read_series(tmp_path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"times": np.arange(4.0)}, "times has shape .4,., but target has 5 frames"),
        ({"times": -np.arange(5.0)}, "frame 1 is at time -1, not after frame 0"),
        ({"u": np.ones(3)}, "no array 'nothing', only"),
        (
            {"mesh_points": changed(np.stack([POINTS] * 5), (3, 0, 0), 9)},
            "the mesh changes within the series, at frame 3",
        ),
        (
            {"target": changed(make(50).values, (37, 2, 1), np.nan)},
            "a.npz: frame 37 of target has 1 non-finite values.* at point 2;",
        ),
    ],
)
def test_bad_arrays_are_named_with_the_frame(change, match, tmp_path):
    series = make(50 if "37" in match else 5)
    arrays = {"mesh_points": POINTS, "times": series.times, "target": series.values}
    np.savez(tmp_path / "a.npz", **(arrays | change))
    with value_error(match) as error:
        read_series(tmp_path, target="nothing" if "u" in change else ())
    assert "a.npz" in str(error.value)


def test_values_on_a_grid_that_are_not_finite_are_named(tmp_path):
    values = changed(np.ones((3, 4, 5)), (0, 2, 1), np.inf)
    np.savez(tmp_path / "a.npz", times=np.arange(3.0), w=values)
    with value_error(r"frame 0 of w has 1 .* at point \(2, 1\)"):
        read_series(tmp_path, target="w", grid_axes=2)


def test_bad_folders_of_frames_are_named_with_the_frame(tmp_path):
    write_vtu(tmp_path / "a", make(cells=CELLS), pvd=True)
    (tmp_path / "a" / "flow_0002.vtu").unlink()
    with value_error("frame 2, 'flow_0002.vtu', is missing"):
        read_series(tmp_path, target="u")
    (tmp_path / "a" / "flow.pvd").unlink()
    with value_error("flow_0003.vtu follows flow_0001.vtu"):
        read_series(tmp_path, target="u")
    moved = POINTS + np.float32(1)
    sample = Sample(moved, cells=CELLS, target=np.zeros((6, 1), np.float32))
    files.write(tmp_path / "a" / "flow_0002.vtu", sample)
    with value_error("no array 'u'"):
        read_series(tmp_path, target="u")
    with series_writing.pvd(
        tmp_path / "b", "x", make()._replace(mesh_points=moved, cells=CELLS), ["u", "u"]
    ) as write:
        write(0.0, make().values[0])
    (tmp_path / "b" / "x_0000.vtu").rename(tmp_path / "a" / "flow_0002.vtu")
    with value_error(r"changes .* at frame 2 \(flow_0002.vtu\)"):
        read_series(tmp_path / "a", target="u")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("<VTKFile type='Collection'><Collection/></VTKFile>", "lists no frames"),
        ("<VTKFile type='UnstructuredGrid'/>", "not a VTK collection"),
        ("nothing", "Cannot read"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><VTKFile/>", "entities are not allowed"),
        ("{} file='../x.vtu'/></Collection></VTKFile>", "is not in its folder"),
        ("{} file='/etc/x.vtu'/></Collection></VTKFile>", "is not in its folder"),
        ("{} file='x.sh'/></Collection></VTKFile>", "frames are .vtu files"),
        ("{} file='x.vtu'/></Collection></VTKFile>", "frame 0, 'x.vtu', is missing"),
    ],
)
def test_lists_are_not_trusted(text, match, tmp_path):
    head = "<VTKFile type='Collection'><Collection><DataSet timestep='0'"
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.pvd").write_text(text.format(head))
    with value_error(match):
        read_series(tmp_path / "x")


def test_links_out_of_the_folder_are_refused(tmp_path):
    write_vtu(tmp_path / "a", make(cells=CELLS), pvd=True)
    (tmp_path / "a" / "flow_0001.vtu").rename(tmp_path / "out.vtu")
    (tmp_path / "a" / "flow_0001.vtu").symlink_to(tmp_path / "out.vtu")
    with value_error("frame 1, 'flow_0001.vtu', is missing"):
        read_series(tmp_path / "a", target="u")


def test_every_series_has_one_place_in_the_splits(tmp_path):
    folder = heat.write_series(tmp_path / "a", 8, num_points=(5, 9))
    splits = series_splits([folder])
    names = [series.name for part in splits[:3] for series in part]
    assert [len(part) for part in splits[:3]] == [5, 1, 2]
    assert sorted(names) == [series.name for series in read_series(folder).series]
    with value_error("8 cases are in both train and test"):
        series_splits([folder], [folder])
    with value_error("test_fraction=0.99 of 8 series leaves none"):
        series_splits([folder], shares=files.Shares(test_fraction=0.99))


def test_heat_series_begin_as_the_samples_of_the_same_seed(tmp_path):
    (series, _), _ = read_series(heat.write_series(tmp_path / "a", 2, seed=3))
    sample, _ = files.read(heat.write(tmp_path / "b", 2, seed=3))
    assert_array_equal(series.mesh_points, sample.mesh_points)
    assert_allclose(series.values[0], sample.features)
    at = int(np.argmin(abs(series.times - 0.02)))
    assert_allclose(series.values[at], sample.target, rtol=1e-6)


def test_an_archive_is_written_frame_by_frame(tmp_path):
    series = make(cells=CELLS, scalars={"nu": 0.5})
    names = ["u", "v"]
    with series_writing.archive(
        tmp_path / "a.npz", series, names, series.times
    ) as write:
        for time, values in zip(series.times, series.values, strict=True):
            write(time, values)
    (again,), _ = read_series(tmp_path / "a.npz", target="u,v", scalars="nu")
    for field in dataclasses.fields(dataclasses.make_dataclass("F", Series._fields)):
        expected = getattr(series._replace(name=str(tmp_path / "a.npz")), field.name)
        assert_array_equal(getattr(again, field.name), expected)
    with (
        value_error("0 frames were passed, expected 5"),
        series_writing.archive(tmp_path / "b.npz", series, names, series.times),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_the_column_split_divides_series_without_scalars(tmp_path):
    rows = write_cases(tmp_path, "npz", (3,) * 6)
    parts = ["test", "train", "train", "validation", "train", "test"]
    lines = [f"{row},{part}" for row, part in zip(rows, parts, strict=True)]
    (tmp_path / "cases.csv").write_text("\n".join(["file,split", *lines]))
    numbers = [[one.name[-5] for one in part] for part in series_splits([tmp_path])[:3]]
    assert numbers == [["1", "2", "4"], ["3"], ["0", "5"]]


def test_series_that_stand_still_are_told_and_others_are_not(tmp_path, recwarn):
    moving = make()
    for number, values in enumerate((moving.values, moving.values[[0] * 5])):
        one = moving._replace(values=values)
        np.savez(
            tmp_path / f"{number}.npz",
            mesh_points=POINTS,
            times=one.times,
            u=one.values,
            k=one.values[:1, :, 0].repeat(5, 0),
        )
    with pytest.warns(UserWarning, match=r"in 1 of 2 series, for example in .*1\.npz"):
        read_series(tmp_path, target="u,k")
    with pytest.warns(UserWarning, match="field k is the same .* --feature_names=k"):
        read_series(tmp_path / "0.npz", target="u,k")
    recwarn.clear()
    read_series(tmp_path / "0.npz", target="u")
    assert not recwarn


@pytest.mark.parametrize("times", [5, 6])  # of six points
def test_features_of_every_frame_in_arrays_are_constant(times, tmp_path):
    file = tmp_path / "a.npz"
    arrays = {"mesh_points": POINTS, "times": np.arange(float(times))}
    arrays["u"] = np.outer(arrays["times"], POINTS[:, 0])
    k = np.tile(POINTS[:, 1], (times, 1))
    np.savez(file, **arrays, k=k, V=np.stack([k, 2 * k], axis=-1))
    for features, factor in {"k": 1, "V_y": 2}.items():
        ((series,), _) = read_series(file, target="u", features=features)
        assert series.features is not None
        assert_array_equal(series.features[:, 0], factor * POINTS[:, 1])
    np.savez(file, **arrays, k=arrays["u"])
    said = "k changes within the series, between frame 0 and frame 1;"
    note = r"shape \(6, 6\) is that of points and channels" if times == 6 else "frames"
    with value_error(f"{said}.*{note}"):
        read_series(file, target="u", features="k")


def test_series_in_other_planes_are_refused_by_name(rng, tmp_path):
    pyvista = pytest.importorskip("pyvista", reason="needs opjax[vtk]")
    for name, axes in (("a", [0, 2]), ("b", [0, 1])):
        (tmp_path / name).mkdir()
        points = np.zeros((9, 3))
        points[:, axes] = rng.uniform(size=(9, 2))
        for frame in range(2):
            mesh = pyvista.PolyData(points).cast_to_unstructured_grid()
            mesh["u"] = points[:, 0] + frame
            mesh.save(tmp_path / name / f"{frame}.vtu")
    (one,) = read_series(tmp_path / "a", target="u").series
    assert one.axes == one.seen([0]).axes == (0, 2)
    with value_error("along x and z, but .*b.* along x and y: all meshes must"):
        read_series([tmp_path / "a", tmp_path / "b"], target="u")
