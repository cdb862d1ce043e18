"""Fresh parameters have the statistics of those of the reference code."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from opjax import nn
from tests.builders import transformer

FILE = Path(__file__).with_name("init_stats_default_models.npz")

SLICES = ("in_project_basis", "in_project_slice", "slice1")


def attention_parameters(attention, basis, prefix=""):
    """Parameters under all the names that the reference has for them."""
    values = {}
    if basis is not None:
        for leaf, name in (("kernel", "weight"), ("bias", "bias")):
            projection = getattr(basis.projection, leaf)
            score = getattr(basis, f"score_{leaf}")
            if projection is None:
                continue
            fx, x = np.split(np.asarray(projection[...]), 2, axis=-1)
            values |= {f"in_project_fx.{name}": fx, f"in_project_x.{name}": x}
            values[f"in_proj.{name}"] = x
            values |= {f"{slices}.{name}": np.asarray(score[...]) for slices in SLICES}
        values["temperature"] = basis.temperature[...]
    if attention is not None:
        values["alpha"] = attention.mixer.ridge_logit[...]
        for name in ("query", "key", "value"):
            values[f"to_{name[0]}.weight"] = getattr(attention.mixer, name).kernel[...]
        values |= linear_parameters(attention.out, "to_out.0")
        values |= linear_parameters(attention.out, "out_proj")
    return {prefix + name: value for name, value in values.items()}


def linear_parameters(linear, prefix):
    values = {f"{prefix}.weight": linear.kernel[...]}
    if linear.bias is not None:
        values[f"{prefix}.bias"] = linear.bias[...]
    return values


def norm_parameters(norm, prefix):
    return {f"{prefix}.weight": norm.scale[...], f"{prefix}.bias": norm.bias[...]}


def mlp_parameters(mlp, prefix):
    values = linear_parameters(mlp.hidden[0], f"{prefix}.linear_pre.0")
    if mlp.residual:
        values |= linear_parameters(mlp.hidden[1], f"{prefix}.linears.0.0")
    return values | linear_parameters(mlp.out, f"{prefix}.linear_post")


def model_parameters(model, num_layers):
    values = mlp_parameters(model.encoder, "preprocess")
    values |= linear_parameters(model.decoder, "last_lin")
    last = f"blocks.{num_layers - 1}."
    values |= linear_parameters(model.decoder, last + "mlp2")
    if model.decoder_norm is not None:
        values |= norm_parameters(model.decoder_norm, last + "ln_3")
    if model.time_embedding is not None:
        values |= linear_parameters(model.time_embedding.hidden, "time_fc.0")
        values |= linear_parameters(model.time_embedding.out, "time_fc.2")
    values |= attention_parameters(None, model.basis)
    for layer in range(num_layers):
        block = jax.tree.map(lambda p, layer=layer: p[layer], model.blocks)
        prefix = f"blocks.{layer}."
        values |= norm_parameters(block.attention_norm, prefix + "ln_1")
        values |= norm_parameters(block.mlp_norm, prefix + "ln_2")
        values |= mlp_parameters(block.mlp, prefix + "mlp")
        basis = block.attention.basis
        values |= attention_parameters(block.attention, basis, prefix + "Attn.")
    return values


def operator_transformer(num_layers=8, **options):
    options = {"point_dim": 2, "feature_dim": 0, "out_features": 1} | options
    model = transformer(num_layers=num_layers, rngs=nnx.Rngs(3), **options)
    return model_parameters(jax.tree.map(np.asarray, model), num_layers)


def attention(features, *, num_heads, mixer=(), use_bias=True, **options):
    layer = nn.BasisAttention(
        features,
        num_heads=num_heads,
        basis=functools.partial(nn.SoftmaxBasis, use_bias=use_bias, **options),
        mixer=functools.partial(nn.FunctionalMap, fan_in_init=True, **dict(mixer)),
        use_bias=use_bias,
        fan_in_init=True,
        rngs=nnx.Rngs(4),
    )
    return attention_parameters(layer, layer.basis)


OURS = {
    "Darcy": functools.partial(
        operator_transformer, feature_dim=1, grid_shape=(85, 85), reference_points=8
    ),
    "Elas": functools.partial(operator_transformer, mlp_ratio=2, ridge_logit=1e-3),
    "RNA": functools.partial(
        operator_transformer,
        num_layers=4,
        num_basis=128,
        point_dim=3,
        out_features=260,
        mlp_ratio=2,
        shared_basis=False,
        residual_encoder=True,
        decoder_norm=False,
    ),
    "attention_structured2d_fresh": functools.partial(
        attention, 128, num_heads=8, num_basis=64, grid_shape=(85, 85)
    ),
    "attention_rna_fresh": functools.partial(
        attention, 128, num_heads=8, num_basis=128
    ),
    "attention_burgers_fresh": functools.partial(
        attention,
        92,
        num_heads=1,
        num_basis=64,
        point_dim=1,
        use_bias=False,
        mixer={"ridge_logit": 2.0},
    ),
}
# The reference initialises the trunk after the blocks, and so overwrites the basis that
# a block owns by N(0, 0.02^2), and leaves the layer after it; ours start as everywhere.
DIFFERENT = {"RNA": (*SLICES, "in_project_x", "in_project_fx", "last_lin")}


@pytest.mark.parametrize("name", OURS)
def test_parameters_start_as_in_the_reference_code(name):
    with np.load(FILE, allow_pickle=False) as archive:
        keys = ("names", "shapes", "mean", "std", "absmax")
        columns = [archive[f"{name}.{key}"] for key in keys]
    ours = OURS[name]()
    for parameter, shape, *theirs in zip(*columns, strict=True):
        parameter = parameter.removeprefix("feature_extractor.")
        parameter = parameter.replace("SelfAttn.", "Attn.")
        if parameter == "placeholder":
            continue  # part of a bias here
        value = np.asarray(ours[parameter], float)
        sizes = [int(n) for n in str(shape).split("x") if n]
        assert value.size == np.prod(sizes, dtype=int), parameter
        if any(part in parameter for part in DIFFERENT.get(name, ())):
            continue
        message = f"{parameter}: {_statistics(value)}, {theirs} in the reference"
        assert _agree(value, *theirs), message


def test_an_orthogonal_basis_starts_orthogonal():
    with np.load(FILE, allow_pickle=False) as archive:
        theirs = archive["Darcy.gram_minus_I.in_project_basis.weight"]
    kernel = np.asarray(OURS["Darcy"]()["in_project_basis.weight"], float)
    ours = np.max(np.abs(kernel @ kernel.T - np.eye(16)))
    assert max(ours, theirs) < 1e-6


def _statistics(value):
    return float(np.mean(value)), float(np.std(value)), float(np.max(np.abs(value)))


def _agree(value, mean, std, absmax):
    """Whether two samples of one size may have one distribution, at six sigma."""
    our_mean, our_std, our_absmax = _statistics(value)
    if std == 0 and value.size > 1 or our_std == 0:
        return our_std == std and np.allclose(our_mean, mean) and our_absmax == absmax
    sigma = 6 * np.sqrt(2 / value.size)
    if absmax < 2 * std:  # uniform: the largest entry is near the bound
        close = abs(our_absmax / absmax - 1) < 12 / value.size
    else:
        close = abs(our_absmax - absmax) < 2 * std
    return (
        abs(our_mean - mean) < sigma * std and abs(our_std / std - 1) < sigma and close
    )
