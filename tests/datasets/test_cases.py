"""Scalars of cases in files and tables, and how bad ones are refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, samples
from opjax.files import ReadOptions
from opjax.samples import Sample, ranges
from tests.datasets.reading import read, read_one, refused
from tests.refused import value_error

POINTS = np.random.default_rng(0).random((6, 2)).astype(np.float32)
BOTH = {"scalars": "angle,mach", "target_scalars": "lift"}


def _files(folder, count=6, **more):
    folder.mkdir(exist_ok=True)
    for i in range(count):
        arrays = {"mesh_points": POINTS + i, "target": POINTS[:, 0] * i}
        arrays |= {"angle": np.float64(i), "lift": np.array([2.0 * i])} | more
        np.savez(folder / f"c{i}.npz", **arrays)
    return folder


def _table(folder, lines, head="file,mach"):
    (folder / "cases.csv").write_text("\n".join([head, *lines]) + "\n")


def _machs(count=6):
    return [f"c{i}.npz,0.{i}" for i in range(count)]


def test_scalars_come_from_files_and_tables_in_the_order_of_their_names(tmp_path):
    folder = _files(tmp_path / "a")
    _table(folder, _machs())
    found = read(folder, **BOTH)
    assert_allclose(found[3].scalars, [3, 0.3], rtol=1e-6)
    assert_array_equal(found[3].target_scalars, [6])
    assert found[3].scalars.dtype == np.float32
    divided = files.splits([folder], options=ReadOptions(**BOTH))
    assert divided.channels["scalars"] == ("angle", "mach")
    assert divided.channels["target_scalars"] == ("lift",)
    on_disk = files.stored(folder, ReadOptions(**BOTH))
    # In the type of the file; samples in memory are narrowed.
    assert_array_equal(np.float32(on_disk[3].scalars), found[3].scalars)
    assert on_disk.summaries[0].channels["scalars"] == 2
    # Nothing is read that was not asked for.
    plain = files.read(folder)
    assert plain[0].scalars is None
    assert plain[0].target_scalars is None


def test_a_column_of_the_table_divides_the_samples(tmp_path):
    folder = _files(tmp_path / "a")
    parts = ["test", "train", "train", "validation", "train", "train"]
    rows = [f"{row},{part}" for row, part in zip(_machs(), parts, strict=True)]
    _table(folder, rows, "file,mach,split")
    for in_memory in (True, False):
        found = files.splits([folder], options=ReadOptions(**BOTH), in_memory=in_memory)
        assert [len(found.train), len(found.validation), len(found.test)] == [4, 1, 1]
        assert found.test[0].name.endswith("c0.npz")
    other = _files(tmp_path / "b")
    _table(other, rows, "file,mach,split")
    with value_error("split of cases.csv already names the test"):
        files.splits([folder], [other], ReadOptions(**BOTH))


def test_files_of_fields_on_a_grid_have_scalars(tmp_path):
    arrays = {"u": np.ones((3, 4), np.float32), "angle": 2.5}
    np.savez(tmp_path / "a.npz", **arrays)
    found = read_one(tmp_path, target="u", scalars="angle", grid_axes=2)
    assert_array_equal(found.scalars, [2.5])


def test_field_data_of_vtk_files_and_rows_of_stacked_files_are_scalars(tmp_path):
    pyvista = pytest.importorskip("pyvista")
    mesh = pyvista.Sphere(theta_resolution=5, phi_resolution=5)
    mesh = mesh.cast_to_unstructured_grid()
    mesh["target"] = mesh.points[:, 0]
    mesh.field_data["angle"] = [2.5]
    mesh.save(tmp_path / "one.vtu")
    found = read_one(tmp_path / "one.vtu", scalars="angle")
    assert found.scalars == pytest.approx([2.5])
    _check_legacy_files(tmp_path, mesh)
    count = 4
    np.savez(
        tmp_path / "all.npz",
        mesh_points=np.stack([POINTS + i for i in range(count)]),
        target=np.ones((count, 6)),
        angle=np.arange(count),
    )
    found = read(tmp_path / "all.npz", stacked=True, scalars="angle")
    assert [float(one.scalars[0]) for one in found] == [0, 1, 2, 3]


def _check_legacy_files(folder, mesh):
    """Field data of `.vtk` files are read, kept and refused as those of `.vtu` are."""
    old = folder / "one.vtk"
    mesh.save(old)
    for source in (old, folder / "one.vtu"):
        found = read_one(source, scalars="angle")
        assert found.scalars == pytest.approx([2.5])
        refused(source, r"no scalar 'mach', only.*'angle'", scalars="mach")
    with files.extended(
        old, folder / "more.vtk", ReadOptions(scalars="angle")
    ) as several:
        for each in several:
            each.add(each.sample.target, ["prediction"])
    found = read_one(folder / "more.vtk", scalars="angle", target="prediction")
    assert found.scalars == pytest.approx([2.5])
    mesh.field_data["angle"] = [2.5, 3]
    mesh.save(old)
    refused(old, r"angle has shape \(2,\).*one number", scalars="angle")
    mesh.field_data["angle"] = [np.nan]
    mesh.save(old)
    refused(old, "one.vtk: the scalar angle is nan", scalars="angle")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (_machs()[:-1], "c5.npz.*no row|no row for c5.npz"),
        ([*_machs(), "c9.npz,1"], "c9.npz, which does not exist"),
        ([*_machs(), "c0.npz,1"], "lists c0.npz again"),
        (["c0.npz,fast", *_machs()[1:]], "mach is 'fast'"),
        (["c0.npz,nan", *_machs()[1:]], "c0.npz: the scalar mach is nan"),
        (["c0.npz,0.1,3", *_machs()[1:]], "line 2 has 3 values"),
        ([*_machs(), ",1"], "line 8 has no file name"),
    ],
)
def test_bad_tables_are_refused_by_file_and_line(tmp_path, lines, message):
    folder = _files(tmp_path / "a")
    _table(folder, lines)
    refused(folder, message, **BOTH)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"cases\.csv is empty; its first line must"),
        ("file,mach,mach\nc0.npz,1,2\n", "the column mach 2 times; keep one"),
        ("file,mach,,\nc0.npz,1,,\n", "2 columns without a name"),
        ("file;mach\nc0.npz;0,3\n", "with semicolons between them; save it with com"),
        ("file\tmach\nc0.npz\t0.3\n", "with tabs between them"),
        ("c0.npz,0.3\n", "no column 'file'.*the first line names the columns"),
    ],
)
def test_tables_that_are_none_are_told_what_they_need(tmp_path, text, message):
    folder = _files(tmp_path / "a")
    (folder / "cases.csv").write_text(text)
    refused(folder, message, scalars="mach")


def test_line_ends_and_marks_of_other_systems_make_no_difference(tmp_path):
    folder = _files(tmp_path / "a")
    text = "\n".join(["file,mach", *_machs(), ""])
    found = []
    for data in (
        text.encode(),
        b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
        text.replace("\n", "\r").encode(),
        text.replace(",", " , ").encode(),
    ):
        (folder / "cases.csv").write_bytes(data)
        found.append([one.scalars for one in read(folder, scalars="mach")])
    for other in found[1:]:
        assert_array_equal(other, found[0])


def test_scalars_that_are_named_as_fields_are_told_where_they_belong(tmp_path):
    folder = _files(tmp_path / "a")
    refused(folder, "angle has 1 rows.*give --scalar_names", features="angle")


def test_bad_scalars_are_refused_by_file_and_name(tmp_path):
    folder = _files(tmp_path / "a")
    refused(folder, r"c0\.npz has no scalar 'mach'.*cases\.csv", scalars="mach")
    _table(folder, [f"c{i}.npz,1" for i in range(6)], "file,angle")
    refused(folder, "angle is in the file and in", scalars="angle")
    bad = _files(tmp_path / "b", angle=np.ones(6))
    refused(bad, r"angle has shape \(6,\).*--feature_names", scalars="angle")
    bad = _files(tmp_path / "c", angle=np.inf)
    refused(bad, r"c0\.npz: the scalar angle is inf", scalars="angle")
    bad = _files(tmp_path / "d", angle=np.array("two"))
    refused(bad, "angle has dtype", scalars="angle")
    head = "file,mach,split"
    _table(folder, [f"{row},learn" for row in _machs()], head)
    refused(folder, "split='learn'", scalars="mach")
    (folder / "cases.csv").write_text("name,mach\nc0.npz,1\n")
    refused(folder, r"no column 'file', only \['name', 'mach'\]", scalars="mach")


def _sample(**given):
    return Sample(POINTS, target=POINTS[:, :1], **given)


def test_samples_with_other_scalars_do_not_fit():
    one = np.ones(1, np.float32)
    with value_error("sample 1 has .*all samples"):
        samples.check([_sample(scalars=one), _sample()])
    with value_error(r"scalars has shape \(1, 1\)"):
        samples.check([_sample(scalars=one[None])])
    with value_error("must be finite"):
        samples.check([_sample(scalars=one * np.nan)])
    with pytest.raises(TypeError, match="scalars has dtype int64"):
        samples.check([_sample(scalars=np.ones(1, np.int64))])


def test_arrays_of_many_samples_give_each_its_row():
    found = samples.from_arrays(
        mesh_points=POINTS,
        target=np.ones((3, 6)),
        scalars=np.arange(6.0).reshape(3, 2),
        target_scalars=np.arange(3.0),
    )
    assert_array_equal(found[2].scalars, [4, 5])
    assert_array_equal(found[2].target_scalars, [2])
    (bucket,) = samples.stack(found)
    assert bucket["scalars"].shape == (3, 2)
    padded = samples.pad(found[0], 8)
    assert padded["mesh_points"].shape == (8, 2)
    assert padded["scalars"].shape == (2,)
    with value_error("scalars has shape"):
        samples.from_arrays(mesh_points=POINTS, target=np.ones((3, 6)), scalars=[1.0])


def test_ranges_of_scalars_and_their_units():
    train = [_sample(scalars=np.array([v, 1], np.float32)) for v in (1, 3)]
    known = ranges.measure(train)
    inside = ranges.compare(known, _sample(scalars=np.array([2, 1], np.float32)))
    assert inside["scalars_outside"] == 0
    assert inside["scalars_beyond"] == {}
    far = _sample(scalars=np.array([2000, 1], np.float32))
    found = ranges.compare(known, far)
    assert found["scalars_outside"] == 0.5
    assert found["scalars_distance"] > 900
    assert "of the scalars lie outside" in ranges.sentence(found)
    assert found["scalars_beyond"] == {"scalars_0": {"value": 2000, "training": [1, 3]}}
    named = ranges.compare(known | {"names": {"scalars": ["load", "mach"]}}, far)
    assert list(named["scalars_beyond"]) == ["load"]
    assert "of its width: load = 2000 (1 to 3 in training)" in ranges.sentence(named)
    (note,) = ranges.other_units(known, [far], {"scalars": ["load", "mach"]})
    assert "scalar load is 2000 to 2000 here, and 1 to 3 in training" in note
    assert "scalars_outside" not in ranges.compare(
        ranges.measure([_sample()]), _sample()
    )


def test_coordinates_and_features_of_other_units_are_told_with_both_ranges():
    features = np.stack([np.linspace(1, 2, 6), np.zeros(6)], 1).astype(np.float32)
    known = ranges.measure([_sample(features=features)])
    names = {"features": ["k", "f"]}
    same = [_sample(features=0 * features), _sample(features=50 * features)]
    assert ranges.other_units(known, same, names) == []
    assert ranges.other_units(known, [_sample(features=0 * features)], names) == []
    far = Sample(1000 * POINTS, features=features / 1000)
    points, feature = ranges.other_units(known, [far], names)
    assert points.startswith("The coordinates are")
    assert f"{POINTS.min():g} to {POINTS.max():g} in training" in points
    assert "feature k is 0.001 to 0.002 here, and 1 to 2 in training" in feature
    (unnamed,) = ranges.other_units(known, [far._replace(mesh_points=POINTS)], {})
    assert "feature 0 is" in unnamed


PARTS = ["test", "train", "train", "validation", "train", "test"]


def _divided(folder, count=6):
    rows = [f"c{i}.npz,{part}" for i, part in zip(range(count), PARTS, strict=False)]
    _table(folder, rows, "file,split")


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_column_split_divides_samples_without_scalars(in_memory, tmp_path):
    folder = _files(tmp_path / "a")
    _divided(folder)
    for seed in range(3):
        found = files.splits(
            [folder], shares=files.Shares(seed=seed), in_memory=in_memory
        )
        names = [[s.name[-6:-4] for s in part] for part in found[:3]]
        assert names == [["c1", "c2", "c4"], ["c3"], ["c0", "c5"]]
    with value_error("split of cases.csv already names the test"):
        files.splits([folder], [_files(tmp_path / "b")], in_memory=in_memory)


def test_samples_without_a_part_are_not_left_out_silently(tmp_path):
    folder = _files(tmp_path / "a")
    _divided(folder, 4)
    with value_error("is missing for 2 of 6 samples"):
        files.splits([folder])
    assert len(files.read(folder)) == 6
    _divided(folder)
    with value_error("is missing for 3 of 9 samples"):
        files.splits([folder, _files(tmp_path / "b", 3)])


def test_tables_of_other_programs_are_passed_over_without_scalars(tmp_path):
    folder = _files(tmp_path / "a")
    for text in ("name,mach\nc0,1\n", "file,mach\nnone.npz,1\n", "", "a;b\n\xff"):
        (folder / "cases.csv").write_text(text, encoding="latin-1")
        assert len(files.splits([folder]).train) > 0
    _table(folder, ["c0.npz,learn"], "file,split")
    with value_error("split='learn'"):
        files.splits([folder])
