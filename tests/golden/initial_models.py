"""Fresh models of opjax, their parameters under the names of the reference code."""

import functools

import jax
import numpy as np
from flax import nnx

from experiments import sinusoid_regressors
from opjax import nn
from tests.builders import transformer
from tests.nn.parameters import layer_of

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
        block = layer_of(model.blocks, layer)
        prefix = f"blocks.{layer}."
        values |= norm_parameters(block.attention_norm, prefix + "ln_1")
        values |= norm_parameters(block.mlp_norm, prefix + "ln_2")
        values |= mlp_parameters(block.mlp, prefix + "mlp")
        basis = block.attention.basis
        values |= attention_parameters(block.attention, basis, prefix + "Attn.")
    return values


def perceptron_parameters(perceptron, prefix):
    """Layers of the reference are numbered with the activations between them."""
    values = {}
    for i, layer in enumerate([*perceptron.hidden, perceptron.out]):
        values |= linear_parameters(layer, f"{prefix}.{2 * i}")
    return values


def operator_transformer(num_layers=8, **options):
    options = {"point_dim": 2, "feature_dim": 0, "out_features": 1} | options
    model = transformer(num_layers=num_layers, rngs=nnx.Rngs(3), **options)
    return model_parameters(jax.tree.map(np.asarray, model), num_layers)


def attention(features, *, num_heads, mixer=(), use_bias=True, **options):
    layer = nn.BasisAttention(
        features,
        num_heads=num_heads,
        basis=functools.partial(nn.bases.SoftmaxBasis, use_bias=use_bias, **options),
        mixer=functools.partial(
            nn.mixers.FunctionalMap, fan_in_init=True, **dict(mixer)
        ),
        use_bias=use_bias,
        fan_in_init=True,
        rngs=nnx.Rngs(4),
    )
    return attention_parameters(layer, layer.basis)


def super_resolution():
    model = nn.SuperResolutionTransformer(rngs=nnx.Rngs(5))
    values = linear_parameters(model.lift, "feat_extract.id")
    for i in range(4):
        layer = layer_of(model.layers, i)
        prefix = f"encoder_layers.{i}."
        values |= attention_parameters(
            layer.attention, layer.attention.basis, prefix + "attn."
        )
        values |= linear_parameters(layer.hidden, prefix + "ff.lr1")
        values |= linear_parameters(layer.out, prefix + "ff.lr2")
    for i, filters in enumerate(model.decoder.layers):
        prefix = f"regressor.spectral_conv.{i}."
        kernel = filters.convolution.kernel[...]
        values |= {f"{prefix}fourier_weight": kernel}
        values |= linear_parameters(filters.skip, f"{prefix}linear")
    decoder = perceptron_parameters(model.decoder.perceptron, "regressor.regressor")
    return values | decoder


def tokens(regressor, features):
    model = regressor(features, rngs=nnx.Rngs(6))
    values = perceptron_parameters(model.encoder, "to_q")
    values |= {"temperature": model.temperature[...]}
    return values | linear_parameters(model.scores, "slice")


def intention():
    model = sinusoid_regressors.IntentionRegressor(
        1000, num_heads=8, ridge=0.1, rngs=nnx.Rngs(7)
    )
    return perceptron_parameters(model.key, "enc_k")


def decoded(regressor, features, **options):
    model = regressor(features, rngs=nnx.Rngs(8), **options)
    values = perceptron_parameters(model.key, "enc_k.net")
    values |= perceptron_parameters(model.value, "enc_v.net")
    if hasattr(model, "kernel"):
        values["attn.in_proj_weight"] = model.kernel[...]
        values["attn.in_proj_bias"] = model.bias[...]
        values |= linear_parameters(model.out, "attn.out_proj")
    return values | perceptron_parameters(model.decoder, "dec.net")


OURS = {
    "Darcy": functools.partial(
        operator_transformer, feature_dim=1, grid_shape=(85, 85), reference_points=8
    ),
    "Elas": functools.partial(operator_transformer, mlp_ratio=2, ridge_logit=1e-3),
    "Airfoil": functools.partial(operator_transformer, grid_shape=(221, 51)),
    "NS": functools.partial(
        operator_transformer,
        features=256,
        num_basis=32,
        feature_dim=10,
        grid_shape=(64, 64),
        reference_points=8,
        shared_basis=False,
    ),
    "Pipe": functools.partial(
        operator_transformer, feature_dim=2, grid_shape=(129, 129), shared_basis=False
    ),
    "Plasticity": functools.partial(
        operator_transformer,
        feature_dim=1,
        out_features=4,
        grid_shape=(101, 31),
        shared_basis=False,
        time_embedding=True,
    ),
    "AirfRANS": functools.partial(
        operator_transformer,
        features=256,
        num_basis=32,
        feature_dim=7,
        out_features=4,
        mlp_ratio=2,
        reference_points=8,
        shared_basis=False,
    ),
    "Burgers": super_resolution,
    "fewshot_funcattn": functools.partial(
        tokens,
        functools.partial(
            sinusoid_regressors.FunctionalRegressor, num_basis=8, ridge=0.1
        ),
        128,
    ),
    "fewshot_transolver": functools.partial(
        tokens,
        functools.partial(
            sinusoid_regressors.TransolverRegressor, num_basis=8, num_heads=8
        ),
        256,
    ),
    "fewshot_intention": intention,
    "fewshot_attention": functools.partial(
        decoded, sinusoid_regressors.SoftmaxAttentionRegressor, 256, num_heads=8
    ),
    "fewshot_linear_attention": functools.partial(
        decoded, sinusoid_regressors.LinearAttentionRegressor, 128
    ),
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
