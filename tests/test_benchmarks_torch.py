"""The rivals in PyTorch are of the published sizes, and are scored as ours are."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra, opjax[benchmark]")

from benchmarks import torch_galerkin, torch_models, torch_recipes  # noqa: E402
from benchmarks.torch_fno import FNO  # noqa: E402
from opjax import metrics  # noqa: E402


def test_fno_has_the_published_parameters():
    model = FNO(3, 1, (85, 85))
    assert sum(p.numel() for p in model.parameters()) == 2_368_001


def test_fno_of_a_small_grid_has_the_wave_numbers_of_the_grid():
    model = FNO(3, 2, (5, 4), features=4)
    assert model.spectral[0].modes == (7, 7)
    assert model(torch.zeros(2, 20, 2), torch.zeros(2, 20, 1)).shape == (2, 20, 2)


def test_slopes_are_those_of_our_metric(rng):
    grid = (6, 5)
    found, target = rng.normal(size=(2, 3, 30, 1))
    expected = [
        float(metrics.relative_gradient_error(p, t, grid_shape=grid))
        for p, t in zip(found, target, strict=True)
    ]
    total = torch_recipes.slopes(torch.tensor(found), torch.tensor(target), grid)
    np.testing.assert_allclose(float(total), sum(expected), rtol=1e-12)


def test_samples_of_several_sizes_are_refused():
    with pytest.raises(ValueError, match="2 sizes"):
        torch_recipes.arrays_of(({}, {}))


@pytest.mark.parametrize("case", ["irregular_a", "structured2d_a"])
def test_attention_is_that_of_transolver_s_authors(case, shared_dir):
    with np.load(shared_dir / f"golden/transolver_attention_{case}.npz") as file:
        names = [name for name in file.files if file[name].dtype.kind == "f"]
        found = {name: torch.tensor(file[name]) for name in names}
    heads, features = found["param.temperature"].shape[1], found["output"].shape[-1]
    grid = (6, 5) if case.startswith("structured") else None
    num_basis = found["param.in_project_slice.weight"].shape[0]
    basis = torch_models.Basis(features, heads, num_basis, grid).double()
    attention = torch_models.Attention(features, heads, functional=False).double()
    own = {
        name.removeprefix("param."): value
        for name, value in found.items()
        if name.startswith("param.")
    }
    for module in (basis, attention):
        names = module.state_dict()
        module.load_state_dict({name: own[name] for name in names})
    with torch.inference_mode():
        output = attention(*basis(found["input.x"].double()))
    np.testing.assert_allclose(output, found["output"], rtol=1e-10, atol=1e-12)


def test_galerkin_s_transformer_is_that_of_its_author(shared_dir):
    name = "galerkin_ft2d_noscaler_galerkin_a"
    with np.load(shared_dir / f"golden/{name}.npz") as file:
        names = [name for name in file.files if file[name].dtype.kind == "f"]
        found = {name: torch.tensor(file[name]) for name in names}
    model = torch_galerkin.GalerkinTransformer(
        3, 1, (9, 9), features=12, num_layers=2, num_heads=2, hidden=20,
        channels=5, modes=3, boundary=0.0,
    ).double()  # fmt: skip
    own = {name: found[f"param.{name}"] for name in model.state_dict()}
    model.load_state_dict(own)
    points, values = found["input.pos"], found["input.node"].flatten(1, 2)
    with torch.inference_mode():
        output = model(points, values).unflatten(1, (9, 9))
        output = output * (found["input.norm_std"] + 1e-5) + found["input.norm_mean"]
    inside = (slice(None), slice(1, -1), slice(1, -1))
    expected = found["output"]
    np.testing.assert_allclose(output[inside], expected[inside], rtol=1e-10)
