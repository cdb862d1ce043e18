import numpy as np
import pytest

from opjax.learn import figures

PNG = b"\x89PNG\r\n\x1a\n"


def assert_small_png(path):
    content = path.read_bytes()
    assert content.startswith(PNG)
    assert len(content) < 3e5
    assert [f.name for f in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("num_samples", [1, 3])
def test_predictions(tmp_path, rng, num_samples):
    fields = rng.normal(size=(3, num_samples, 6, 5)).astype(np.float32)
    figures.predictions(
        tmp_path / "a.png",
        coefficient=fields[0],
        solution=fields[1],
        prediction=fields[2],
        errors=np.full(num_samples, 0.5),
        names=["sample"] * num_samples,
    )
    assert_small_png(tmp_path / "a.png")


@pytest.mark.parametrize("num_epochs", [1, 30])
def test_curves(tmp_path, num_epochs):
    history = [
        {
            "epoch": epoch,
            "train_loss": 4.0 / epoch,
            "validation": 1.0 / epoch,
            "learning_rate": 1e-3 / epoch,
        }
        for epoch in range(1, num_epochs + 1)
    ]
    figures.curves(tmp_path / "a.png", history, batch_size=4, test_error=0.1)
    assert_small_png(tmp_path / "a.png")


@pytest.mark.parametrize(("num_layers", "num_basis"), [(1, 2), (4, 12)])
def test_basis_functions(tmp_path, rng, num_layers, num_basis):
    bases = rng.uniform(size=(num_layers, 2, 6, 5, num_basis))
    figures.basis_functions(tmp_path / "a.png", bases)
    assert_small_png(tmp_path / "a.png")


@pytest.mark.parametrize(("num_layers", "num_heads"), [(1, 1), (8, 8)])
def test_functional_maps(tmp_path, rng, num_layers, num_heads):
    maps = rng.normal(size=(num_layers, num_heads, 7, 7))
    figures.functional_maps(tmp_path / "a.png", maps)
    assert_small_png(tmp_path / "a.png")


def test_the_same_data_give_the_same_file(tmp_path, rng):
    maps = rng.normal(size=(2, 2, 3, 3))
    figures.functional_maps(tmp_path / "a.png", maps)
    first = (tmp_path / "a.png").read_bytes()
    figures.functional_maps(tmp_path / "a.png", maps)
    assert (tmp_path / "a.png").read_bytes() == first
