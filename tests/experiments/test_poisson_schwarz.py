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
from numpy.testing import assert_allclose, assert_array_equal

from experiments import poisson_schwarz
from experiments.poisson_schwarz import (
    figures_further,
    further,
    sections,
    studies,
    tables,
    tables_further,
    training,
)
from experiments.poisson_schwarz.domains import Grid, LShape
from experiments.poisson_schwarz.studies import STARTS, MeshSetup, Setup, Start, Study
from opjax.learn import Finished, fit
from opjax.learn.cli import study
from opjax.learn.run.folder import read_config
from opjax.training import checkpoint
from tests import sessions
from tests.experiments.results import read_result

ROOT = pathlib.Path(__file__).parents[2]
TINY = dataclasses.replace(
    poisson_schwarz.PRESETS["smoke"],
    num_points=32,
    num_modes=4,
    overlap=1,
    local_rank=2,
    global_rank=8,
    num_steps=6,
    batch_size=16,
)
CHANNELS = {"coefficient": "channels", "contrast": 100.0}
STUDY = Study(
    name="tiny",
    setup=Setup(4, grid_shape=(32,), overlap=1, local_rank=2),
    start=STARTS["paper"],
    rates=(1e-3, 1e-2),
    seeds=(3, 5),
    rate=1e-2,
    num_modes=4,
    num_steps=6,
    batch_size=16,
)


@pytest.fixture(scope="module", autouse=True)
def user_session():
    with sessions.lenient():
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory, user_session):
    """Returns the folder and the result of a finished tiny run."""
    workdir = tmp_path_factory.mktemp("run")
    return workdir, poisson_schwarz.run(TINY, workdir=workdir)


def simple(setup, start, rate, seeds=(0,), **options):
    """A study of one rate."""
    given = {"setup": setup, "start": start, "rate": rate, "rates": (rate,)}
    return Study(name="simple", seeds=seeds, **given, **options)


def train(config, folder, **changes):
    """All replicas of a study, trained in a folder; their errors."""
    with jax.enable_x64(False):
        task = training.make_task(config)
        settings = dataclasses.replace(task.settings(config), **changes)
        fitted = fit(task, task.build(config, None), settings, folder=folder)
        shape = len(config.rates), len(config.seeds)
        stacked = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), fitted.model)
        return fitted, training.evaluate(stacked, training.problem(config))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, user_session):
    return train(STUDY, tmp_path_factory.mktemp("trained"))


# configuration


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": (0, 0)}, "seeds=0,0 contains 0 twice"),
        ({"seeds": ()}, "seeds is empty"),
        ({"seeds": (0, -1)}, "seeds=-1 must be .*at least 0"),
        ({"init": "big"}, "init='big' is unknown; choose from paper, small, whitened"),
        ({"overlap": 33}, "overlap=33 is larger than a neighbouring interval of 32"),
        (
            {"num_points": 4, "num_modes": 2},
            "must be between 1 and the number of points",
        ),
        (
            {"dim": 3, "num_points": 16},
            "num_modes=16 in 3 dimensions span 32768 functions",
        ),
        ({"num_points": 32, "num_modes": 33}, "num_modes=33 "),
        (
            {"dim": 3, "num_points": 64, "num_modes": 8},
            "num_points=64 in 3 .* 262144 points, on which 32768 .* more than 2 GiB",
        ),
        ({"coarse_space": "hats"}, "coarse_space='hats' is unknown; choose from inter"),
        ({"num_boxes": 1}, "must be at least 2 per axis"),
        ({"levels": 3, "coarse_boxes": 9}, "between 1 and the number of points"),
        ({"learning_rate": -1e-3}, "learning_rate=-0.001 must be .*at least 0"),
        ({"num_steps": 0}, "num_steps=0 must be .*at least 1"),
        ({"batch_size": 1}, "batch_size=1 must be .*at least 2"),
        ({"batch_size": 3}, "batch_size=3 must be at least .* principal components"),
        ({"dim": 4}, "dim=4 must be .*at most 3"),
        ({"further": ("none", "mesh")}, "further=none goes with no other"),
        ({"further": ("meshes",)}, "further='meshes' is unknown; choose from none, sc"),
        ({"sweep": True, "baselines": False}, "sweep compares with the global model"),
        ({"scaling": "points"}, "scaling=points goes with init=paper or init=small"),
        ({"scaling": "n", "init": "paper"}, "scaling='n' is unknown"),
        ({"coefficient": "rough"}, "coefficient='rough' is unknown; choose from const"),
        ({"coefficient": "random"}, "coefficient=random needs a contrast above 1"),
        ({**CHANNELS, "dim": 2, "num_modes": 2}, "coefficient=channels needs dim=1"),
        ({**CHANNELS, "coefficient_seed": 1}, "coefficient_seed=1 has no effect"),
        ({"contrast": 10.0}, "contrast=10.0 has no effect with coefficient=constant"),
        ({"contrast": 0.5}, "contrast=0.5 must be .*at least 1"),
        ({"coarse_space": "harmonic"}, "harmonic needs a coefficient that varies"),
        (
            {**CHANNELS, "coarse_space": "harmonic", "levels": 3},
            "coarse_space=harmonic has levels=2",
        ),
        ({"coarse_space": "none", "levels": 3}, "coarse_space=none is one level"),
        ({"coarse_space": "none", "coarse_rank": 7}, "coarse_rank=7 has no effect"),
        ({"coarse_hats": 8}, "coarse_hats=8 has no effect with .*interface"),
        ({"coarse_boxes": 3}, "coarse_boxes=3 has no effect with .*levels=2"),
        (
            {"coarse_space": "uniform", "coarse_hats": 300},
            "must be between 1 and the number of points",
        ),
    ],
)
def test_bad_hyper_parameters_are_refused_before_any_work(change, message):
    with pytest.raises(ValueError, match=message):
        poisson_schwarz.PROGRAM.describe(poisson_schwarz.Config(**change))


@pytest.mark.parametrize("coarse_space", studies.COARSE_SPACES)
def test_every_coarse_space_makes_a_model(coarse_space):
    varied = CHANNELS if coarse_space == "harmonic" else {}
    config = dataclasses.replace(TINY, coarse_space=coarse_space, **varied)
    assert studies.setup_of(config).coarse_space == coarse_space
    # 2 (9 + 10 + 10 + 9) 2 numbers of local factors and two of every coarse pair.
    coarse = {"none": 0, "partition": 2 * 4 * 4, "uniform": 2 * 7 * 7}
    expected = 152 + coarse.get(coarse_space, 2 * 3 * 3)
    assert sections.main(config)["schwarz"].num_parameters() == expected


def test_the_paper_preset_is_the_paper():
    config = poisson_schwarz.PRESETS["paper"]
    found = sections.main(config)
    assert found["schwarz"].num_parameters() == 2370
    assert found["global"].num_parameters() == 20480
    assert found["global_matched"].num_parameters() == 2560
    assert config.rate == 1e-3
    assert found["schwarz"].start == Start(scale=0.02, cosine=False)
    assert len(config.members()) == 6 + 7 + 9 + 6


@pytest.mark.nightly
def test_what_the_paper_leaves_open_has_the_models_it_names():
    config = poisson_schwarz.Config(further=tuple(further.SECTIONS))
    found = config.sections()
    assert list(found) == ["main", *further.SECTIONS]
    assert [len(found[name]) for name in further.SECTIONS] == [12, 14, 16, 6]
    # The same models as in the paper, all from its start.
    sizes = {256: 2370, 512: 5026, 1024: 11106}
    for label, one in found["scaling"].items():
        kind, size = label.split("_")
        assert one.num_parameters() == sizes[int(size)]
        assert one.start == dataclasses.replace(STARTS["paper"], scaling=kind)
    for label, one in found["coarse_spaces"].items():
        model = studies.build(one.setup, one.start, jax.random.key(0))
        words = label.split()
        count = int(words[0]) if words[0].isdigit() else None
        if count is None:
            assert model.coarse_space is None
            continue
        assert model.coarse_space.num_subdomains == count
        assert model.coarse.key.shape == (count, count)
        width = (256 + 1) / (count + 1)
        if "uniform" in label:
            peaks = np.arange(1, count + 1) * width - 1
            weights = np.asarray(model.coarse_space.weights)
            top = np.argmax(weights, axis=1)
            at = np.asarray(model.coarse_space.indices)[np.arange(count), top]
            assert np.abs(at - peaks).max() <= 0.5
    parameters = {k: one.num_parameters() for k, one in found["mesh"].items()}
    ours = parameters["Schwarz, 49 smoothed aggregates, our initialisation"]
    matched = next(v for k, v in parameters.items() if k.startswith("global"))
    assert ours <= matched < 1.05 * ours


def test_without_baselines_the_configured_model_is_alone():
    config = dataclasses.replace(TINY, baselines=False)
    assert list(config.members()) == [("schwarz", None)]


# the program


@pytest.mark.nightly
def test_a_run_leaves_everything_in_its_folder(finished):
    workdir, result = finished
    assert read_result(workdir) == result
    assert json.loads((workdir / "config.json").read_text())["num_points"] == 32
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
    for name in ("schwarz", "global", "global_matched"):
        assert (workdir / name / "predictions.npz").exists()


@pytest.mark.nightly
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


def outcome(result):
    """All numbers that a run computed, without times."""
    numbers = {k: v for k, v in result.items() if isinstance(v, (int, float))}
    return {k: v for k, v in numbers.items() if "seconds" not in k}


_KILLED = """
import os, signal
from experiments import poisson_schwarz
from opjax.training import checkpoint
from tests.experiments import test_poisson_schwarz as tests
save = checkpoint.save
def save_then_kill(*args, **kwargs):
    save(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
checkpoint.save = save_then_kill
poisson_schwarz.run(tests.TINY, workdir={!r})
"""


@pytest.mark.nightly
def test_a_killed_run_resumes_to_the_same_bits(
    finished, tmp_path, user_session, monkeypatch, capsys
):
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED.format(str(tmp_path))],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -9, killed.stderr
    assert killed.stdout == ""
    assert not (tmp_path / "result.json").exists()
    assert checkpoint.all_steps(tmp_path / "schwarz" / "checkpoints") == [6]
    # The first study is read back, the others are trained: again, for the same seeds.
    monkeypatch.setattr(poisson_schwarz.figures, "draw", lambda *args: None)
    monkeypatch.setattr(study.figures, "draw", lambda *args: None)
    config = read_config(tmp_path, poisson_schwarz.Config)
    resumed = poisson_schwarz.run(config, workdir=tmp_path)
    assert "Continuing from" in capsys.readouterr().err
    # JAX may have rounded constants of the model for training when it evaluates them.
    assert outcome(resumed) == pytest.approx(outcome(finished[1]), rel=1e-6)
    for name in ("schwarz", "global"):
        one, other = (
            np.load(path / name / "losses.npz")["losses"]
            for path in (tmp_path, finished[0])
        )
        assert_array_equal(one, other)


def finished_with(config, folder, rng):
    """A study of random errors."""
    results = {}
    for (name, _), one in config.members().items():
        columns = (*tables.COLUMNS, "mean_16", "max_16", "initial", "final")
        columns += ("mass_l2",) if "mesh" in name else ()
        shape = len(one.rates), len(one.seeds)
        errors = {column: rng.uniform(size=shape).tolist() for column in columns}
        exact = dict.fromkeys(tables.COLUMNS, 1e-6)
        if "square" in name or "mesh" in name or "coarse/" in name:
            exact = None
        results[name] = [{"errors": errors, "closed_form": exact, "seconds": 1.0}]
    return Finished(config, folder, results, "", "", 0, 0, 1.0, 0.0)


def test_the_paper_has_all_its_tables(tmp_path, rng):
    config = dataclasses.replace(
        poisson_schwarz.PRESETS["paper"], sweep=True, seeds=(0, 1)
    )
    rows = tables.rows(finished_with(config, tmp_path, rng))
    text, _ = tables.write(tmp_path, config, rows)
    assert tables_further.lines(rows) == []
    assert text.count("## ") == 6
    assert "| 0.0001 | global | paper | 0.476 | 0.728 |" in text
    assert "| 1024 | three levels | 2 |" in text
    assert "| global, rank 73 | 149504 | 0.1 |" in text


@pytest.mark.nightly
def test_what_the_paper_leaves_open_has_its_tables_and_a_figure(tmp_path, rng):
    config = poisson_schwarz.Config(further=tuple(further.SECTIONS), seeds=(0, 1))
    rows = tables.rows(finished_with(config, tmp_path, rng))
    text = "\n".join(tables_further.lines(rows))
    assert text.count("## ") == 1 + 1 + 4 + 1
    assert "| 1024 | none (the paper) | 0.01 |" in text
    assert "| 31 uniform hats, our initialisation | 4194 | 0.1 |" in text
    assert "random, draw 2, contrast 1000, n = 256" in text
    assert text.count("closed form, nothing trained") == 4
    assert "mean rel. L2, mass matrix" in text
    figures_further.draw(tmp_path / "all.png", rows)
    assert 1e4 < (tmp_path / "all.png").stat().st_size < 4e5


# training


@pytest.mark.nightly
def test_seeds_and_rates_together_are_those_alone(trained, tmp_path):
    alone, errors = train(
        dataclasses.replace(STUDY, rates=(1e-2,), seeds=(5,)), tmp_path
    )
    fitted, together = trained
    assert_allclose(alone.losses[0], fitted.losses[3], rtol=1e-4)
    for name, value in errors.items():
        assert_allclose(value[0, 0], together[name][1, 1], 1e-4)


@pytest.mark.nightly
def test_seeds_and_rates_differ(trained):
    losses = trained[0].losses
    assert losses.shape == (4, 6)
    assert len(np.unique(losses[:, -1])) == 4
    assert len(np.unique(losses[:, 0])) == 2  # rates share their start
    assert losses.dtype == np.float32
    assert np.all(losses[:, 0] > 0)


@pytest.mark.nightly
def test_a_diverging_rate_stops_no_other(trained, tmp_path, user_session):
    config = dataclasses.replace(STUDY, rates=(1e30, 1e-2), name="diverging")
    with jax.enable_x64(False):
        fitted, _ = train(config, tmp_path)
        np.savez(tmp_path / "losses.npz", losses=fitted.losses, finite=fitted.finite)
        task = training.make_task(config)
        errors = task.evaluate(fitted.model, tmp_path)["errors"]
    assert fitted.finite.tolist() == [False, False, True, True]
    assert not np.isfinite(fitted.losses[:2, -1]).any()
    assert_array_equal(fitted.losses[2:], trained[0].losses[2:])
    assert np.isnan(errors["weighted_mse"][0]).all()
    expected = trained[1]["weighted_mse"][1]
    assert_allclose(errors["weighted_mse"][1], expected, 1e-6)


# evaluation


def dense_inverse(shape):
    """The inverse of the discrete Laplacian as a matrix, by Kronecker products."""
    matrix = np.zeros((1, 1))
    for n in shape:
        second = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
        second *= (n + 1) ** 2
        matrix = np.kron(matrix, np.eye(n)) + np.kron(np.eye(len(matrix)), second)
    return np.linalg.inv(matrix)


@pytest.mark.nightly
@pytest.mark.parametrize("shape", [(600,), (24, 25)])
def test_errors_are_those_of_the_dense_matrices(shape, user_session):
    setup = Setup(grid_shape=shape, global_rank=3)
    study = simple(setup, Start(scale=0.02), 1.0, seeds=(0, 1), num_modes=2)
    with jax.enable_x64(False):
        data = training.problem(study)
        keys = jax.random.split(jax.random.key(0), (1, 2))
        build = partial(studies.build, setup, study.start)
        stacked = jax.vmap(jax.vmap(build))(keys)
        found = training.evaluate(stacked, data)
    inverse = dense_inverse(shape)
    modes = np.asarray(data.double.modes)
    assert_allclose(inverse @ modes, data.double.solutions, atol=1e-12)

    def relative(matrix, samples):
        f, u = map(np.asarray, samples)
        return np.linalg.norm(matrix @ f - u, axis=0) / np.linalg.norm(u, axis=0)

    axes = len(shape)
    orders = np.indices((8,) * axes).reshape(axes, -1) // 2 + 1
    unseen = [leaf[:, np.prod(orders, 0) > 2**axes] for leaf in data.unseen[:2]]
    for i in range(2):
        query, key = (
            np.asarray(factor[...], float)[0, i]
            for factor in (stacked.query, stacked.key)
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
            assert_allclose(found[name][0, i], value, 1e-6, err_msg=name)


@pytest.mark.nightly
def test_errors_on_a_mesh_are_those_of_the_mass_matrix(user_session):
    setup = MeshSetup(num_columns=8, global_rank=3)
    study = simple(setup, Start(scale=0.1), 1.0, num_modes=1)
    with jax.enable_x64(False):
        data = training.problem(study)
        key = jax.random.key(0)[None, None]
        build = partial(studies.build, setup, study.start)
        stacked = jax.vmap(jax.vmap(build))(key)
        found = training.evaluate(stacked, data)
    elements, roots = setup.domain.elements, setup.domain.root_masses
    matrix = np.asarray(stacked.query[...], float)[0, 0]
    matrix = matrix @ np.asarray(stacked.key[...], float)[0, 0].T
    f, u = map(np.asarray, data.test)
    # Plain values from here on: A u = W f.
    exact = np.linalg.solve(
        elements.stiffness.toarray(), elements.lumped[:, None] * f / roots[:, None]
    )
    assert_allclose(u / roots[:, None], exact, rtol=1e-9, atol=1e-14)
    difference = (matrix @ f) / roots[:, None] - exact

    def norms(mass):
        size = (np.sqrt(np.sum(x * (mass @ x), axis=0)) for x in (difference, exact))
        return np.divide(*size).mean()

    assert_allclose(found["mass_l2"][0, 0], norms(elements.mass), 1e-6)
    lumped = np.diag(elements.lumped)
    assert_allclose(found["relative_l2"][0, 0], norms(lumped), 1e-6)
    assert found["operator_frobenius"][0, 0] > 0.1
    # The exact inverse has no error.
    inverse = np.asarray(data.solver(np.eye(len(roots))))
    assert_allclose(inverse @ f, u, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    "domain", [Grid((12,), "random", 50.0, 3), Grid((5, 4)), LShape(6)]
)
def test_domains_invert_what_their_problems_contain(domain):
    problem = domain.problem(1, 1.5)
    count = domain.num_points
    assert len(domain.mesh_points) == len(problem.modes) == count
    f = np.reshape(problem.modes.T, (-1, *(domain.grid_shape or (count,))))
    found = jax.jit(jax.vmap(domain.solver()))(f).reshape(len(f), count).T
    assert_allclose(found, problem.solutions, rtol=1e-9, atol=1e-13)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", studies.SCALINGS)
def test_scaling_divides_the_first_products(kind, user_session):
    start = dataclasses.replace(STARTS["paper"], scaling=kind)
    study = dataclasses.replace(STUDY, start=start, seeds=(0,))
    with jax.enable_x64(False):
        data = training.problem(study)
        model, sizes = training._start(study, 0, data.single)
        plain, _ = training._start(STUDY, 0, data.single)
    n = {"none": None, "blocks": np.array([9, 10, 10, 9])}.get(kind, 32)
    factor = 1.0 if n is None else 1 / np.sqrt(n * 2)
    products = np.einsum("smr,smr->s", model.query[...], model.key[...])
    expected = np.einsum("smr,smr->s", plain.query[...], plain.key[...]) * factor
    assert_allclose(products, expected, rtol=1e-5)
    assert (sizes is None) == (kind in ("none", "start"))


@pytest.mark.nightly
def test_computed_factors_need_no_training(user_session):
    study = simple(Setup(), Start(), 1.0)
    with jax.enable_x64(False):
        found = training.closed_form_errors(study, training.problem(study))
    assert found["weighted_mse"] <= 3e-7
    assert found["relative_l2"] <= 1e-3
    two_dimensions = dataclasses.replace(study, setup=Setup(4, grid_shape=(32, 32)))
    assert training.closed_form_errors(two_dimensions, None) is None
    channels = Setup(coefficient="channels", contrast=1e3)  # hats that do not fit it
    study = dataclasses.replace(study, setup=channels)
    assert training.closed_form_errors(study, None) is None


# what training reaches


def population(folder, setup, start, rate=None, **options):
    return train(simple(setup, start, rate or start.learning_rate, **options), folder)[
        1
    ]


@pytest.mark.nightly
def test_the_bars_of_the_paper_size(tmp_path):
    ours = population(tmp_path / "ours", Setup(), STARTS["whitened"], seeds=(0, 1))
    median = {name: np.median(value) for name, value in ours.items()}
    assert median["weighted_mse"] <= 1e-6
    assert ours["weighted_mse"].max() <= 2e-6
    assert median["operator_frobenius"] <= 0.03
    assert median["relative_l2"] <= 1.1e-3
    paper = STARTS["paper"]
    # A seed may end far above the others at this rate; which one depends on rounding.
    fast = population(tmp_path / "fast", Setup(), paper, 1e-2, seeds=range(5))
    fast = {name: np.median(value) for name, value in fast.items()}
    slow = population(tmp_path / "slow", Setup(), paper, 1e-3)
    assert fast["weighted_mse"] <= 1e-3
    assert 0.17 <= fast["operator_frobenius"] <= 0.33
    assert 0.40 <= slow["operator_frobenius"].item() <= 0.55
