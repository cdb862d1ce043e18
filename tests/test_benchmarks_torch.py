"""The rivals in PyTorch are of the published sizes, and are scored as ours are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch", reason="PyTorch is an extra, opjax[benchmark]")

from benchmarks import (  # noqa: E402
    device_cases,
    speed,
    torch_galerkin,
    torch_models,
    torch_recipes,
    torch_schwarz,
)
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
    assert_allclose(float(total), sum(expected), rtol=1e-12)


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
    assert_allclose(output, found["output"], rtol=1e-10, atol=1e-12)


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
    assert_allclose(output[inside], expected[inside], rtol=1e-10)


@pytest.mark.parametrize("name", list(speed.CASES))
def test_every_rival_of_a_training_step_lowers_its_loss(name):
    case = device_cases.SMALL.step(name)
    _, forward, step = speed.torch_calls(case, lambda model: model)
    assert forward().shape == (case.batch, case.num_points, 1)
    first, *_, last = [step().item() for _ in range(20)]
    assert last < first


def test_compiled_models_have_the_values_of_eager_ones():
    case = device_cases.SMALL.step("points_972")
    compile = lambda model: torch.compile(model, backend="eager")  # noqa: E731
    values = [speed.torch_calls(case, how)[1]() for how in (lambda m: m, compile)]
    torch.testing.assert_close(*values)


@pytest.mark.parametrize("name", torch_recipes.MODELS)
def test_rivals_of_recipes_take_a_step_of_their_optimizers(name, rng):
    if name == "fno":
        model = FNO(3, 1, (9, 9), features=4)
    elif name == "galerkin":
        model = torch_galerkin.GalerkinTransformer(
            3, 1, (9, 9), features=8, num_layers=1, num_heads=2, hidden=8, channels=4,
            modes=3, boundary=0.0,
        )  # fmt: skip
    else:
        model = torch_models.OperatorTransformer(
            functional=name == "functional", grid_shape=(9, 9), feature_dim=1,
            features=8, num_layers=1, num_heads=2, num_basis=4,
        )  # fmt: skip
    before = [p.detach().clone() for p in model.parameters()]
    optimizer, schedule, *_ = torch_recipes.recipe(name, model.parameters(), 2, 10)
    points, values = (
        torch.tensor(rng.random((2, 81, c)), dtype=torch.float32) for c in (2, 1)
    )
    model(points, values).square().mean().backward()
    optimizer.step()
    schedule.step()
    moved = [
        not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)
    ]
    assert any(moved)


def test_both_versions_of_schwarz_attention_agree(rng):
    def draw(*shape):
        return torch.tensor(rng.random(shape))

    starts, size, rank = (0, 3), 5, 2
    indices = torch.tensor([[*range(a, a + size)] for a in starts])
    weights, hats = draw(2, size), draw(8, 1)
    factors = [draw(2, size, rank), draw(2, size, rank), draw(1, 1), draw(1, 1)]
    plain = torch_schwarz.PlainSchwarz(
        [(a, a + size) for a in starts], weights, hats,
        *([*factor] for factor in factors[:2]), *factors[2:],
    )  # fmt: skip
    batched = torch_schwarz.BatchedSchwarz(indices, weights, hats, *factors)
    f = draw(3, 8)
    torch.testing.assert_close(plain(f), batched(f.T).T)
