"""Builds the modules of the Galerkin transformer from its authors' parameters."""

import functools
import math
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import nn
from opjax.nn.attention.heads import merge_heads
from opjax.nn.attention.pointwise import ATTENTIONS
from tests.builders import POINTS
from tests.golden.adapters import Adapter, assign, stacked
from tests.golden.adapters_models import ENCODER_NORMS, FEED_FORWARD, OFF, UNUSED

LINEARS = {"query": "linears.0", "key": "linears.1", "value": "linears.2", "out": "fc"}


def _assign_attention(layer, params, prefix=""):
    assign(layer, params, LINEARS, prefix)
    partner = "Q" if layer.normalizes_queries else "V"
    for norm, letter in ((layer.key_norm, "K"), (layer.partner_norm, partner)):
        if norm is not None:
            names = [f"{prefix}norm_{letter}.{h}" for h in range(layer.num_heads)]
            norm.scale = nnx.Param(jnp.stack([params[f"{n}.weight"] for n in names]))
            norm.bias = nnx.Param(jnp.stack([params[f"{n}.bias"] for n in names]))


def _attention_layer(params, config):
    layer = POINTS[config["attention_type"]](
        config["d_model"],
        num_heads=config["heads"],
        point_dim=config["pos_dim"],
        normalization=config["norm_type"],
        epsilon=config["eps"],
        rngs=nnx.Rngs(0),
    )
    _assign_attention(layer, params)
    return layer


def _attention(params, inputs, config):
    layer = _attention_layer(params, config)
    return jax.vmap(lambda x, pos: layer(x, mesh_points=pos))(
        inputs["x"], inputs["pos"]
    )


def _attention_with_dropout(params, inputs, config):
    """Galerkin attention with the recorded mask of its matrix, which opjax has not."""
    layer = _attention_layer(params, config)

    def sample(x, pos, multiplier):
        query, key, value = layer.head_inputs(x, mesh_points=pos)
        matrix = multiplier * (jnp.swapaxes(key, 1, 2) @ value) / x.shape[0]
        return layer.out(merge_heads(query @ matrix))

    multiplier = config["inter.dropout_multiplier"]
    return jax.vmap(sample)(inputs["x"], inputs["pos"], multiplier)


def _assign_encoder(layer, params, prefix=""):
    _assign_attention(layer.attention, params, f"{prefix}attn.")
    norms = {} if layer.attention_norm is None else ENCODER_NORMS
    assign(layer, params, FEED_FORWARD | norms, prefix)


def _encoder(params, inputs, config):
    layer = nn.models.EncoderLayer(
        config["d_model"],
        hidden_features=config["dim_feedforward"],
        attention=partial(
            POINTS[config["attention_type"]],
            num_heads=config["heads"],
            point_dim=inputs["pos"].shape[-1],
            normalization="layer" if config["attn_norm"] else None,
        ),
        outer_norm=config["layer_norm"],
        rngs=nnx.Rngs(0),
    )
    _assign_encoder(layer, params)
    return jax.vmap(lambda x, pos: layer(x, nn.models.Points(pos)))(
        inputs["x"], inputs["pos"]
    )


def _assign_convolution(convolution, params, name):
    weight = params[f"{name}.weight"]
    convolution.kernel = nnx.Param(jnp.transpose(weight, (2, 3, 1, 0)))
    if f"{name}.bias" in params:
        convolution.bias = nnx.Param(params[f"{name}.bias"])


def _on_grids(module, fields):
    """Applies a module of flat values to a batch of fields `(B, i, j, c)`."""
    batch, *grid, channels = fields.shape
    output = jax.vmap(module)(fields.reshape(batch, grid[0] * grid[1], channels))
    side = round(output.shape[1] ** 0.5)
    grid = grid if output.shape[1] == grid[0] * grid[1] else (side, side)
    return output.reshape(batch, *grid, -1)


def _convolution_block(params, inputs, config):
    block = nn.layers.ConvolutionBlock(
        config["in_dim"],
        config["out_dim"],
        grid_shape=inputs["x"].shape[2:],
        activation=config["activation_type"],
        use_bias=config.get("bias", False),
        residual=config.get("residual", False),
        double=config.get("basic_block", False),
        rngs=nnx.Rngs(0),
    )
    _assign_convolution(block.convolution, params, "conv.0")
    if block.second is not None:
        _assign_convolution(block.second, params, "conv1.1")
    if block.shortcut is not None:
        assign(block, params, {"shortcut": "res.shortcut"})
    fields = jnp.moveaxis(inputs["x"], 1, -1)
    return jnp.moveaxis(_on_grids(block, fields), -1, 1)


def _sizes(size, n):
    """Returns middle and last shape from one or two factors, or two shapes."""
    factors = [size, size] if isinstance(size, float) else size
    if isinstance(factors[0], list):
        return [tuple(shape) for shape in factors]
    middle = math.floor(n * factors[0])
    last = math.floor(middle * factors[1])
    return [(middle, middle), (last, last)]


def _assign_down(scaler, params, prefix=""):
    blocks = (scaler.fine, scaler.first, scaler.second, scaler.third)
    for i, block in enumerate(blocks):
        name = f"{prefix}downsample.conv{i}.conv.0"
        _assign_convolution(block.convolution, params, name)


def _assign_up(scaler, params, prefix=""):
    name = f"{prefix}upsample.conv.0.conv.0"
    _assign_convolution(scaler.block.convolution, params, name)


def _down(params, inputs, config):
    middle, last = _sizes(config["size"], config["n"])
    scaler = nn.layers.DownScaler(
        config["in_dim"],
        config["out_dim"],
        grid_shape=(config["n"], config["n"]),
        middle_shape=middle,
        new_shape=last,
        activation=config["act"],
        rngs=nnx.Rngs(0),
    )
    _assign_down(scaler, params)
    return _on_grids(scaler, inputs["x"])


def _up(params, inputs, config):
    middle, last = config["size"]
    scaler = nn.layers.UpScaler(
        config["in_dim"],
        grid_shape=(config["n"], config["n"]),
        middle_shape=middle,
        new_shape=last,
        activation=config["act"],
        rngs=nnx.Rngs(0),
    )
    _assign_up(scaler, params)
    return _on_grids(scaler, inputs["x"])


def _assign_spectral(layer, params, prefix):
    assign(layer, params, {"skip": "linear"}, prefix)
    low, high = (params[f"{prefix}fourier_weight.{i}"] for i in (0, 1))
    # Ours counts the first frequency from the most negative one.
    kernel = jnp.concatenate([high, low], axis=2)
    layer.convolution.kernel = nnx.Param(jnp.transpose(kernel, (2, 3, 0, 1, 4)))


def _assign_spectral_decoder(decoder, params, prefix=""):
    names = {"perceptron.hidden.0": "regressor.0", "perceptron.out": "regressor.2"}
    assign(decoder, params, names | _lift(decoder), prefix)
    for i, layer in enumerate(decoder.layers):
        _assign_spectral(layer, params, f"{prefix}spectral_conv.{i}.")


def _assign_pointwise_decoder(decoder, params, prefix=""):
    hidden = range(len(decoder.perceptron.hidden))
    names = {f"perceptron.hidden.{i}": f"ff.{i}.0" for i in hidden}
    names |= {"perceptron.out": "out"}
    assign(decoder, params, names | _lift(decoder), prefix)


def _lift(decoder):
    return {} if decoder.lift is None else {"lift": "fc"}


def _decode(decoder, inputs, config):
    x, grid = (
        inputs[name].reshape(config["B"], config["n"] ** 2, -1)
        for name in ("x", "grid")
    )
    if config["spacial_fc"]:
        out = jax.vmap(lambda x, grid: decoder(x, mesh_points=grid))(x, grid)
    else:
        out = jax.vmap(decoder)(x)
    return out.reshape(*inputs["x"].shape[:-1], -1)


def _spectral_decoder(params, inputs, config):
    decoder = nn.layers.SpectralDecoder(
        config["in_dim"],
        config["out_dim"],
        features=config["freq_dim"],
        grid_shape=(config["n"], config["n"]),
        modes=config["modes"],
        num_layers=config["layers"],
        point_dim=2 if config["spacial_fc"] else 0,
        last_activation=config["last_activation"],
        activation=config["act"],
        rngs=nnx.Rngs(0),
    )
    _assign_spectral_decoder(decoder, params)
    return _decode(decoder, inputs, config)


def _pointwise_decoder(params, inputs, config):
    decoder = nn.layers.PointwiseDecoder(
        config["in_dim"],
        config["out_dim"],
        features=config["n_hidden"],
        num_layers=config["layers"],
        point_dim=2 if config["spacial_fc"] else 0,
        activation=config["act"],
        rngs=nnx.Rngs(0),
    )
    _assign_pointwise_decoder(decoder, params)
    return _decode(decoder, inputs, config)


def _decoder(config, output):
    """Returns the constructor of the decoder that a configuration names."""
    options = {
        "out_features": 1,
        "num_layers": config["num_regressor_layers"],
        "point_dim": 2,
        "activation": config["regressor_activation"],
    }
    if config["decoder_type"] == "pointwise":
        features = config["n_hidden"]
        return functools.partial(
            nn.layers.PointwiseDecoder, features=features, **options
        )
    return functools.partial(
        nn.layers.SpectralDecoder,
        features=config["freq_dim"],
        grid_shape=output,
        modes=config["fourier_modes"],
        last_activation=config["last_activation"],
        **options,
    )


def _transformer(params, inputs, config):
    n, down, up = config["nf"], config["downscaler_size"], config["upscaler_size"]
    coarse, output = (config["nc"],) * 2, inputs["grid"].shape[1:3]
    spectral = config["decoder_type"] == "ifft2"
    if down:
        down = functools.partial(
            nn.layers.DownScaler,
            middle_shape=_sizes(down, n)[0],
            new_shape=coarse,
            activation=config.get("downscaler_activation", "silu"),
        )
        up = functools.partial(
            nn.layers.UpScaler,
            middle_shape=up[0] if up else None,
            new_shape=output,
            activation=config.get("upscaler_activation", "silu"),
        )
    model = nn.GalerkinTransformer2d(
        grid_shape=(n, n),
        features=config["n_hidden"],
        num_layers=config["num_encoder_layers"],
        hidden_features=config["dim_feedforward"],
        attention=functools.partial(
            ATTENTIONS[config["attention_type"]],
            num_heads=config["n_head"],
            point_dim=2,
            normalization="layer" if config["attn_norm"] else None,
            epsilon=config["norm_eps"],
        ),
        down=down or None,
        up=up or None,
        decoder=_decoder(config, output),
        outer_norm=config["layer_norm"],
        epsilon=config["norm_eps"],
        boundary=config["boundary_condition"] or "free",
        rngs=nnx.Rngs(0),
    )
    if down:
        _assign_down(model.down, params, "downscaler.")
        _assign_up(model.up, params, "upscaler.")
    else:
        assign(model, params, {"lift": "downscaler.id"})

    def assign_layer(layer, i):
        _assign_encoder(layer, params, f"encoder_layers.{i}.")

    model.layers = stacked(model.layers, config["num_encoder_layers"], assign_layer)
    decoder = _assign_spectral_decoder if spectral else _assign_pointwise_decoder
    decoder(model.decoder, params, "regressor.")

    def sample(values, pos, grid, boundary_values):
        return model(
            grid.reshape(-1, 2),
            values.reshape(-1, 1),
            mean=inputs["norm_mean"].reshape(-1, 1),
            std=inputs["norm_std"].reshape(-1, 1) + config["normalizer_eps"],
            boundary_values=boundary_values,
            coarse_points=pos,
        ).reshape(*output, 1)

    given = inputs.get("boundary_value")
    if given is not None:
        given = given.reshape(len(given), -1, 1)
    axes = (0, 0, 0, None if given is None else 0)
    return jax.vmap(sample, axes)(inputs["node"], inputs["pos"], inputs["grid"], given)


def _initialization_follows_the_rule(arrays):
    """Both sets of draws are diagonal plus uniform, with the same spread."""
    for name in arrays:
        if name.startswith("bias_absmax.") and np.any(arrays[name] != 0):
            return False
        if not name.startswith("weights."):
            continue
        stored = arrays[name]
        numbers = re.fullmatch(r"weights\.d(.*)_eta(.*)_delta(.*)", name).groups()
        width, scale, diagonal = map(float, numbers)
        width = int(width)
        init = nn.layers.initializers.diagonal_xavier(scale, diagonal)
        keys = jax.random.split(jax.random.key(0), len(stored))
        ours = np.stack([init(key, (width, width), float) for key in keys])
        bound = (3 / width) ** 0.5
        for weights in (stored.astype(float), ours):
            random = (weights - diagonal * np.eye(width)) / scale
            # Single precision of the stored sums, relative to the random part.
            limit = bound * (1 + 1e-6) + 1e-8 * diagonal / scale
            kurtosis = np.mean(random**4) / np.mean(random**2) ** 2
            spread = np.std(random) * 3**0.5 / bound
            if np.max(np.abs(random)) > limit or np.max(np.abs(random)) < 0.98 * bound:
                return False
            if abs(spread - 1) > 0.05 or abs(kurtosis - 1.8) > 0.1:
                return False
    return True


_GRID = {"grid": "without coordinates in the decoder"}
_ACTIVATION = ("relu", "silu")
_TYPES = ("galerkin", "linear", "fourier", "softmax")
_ATTENTION = {
    "attention_type": _TYPES,
    "dropout": ("off",),
    "norm_type": ("layer", "instance"),
}
_ACT = {"act": _ACTIVATION}
ADAPTERS = {
    "galerkin_attention": Adapter(
        _attention, reads="d_model heads pos_dim eps", sizes="N", only=_ATTENTION
    ),
    "galerkin_attention_galerkin_asshipped_dropout": Adapter(
        _attention_with_dropout,
        reads="d_model heads pos_dim eps",
        sizes="N",
        only=_ATTENTION
        | {
            "attention_type": ("galerkin",),
            "dropout": ("recorded multiplier (0 or 2)",),
        },
        constants=("inter.dropout_multiplier",),
    ),
    "galerkin_conv2dresblock": Adapter(
        _convolution_block,
        reads="in_dim out_dim bias residual basic_block",
        sizes="H W",
        only={"activation_type": _ACTIVATION},
    ),
    "galerkin_downscaler": Adapter(_down, reads="n in_dim out_dim size", only=_ACT),
    "galerkin_encoder": Adapter(
        _encoder,
        reads="d_model dim_feedforward heads attn_norm layer_norm",
        sizes="N",
        only={
            "activation": ("relu",),
            "attention_type": _TYPES,
            "residual": ("add", "plus"),
        },
    ),
    "galerkin_ft2d": Adapter(
        _transformer,
        reads="attn_norm dim_feedforward downscaler_size fourier_modes freq_dim"
        " last_activation layer_norm n_head n_hidden nc nf norm_eps normalizer_eps"
        " num_encoder_layers num_regressor_layers upscaler_size",
        only=OFF
        | {
            "attention_type": _TYPES,
            "boundary_condition": ("dirichlet", "free", None),
            "decoder_type": ("ifft2", "pointwise"),
            "downsample_mode": ("interp",),
            "downscaler_activation": _ACTIVATION,
            "downscaler_dropout": (0.0,),
            "n_targets": (1,),
            "node_feats": (1,),
            "pos_dim": (2,),
            "regressor_activation": _ACTIVATION,
            "spacial_dim": (2,),
            "spacial_fc": (True,),
            "upsample_mode": ("interp",),
            "upscaler_activation": _ACTIVATION,
            "upscaler_dropout": (0.0,),
        },
        ignores=UNUSED | {"example": "a label"},
    ),
    "galerkin_init": Adapter(
        check=_initialization_follows_the_rule,
        ignores={"stats.*": "of the weights, which are here"},
    ),
    "galerkin_pointwise_regressor": Adapter(
        _pointwise_decoder,
        reads="in_dim out_dim n_hidden layers n spacial_fc",
        only=_ACT,
        ignores=_GRID,
    ),
    "galerkin_spectral_regressor": Adapter(
        _spectral_decoder,
        reads="in_dim out_dim freq_dim modes layers n spacial_fc last_activation",
        sizes="n_hidden",
        only=_ACT,
        ignores=_GRID,
    ),
    "galerkin_upscaler": Adapter(
        _up, reads="n in_dim size", sizes="out_dim", only=_ACT
    ),
}
