import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments import darcy_inverse, darcy_inverse_data
from experiments.darcy_inverse_models import MODELS, objective
from opjax import normalize
from opjax.datasets import darcy as dataset
from opjax.datasets import darcy_inverse as inverse_dataset

TINY = dataclasses.replace(
    darcy_inverse.PRESETS["smoke"],
    noises="0.1",
    num_train=8,
    num_validation=4,
    num_test=5,
    num_points=25,
    features=6,
    num_layers=1,
    fno_layers=1,
    fno_features=4,
    num_epochs=1,
    checkpoint_every=1,
)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def data(cache_dir):
    config = dataclasses.replace(TINY, noises="0,0.1,0.2")
    return darcy_inverse_data.load(config, cache_dir=cache_dir)


def test_a_run_ends_with_errors_a_table_and_a_figure(tmp_path, cache_dir, capsys):
    workdir = tmp_path / "run"
    result = darcy_inverse.run(TINY, workdir=workdir, cache_dir=cache_dir)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result
    assert result["seeds"] == [0]
    assert result["data"] == "own solver, 25 points, seed 0"
    assert (workdir / "samples.png").stat().st_size > 1e3
    text = (workdir / "tables.md").read_text()
    for name, paper in {"galerkin": "6.689", "fno": "17.3"}.items():
        folder = workdir / f"{name}_0.1-0"
        stored = np.load(folder / "predictions.npz")
        assert stored["measurement"].shape == (4, 9, 9)
        assert stored["prediction"].shape == (4, 5, 5)
        prediction, truth = stored["prediction"], stored["coefficient"]
        errors = np.linalg.norm(prediction - truth, axis=(1, 2))
        errors = errors / np.linalg.norm(truth, axis=(1, 2))
        np.testing.assert_allclose(stored["errors"][:4], errors, rtol=1e-4)
        error = result[f"error_{name}_0.1"]
        np.testing.assert_allclose(error, stored["errors"].mean())
        assert 0 < error < 2
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} "))
        assert line.endswith(f"| {100 * error:.4g} | {paper} |")
        assert result[f"parameters_{name}"] > 0
    checkpoints = workdir / "fno_0.1-0" / "checkpoints"
    before = {path: path.stat().st_mtime_ns for path in checkpoints.rglob("*")}
    again = darcy_inverse.run(TINY, workdir=workdir, cache_dir=cache_dir)
    assert again == result
    assert before == {path: path.stat().st_mtime_ns for path in checkpoints.rglob("*")}
    other = dataclasses.replace(TINY, noises="0.2")
    with pytest.raises(ValueError, match="another configuration"):
        darcy_inverse.run(other, workdir=workdir, cache_dir=cache_dir)


def test_without_noise_the_measurements_are_the_clean_solutions(data, cache_dir):
    test = dataset.generate(5, seed=2, num_points=25, stride=1, cache_dir=cache_dir)
    clean = inverse_dataset.pairs(test["coeff"], test["sol"], stride=3, target_stride=6)
    actual = data.noises[0.0].test
    measurement = normalize.decode(
        data.normalizers["measurement"], jnp.asarray(actual["measurement"][..., 0])
    )
    expected = clean["measurement"].reshape(5, -1)
    np.testing.assert_allclose(measurement, expected, rtol=1e-5, atol=1e-7)
    expected = clean["coefficient"].reshape(5, -1, 1)
    np.testing.assert_array_equal(actual["coefficient"], expected)


def test_noise_is_drawn_once_and_scaled(data):
    clean, small, large = (data.noises[size] for size in (0.0, 0.1, 0.2))
    for split in ("train", "validation", "test"):
        a, b, c = (getattr(d, split)["measurement"] for d in (clean, small, large))
        np.testing.assert_allclose(c - a, 2 * (b - a), atol=1e-5)
        np.testing.assert_allclose(np.std(b - a), 0.1, rtol=0.2)


def test_noise_is_independent_between_the_sets(data):
    drawn = np.concatenate(
        [
            noisy["measurement"][:4, :, 0] - clean["measurement"][:4, :, 0]
            for noisy, clean in zip(data.noises[0.1], data.noises[0.0], strict=True)
        ]
    )
    correlation = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(correlation).max() < 0.5  # 1 for equal noise; 81 points each


def test_the_test_set_does_not_depend_on_the_size_of_the_validation_set(
    data, cache_dir
):
    config = dataclasses.replace(TINY, num_validation=2)
    other = darcy_inverse_data.load(config, cache_dir=cache_dir).noises[0.1]
    for name, values in data.noises[0.1].test.items():
        np.testing.assert_array_equal(other.test[name], values)


@pytest.mark.parametrize("name", MODELS)
def test_models_map_the_fine_grid_to_the_coarse_one(name, data):
    sample = jax.tree.map(lambda values: values[0], data.noises[0.1].train)
    goal = objective(TINY, data.normalizers)

    def predict():
        return goal.predict(MODELS[name](TINY, rngs=nnx.Rngs(0)), sample)

    assert jax.eval_shape(predict).shape == (25, 1)


def test_the_loss_is_the_mean_relative_error_in_physical_units(data):
    config = dataclasses.replace(TINY, batch_size=3)
    batch = jax.tree.map(lambda values: values[:3], data.noises[0.1].train)
    normalizer = data.normalizers["coefficient"]
    encoded = batch["measurement"][:, :25, 0]
    truth = batch["coefficient"][..., 0]
    difference = encoded * normalizer.std + normalizer.mean - truth
    errors = np.linalg.norm(difference, axis=1) / np.linalg.norm(truth, axis=1)
    loss = objective(config, data.normalizers).loss
    actual = loss(lambda measurement: measurement[:25], batch)
    np.testing.assert_allclose(actual, errors.mean(), rtol=1e-5)


def test_presets_have_the_published_grids():
    paper, quick = (darcy_inverse.PRESETS[name] for name in ("paper", "quick"))
    assert (paper.grid_shape, paper.coarse_shape) == ((141, 141), (71, 71))
    assert (quick.grid_shape, quick.coarse_shape) == ((47, 47), (24, 24))
    table = dataclasses.replace(paper, target_stride=12)
    assert table.coarse_shape == (36, 36)
    assert list(quick.members())[:2] == [("galerkin_0", 0), ("fno_0", 0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_stride": 4}, "target_stride=4 must be a multiple of stride=3"),
        ({"num_points": 141}, "must divide num_points - 1 = 140"),
        (
            {"models": "galerkin,unet"},
            "'unet' is unknown; choose from galerkin, fourier, softmax, linear, fno",
        ),
        ({"noises": "0,-0.1"}, "noises='0,-0.1' must be non-negative"),
        ({"noises": "0,much"}, "must be non-negative numbers"),
        ({"noises": "nan"}, "must be non-negative numbers"),
        ({"noises": "0.1,0.10"}, "contains a noise twice"),
        ({"num_heads": 5}, "num_heads=5 must divide features=48"),
        ({"batch_size": 400}, "batch_size=400 must be at most num_train=300"),
        ({"num_train": 1}, "num_train=1 must be .*at least 2"),
        ({"seeds": "0,x"}, "must be non-negative whole numbers"),
    ],
)
def test_bad_hyper_parameters_are_refused_before_any_work(change, message):
    with pytest.raises(ValueError, match=message):
        darcy_inverse.Config(**change)
