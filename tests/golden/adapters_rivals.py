"""Adapters of FLARE, Transolver++ and the latent neural operator."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax import nn
from opjax.nn.bases import adaptive
from tests.builders import small_operator
from tests.golden.adapters import BLOCK, MAPS, Adapter, assign, stacked

_ACT = {None: "gelu_tanh", "gelu": "gelu_tanh", "silu": "silu"}


def _assign_blocks(model, params, prefix, num_layers, assign_block):
    """Gives every block of a model its parameters."""
    model.blocks = stacked(
        model.blocks,
        num_layers,
        lambda block, i: assign_block(block, params, f"{prefix}.{i}."),
    )


# FLARE


def _perceptron(num_layers, **options):
    if num_layers >= 0:
        return partial(nn.layers.ResidualMLP, num_layers=num_layers, **options)

    def one_map(in_features, out_features, *, rngs):  # it adds to its input
        return nn.MLP(in_features, (), out_features, output_residual=True, rngs=rngs)

    return one_map


def _flare_layer(config, features):
    common = {"activation": _ACT[config.get("act")]}

    def projection(name):
        # All three names of the same numbers, in the files of one release or another.
        layers = config.get(f"num_layers_{name}_proj", config.get("num_layers_kv_proj"))
        ratio = config.get(f"{name}_proj_mlp_ratio", 1.0)
        hidden = config.get("kv_proj_hidden_dim", round(ratio * features))
        layers = 3 if layers is None else layers
        return _perceptron(layers, hidden_features=hidden, **common)

    norm = nn.layers.RMSNorm if config.get("rmsnorm") else nn.layers.LayerNorm
    return partial(
        nn.FlareAttention,
        num_heads=config["num_heads"],
        num_latents=config["num_latents"],
        key=projection("k"),
        value=projection("v"),
        norm=norm if config.get("qk_norm") else None,
        scale=config.get("attn_scale", 1.0),
        shared_latents=config.get("shared_latents", False),
    )


def _assign_perceptron(mlp, params, name):
    if f"{name}.fc.weight" in params:
        assign(mlp, params, {"out": "fc"}, f"{name}.")
    else:
        _assign_layers(mlp, params, f"{name}.", "fc1", "fcs", "fc2")


def _assign_layers(mlp, params, prefix, first, middle, last):
    names = {f"hidden.{i + 1}": f"{middle}.{i}" for i in range(len(mlp.hidden) - 1)}
    assign(mlp, params, {"hidden.0": first, "out": last} | names, prefix)


def _assign_flare(layer, params, prefix=""):
    latents = params[f"{prefix}latent_q"].reshape(layer.latents.shape)
    layer.latents = nnx.Param(latents)
    _assign_perceptron(layer.key, params, f"{prefix}k_proj")
    _assign_perceptron(layer.value, params, f"{prefix}v_proj")
    norms = {"key_norm": "k_norm", "latent_norm": "q_norm"}
    norms = {} if layer.key_norm is None else norms
    assign(layer, params, {"out": "out_proj"} | norms, prefix)


def _flare_attention(params, inputs, config):
    features = config["channel_dim"]
    layer = _flare_layer(config, features)(features, rngs=nnx.Rngs(0))
    _assign_flare(layer, params)
    return jax.vmap(layer)(inputs["x"])


def _flare_block(block, params, prefix):
    assign(block, params, {"attention_norm": "norm1", "mlp_norm": "norm2"}, prefix)
    _assign_flare(block.attention, params, f"{prefix}att.")
    _assign_perceptron(block.mlp, params, f"{prefix}mlp")


def _flare_model(params, inputs, config):
    features = config["channel_dim"]
    common = {"activation": _ACT[config.get("act")]}
    hidden = round(config.get("ffn_mlp_ratio", 1.0) * features)
    model = nn.Flare(
        position=nn.Coordinates(inputs["x"].shape[-1]),
        feature_dim=config["fx"],
        out_features=config["out"],
        attention=_flare_layer(config, features),
        features=features,
        num_layers=config["num_blocks"],
        perceptron=_perceptron(
            config.get("num_layers_ffn", 3), hidden_features=hidden, **common
        ),
        ends=_perceptron(config.get("num_layers_in_out_proj", 2), **common),
        norm=nn.layers.RMSNorm if config.get("rmsnorm") else nn.layers.LayerNorm,
        decoder_norm=config.get("out_proj_norm", True),
        rngs=nnx.Rngs(0),
    )
    _assign_perceptron(model.encoder, params, "in_proj")
    _assign_blocks(model, params, "blocks", config["num_blocks"], _flare_block)
    if model.decoder_norm is not None:
        assign(model, params, {"decoder_norm": "out_proj.0"})
    _assign_perceptron(model.decoder, params, "out_proj.1")
    axes = (0, 0 if config["fx"] else None)
    return jax.vmap(model, in_axes=axes)(inputs["x"], inputs.get("fx"))


# Transolver++


def _copy(module):
    """Modules may be changed by the transformation alone that made them."""
    return jax.tree.map(lambda leaf: leaf, module)


class _RecordedBasis(adaptive.NoisyBasis):
    """Takes recorded draws in place of keys."""

    def uniform(self, key, shape, dtype):
        assert key.shape == shape
        return key


EIDETIC = {
    "basis.projection": "in_project_x",
    "basis.scores": "in_project_slice",
    "basis.temperature.hidden.0": "proj_temperature.0",
    "basis.temperature.out": "proj_temperature.2",
}


def _assign_eidetic(layer, params, prefix=""):
    assign(layer, params, EIDETIC | MAPS, prefix)
    bias = params[f"{prefix}bias"].reshape(-1)
    layer.basis.temperature_bias = nnx.Param(bias)


def _eidetic(params, config):
    layer = nn.attention.EideticAttention(
        config["dim"],
        num_heads=config["heads"],
        num_basis=config["slice_num"],
        head_features=config["dim_head"],
        rngs=nnx.Rngs(0),
    )
    _assign_eidetic(layer, params)
    return layer


def _transolver_plus_attention(params, inputs, config):
    layer = _eidetic(params, config)
    basis = layer.basis

    def sample(x, uniform):
        noisy = _copy(layer)
        noisy.basis = _RecordedBasis(basis, uniform)
        return noisy(x)

    return jax.vmap(sample)(inputs["x"], inputs["uniform"])


def _transolver_plus_without_noise(params, inputs, config):
    """Draws that are all alike cancel: the layer as it is in evaluation."""
    return jax.vmap(_eidetic(params, config))(inputs["x"])


def _transolver_plus_block(block, params, prefix):
    assign(block, params, BLOCK, prefix)
    _assign_eidetic(block.attention, params, f"{prefix}Attn.")


_BOX = ((-1.5, 0.0, -4.0), (1.5, 2.0, 4.0))


def _transolver_plus_model(params, inputs, config):
    """A condition adds a constant to the encoder's output, part of its bias here."""
    unified, num_layers = config.get("unified_pos", False), config["n_layers"]
    position = nn.Coordinates(config["space_dim"])
    if unified:
        position = nn.ReferenceDistances(config["space_dim"], config["ref"], *_BOX)
    attention = partial(
        nn.attention.EideticAttention,
        num_heads=config["n_head"],
        num_basis=config["slice_num"],
    )
    model = small_operator(
        position=position,
        feature_dim=config["fun_dim"],
        out_features=config["out_dim"],
        attention=attention,
        features=config["n_hidden"],
        num_layers=num_layers,
        mlp_ratio=config["mlp_ratio"],
    )
    assign(model, params, {"encoder": "preprocess"})
    if unified:  # distances come first here, features in the reference code
        kernel = jnp.roll(model.encoder.hidden[0].kernel[...], -config["fun_dim"], 0)
        model.encoder.hidden[0].kernel = nnx.Param(kernel)
    _assign_blocks(model, params, "blocks", num_layers, _transolver_plus_block)
    last = f"blocks.{num_layers - 1}."
    assign(model, params, {"decoder_norm": "ln_3", "decoder": "mlp2"}, last)
    basis = model.blocks.attention.basis
    bias = params["preprocess.linear_post.bias"] + params["placeholder"]
    uniform = [inputs[f"uniform.{i}"] for i in range(num_layers)]

    def sample(points, values, condition, uniform):
        shift = 0
        if condition is not None:
            shift = condition @ params["embedding.weight"].T + params["embedding.bias"]
        noisy = _copy(model)
        noisy.encoder.out.bias = nnx.Param(bias + shift)
        noisy.blocks.attention.basis = _RecordedBasis(basis, jnp.stack(uniform))
        return noisy(points, values)

    x = inputs["x"]
    if unified:
        points, values = inputs["pos"], x
    else:
        points, values = jnp.split(x, [config["space_dim"]], axis=2)
        values = values if config["fun_dim"] else None
    condition = inputs["condition"] if config["condition"] else None
    axes = (0, None if values is None else 0, None if condition is None else 0, 0)
    return jax.vmap(sample, in_axes=axes)(points, values, condition, uniform)


# The latent neural operator


def _assign_deep(mlp, params, name):
    _assign_layers(mlp, params, f"{name}.", "input", "hidden", "output")


def _assign_latent_attention(layer, params, prefix=""):
    names = {"query": "Wq", "key": "Wk", "value": "Wv", "out": "proj"}
    for ours, theirs in names.items():
        linear, name = getattr(layer, ours), f"{prefix}{theirs}"
        assign(layer, params, {ours: name})
        if f"{name}.bias" not in params:
            linear.bias = nnx.Param(jnp.zeros_like(linear.kernel[...][0]))


LATENT = {"attention_norm": "ln1", "mlp_norm": "ln2"}
LATENT |= {"mlp.hidden.0": "mlp.0", "mlp.out": "mlp.2"}


def _latent_block(block, params, prefix):
    assign(block, params, LATENT, prefix)
    _assign_latent_attention(block.attention, params, f"{prefix}self_attn.")


def _lno_attention(params, inputs, config):
    layer = nn.SoftmaxAttention(
        config["n_dim"],
        num_heads=config["n_head"],
        normalization=None,
        rngs=nnx.Rngs(0),
    )
    _assign_latent_attention(layer, params)
    return jax.vmap(layer)(inputs["z"])


def _lno(params, config, *, own_decoder_scores=False):
    model = nn.LatentNeuralOperator(
        position=nn.Coordinates(config["x_dim"]),
        feature_dim=config["y1_dim"],
        out_features=config["y2_dim"],
        features=config["n_dim"],
        num_layers=config["n_block"],
        num_heads=config["n_head"],
        num_latents=config["n_mode"],
        mlp_layers=config["n_layer"],
        own_decoder_scores=own_decoder_scores,
        rngs=nnx.Rngs(0),
    )
    if config["n_block"]:
        _assign_blocks(model, params, "attn_blocks", config["n_block"], _latent_block)
    _assign_deep(model.decoder, params, "out_mlp")
    return model


def _assign_branch(model, params, config):
    """Ours sees positions and values, theirs values that may repeat positions."""
    _assign_deep(model.trunk, params, "trunk_projector")
    _assign_deep(model.branch, params, "branch_projector")
    kernel = params["branch_projector.input.weight"].T
    padded = jnp.concatenate([jnp.zeros((config["x_dim"], kernel.shape[1])), kernel])
    model.branch.hidden[0].kernel = nnx.Param(padded)


def _lno_model(params, inputs, config):
    model = _lno(params, config)
    _assign_branch(model, params, config)
    _assign_deep(model.scores, params, "attention_projector")
    values = inputs["x"] if config.get("branch_input") == "x" else inputs["y"]
    return jax.vmap(model)(inputs["x"], values)


def _lno_triple(params, inputs, config):
    model = _lno(params, config, own_decoder_scores=True)
    _assign_branch(model, params, config)
    _assign_deep(model.scores, params, "attention_encoder")
    _assign_deep(model.decoder_scores, params, "attention_decoder")

    def sample(points, values, queries):
        return model(points, values, query_points=queries)

    return jax.vmap(sample)(inputs["x1"], inputs["y"], inputs["x2"])


def _lno_single(params, inputs, config):
    """Sums of points over masses of features: of no published run, so not ours."""
    model = _lno(params, config)
    _assign_deep(model.branch, params, "in_mlp")

    def sample(y):
        values = model.branch(y)
        basis = opjax.softmax_basis(values @ params["Wm.weight"].T)
        found = opjax.moments(values, basis)
        latents = model.mix(found.integrals / found.masses[None, :])
        return model.decoder(opjax.reconstruct(latents, basis))

    return jax.vmap(sample)(inputs["y"])


_FLARE = "num_heads num_latents channel_dim"
_FLARE_OPTIONS = "qk_norm rmsnorm num_layers_k_proj num_layers_v_proj attn_scale"
_LNO = "n_block n_dim n_head n_layer n_mode x_dim y1_dim y2_dim"
_VANILLA = {"act": ("GELU",), "attn": ("Attention_Vanilla",)}


def _lno_family(function, name, **options):
    return Adapter(function, reads=_LNO, only=_VANILLA | {"model": (name,)}, **options)


ADAPTERS = {
    "flare_attention": Adapter(
        _flare_attention,
        reads=f"{_FLARE} {_FLARE_OPTIONS} k_proj_mlp_ratio v_proj_mlp_ratio"
        " shared_latents num_layers_kv_proj kv_proj_hidden_dim",
        sizes="N",
        only={"act": tuple(_ACT)},
    ),
    "flare_model": Adapter(
        _flare_model,
        reads=f"{_FLARE} {_FLARE_OPTIONS} num_blocks fx out num_layers_ffn"
        " ffn_mlp_ratio num_layers_in_out_proj out_proj_norm",
        sizes="N",
        only={"act": tuple(_ACT)},
    ),
    "transolver_plus_attention": Adapter(
        _transolver_plus_attention,
        reads="dim dim_head heads slice_num",
        sizes="N",
        only={"noise": ("uniform", "extreme")},
    ),
    "transolver_plus_attention_nonoise": Adapter(
        _transolver_plus_without_noise,
        reads="dim dim_head heads slice_num",
        sizes="N",
        only={"noise": ("none",)},
        ignores={"uniform": "constant, which cancels"},
    ),
    "transolver_plus_model": Adapter(
        _transolver_plus_model,
        reads="n_layers n_head n_hidden slice_num mlp_ratio fun_dim out_dim space_dim"
        " condition unified_pos",
        sizes="N",
        ignores={"ref": "without unified position"},
    ),
    "lno_attention": Adapter(
        _lno_attention,
        reads="n_dim n_head",
        sizes="M",
        only={"attn": ("Attention_Vanilla",)},
    ),
    "lno_model": Adapter(
        _lno_model,
        reads=_LNO,
        sizes="N",
        only=_VANILLA | {"model": ("LNO",), "branch_input": ("x",)},
    ),
    "lno_projection": _lno_family(_lno_model, "LNO", sizes="N"),
    "lno_triple": _lno_family(_lno_triple, "LNO_triple", sizes="N N2"),
    "lno_single": _lno_family(_lno_single, "LNO_single", sizes="N"),
}
