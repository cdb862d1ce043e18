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
    models="galerkin",
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


@pytest.mark.slow
def test_a_run_trains_evaluates_and_is_read_afterwards(tmp_path, cache_dir, capsys):
    result = darcy_inverse.run(TINY, workdir=tmp_path, cache_dir=cache_dir)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result
    assert result["seeds"] == [0]
    assert result["data"] == "own solver, 25 points, seed 0"
    assert result["parameters_galerkin"] > 0
    assert (tmp_path / "samples.png").stat().st_size > 1e3
    folder = tmp_path / "galerkin_0.1-0"
    stored = np.load(folder / "predictions.npz")
    assert stored["measurement"].shape == (4, 9, 9)
    prediction, truth = stored["prediction"], stored["coefficient"]
    assert prediction.shape == truth.shape == (4, 5, 5)
    errors = np.linalg.norm(prediction - truth, axis=(1, 2))
    errors = errors / np.linalg.norm(truth, axis=(1, 2))
    np.testing.assert_allclose(stored["errors"][:4], errors, rtol=1e-4)
    np.testing.assert_allclose(result["error_galerkin_0.1"], stored["errors"].mean())
    assert 0 < result["error_galerkin_0.1"] < 2
    before = (folder / "metrics.jsonl").stat().st_mtime_ns
    again = darcy_inverse.run(TINY, workdir=tmp_path, cache_dir=cache_dir)
    assert again == result
    assert (folder / "metrics.jsonl").stat().st_mtime_ns == before
    other = dataclasses.replace(TINY, noises="0.2")
    with pytest.raises(ValueError, match="another configuration"):
        darcy_inverse.run(other, workdir=tmp_path, cache_dir=cache_dir)


def test_the_table_has_models_by_noises_beside_the_paper(
    tmp_path, cache_dir, monkeypatch
):
    def train(config, directory, data, *, tensorboard):
        error = 0.5 if config.models == "fno" else float(config.noises)
        error += 0.02 * int(config.seeds)
        np.savez(
            directory.path / "predictions.npz",
            measurement=np.ones((4, 9, 9)),
            coefficient=np.ones((4, 5, 5)),
            prediction=np.ones((4, 5, 5)),
            errors=np.full(5, error),
        )
        return {"error": error, "parameters": 1234, "seconds": 3.0}

    monkeypatch.setattr(darcy_inverse, "train", train)
    config = dataclasses.replace(
        TINY, models="galerkin,fno", noises="0.01,0.05", seeds="0,1"
    )
    result = darcy_inverse.run(config, workdir=tmp_path, cache_dir=cache_dir)
    np.testing.assert_allclose(result["error_galerkin_0.05"], 0.06)
    np.testing.assert_allclose(result["error_fno_0.01_std"], 0.02 / 2**0.5)
    assert (tmp_path / "tables.md").read_text().splitlines()[-4:] == [
        "| model | parameters | seconds each "
        "| noise 0.01 | paper | noise 0.05 | paper |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| galerkin (paper: GT Ln on K, V) | 1,234 | 3 "
        "| 2 ± 1.4 | 2.552 | 6 ± 1.4 |  |",
        "| fno (paper: FNO2d (only nc)) | 1,234 | 3 | 51 ± 1.4 | 14.31 | 51 ± 1.4 |  |",
    ]


def test_without_noise_the_measurements_are_the_clean_solutions(data, cache_dir):
    test = dataset.generate(5, seed=2, num_points=25, stride=1, cache_dir=cache_dir)
    coeff, sol = (
        np.stack([getattr(s, name).reshape(25, 25) for s in test])
        for name in ("features", "target")
    )
    clean = inverse_dataset.pairs(coeff, sol, stride=3, target_stride=6)
    actual = data.noises[0.0].test
    measurement = normalize.decode(
        data.normalizers["measurement"], jnp.asarray(actual["measurement"][..., 0])
    )
    expected = clean["measurement"].reshape(5, -1)
    np.testing.assert_allclose(measurement, expected, rtol=1e-5, atol=1e-7)
    expected = clean["coefficient"].reshape(5, -1, 1)
    np.testing.assert_array_equal(actual["coefficient"], expected)


def test_files_hold_the_same_samples_as_our_own_solver(data, cache_dir, tmp_path):
    for name, size, seed in (("smooth1", 12, 0), ("smooth2", 5, 2)):
        made = dataset.generate(
            size, seed=seed, num_points=25, stride=1, cache_dir=cache_dir
        )
        path = tmp_path / f"piececonst_r25_N1024_{name}.npz"
        dataset.save(path, made)
    config = dataclasses.replace(TINY, data_dir=str(tmp_path))
    loaded = darcy_inverse_data.load(config)
    assert loaded.source == str(tmp_path)
    for split in ("train", "test"):
        expected = getattr(data.noises[0.1], split)
        for name, values in getattr(loaded.noises[0.1], split).items():
            np.testing.assert_array_equal(values, expected[name])


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
    mean, std = map(np.asarray, normalizer)
    difference = encoded * std + mean - truth
    errors = np.linalg.norm(difference, axis=1) / np.linalg.norm(truth, axis=1)
    loss = objective(config, data.normalizers).loss
    actual = loss(lambda points, measurement: measurement[:25], batch)
    np.testing.assert_allclose(actual, errors.mean(), rtol=1e-5)


def test_the_paper_preset_has_as_many_parameters_as_published():
    paper = darcy_inverse.PRESETS["paper"]
    model = jax.eval_shape(lambda: MODELS["galerkin"](paper, rngs=nnx.Rngs(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) == 2_383_873


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
