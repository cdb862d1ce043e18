import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from functools import partial

import jax
import numpy as np
import pytest

from experiments import poisson_drawing, poisson_models, poisson_schwarz
from experiments import poisson_evaluation as evaluation
from experiments import poisson_training as training
from experiments.poisson_models import STARTS, Setup, Start, Study
from opjax import checkpoint
from opjax.learn.stored import read_config
from opjax.training import NonFiniteError

ROOT = pathlib.Path(__file__).parents[2]
TINY = dataclasses.replace(
    poisson_schwarz.PRESETS["smoke"],
    n=32,
    modes=4,
    overlap=1,
    local_rank=2,
    global_rank=8,
    steps=6,
    batch_size=16,
)
SETUP = Setup((32,), 4, overlap=1, local_rank=2)
STUDY = Study(
    "tiny", SETUP, STARTS["paper"], (1e-3, 1e-2), (3, 5), 4, num_steps=6, batch_size=16
)


@pytest.fixture(scope="module", autouse=True)
def user_session(tmp_path_factory):
    """A user's session; equal programs are compiled once for the whole file."""
    cache = tmp_path_factory.mktemp("compiled")
    settings = {
        "jax_compilation_cache_dir": str(cache),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for name, value in settings.items():
            jax.config.update(name, value)
        yield {name.upper(): str(value) for name, value in settings.items()}
        for name, value in before.items():
            jax.config.update(name, value)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, user_session):
    """Returns the folder and the result of a finished tiny run."""
    workdir = tmp_path_factory.mktemp("run")
    return workdir, poisson_schwarz.run(TINY, workdir=workdir)


@pytest.fixture(scope="module")
def data(user_session):
    with jax.enable_x64(False):
        return evaluation.problem(STUDY)


def train(study, data, folder=None):
    with jax.enable_x64(False):
        return training.train(study, data, folder)


@pytest.fixture(scope="module")
def trained(data):
    return train(STUDY, data)


# configuration


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": "0,0"}, "seeds='0,0' contains a seed twice"),
        ({"seeds": "1,01"}, "seeds='1,01' contains a seed twice"),
        ({"seeds": "a"}, "seeds='a' must be non-negative whole numbers"),
        ({"seeds": ""}, "seeds='' must be non-negative whole numbers"),
        ({"seeds": "0,-1"}, "seeds='0,-1' must be non-negative whole numbers"),
        ({"init": "big"}, "init='big' is unknown; choose from paper, small, whitened"),
        ({"overlap": 33}, "overlap=33 is larger than a neighbouring interval of 32"),
        ({"n": 4, "modes": 2}, "must be between 1 and the number of points"),
        ({"dim": 3, "n": 16}, "modes=16 in 3 dimensions span 32768 functions"),
        pytest.param(
            {"n": 32, "modes": 33},
            "modes=33 ",
        ),
        ({"coarse_space": "hats"}, "coarse_space='hats' is unknown; choose from inter"),
        ({"subdomains": 1}, "must be at least 2 per axis"),
        ({"levels": 3, "coarse_subdomains": 9}, "between 1 and the number of points"),
        ({"learning_rate": -1e-3}, "learning_rate=-0.001 must be .*at least 0"),
        ({"steps": 0}, "steps=0 must be .*at least 1"),
        ({"batch_size": 1}, "batch_size=1 must be .*at least 2"),
        ({"dim": 4}, "dim=4 must be .*at most 3"),
    ],
)
def test_bad_hyper_parameters_are_refused_before_any_work(change, message):
    with pytest.raises(ValueError, match=message):
        poisson_schwarz.Config(**change)


@pytest.mark.parametrize("coarse_space", poisson_models.COARSE_SPACES)
def test_every_coarse_space_makes_a_model(coarse_space):
    config = dataclasses.replace(TINY, coarse_space=coarse_space)
    assert config.setup.coarse_space == coarse_space


def test_the_paper_preset_is_the_paper():
    config = poisson_schwarz.PRESETS["paper"]
    studies = poisson_schwarz.poisson_studies.main(config)
    count = poisson_schwarz.poisson_studies.num_parameters
    assert count(studies["schwarz"]) == 2370
    assert count(studies["global"]) == 20480
    assert count(studies["global_matched"]) == 2560
    assert config.rate == 1e-3
    assert studies["schwarz"].start == Start(scale=0.02, cosine=False)


# the program


def test_a_run_leaves_everything_in_its_folder(finished):
    workdir, result = finished
    assert json.loads((workdir / "result.json").read_text()) == result
    assert json.loads((workdir / "config.json").read_text())["n"] == 32
    assert not json.loads((workdir / "environment.json").read_text())["x64"]
    tables = (workdir / "tables.md").read_text()
    assert "closed form" in tables
    assert "nan" not in tables
    sizes = {f.name: f.stat().st_size for f in (workdir / "figures").iterdir()}
    assert sizes.keys() >= {
        "01_training.png",
        "02_solutions_global.png",
        "03_solutions_schwarz.png",
        "04_operator.png",
        "05_blocks.png",
        "06_hats.png",
        "07_solutions_global_matched.png",
    }
    assert all(1e3 < size < 5e5 for size in sizes.values())
    assert {p.name for p in (workdir / "checkpoints").iterdir()} >= {
        "schwarz",
        "global",
        "global_matched",
    }


def test_the_result_says_how_it_came_about(finished):
    workdir, result = finished
    for name in ("weighted_mse", "relative_l2", "operator_frobenius"):
        assert 0 < result[name] < 2
    # 2 (9 + 10 + 10 + 9) 2 numbers of local factors, 2 x 3 x 3 of coarse ones.
    assert result["parameters"] == 170
    assert result["initial_loss"] == pytest.approx(1, abs=1e-6)
    assert 0 < result["train_seconds"] < result["seconds"]
    expected = {
        "preset": "smoke",
        "init": "whitened",
        "learning_rate": 0.1,
        "seeds": [0, 1],
        "workdir": str(workdir),
    }
    assert result.items() >= expected.items()


def test_a_finished_run_is_read_and_not_repeated(finished, monkeypatch, capsys):
    workdir, result = finished
    monkeypatch.setattr(poisson_schwarz, "train", None)
    assert poisson_schwarz.run(TINY, workdir=workdir) == result
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result


def test_another_configuration_is_refused_with_its_fields(finished, monkeypatch):
    workdir, _ = finished
    monkeypatch.setattr(poisson_schwarz, "_run", lambda *_: pytest.fail("trained"))
    config = (workdir / "config.json").read_text()
    try:
        with pytest.raises(ValueError, match=r"seeds: '0,1' there, '0,2' now"):
            poisson_schwarz.run(dataclasses.replace(TINY, seeds="0,2"), workdir=workdir)
    finally:
        (workdir / "config.json").write_text(config)


def outcome(result):
    """All numbers that a run computed, without times."""
    numbers = {k: v for k, v in result.items() if isinstance(v, (int, float))}
    return {k: v for k, v in numbers.items() if "seconds" not in k}


_KILLED = """
import os, signal
from experiments import poisson_schwarz
from opjax import checkpoint
from tests.experiments import test_poisson_schwarz as tests
save = checkpoint.save
def save_then_kill(*args, **kwargs):
    save(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
checkpoint.save = save_then_kill
poisson_schwarz.run(tests.TINY, workdir={!r})
"""


def test_a_killed_run_resumes_to_the_same_bits(
    finished, tmp_path, user_session, monkeypatch, capsys
):
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED.format(str(tmp_path))],
        env=os.environ | user_session | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -9, killed.stderr
    assert killed.stdout == ""
    assert not (tmp_path / "result.json").exists()
    assert checkpoint.all_steps(tmp_path / "checkpoints" / "schwarz") == [6]
    # The first study is read back, the others are trained: again, for the same seeds.
    monkeypatch.setattr(poisson_drawing, "draw", lambda *args, **kwargs: None)
    config = read_config(tmp_path, poisson_schwarz.Config)
    resumed = poisson_schwarz.run(config, workdir=tmp_path)
    assert "Continuing from" in capsys.readouterr().err
    # JAX may have rounded constants of the model for training when it evaluates them.
    assert outcome(resumed) == pytest.approx(outcome(finished[1]), rel=1e-6)
    for name in ("schwarz", "global"):
        folders = [path / "checkpoints" / name for path in (tmp_path, finished[0])]
        like = checkpointed(name)
        one, other = (checkpoint.restore(folder, like).payload for folder in folders)
        same(one, other)


def checkpointed(name):
    """What the checkpoint of a study of the tiny run holds."""
    study = poisson_schwarz.poisson_studies.main(TINY)[name]
    with jax.enable_x64(False):
        seeds, rates = np.asarray(study.seeds), np.asarray(study.rates, np.float32)
        single = evaluation.problem(study).single
        start = training._every_model(partial(training._start, study), None)
        state = jax.eval_shape(start, seeds, rates, single)
    losses = np.zeros((len(study.rates), len(study.seeds), study.num_steps), np.float32)
    return {"state": state, "losses": losses, "step": 0, "seconds": 0.0}


def same(one, other):
    one, other = ({**tree, "seconds": 0.0} for tree in (one, other))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


# training


def test_the_same_seed_gives_the_same_bits(trained, data):
    again = train(STUDY, data)
    for name in ("models", "losses", "errors"):
        same({"all": getattr(trained, name)}, {"all": getattr(again, name)})


def test_seeds_and_rates_together_are_those_alone(trained, data):
    for i, rate in enumerate(STUDY.rates):
        study = dataclasses.replace(STUDY, rates=(rate,), seeds=(STUDY.seeds[i],))
        alone = train(study, data)
        np.testing.assert_allclose(
            alone.losses[0, 0], trained.losses[i, i], rtol=1e-4, err_msg=str(rate)
        )
        for name, value in alone.errors.items():
            np.testing.assert_allclose(value[0, 0], trained.errors[name][i, i], 1e-4)


def test_seeds_and_rates_differ(trained):
    assert len(np.unique(trained.losses[..., -1])) == 4
    assert len(np.unique(trained.losses[..., 0])) == 2  # rates share their start
    assert trained.losses.dtype == np.float32
    assert np.all(trained.losses[..., 0] > 0)


def test_a_study_stopped_within_resumes_to_the_same_bits(data, tmp_path, monkeypatch):
    class Stop(Exception):
        pass

    monkeypatch.setattr(training, "_CHUNK", 2)
    monkeypatch.setattr(training, "_CHECKPOINT_SECONDS", -1.0)  # always due
    whole = train(STUDY, data, tmp_path / "whole")
    original = checkpoint.save

    def stop(folder, step, *args, **kwargs):
        original(folder, step, *args, **kwargs)
        if step == 4:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", stop)
        with pytest.raises(Stop):
            train(STUDY, data, tmp_path / "parts")
    assert checkpoint.all_steps(tmp_path / "parts") == [4]
    parts = train(STUDY, data, tmp_path / "parts")
    for name in ("models", "losses", "errors"):
        same({"all": getattr(whole, name)}, {"all": getattr(parts, name)})
    assert parts.seconds > 0


def test_a_diverging_rate_stops_no_other(trained, data, capsys):
    found = train(dataclasses.replace(STUDY, rates=(1e30, 1e-2)), data)
    assert "2 of 4 runs diverged" in capsys.readouterr().err
    assert not np.isfinite(found.losses[0, :, -1]).any()
    np.testing.assert_array_equal(found.losses[1], trained.losses[1])
    np.testing.assert_allclose(
        found.errors["weighted_mse"][1], trained.errors["weighted_mse"][1], 1e-6
    )


def test_if_all_runs_diverge_the_study_says_so(data):
    study = dataclasses.replace(STUDY, rates=(1e30, 1e31))
    with pytest.raises(NonFiniteError, match="Study tiny: all runs .*lower the learn"):
        train(study, data)


# evaluation


def dense_inverse(shape):
    """The inverse of the discrete Laplacian as a matrix, by Kronecker products."""
    matrix = np.zeros((1, 1))
    for n in shape:
        second = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
        second *= (n + 1) ** 2
        matrix = np.kron(matrix, np.eye(n)) + np.kron(np.eye(len(matrix)), second)
    return np.linalg.inv(matrix)


@pytest.mark.parametrize("shape", [(600,), (24, 25)])
def test_errors_are_those_of_the_dense_matrices(shape, user_session):
    setup = Setup(shape, global_rank=3)
    study = Study("dense", setup, Start(scale=0.02), (1.0,), (0, 1), 2)
    with jax.enable_x64(False):
        data = evaluation.problem(study)
        keys = jax.random.split(jax.random.key(0), (1, 2))
        build = partial(poisson_models.build, setup, study.start)
        models = jax.vmap(jax.vmap(build))(keys)
        found = evaluation.evaluate(models, data)
    inverse = dense_inverse(shape)
    modes = np.asarray(data.double.modes)
    np.testing.assert_allclose(inverse @ modes, data.double.solutions, atol=1e-12)

    def relative(matrix, samples):
        f, u = map(np.asarray, samples)
        return np.linalg.norm(matrix @ f - u, axis=0) / np.linalg.norm(u, axis=0)

    axes = len(shape)
    orders = np.indices((8,) * axes).reshape(axes, -1) // 2 + 1
    unseen = [leaf[:, np.prod(orders, 0) > 2**axes] for leaf in data.unseen[:2]]
    for i in range(2):
        query, key = (
            np.asarray(factor[...], float)[0, i]
            for factor in (models.query, models.key)
        )
        matrix = query @ key.T
        residual = (matrix - inverse) @ modes
        expected = {
            "weighted_mse": np.trace(residual.T @ residual @ data.moment),
            "relative_l2": relative(matrix, data.test).mean(),
            "mean_16": relative(matrix, data.shown).mean(),
            "max_16": relative(matrix, data.shown).max(),
            "operator_frobenius": np.linalg.norm(matrix - inverse)
            / np.linalg.norm(inverse),
            "unseen_l2": relative(matrix, unseen).mean(),
        }
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name][0, i], value, 1e-6, err_msg=name)


def test_computed_factors_need_no_training(user_session):
    study = Study("closed", Setup(), Start(), (1.0,), (0,))
    with jax.enable_x64(False):
        found = evaluation.closed_form_errors(study, evaluation.problem(study))
    assert found["weighted_mse"] <= 3e-7
    assert found["relative_l2"] <= 1e-3
    two_dimensions = dataclasses.replace(study, setup=Setup((32, 32), 4))
    assert evaluation.closed_form_errors(two_dimensions, None) is None


# what training reaches


def population(setup, start, rate=None, seeds=(0,), **options):
    study = Study("bar", setup, start, (rate or start.learning_rate,), seeds, **options)
    with jax.enable_x64(False):
        return training.train(study, evaluation.problem(study))


def test_the_default_reaches_what_the_start_of_the_paper_misses(user_session):
    options = {"seeds": (0, 1), "num_steps": 300, "batch_size": 64}
    ours, paper = (
        population(Setup((128,), 8), STARTS[name], **options).errors["weighted_mse"]
        for name in ("whitened", "paper")
    )
    assert ours.max() < 1.5e-4 < paper.min()


@pytest.mark.slow
def test_the_bars_of_the_paper_size(user_session):
    ours = population(Setup(), STARTS["whitened"], seeds=(0, 1, 2))
    median = {name: np.median(value) for name, value in ours.errors.items()}
    assert median["weighted_mse"] <= 1e-6
    assert ours.errors["weighted_mse"].max() <= 2e-6
    assert median["operator_frobenius"] <= 0.03
    assert median["relative_l2"] <= 1.1e-3
    paper = STARTS["paper"]
    fast = population(Setup(), paper, 1e-2, seeds=(0, 1, 2))
    slow = population(Setup(), paper, 1e-3, seeds=(0, 1, 2))
    assert np.median(fast.errors["weighted_mse"]) <= 1e-3
    assert 0.17 <= np.median(fast.errors["operator_frobenius"]) <= 0.33
    assert 0.40 <= np.median(slow.errors["operator_frobenius"]) <= 0.55
