"""What is compiled before a training, and what it says meanwhile."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx
from jax.experimental.compilation_cache import compilation_cache

from benchmarks import start_up
from opjax import training
from opjax.datasets import heat
from opjax.learn.cli import study, train
from opjax.learn.registry import operators
from opjax.learn.run import batches
from opjax.learn.run.sources import make_batches

DRAWN = True  # tests/figures.py

SMALL = {
    "width": 8,
    "num_layers": 1,
    "num_heads": 2,
    "num_basis": 4,
    "num_epochs": 2,
    "num_buckets": 0,
}
OTHER = {"num_epochs": 3, "learning_rate": 0.02, "seeds": (5,), "weight_decay": 1e-3}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = heat.write(tmp_path_factory.mktemp("data"), 10, num_points=(5, 9))
    return dataclasses.replace(train.PRESETS["fast"], train=str(folder), **SMALL)


@pytest.fixture(scope="module")
def task(config):
    with jax.enable_x64(False):
        return train.make_task(config)


def test_all_parts_have_the_size_of_the_training(task):
    parts = (*task.train, *task.validation, *task.test)
    assert len({bucket["mesh_points"].shape[1] for bucket in parts}) == 1
    assert (task.num_train, task.num_validation, task.num_test) == (7, 1, 2)


@pytest.mark.nightly
def test_numbers_of_a_run_are_no_part_of_its_programs(config, task):
    texts = []
    with jax.enable_x64(False):
        for changes in ({}, OTHER):
            one = dataclasses.replace(config, **changes)
            found = make_batches(task, task.settings(one))
            state = found.start(study.build(one, task))
            epoch = training.make_epoch(task.loss, found.optimizer)
            given = (state, np.array(True)), found.train[0], np.zeros((1, 2), int), None
            texts.append(epoch._advance.lower(*given).as_text())
    assert texts[0] == texts[1]


@pytest.mark.nightly
def test_a_model_is_the_same_but_for_rounding_compiled_or_not(config, task):
    with jax.enable_x64(False):
        compiled = study.build(config, task)
        sizes = operators.Sizes(2, 1, 1, None, None, None, False)
        plain = operators.build(config, sizes, rngs=nnx.Rngs(config.seed))
    assert jax.tree.structure(compiled) == jax.tree.structure(plain)
    for a, b in zip(*map(jax.tree.leaves, (compiled, plain)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_samples_are_evaluated_in_parts_of_one_shape(batch_size, rng):
    data = {"x": rng.normal(size=(7, 4))}
    (parts,) = batches.to_evaluate((data,), batch_size, None)
    shapes = {part["x"].shape for part in parts.parts}
    assert shapes == {(batch_size, 4)}

    def metric(model, sample):
        return model * sample["x"].sum()

    for given in (data, parts):
        found = batches.evaluate(metric, 2.0, given, batch_size=batch_size)
        np.testing.assert_allclose(found, 2 * data["x"].sum(axis=1))


@pytest.mark.nightly
def test_a_run_with_other_numbers_compiles_nothing(config, tmp_path, capfd):
    """And says what it does; its losses are means of a sample."""
    misses, before = [], jax.config.jax_compilation_cache_dir
    shortest = jax.config.jax_persistent_cache_min_compile_time_secs

    def count(event, **_):
        misses[-1] += event == "/jax/compilation_cache/cache_misses"

    jax.monitoring.register_event_listener(count)
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "compiled"))
        # All are kept: which ones take long would depend on the load.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        compilation_cache.reset_cache()
        for number, changes in enumerate(({}, OTHER)):
            misses.append(0)
            jax.clear_caches()
            one = dataclasses.replace(config, **changes)
            train.run(one, workdir=tmp_path / str(number))
    finally:
        jax.monitoring.unregister_event_listener(count)
        jax.config.update("jax_compilation_cache_dir", before)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", shortest)
        compilation_cache.reset_cache()
    assert misses[0] > 3
    assert misses[1] == 0
    said = capfd.readouterr().err
    assert "10 samples: 7 for training, 1 for validation, 2 for the test." in said
    assert "Compiling training step 1 of 1 (9 points)." in said
    assert "Compiled in " in said


def test_old_runs_keep_their_number_of_buckets(config, tmp_path):
    from opjax.learn.cli import program

    for stored, expected in (({"num_buckets": 4}, 4), ({}, 0)):
        (tmp_path / "config.json").write_text(json.dumps(stored))
        found = program._as_earlier(config, tmp_path)
        assert found.num_buckets == expected
    two = dataclasses.replace(config, num_buckets=2)
    assert program._as_earlier(two, tmp_path) is two


def test_the_benchmark_counts_every_second_once():
    names = ("imports", "data", "model", "set-up", "checkpoints", "figures")
    calls = {name: [1.0] for name in names}
    calls |= {"epochs": [2.0, 1.0, 1.0], "validations": [1.0, 0.5], "finished": [3.0]}
    calls |= {"shown": [8.0, 10.0], "total": [15.0], "clock": [30.0]}
    found = {"calls": calls, "compiled": [1.0, 2.0], "hits": 1, "traced": 0.5}
    rows = start_up._rows(found, 16.0)
    assert rows.keys() == start_up.ROWS.keys()
    named = list(start_up.ROWS)
    parts = [rows[name] for name in named[: named.index("total")]]
    assert sum(parts) == rows["total"] == 15.0
    assert (rows["silence"], rows["after"], rows["compiled"]) == (8.0, 5.0, 1)
    lines = start_up.table({"cold": rows, "warm": rows}).splitlines()
    assert len(lines) == 2 + len(rows)
