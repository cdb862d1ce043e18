import io
import zipfile

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from opjax.files import writing
from opjax.samples import Sample
from tests.datasets.reading import read, read_one, refused, save
from tests.refused import value_error

TRIANGLES = np.array([[0, 1, 2], [1, 3, 2], [2, 3, 4]])


@pytest.fixture
def arrays(rng):
    """Returns the arrays of one sample of five points in the plane."""
    return {
        "mesh_points": rng.uniform(size=(5, 2)),
        "features": rng.normal(size=(5, 3)),
        "target": rng.normal(size=(5, 1)),
        "quadrature_weights": rng.uniform(0.5, 1, 5),
        "cells": TRIANGLES,
    }


def grouped(**samples):
    """The arrays of several samples of one file."""
    return {f"{name}/{k}": a for name, one in samples.items() for k, a in one.items()}


def crafted(path, name, header, payload, declared=None):
    """Writes an archive with a member whose header says what it likes."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, header)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", stream.getvalue() + payload)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_all_arrays_arrive_in_single_precision(suffix, arrays, tmp_path):
    path = save(tmp_path / f"a{suffix}", arrays | {"grid_shape": [5]})
    sample = read_one(tmp_path)
    for name, array in arrays.items():
        read = getattr(sample, name)
        assert read.dtype == (np.int64 if name == "cells" else np.float32)
        assert_array_equal(read, array.astype(read.dtype))
    assert sample.grid_shape == (5,)
    assert sample.name == str(path)


def test_groups_of_one_file_are_samples_in_the_order_of_their_names(arrays, tmp_path):
    other = arrays | {"target": arrays["target"] + 1}
    save(tmp_path / "all.h5", grouped(b=other, a=arrays))
    first, second = files.read(tmp_path / "all.h5")
    assert [first.name, second.name] == [str(tmp_path / "all.h5" / n) for n in "ab"]
    assert_allclose(second.target, first.target + 1, rtol=1e-6)


def test_files_come_in_the_order_of_their_names_from_folders_and_patterns(
    arrays, tmp_path
):
    for name in ("c", "a", "b"):
        save(tmp_path / f"{name}.npz", arrays)
    (tmp_path / "notes.txt").write_text("passed over")
    names = [str(tmp_path / f"{name}.npz") for name in "abc"]
    assert [sample.name for sample in files.read(tmp_path)] == names
    assert list(map(str, files.find(tmp_path / "[ab].npz"))) == names[:2]
    assert list(map(str, files.find([names[2], tmp_path / "a.npz"]))) == names[::2]


def test_fields_of_any_name_are_joined_in_the_order_asked_for(arrays, tmp_path):
    arrays |= {"k": np.arange(5), "wind": arrays.pop("features"), "on": np.eye(5)[0]}
    save(tmp_path / "a.npz", arrays | {"on": arrays["on"].astype(bool)})
    sample = read_one(tmp_path, features="k, wind", target=["on"])
    assert_array_equal(sample.features[:, 0], np.arange(5))
    assert_allclose(sample.features[:, 1:], arrays["wind"], rtol=1e-6)
    assert_array_equal(sample.target, [[1], [0], [0], [0], [0]])


def test_a_target_may_be_missing_where_it_is_to_be_predicted(arrays, tmp_path):
    save(tmp_path / "a.npz", arrays)
    sample = read_one(tmp_path, target="u,v", need_target=False)
    assert sample.target is None
    refused(tmp_path / "a.npz", "has no array 'u', only .*'target'", target="u,v")
    del arrays["target"]
    save(tmp_path / "a.npz", arrays)
    assert files.read(tmp_path)[0].target is None


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_a_written_prediction_lies_beside_all_that_was_there(suffix, arrays, tmp_path):
    path = save(tmp_path / f"a{suffix}", arrays | {"note": np.arange(3)})
    sample = read_one(path)
    out = tmp_path / "out" / path.name
    prediction = np.arange(15.0, dtype=np.float32).reshape(5, 3)
    files.write(out, sample, prediction, names=("u", "u", "p"))
    again = read_one(out, features="u,p")
    assert_array_equal(again.features, prediction)
    kept = (
        np.load(out)["note"] if suffix == ".npz" else h5py.File(out, "r")["note"][()]  # pyright: ignore
    )
    assert_array_equal(kept, np.arange(3))
    assert_array_equal(again.cells, sample.cells)


def test_groups_are_written_one_by_one_and_again(arrays, tmp_path):
    save(tmp_path / "all.h5", grouped(a=arrays, b=arrays))
    samples, out = files.read(tmp_path / "all.h5"), tmp_path / "out.h5"
    for value in (1, 2):
        for sample in samples:
            files.write(out, sample, np.full((5, 1), value, np.float32))
    for sample in read(out, target="prediction"):
        assert_array_equal(sample.target, np.full((5, 1), 2))
        assert_array_equal(sample.features, samples[0].features)


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_samples_from_nowhere_are_written_and_read_back(suffix, arrays, tmp_path):
    given = {k: v.astype(np.float32) for k, v in arrays.items() if k != "cells"}
    sample = Sample(**given, cells=TRIANGLES, grid_shape=(5, 1))
    files.write(tmp_path / f"a{suffix}", sample)
    read = read_one(tmp_path)
    for name, value in sample._asdict().items():
        if name != "name":
            assert_array_equal(getattr(read, name), value)


def square_weights(cells, points):
    """Sums areas and volumes one by one, by the shoelace formula or a determinant."""
    weights = np.zeros(len(points))
    for cell in cells:
        x = points[cell]
        if len(cell) == 4 and points.shape[1] == 3:
            volume = abs(np.linalg.det(x[1:] - x[0])) / 6
        else:
            y = np.roll(x, -1, axis=0)
            volume = abs(np.sum(x[:, 0] * y[:, 1] - y[:, 0] * x[:, 1])) / 2
        weights[cell] += volume / len(cell)
    return weights


def test_weights_from_cells_are_lumped_masses(tmp_path):
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [2, 0.0]])
    cube = np.array([[0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3], [1, 2, 3.0]])
    cases = [
        (square, np.array([[0, 1, 2], [0, 2, 3]])),
        (square, np.array([[0, 1, 2, 3]])),
        (cube, np.array([[0, 1, 2, 3], [1, 2, 3, 4]])),
    ]
    for points, cells in cases:
        save(tmp_path / "a.npz", {"mesh_points": points, "cells": cells})
        sample = read_one(tmp_path, quadrature=True)
        assert_allclose(
            sample.quadrature_weights, square_weights(cells, points), rtol=1e-6
        )
    save(tmp_path / "a.npz", {"mesh_points": np.arange(4.0), "cells": [[0, 1], [1, 2]]})
    sample = read_one(tmp_path, quadrature=True)
    assert_allclose(sample.quadrature_weights, [0.5, 1, 0.5, 0])


def test_weights_of_the_file_come_before_those_of_its_cells(arrays, tmp_path):
    save(tmp_path / "a.npz", arrays)
    sample = read_one(tmp_path, quadrature=True)
    expected = arrays["quadrature_weights"].astype(np.float32)
    assert_array_equal(sample.quadrature_weights, expected)
    del arrays["quadrature_weights"]
    path = save(tmp_path / "a.npz", arrays | {"cells": np.arange(10).reshape(2, 5) % 5})
    refused(path, "cells with 5 corners in 2 dimensions", quadrature=True)
    del arrays["cells"]
    save(path, arrays)
    refused(path, "neither quadrature_weights nor cells", quadrature=True)


def test_coinciding_points_are_counted_in_a_warning(arrays, tmp_path):
    path = save(tmp_path / "a.npz", arrays)
    save(tmp_path / "b.npz", arrays | {"mesh_points": arrays["mesh_points"] + 1e8})
    with pytest.warns(UserWarning, match="4 points in 1 of 2 samples.*b.npz") as seen:
        files.read(tmp_path)
    assert path.name not in str(seen[0].message)


def test_missing_and_misnamed_files_are_refused(arrays, tmp_path):
    with pytest.raises(FileNotFoundError, match="No files were passed"):
        files.read([])
    with pytest.raises(FileNotFoundError, match=r"no .npz.* but 0 others"):
        files.read(tmp_path)
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(FileNotFoundError, match=r"1 others \['.csv'\]"):
        files.read(tmp_path)
    refused(tmp_path / "a.csv", "unknown suffix '.csv'")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        files.read(tmp_path / "x*.npz")
    save(tmp_path / "a.npz", arrays)
    save(tmp_path / "b.h5", arrays)
    refused(tmp_path, r"1 .npz, 1 .h5 files.*/\*.npz'")


def test_disagreeing_samples_are_named_both(arrays, tmp_path):
    save(tmp_path / "a.npz", arrays)
    for change, words in (
        ({"features": np.zeros((5, 2))}, "3 channels of features, .* 2 channels"),
        ({"mesh_points": np.eye(5)[:, :3]}, "2 channels of mesh_points, .* 3 channels"),
        ({"quadrature_weights": None}, "has quadrature_weights, .* no"),
        ({"target": None}, "1 channels of target, .* no"),
    ):
        other = {k: v for k, v in (arrays | change).items() if v is not None}
        path = save(tmp_path / "b.npz", other)
        with value_error(words) as info:
            files.read(tmp_path)
        assert str(path) in str(info.value)
        assert str(tmp_path / "a.npz") in str(info.value)


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_arrays_that_are_no_sample_are_named(suffix, arrays, tmp_path):
    path = tmp_path / f"a{suffix}"
    nan = arrays["features"] * np.where(np.arange(3) == 1, np.nan, 1)
    words = np.array([b"a"] * 5)
    cases = [
        ({"features": nan}, "features has 5 non-finite values.* point 0"),
        ({"features": arrays["features"] * 1e300}, "non-finite"),
        ({"features": arrays["features"] * 1j}, "complex128, expected real.*imaginary"),
        ({"features": words}, "dtype .*S1.*expected real"),
        ({"features": np.zeros((4, 3))}, "features has 4 rows, but mesh_points 5"),
        ({"features": np.zeros((5, 3, 2))}, r"\(5, 3, 2\), expected \(n, channels\)"),
        ({"mesh_points": np.zeros((0, 2))}, "0"),
        ({"cells": np.full((2, 3), np.nan)}, "cells must be point indices.* float64"),
        ({"cells": [[0, 1, 5]]}, "indices from 0 to 5, .* 0 to 4"),
        ({"cells": [[0, 1, -1]]}, "indices from -1 to 1"),
        ({"grid_shape": [2.5, 2]}, "grid_shape must be integers"),
        (
            {"grid_shape": [2, 2]},
            r"grid_shape \(2, 2\) has 4 points, but mesh_points has 5",
        ),
        ({"quadrature_weights": -np.ones(5)}, "non-negative"),
        ({"quadrature_weights": np.ones((5, 1))}, r"\(5, 1\), expected \(n,\)"),
    ]
    for change, words in cases:
        refused(save(path, arrays | change), words)
    only = {name: arrays[name] for name in ("features", "target")}
    refused(save(path, only), r"no array 'mesh_points', only \['features', 'target'\]")
    refused(save(path, {"mesh_points": np.zeros((0, 2))}), "the mesh is empty")


def test_pickled_arrays_are_refused_unread(arrays, tmp_path):
    path = tmp_path / "a.npz"
    save(path, arrays | {"features": np.array([{}, 1, 2, 3, 4], object)})
    refused(path, "pickled Python objects, which can execute code")
    assert read(path, features="target")[0].features is not None  # unasked, unread


def test_variable_length_arrays_of_hdf5_are_refused(arrays, tmp_path):
    path = save(tmp_path / "a.h5", arrays)
    with h5py.File(path, "a") as file:
        del file["features"]
        file.create_dataset("features", (5,), h5py.vlen_dtype(np.float64))
    refused(path, "dtype object, expected real")


def test_what_lies_about_its_size_is_refused_before_it_is_allocated(tmp_path):
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**11, 2)}
    path = crafted(tmp_path / "a.npz", "mesh_points", header, b"12345678")
    refused(path, "needs 1600000000000 bytes, but it has 8")
    bomb = np.zeros((10**6, 2))
    np.savez_compressed(path, mesh_points=bomb)
    assert path.stat().st_size < 10**5
    refused(path, "take 16000128 bytes, above the limit of 1000000", max_bytes=10**6)
    path = tmp_path / "b.h5"
    with h5py.File(path, "w") as file:
        options = {"chunks": (1000, 2), "compression": "gzip"}
        file.create_dataset("mesh_points", (10**11, 2), np.float64, **options)
    refused(path, "'mesh_points' take 1600000000000 bytes")


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize("kept", [0, 0.1, 0.5, 0.9])
def test_truncated_files_are_refused(suffix, kept, arrays, tmp_path):
    path = save(tmp_path / f"a{suffix}", arrays)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    refused(path, "seems damaged")


def test_a_flipped_bit_is_noticed(arrays, tmp_path):
    path = save(tmp_path / "a.npz", arrays)
    content = bytearray(path.read_bytes())
    content[content.index(b"features.npy") + 200] ^= 1
    path.write_bytes(content)
    refused(path, "'features'.*CRC")


def test_hdf5_files_reach_nowhere_else(arrays, tmp_path):
    save(tmp_path / "secret.h5", arrays)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["mesh_points"] = h5py.ExternalLink("secret.h5", "mesh_points")
    refused(path, "'mesh_points' is not an array stored in this file")
    with h5py.File(path, "w") as file:
        file["group/mesh_points"] = arrays["mesh_points"]
        file["target"] = arrays["target"]
    refused(path, r"groups \['group'\] and arrays \['target'\]")


def test_writing_refuses_what_would_lose_something(arrays, tmp_path):
    path = save(tmp_path / "a.npz", arrays)
    sample = read_one(path)
    good, out = np.zeros((5, 2), np.float32), tmp_path / "out.npz"
    with value_error("is the source file"):
        files.write(path, sample, good)
    with value_error(r"already has the fields \['target'\]"):
        files.write(out, sample, good, names=("target", "p"))
    with value_error("must have the suffix .npz"):
        files.write(tmp_path / "out.h5", sample, good)
    with value_error("unknown suffix '.csv'"):
        files.write(tmp_path / "out.csv", sample, good)
    with value_error(r"shape \(4, 2\), expected \(5, channels\)"):
        files.write(out, sample, good[:4])
    with value_error(r"names=\['p'\] must name the 2 channels"):
        files.write(out, sample, good, names=("p",))
    with pytest.raises(FileNotFoundError, match="missing.npz"):
        files.write(out, sample, good, source=tmp_path / "missing.npz")
    with value_error("a different mesh"):
        files.write(out, sample._replace(mesh_points=good[:4]), good[:4])
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".vtu", ".vtk"])
def test_extended_files_are_read_once_and_keep_everything(
    suffix, arrays, tmp_path, monkeypatch
):
    if suffix in (".vtu", ".vtk"):
        pytest.importorskip("pyvista", reason="needs opjax[vtk]")
    path, out = tmp_path / f"a{suffix}", tmp_path / "out" / f"a{suffix}"
    fields = {"features": arrays["features"], "later": arrays["target"]}
    files.write(path, Sample(np.asarray(arrays["mesh_points"], np.float32)))
    with files.extended(path, path.with_stem("b")) as (each,):
        each.add(fields["features"], ["wind"] * 3)
    path = path.with_stem("b")
    opened = []
    original = writing.opened
    monkeypatch.setattr(
        writing, "opened", lambda *given: opened.append(given) or original(*given)
    )
    with files.extended(
        path, out, files.ReadOptions(features="wind", need_target=False)
    ) as (each,):
        assert each.sample.name == str(path)
        assert not out.exists()
        with value_error(r"already has the fields \['wind'\]"):
            each.add(fields["features"], ["wind"] * 3)
        each.add(2 * fields["features"], ["u", "u", "p"])
    assert len(opened) == 1
    again = read_one(out, features="u,p", target="wind")
    assert_allclose(again.features, 2 * fields["features"], rtol=1e-6)
    assert_allclose(again.target, fields["features"], rtol=1e-6)
    with pytest.raises(RuntimeError), files.extended(path, path.with_stem("c")):
        raise RuntimeError
    assert not path.with_stem("c").exists()
    assert not list(tmp_path.rglob(".*"))


def test_groups_of_an_extended_file_are_kept_with_the_rest(arrays, tmp_path):
    path, out = tmp_path / "all.h5", tmp_path / "out.h5"
    save(path, grouped(one=arrays, two=arrays))
    with h5py.File(path, "a") as file:
        file.attrs["unit"] = "m"
    with files.extended(path, out) as samples:
        for value, each in enumerate(samples):
            each.add(np.full((5, 1), value, np.float32))
    for value, sample in enumerate(read(out, target="prediction")):
        assert_array_equal(sample.target, np.full((5, 1), value))
    with h5py.File(out) as file:
        assert file.attrs["unit"] == "m"


def test_splits_name_the_channels_of_the_first_file(arrays, tmp_path):
    for name in "abcdef":
        save(tmp_path / f"{name}.npz", arrays | {"wind": np.ones((5, 2))})
    found = files.splits(
        [tmp_path], options=files.ReadOptions(features="features,wind")
    )
    assert found.channels == {
        "features": ("features",) * 3 + ("wind",) * 2,
        "target": ("target",),
    }
    on_disk = files.splits(
        [tmp_path], options=files.ReadOptions(features="wind"), in_memory=False
    )
    assert on_disk.channels == {"features": ("wind",) * 2, "target": ("target",)}


def test_coordinates_in_arrays_of_their_own_are_named_and_stacked(tmp_path):
    x, y, u = np.random.default_rng(0).random((3, 7))
    said = r"arrays x and y look like coordinates: stack .*column_stack\(\[x, y\]\)"
    for given in ((x, y, u), (x[:, None], y[:, None], u[:, None])):
        names = dict(zip(("x", "y", "u"), given, strict=True))
        path = save(tmp_path / "a.npz", names)
        for axes in (0, 1):
            refused(path, said, target="u", grid_axes=axes)
        save(path, {"u": u, "mesh_points": np.column_stack(given[:2])})  # as it says
        assert_array_equal(
            read_one(path, target="u").mesh_points,
            np.stack([x, y], 1, dtype=np.float32, casting="same_kind"),
        )
    grid = save(tmp_path / "a.npz", {"x": x, "y": y, "u": np.outer(x, y)})
    assert read_one(grid, target="u", grid_axes=2).num_points == 49
    # Where they are called fields, they are: input and output are often x and y.
    line = save(tmp_path / "a.npz", {"x": x, "y": y, "u": u})
    assert_allclose(
        read_one(line, features="x", target="y", grid_axes=1).target[:, 0], y, rtol=1e-6
    )
