"""Published operators that rot on disk or in transfer: refused, never misread."""

import json
import re
import shutil

import jax
import numpy as np
import pytest

from opjax import _formats, learn
from opjax.learn.cli import publish
from opjax.learn.predict import published
from opjax.training import _manifest, checkpoint
from tests.learn.test_predict import make, operator

READ = (published.CONFIG, published.WEIGHTS, published.EXAMPLE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("published"), np.random.default_rng(0)
    operator(rng, root / "run").save(root / "run")
    options = publish.PublishOptions(root / "run", root / "whole")
    publish.run(options, [make(rng, 20)])
    return root / "whole"


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def same(found, expected):
    one, other = (jax.tree.leaves((o.config, o.arrays)) for o in (found, expected))
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def resign(folder, **changes):
    """Changes `config.json` and signs it again."""
    config = json.loads((folder / "config.json").read_text())
    del config["own"]
    (folder / "config.json").write_text(_manifest.signed(config | changes))


@pytest.mark.parametrize("name", READ)
def test_whatever_bit_flips_or_end_is_missing_nothing_wrong_is_loaded(copy, name):
    file, rng = copy / name, np.random.default_rng(1)
    whole, content = published.read(copy), file.read_bytes()
    refused = 0
    for _ in range(80):
        damaged = bytearray(content)
        if rng.random() < 0.3:
            del damaged[rng.integers(len(damaged)) :]
        else:
            damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        file.write_bytes(damaged)
        try:
            assert same(published.read(copy), whole)  # a flip of a space
        except (checkpoint.CheckpointError, ValueError):
            refused += 1
    assert refused == 80 or (name == published.CONFIG and refused > 40)


@pytest.mark.parametrize("name", READ)
def test_a_missing_file_is_named(copy, name):
    (copy / name).unlink()
    with pytest.raises(checkpoint.CheckpointError, match=f"{name} .*missing"):
        learn.load(copy)


def test_an_example_that_changed_after_loading_is_refused(copy):
    trained = learn.load(copy)
    file = copy / published.EXAMPLE
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(checkpoint.CheckpointError, match="does not match its checksum"):
        trained.example()


def test_later_formats_are_refused_with_both_numbers(copy):
    resign(copy, format=7)
    with pytest.raises(_formats.NewerFormatError, match="format 7 .* up to 1"):
        learn.load(copy)
    resign(copy, format="one")
    with pytest.raises(ValueError, match="'one' is not a format number"):
        learn.load(copy)


@pytest.mark.parametrize("change", ["extra", "missing", "shape", "dtype"])
def test_tensors_that_do_not_belong_to_the_model_are_refused(copy, change):
    from safetensors import numpy as safetensors

    arrays = published.read(copy).arrays
    name = next(iter(sorted(arrays)))
    if change == "extra":
        arrays["more"] = np.ones(3, np.float32)
    elif change == "missing":
        del arrays[name]
    elif change == "shape":
        arrays[name] = np.ones((1, 2, 3), arrays[name].dtype)
    else:
        arrays[name] = arrays[name].astype(np.float64)
    (copy / published.WEIGHTS).write_bytes(safetensors.save(arrays))
    names = (published.WEIGHTS, published.EXAMPLE)
    resign(copy, files={n: published._stamp(copy / n) for n in names})
    with pytest.raises(checkpoint.CheckpointError, match="more|lacks|shape|dtype"):
        learn.load(copy)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("channels.target", None, "a whole number from 0"),
        ("channels.features", "two", "a whole number from 0"),
        ("sizes.box", [[0.0, 0.0]], "a list of 2"),
        ("sizes.num_points", -1, "a whole number from 0"),
        ("layout.decoder_norm", 1, "true or false"),
        ("names.features", [None], "a text"),
        ("ranges.features", [[0.0, "1"], [1.0, 2.0]], "a finite number"),
        ("rounding.features", float("inf"), "a finite number"),
        ("seen", {}, "a list"),
        ("config.scales", None, "a text"),
        ("config.width", "wide", "the form of 64"),
    ],
)
def test_fields_of_a_wrong_type_are_named_with_what_is_expected(
    path, value, expected, copy
):
    operator = published.read_config(copy)["operator"]
    part, *names = operator, *path.split(".")
    for name in names[:-1]:
        part = part[name]
    part[names[-1]] = value
    resign(copy, operator=operator)
    field = rf"config\.json .*{re.escape(path.removeprefix('config.'))}.*"
    with pytest.raises(checkpoint.CheckpointError, match=f"{field}{expected}"):
        learn.load(copy)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"channels": {"mesh_points": 2, "features": 1, "target": 9}}, "target=9.*=1"),
        ({"names": {"features": ["a", "b"]}}, "features has 2 names, expected 1"),
        ({"sizes": {}}, "sizes has no feature_dim"),
        ({"layout": {"other": True}}, "layout has the unknown field other"),
    ],
)
def test_fields_that_contradict_others_are_refused(change, words, copy):
    operator = published.read_config(copy)["operator"]
    resign(copy, operator=operator | change)
    with pytest.raises(checkpoint.CheckpointError, match=words):
        learn.load(copy)


def test_files_that_nobody_wrote_are_not_listed(copy):
    resign(copy, files={"../other": {}})
    with pytest.raises(checkpoint.CheckpointError, match="unknown files"):
        learn.load(copy)
