import errno
import logging
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from opjax.datasets import cache
from tests.refused import value_error

RECIPE = {"version": 1, "seed": 0}


class Builder:
    """Builds two arrays and counts how often."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {"x": np.arange(600.0).reshape(20, 30), "n": np.int32(7)}


@pytest.fixture
def build():
    return Builder()


def call(build, folder, **recipe):
    return cache.cached(build, name="test", recipe=RECIPE | recipe, cache_dir=folder)


def the_file(folder):
    (path,) = pathlib.Path(folder).glob("*.npz")
    return path


def assert_is_built(arrays):
    assert sorted(arrays) == ["n", "x"]
    for key, expected in Builder()().items():
        np.testing.assert_array_equal(arrays[key], expected)
        assert arrays[key].dtype == expected.dtype


def test_a_recipe_is_built_once_and_then_read(build, tmp_path):
    for _ in range(3):
        assert_is_built(call(build, tmp_path / "new" / "folder"))
    assert build.calls == 1


def test_every_change_of_the_recipe_builds_anew(build, tmp_path):
    for change in ({}, {"seed": 1}, {"version": 2}, {"more": None}):
        call(build, tmp_path, **change)
    assert build.calls == len(list(tmp_path.glob("*.npz"))) == 4


def test_the_order_of_the_recipe_does_not_matter(tmp_path):
    turned = dict(reversed(RECIPE.items()))
    paths = {
        cache.cache_path(name="test", recipe=recipe, cache_dir=tmp_path)
        for recipe in (RECIPE, turned)
    }
    assert len(paths) == 1


def test_the_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("OPJAX_CACHE", str(tmp_path))
    assert cache.cache_path(name="test", recipe=RECIPE).parent == tmp_path
    monkeypatch.delenv("OPJAX_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = tmp_path / ".cache" / "opjax"
    assert cache.cache_path(name="test", recipe=RECIPE).parent == expected


def truncate(path):
    path.write_bytes(path.read_bytes()[:-200])


def empty(path):
    path.write_bytes(b"")


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def exchange_the_array(path):
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | {"x": arrays["x"] + 1}))


def drop_the_checksum(path):
    np.savez(path, **Builder()())


def pickle_an_object(path):
    np.savez(path, x=np.array([object()]), _sha256=np.array("0"))


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        empty,
        flip_a_bit,
        exchange_the_array,
        drop_the_checksum,
        pickle_an_object,
    ],
)
def test_a_damaged_file_is_reported_and_rebuilt(damage, build, tmp_path, caplog):
    call(build, tmp_path)
    damage(the_file(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert_is_built(call(build, tmp_path))
    assert "Rebuilding" in caplog.text
    assert str(tmp_path) in caplog.text
    assert_is_built(call(build, tmp_path))
    assert build.calls == 2


def test_an_unusable_folder_costs_only_a_warning(build, tmp_path, caplog):
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        assert_is_built(call(build, tmp_path / "file" / "folder"))
    (record,) = caplog.records
    assert "$OPJAX_CACHE or --cache_dir" in record.getMessage()


def test_a_full_disk_costs_only_a_warning(build, tmp_path, caplog, monkeypatch):
    def fail(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with caplog.at_level(logging.WARNING):
        assert_is_built(call(build, tmp_path))
    assert "No space left on device" in caplog.text
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize("missing", ["module", "support"])
def test_a_system_without_locks_is_no_obstacle(missing, build, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if missing == "module":
        monkeypatch.setattr(cache, "fcntl", None)
    else:
        monkeypatch.setattr(cache.fcntl, "flock", fail)
    for _ in range(2):
        assert_is_built(call(build, tmp_path))
    assert build.calls == 1


def test_an_error_of_the_builder_is_passed_on_and_leaves_no_file(build, tmp_path):
    def fail():
        raise OSError("no luck")

    with pytest.raises(OSError, match="no luck"):
        call(fail, tmp_path)
    assert not list(tmp_path.glob("*.npz"))
    assert_is_built(call(build, tmp_path))


RACER = """
import pathlib, sys, time
import numpy as np
from opjax.datasets.cache import cached

folder = pathlib.Path(sys.argv[1])

def build():
    (folder / f"built by {sys.argv[2]}").touch()
    time.sleep(1.0)
    return {"x": np.full(100_000, float(sys.argv[2]))}

(folder / f"ready {sys.argv[2]}").touch()
while len(list(folder.glob("ready *"))) < 2:
    time.sleep(0.01)
x = cached(build, name="race", recipe={"version": 1}, cache_dir=folder)["x"]
assert x.min() == x.max(), x
print(x[0])
"""


@pytest.mark.nightly
@pytest.mark.skipif(cache.fcntl is None, reason="needs file locks")
def test_of_two_racing_processes_one_builds_and_both_read(tmp_path):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), str(number)],
            stdout=subprocess.PIPE,
            cwd=pathlib.Path(__file__).parents[2],
            text=True,
        )
        for number in (1, 2)
    ]
    outputs = [racer.communicate(timeout=120)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    (builder,) = tmp_path.glob("built by *")
    assert [float(output) for output in outputs] == 2 * [float(builder.name[-1])]


def test_wrong_arguments_are_named_in_the_error(build, tmp_path):
    with value_error("name='../x'"):
        cache.cached(build, name="../x", recipe=RECIPE, cache_dir=tmp_path)
    with value_error(r"\['seed'\], but 'version' is missing"):
        cache.cached(build, name="x", recipe={"seed": 1}, cache_dir=tmp_path)
    with pytest.raises(TypeError, match="JSON"):
        call(build, tmp_path, seed=np.int64(1))
    with value_error("JSON"):
        call(build, tmp_path, seed=float("nan"))
    with pytest.raises(TypeError, match="'x' has dtype object"):
        call(lambda: {"x": np.array([None])}, tmp_path)
    with value_error("'_x'"):
        call(lambda: {"_x": 1}, tmp_path)
