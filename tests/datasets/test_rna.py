import logging

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from opjax import point_clouds, samples
from opjax.datasets import rna
from opjax.samples import Sample
from tests.refused import value_error


@pytest.fixture
def surfaces(rng):
    """Returns five surfaces of 12 to 20 vertices."""
    return [
        Sample(
            rng.normal(size=(n, 3)).astype(np.float32) * 30 + 100,
            rng.integers(260, size=n, dtype=np.int32),
            name=f"{n}_A",
        )
        for n in (12, 20, 15, 13, 14)
    ]


@pytest.fixture
def folder(tmp_path, surfaces):
    rna.save(tmp_path / "rna", surfaces[:3], surfaces[3:])
    return tmp_path / "rna"


def load(folder, **options):
    options = {"num_points": 13, "cache_dir": folder.parent / "cache"} | options
    return rna.load(folder, **options)


def test_what_is_saved_is_loaded(folder, surfaces):
    train, test = load(folder, num_points=1000)
    assert [s.name for s in train] == ["12_A", "20_A", "15_A"]
    for found, expected in zip([*train, *test], surfaces, strict=True):
        assert_array_equal(found.mesh_points, expected.mesh_points)
        assert_array_equal(found.target, expected.target)
        assert found.mesh_points.dtype == np.float32
        assert found.target.dtype == np.int32


def test_meshes_are_sampled_and_small_ones_keep_their_size(folder, surfaces):
    train, test = load(folder)
    assert [s.num_points for s in [*train, *test]] == [12, 13, 13, 13, 13]
    rows = point_clouds.farthest_points(surfaces[1].mesh_points, num_samples=13)
    assert_array_equal(train[1].mesh_points, surfaces[1].mesh_points[rows])
    assert_array_equal(train[1].target, surfaces[1].target[rows])
    (bucket,) = samples.stack(train, num_buckets=1)
    counts = np.count_nonzero(bucket["quadrature_weights"], axis=1)
    assert counts.tolist() == [12, 13, 13]


def test_small_meshes_are_filled_up_with_repeated_vertices_on_demand(folder):
    (small, *_), _ = load(folder, replace=True)
    assert small.num_points == 13
    (again, *_), _ = load(folder, replace=True)
    assert_array_equal(small.mesh_points, again.mesh_points)
    repeated = (small.mesh_points[12] == small.mesh_points[:12]).all(axis=1)
    assert repeated.sum() == 1
    assert small.target[12] == small.target[:12][repeated]


def test_the_choice_of_points_is_cached_for_these_meshes(folder, monkeypatch):
    first = load(folder)
    monkeypatch.setattr(rna, "_choose", None)  # would be called
    again = load(folder)
    assert_array_equal(first[0][1].mesh_points, again[0][1].mesh_points)
    path = folder / "off" / "20_A.off"
    path.write_text(path.read_text().replace("1", "2", 1).replace("22", "20", 1))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], "1.0 2.0 3.0"]))
    with pytest.raises(TypeError):
        load(folder)


def test_only_the_surfaces_asked_for_are_read(folder):
    (folder / "off" / "15_A.off").unlink()
    train, test = load(folder, num_train=2, num_test=1)
    assert [s.name for s in [*train, *test]] == ["12_A", "20_A", "13_A"]
    with value_error("3 surfaces, but 4 were requested"):
        load(folder, num_train=4)


def test_other_counts_than_published_are_reported(folder, caplog):
    load(folder)
    assert "train.txt names 3 surfaces, 547 were published" in caplog.text
    assert "test.txt names 2 surfaces, 136 were published" in caplog.text


def test_coinciding_vertices_are_reported_and_kept(folder, caplog):
    path = folder / "off" / "13_A.off"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[2]]))
    with caplog.at_level(logging.INFO):
        _, test = load(folder)
    assert "1 of 2 meshes have coinciding vertices, 1 in all" in caplog.text
    assert test[0].num_points == 13


@pytest.mark.parametrize(
    "text",
    [
        "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1.5e0 0\n3 0 1 2\n",
        "OFF 3 1 0\n0 0 0\n1 0 0\n0 1.5 0\n3 0 1 2",
        "# a comment\nOFF # more\n\n3 1 3\n0 0 0 1 0 0 # two\n0 1.5 0\n3 0 1 2 9 0 0\n",
        "OFF\r\n3 0 0\r\n0 0 0\r\n1 0 0\r\n0 1.5 0\r\n",
        "\ufeffOFF\n3 0 0\n0 0 0\n1 0 0\n0 1.5 0\n",
    ],
)
def test_off_files_of_any_layout_are_read(text, folder):
    (folder / "off" / "13_A.off").write_text(text, encoding="utf-8")
    (folder / "labels" / "13_A.txt").write_text("-1\n258\n0\n")
    _, (surface, _) = load(folder)
    assert_array_equal(surface.mesh_points, [[0, 0, 0], [1, 0, 0], [0, 1.5, 0]])
    assert_array_equal(surface.target, [0, 259, 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ply\n1 0 0\n0 0 0\n", "begins with 'ply 1 0 0', expected the word OFF"),
        ("", "begins with ''"),
        ("OFF\n2 x 0\n", "'2 x 0' after OFF"),
        ("OFF\n2", "'2' after OFF"),
        ("OFF\n0 0 0\n", "has no vertices"),
        ("OFF\n2 0 0\n0 0 0\n1 0\n", "truncated.*5 of 6 coordinates"),
        ("OFF\n1 1 0\n0 0 0\n3 0 0", "truncated.*3 of at least 4"),
        ("OFF\n1 0 0\n0 0 zero\n", "not a number.*zero"),
        ("OFF\n2 0 0\n0 0 0\n0 nan 0\n", "1 non-finite vertices.*vertex 1"),
        ("OFF\n1 0 0\n0 0 1e60\n", "1 non-finite vertices.*1e\\+60"),
    ],
)
def test_damaged_surfaces_are_refused(text, message, folder):
    (folder / "off" / "13_A.off").write_text(text)
    (folder / "labels" / "13_A.txt").write_text("0\n" * (2 if "2 0 0" in text else 1))
    with value_error(message):
        load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n" * 12, "13 vertices, but .* has 12 labels"),
        ("0\n" * 12 + "259\n", "outside -1 to 258, the first one is 259 at vertex 12"),
        ("-2\n" + "0\n" * 12, "the first one is -2 at vertex 0"),
        ("0.5\n" + "0\n" * 12, "not an integer.*0.5"),
    ],
)
def test_damaged_labels_are_refused(text, message, folder):
    (folder / "labels" / "13_A.txt").write_text(text)
    with value_error(message):
        load(folder)


def test_a_file_that_is_no_text_is_refused(folder):
    (folder / "off" / "13_A.off").write_bytes(b"OFF BINARY\n\xff\xfe")
    with value_error("not a text file"):
        load(folder)


def test_missing_files_are_named(folder, tmp_path):
    (folder / "off" / "12_A.off").unlink()
    (folder / "labels" / "15_A.txt").unlink()
    with pytest.raises(FileNotFoundError, match="lacks 2 files of the 3") as error:
        load(folder)
    assert "off/12_A.off" in str(error.value)
    assert "labels/15_A.txt" in str(error.value)
    with pytest.raises(FileNotFoundError, match="rna_train_4096.npz") as error:
        load(tmp_path / "nothing")
    assert "train.txt" in str(error.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("13_A.off\n13_A.off\n", r"duplicates \['13_A'\]"),
        ("../13_A.off\n", "with folders"),
        ("\n", "0 lines"),
        ("12_A.off\n", "1 surfaces in both the training and the test set: 12_A"),
    ],
)
def test_bad_lists_are_refused(lines, message, folder):
    (folder / "test.txt").write_text(lines)
    with value_error(message):
        load(folder)


def write_samples(folder, **changes):
    rng = np.random.default_rng(0)
    for split, count in (("train", 3), ("test", 2)):
        arrays = {
            "points": rng.normal(size=(count, 8, 3)).astype(np.float32),
            "labels": rng.integers(-1, 259, size=(count, 8)).astype(np.int16),
            "names": np.array([f"{split}{i}.off" for i in range(count)]),
        }
        np.savez(folder / f"rna_{split}_4096.npz", **(arrays | changes))
    return arrays


def test_sampled_files_are_loaded_from_the_start(tmp_path):
    arrays = write_samples(tmp_path)
    train, test = rna.load(tmp_path, num_points=5, num_train=2)
    assert [s.name for s in [*train, *test]] == ["train0", "train1", "test0", "test1"]
    assert_array_equal(test[1].mesh_points, arrays["points"][1, :5])
    assert_array_equal(test[1].target, arrays["labels"][1, :5] + 1)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"num_points": 9}, "8 points per surface, but num_points=9"),
        ({}, {"num_test": 3}, "2 surfaces, but 3 were requested"),
        ({"points": np.zeros((3, 3, 8))}, {}, "shape"),
        ({"labels": np.zeros((3, 7), int)}, {}, "shape"),
        ({"labels": np.full((3, 8), 259)}, {}, "below 260"),
        ({"labels": np.full((3, 8), -2)}, {}, "at least 0"),
        ({"points": np.full((3, 8, 3), np.nan)}, {}, "non-finite"),
        ({"names": np.array(["a", "b"])}, {}, "names"),
        ({"names": np.arange(3)}, {}, "strings"),
    ],
)
def test_damaged_sampled_files_are_refused(changes, options, message, tmp_path):
    write_samples(tmp_path, **changes)
    with value_error(message):
        rna.load(tmp_path, **({"num_points": 8} | options))


def test_bad_samples_are_not_saved(tmp_path, surfaces):
    with value_error("both the training and the test set"):
        rna.save(tmp_path, surfaces, surfaces[:1])


def test_accuracies_without_learning_are_those_of_a_direct_search():
    surfaces = rna.generate(7, seed=0, num_points=60)
    train, test = surfaces[:4], surfaces[4:]
    found = rna.untrained(train, test, num_points=25)
    classes = np.concatenate([s.target for s in train])
    true = np.concatenate([s.target for s in test])
    most = np.bincount(classes).argmax()
    assert found["most_frequent"] == pytest.approx(np.mean(true == most))
    known = np.concatenate([s.mesh_points[:25] for s in train])
    known_classes = np.concatenate([s.target[:25] for s in train])
    queries = np.concatenate([s.mesh_points[:25] for s in test])
    queried = np.concatenate([s.target[:25] for s in test])
    nearest = np.linalg.norm(queries[:, None] - known[None], axis=2).argmin(axis=1)
    expected = np.mean(known_classes[nearest] == queried)
    assert found["nearest_neighbour"] == pytest.approx(expected)


def test_vertices_have_the_nearest_of_the_first_points(folder, surfaces, tmp_path):
    _, test = rna.load(folder, num_points=30, cache_dir=tmp_path)
    sample = rna.with_vertices(folder, test, num_points=12)[0]
    (mesh,) = [s for s in surfaces if s.name == sample.name]
    assert_array_equal(sample.details.target, mesh.target)
    offsets = mesh.mesh_points[:, None] - sample.mesh_points[None, :12]
    nearest = np.linalg.norm(offsets, axis=2).argmin(axis=1)
    assert_array_equal(sample.details.nearest, nearest)
    assert rna.with_vertices(tmp_path, test, num_points=12) == test


def test_published_meshes_give_the_published_samples(shared_dir, tmp_path):
    meshes = rna.read_meshes(shared_dir / "data/rna/raw", "test")
    _, known = rna.load(shared_dir / "data/rna", num_train=1)
    (sampled,) = rna.sample_meshes(meshes[:1], num_points=300, cache_dir=tmp_path)
    (expected,) = (s for s in known if s.name == sampled.name)
    assert_array_equal(sampled.mesh_points, expected.mesh_points[:300])
    assert_array_equal(sampled.target, expected.target[:300])


def test_the_published_folder_has_a_mesh_of_fewer_than_4096_vertices(shared_dir):
    meshes = rna.read_meshes(shared_dir / "data/rna/raw", "train")
    sizes = {mesh.name: mesh.num_points for mesh in meshes}
    assert sizes["1ML5_b"] == 1447
    assert all(m.target.min() >= 0 and m.target.max() < 260 for m in meshes)
