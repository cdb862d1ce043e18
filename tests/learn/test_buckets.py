"""Samples that stay on disk: the same batches, runs and errors as in memory."""

import functools
import pathlib
import threading

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, learn, samples, training
from opjax.datasets import heat
from opjax.learn.run import batches, buckets
from opjax.samples import summaries
from tests.refused import value_error

OPTIONS = {"batch_size": 2, "num_buckets": 2}
OPTIMIZER = functools.partial(
    training.adamw_onecycle, 0.05, weight_decay=1e-3, clip_norm=1.0
)


@pytest.fixture(scope="module", autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


def write(folder, sizes):
    for number, size in enumerate(sizes):
        points = heat.write(folder / "one", 1, seed=number, num_points=(size, size))
        points.joinpath("heat_0000.npz").rename(folder / f"{number}.npz")
    return folder


def encode(arrays):
    return {name: 2 * array for name, array in arrays.items()}


@pytest.mark.parametrize("sizes", [(7, 5, 6, 9, 9), (6, 6, 6)])
def test_files_are_padded_and_stacked_as_arrays_are(sizes, tmp_path):
    folder = write(tmp_path, sizes)
    expected = samples.stack(files.read(folder), **OPTIONS)
    found = buckets.of(files.stored(folder), encode, **OPTIONS)
    assert [len(bucket) for bucket in found] == [
        len(arrays["target"]) for arrays in expected
    ]
    for bucket, arrays in zip(found, expected, strict=True):
        chosen = list(reversed(range(len(bucket))))
        for one, other in ((bucket, encode(arrays)), (arrays, arrays)):
            actual = buckets.rows(one, chosen)
            assert actual.keys() == arrays.keys()
            for name, array in actual.items():
                assert_array_equal(array, other[name][chosen])


def predict(model, sample):
    values = sample["features"] @ model["w"] + sample["mesh_points"] @ model["v"]
    return jnp.tanh(values)


def error(model, sample):
    return jnp.mean((predict(model, sample) - sample["target"]) ** 2)


def loss(model, batch):
    return jnp.sum(jax.vmap(error, (None, 0))(model, batch))


def task(folder, *, in_memory=False):
    found = files.splits([folder], in_memory=in_memory)

    def stacked(part):
        if in_memory:
            return tuple(map(encode, samples.stack(part, **OPTIONS)))
        return buckets.of(part, encode, **OPTIONS)

    train, validation = stacked(found.train), stacked(found.validation)
    return learn.Task(train=train, validation=validation, loss=loss, metric=error)


def fit(what, folder):
    model = {"w": jnp.ones((1, 1), jnp.float32), "v": jnp.ones((2, 1), jnp.float32)}
    settings = learn.Settings(
        num_epochs=3,
        batch_size=2,
        scan=False,
        steps_per_call=2,
        checkpoint_seconds=0.0,
        optimizer=OPTIMIZER,
    )
    return learn.fit(what, model, settings, folder=folder)


def same(found, expected):
    for name in ("model", "best_model", "best_metric", "best_step", "losses"):
        chex.assert_trees_all_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.nightly
def test_runs_have_the_bits_of_those_in_memory_and_continue_after_any_step(
    tmp_path, monkeypatch
):
    data = write(tmp_path / "data", (5, 6, 6, 7, 5, 9, 9, 8, 6, 7, 7, 5))
    expected = fit(task(data, in_memory=True), tmp_path / "memory")
    stored = task(data)
    same(fit(stored, tmp_path / "disk"), expected)

    class Stop(BaseException):
        pass

    advance, calls = batches.StoredBatches.advance, []

    def stopping(self, state, step, good):
        if calls and calls[-1] != step:  # once after every call
            calls.append(step)
            raise Stop
        calls.append(step)
        return advance(self, state, step, good)

    monkeypatch.setattr(batches.StoredBatches, "advance", stopping)
    while True:
        try:
            same(fit(stored, tmp_path / "again"), expected)
            break
        except Stop:
            pass
    assert len(set(calls)) == len(calls) // 2 + 1 > 5


def test_a_file_that_is_gone_or_damaged_stops_the_run_with_its_name(tmp_path):
    data = write(tmp_path / "data", (5,) * 8)
    stored, run = task(data), tmp_path / "run"
    (bucket,) = stored.train  # pyright: ignore
    file = pathlib.Path(bucket.found.places[0].file)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with value_error(f"Cannot read {file}"):
        fit(stored, run)
    other = write(tmp_path / "other", (6,)) / "0.npz"
    file.write_bytes(other.read_bytes())
    with value_error(f"{file} has different points or channels"):
        fit(stored, run)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=f"{file} existed when the run"):
        fit(stored, run)
    file.write_bytes(content)
    same(fit(stored, run), fit(stored, tmp_path / "whole"))


def test_a_thread_reads_few_batches_ahead():
    lock, begun, threads = threading.Lock(), [], set()

    class Counted(buckets.Bucket):
        def __init__(self):
            self.encode = self.unchanged

        def read(self, rows):
            with lock:
                begun.append(rows)
                threads.add(threading.current_thread())
            return rows

        def unchanged(self, rows):
            assert threading.current_thread() is threading.main_thread()
            return rows

    taken = []
    for one in buckets.ahead((Counted(), [row]) for row in range(9)):
        taken.append(one)
        assert len(begun) <= len(taken) + buckets.AHEAD
    assert taken == begun == [[row] for row in range(9)]
    assert len(threads) == 1
    assert threading.main_thread() not in threads


def test_summaries_know_what_arrays_have(tmp_path):
    folder = write(tmp_path, (7, 5, 6))
    found, stored = files.read(folder), files.stored(folder)
    known = summaries.of(stored)
    assert known is stored.summaries
    assert summaries.num_points(stored) == summaries.num_points(found) == [7, 5, 6]
    for name in ("features", "target"):
        values = np.concatenate([getattr(s, name) for s in found]).astype(float)
        mean, std = summaries.mean_and_std(known, name)
        assert_allclose(mean, values.mean(axis=0), rtol=1e-12)
        assert_allclose(std, values.std(axis=0, ddof=1), rtol=1e-12)
        low, high = summaries.limits(known, name)
        assert_array_equal(low, values.min(axis=0))
        assert_array_equal(high, values.max(axis=0))
    alone = summaries.of([found[0]._replace(target=np.ones((1, 1)))])
    with value_error("needs at least two points"):
        summaries.mean_and_std([alone[0]._replace(num_points=1)], "target")
