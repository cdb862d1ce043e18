"""Adapters of ONO, GNOT and DeepONet, by their authors and by others."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import nn
from tests.golden.adapters import (
    Adapter,
    _assign_linear,
    _assign_mlp,
    _assign_norm,
    _nodes,
)


def _stacked(assign, like, count):
    """Blocks like the first one of a stack, stacked again."""
    one = jax.tree.map(lambda leaf: leaf[0], like)
    found = [assign(jax.tree.map(lambda leaf: leaf, one), i) for i in range(count)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


def _assign_placeholder(mlp, params):
    """A constant added to the output: part of its bias here."""
    mlp.out.bias = nnx.Param(mlp.out.bias[...] + params["placeholder"])


def _assign_time(model, params):
    _assign_linear(model.time_embedding.hidden, params, "time_fc.0")
    _assign_linear(model.time_embedding.out, params, "time_fc.2")


def _assign_in_rows(layers, params, name):
    """One matrix of the reference is several of ours."""
    rows = jnp.split(params[f"{name}.weight"], len(layers))
    for layer, weight in zip(layers, rows, strict=True):
        layer.kernel = nnx.Param(weight.T)


def _position(inputs, config):
    """Unified positions are of the nodes of a grid, whatever the coordinates."""
    if not config["uni"]:
        return nn.Coordinates(config["sd"]), inputs["x"]
    nodes = _nodes(config["sl"])
    points = jnp.broadcast_to(nodes[None], inputs["x"].shape)
    return nn.ReferenceDistances(config["sd"], config["ref"]), points


def _arguments(points, inputs, config):
    """Points, features and times of all samples, and their axes."""
    time = inputs["T"][:, 0] if config["T"] else None
    axes = (0, 0 if config["fx"] else None, 0 if config["T"] else None)
    return (points, inputs.get("fx"), time), axes


# ONO

BATCH = "batch"


def _assign_mean(layer, params, prefix):
    for name in ("query", "key", "value"):
        _assign_linear(getattr(layer, name), params, prefix + name)
    _assign_linear(layer.out, params, f"{prefix}proj")


def _assign_efficient(layer, params, prefix):
    for name in ("query", "key", "value"):
        _assign_linear(getattr(layer, name), params, f"{prefix}to_{name[0]}")
    _assign_linear(layer.out, params, f"{prefix}to_out")


def _assign_nystrom(layer, params, prefix):
    _assign_in_rows((layer.query, layer.key, layer.value), params, f"{prefix}to_qkv")
    layer.filters = nnx.Param(params[f"{prefix}res_conv.weight"][:, 0, :, 0])
    _assign_linear(layer.out, params, f"{prefix}to_out.0")


def _assign_shared_norm(layer, params, prefix):
    _assign_in_rows((layer.query, layer.key, layer.value), params, f"{prefix}to_qkv")
    for norm, name in ((layer.key_norm, "k_norm"), (layer.partner_norm, "v_norm")):
        norm.scale = nnx.Param(params[f"{prefix}{name}.weight"][None])
        norm.bias = nnx.Param(params[f"{prefix}{name}.bias"][None])
    _assign_linear(layer.out, params, f"{prefix}to_out.0")


ONO_ATTENTIONS = {
    "linear": (nn.attention.MeanAttention, _assign_mean),
    "selfAttention": (nn.attention.EfficientAttention, _assign_efficient),
    "nystrom": (
        partial(nn.attention.NystromformerAttention, batch_axis=BATCH),
        _assign_nystrom,
    ),
    "galerkin": (nn.attention.SharedNormAttention, _assign_shared_norm),
}


def _ono_attention(config):
    return partial(ONO_ATTENTIONS[config["attn_type"]][0], num_heads=config["h"])


def _assign_ono_block(block, params, prefix, config, *, last):
    _assign_norm(block.mesh.attention_norm, params, f"{prefix}ln_1")
    assign = ONO_ATTENTIONS[config["attn_type"]][1]
    assign(block.mesh.attention, params, f"{prefix}Attn.")
    _assign_norm(block.mesh.mlp_norm, params, f"{prefix}ln_2")
    _assign_mlp(block.mesh.mlp, params, f"{prefix}mlp")
    _assign_linear(block.modes, params, f"{prefix}proj")
    block.gain_logits = nnx.Param(params[f"{prefix}mu"])
    _assign_norm(block.norm, params, f"{prefix}ln_3")
    (_assign_linear if last else _assign_mlp)(block.out, params, f"{prefix}mlp2")
    return block


def _ono_block(params, inputs, config):
    block = nn.models.ONOBlock(
        config["hid"],
        attention=_ono_attention(config),
        num_modes=config["psi_dim"],
        mlp_ratio=config["mlp_ratio"],
        out_features=config["out_dim"] if config["last_layer"] else None,
        batch_axis=BATCH,
        rngs=nnx.Rngs(0),
    )
    _assign_ono_block(block, params, "", config, last=config["last_layer"])
    x, f, _ = jax.vmap(block, axis_name=BATCH)(inputs["x"], inputs["fx"])
    return jnp.concatenate([x, f], axis=-1)


def _ono(params, inputs, config, *, original=False):
    if original:
        position, points = nn.Coordinates(config["sd"]), inputs["x"]
    else:
        position, points = _position(inputs, config)
    model = nn.ONO(
        position=position,
        feature_dim=config["fx"],
        out_features=config["out"],
        attention=_ono_attention(config),
        features=config["hid"],
        num_layers=config["L"],
        num_modes=config["psi_dim"],
        mlp_ratio=config["mlp_ratio"],
        joint_encoder=original,
        time_embedding=config["T"],
        batch_axis=BATCH,
        rngs=nnx.Rngs(0),
    )
    if original:
        _assign_mlp(model.encoder, params, "preprocess")
    else:
        _assign_mlp(model.mesh_encoder, params, "preprocess_x")
        _assign_mlp(model.encoder, params, "preprocess_z")
        _assign_placeholder(model.encoder, params)
    if config["T"]:
        _assign_time(model, params)

    def assign(block, i):
        last = i == config["L"] - 1
        return _assign_ono_block(block, params, f"blocks.{i}.", config, last=last)

    model.blocks = _stacked(assign, model.blocks, config["L"] - 1)
    assign(model.last, config["L"] - 1)
    covariances = None
    if config["mode"] == "eval":
        covariances = jnp.stack(
            [inputs[f"feature_cov.{i}"] for i in range(config["L"])]
        )
    arguments, axes = _arguments(points, inputs, config)
    return jax.vmap(
        lambda x, f, t: model(x, f, time=t, covariances=covariances),
        in_axes=axes,
        axis_name=BATCH,
    )(*arguments)


# GNOT


def _assign_experts(experts, params, prefix):
    def assign(mlp, i):
        _assign_linear(mlp.hidden[0], params, f"{prefix}.{i}.0")
        _assign_linear(mlp.out, params, f"{prefix}.{i}.2")
        return mlp

    count = len(jax.tree.leaves(experts)[0])
    experts.experts = _stacked(assign, experts.experts, count)


def _assign_gnot_block(block, params, prefix, *, original=False):
    for i, layer in enumerate((*block.gates.hidden, block.gates.out)):
        _assign_linear(layer, params, f"{prefix}gatenet.{2 * i}")
    _assign_norm(block.cross_norm, params, f"{prefix}ln1")
    cross, name = block.cross_attention, f"{prefix}crossattn."
    for i, norm in enumerate(block.input_norms):
        own = f"ln2_branch.{i}" if original else "ln2"
        _assign_norm(norm, params, prefix + own)
        for linears, kind in ((cross.keys, "key"), (cross.values, "value")):
            own = f"{kind}s.{i}" if original else kind
            _assign_linear(linears[i], params, name + own)
    _assign_linear(cross.query, params, f"{name}query")
    _assign_linear(cross.out, params, f"{name}proj")
    _assign_experts(block.cross_experts, params, f"{prefix}moe_mlp1")
    _assign_norm(block.cross_experts_norm, params, f"{prefix}ln3")
    _assign_norm(block.self_norm, params, f"{prefix}ln4")
    _assign_mean(block.self_attention, params, f"{prefix}selfattn.")
    _assign_experts(block.self_experts, params, f"{prefix}moe_mlp2")
    _assign_norm(block.self_experts_norm, params, f"{prefix}ln5")
    return block


def _gnot_attention(params, inputs, config):
    options = {"num_heads": config["heads"], "rngs": nnx.Rngs(0)}
    if config["attn_type"] == "galerkin":
        layer = nn.attention.MeanAttention(config["dim"], **options)
        _assign_mean(layer, params, "")
        return jax.vmap(layer)(inputs["x"])
    layer = nn.attention.NormalizedCrossAttention(config["dim"], **options)
    _assign_linear(layer.query, params, "query")
    _assign_linear(layer.keys[0], params, "key")
    _assign_linear(layer.values[0], params, "value")
    _assign_linear(layer.out, params, "proj")
    return jax.vmap(lambda x, y: layer(x, (y,)))(inputs["x"], inputs["y"])


def _gnot_block(params, inputs, config):
    block = nn.models.GNOTBlock(
        config["hid"],
        point_dim=config["sd"],
        num_heads=config["h"],
        num_experts=config["n_experts"],
        mlp_ratio=config["mlp_ratio"],
        rngs=nnx.Rngs(0),
    )
    _assign_gnot_block(block, params, "")
    return jax.vmap(lambda x, y, points: block(x, (y,), points))(
        inputs["x"], inputs["y"], inputs["pos"]
    )


def _original_gnot_block(params, inputs, config):
    count = len(config["branch_points"])
    block = nn.models.GNOTBlock(
        config["hid"],
        point_dim=config["sd"],
        num_heads=config["h"],
        num_inputs=count,
        num_experts=config["n_experts"],
        mlp_ratio=config["n_inner"],
        rngs=nnx.Rngs(0),
    )
    _assign_gnot_block(block, params, "", original=True)
    ys = [inputs[f"y.{i}"] for i in range(count)]
    return jax.vmap(lambda x, ys, points: block(x, ys, points))(
        inputs["x"], ys, inputs["pos"]
    )


def _gnot(params, inputs, config):
    position, points = _position(inputs, config)
    model = nn.GNOT(
        position=position,
        feature_dim=config["fx"],
        out_features=config["out"],
        features=config["hid"],
        num_layers=config["L"],
        num_heads=config["h"],
        num_experts=config["n_experts"],
        mlp_ratio=config["mlp_ratio"],
        time_embedding=config["T"],
        rngs=nnx.Rngs(0),
    )
    _assign_mlp(model.point_encoder, params, "preprocess_x")
    _assign_mlp(model.encoder, params, "preprocess_z")
    _assign_placeholder(model.encoder, params)
    if config["T"]:
        _assign_time(model, params)
    model.blocks = _stacked(
        lambda block, i: _assign_gnot_block(block, params, f"blocks.{i}."),
        model.blocks,
        config["L"],
    )
    _assign_linear(model.decoder.hidden[0], params, "fc1")
    _assign_linear(model.decoder.out, params, "fc2")

    def evaluate(points, f, time, coordinates):
        # Experts see coordinates, whatever the position features are of.
        streams = model.encode(points, f, time=time)
        return model.decode(*streams, coordinates)

    arguments, axes = _arguments(points, inputs, config)
    return jax.vmap(evaluate, in_axes=(*axes, 0))(*arguments, inputs["x"])


def _original_gnot(params, inputs, config):
    count = len(config["branch_sizes"])
    model = nn.models.OriginalGNOT(
        point_dim=config["sd"],
        feature_dim=0,
        out_features=config["out"],
        features=config["hid"],
        num_layers=config["L"],
        num_heads=config["h"],
        num_experts=config["n_experts"],
        mlp_ratio=config["n_inner"],
        num_hidden=config["mlp_layers"],
        input_dims=config["branch_sizes"],
        num_parameters=config["theta"],
        rngs=nnx.Rngs(0),
    )

    def assign_mlp(mlp, name):
        first, *rest = mlp.hidden
        _assign_linear(first, params, f"{name}.linear_pre")
        for i, layer in enumerate(rest):
            _assign_linear(layer, params, f"{name}.linears.{i}")
        _assign_linear(mlp.out, params, f"{name}.linear_post")

    assign_mlp(model.point_encoder, "trunk_mlp")
    for i, encoder in enumerate(model.encoders):
        assign_mlp(encoder, f"branch_mlps.{i}")
    assign_mlp(model.decoder, "out_mlp")
    model.blocks = _stacked(
        lambda block, i: _assign_gnot_block(
            block, params, f"blocks.{i}.", original=True
        ),
        model.blocks,
        config["L"],
    )
    functions = [inputs[f"f.{i}"] for i in range(count)]
    return jax.vmap(lambda x, theta, f: model(x, parameters=theta, inputs=f))(
        inputs["x"], inputs["theta"], functions
    )


# DeepONet


def _deeponet(params, inputs, config):
    aligned = config["kind"] == "aligned"
    pod = config["kind"] == "pod"
    trunk = config["trunk"] or ()
    model = nn.DeepONet(
        point_dim=config["d"],
        num_sensors=config["m"],
        feature_dim=1,
        out_features=config["num_outputs"],
        branch_features=config["branch"],
        trunk_features=trunk,
        activation=config["act"],
        num_modes=config["modes"],
        rngs=nnx.Rngs(0),
    )
    for net, name in ((model.branch, "branch"), (model.trunk, "trunk")):
        if net is not None:
            for i, layer in enumerate((*net.hidden, net.out)):
                _assign_linear(layer, params, f"{name}.linears.{i}")
    if model.bias is not None:
        names = ["b"] if pod else [f"b.{i}" for i in range(config["num_outputs"])]
        model.bias = nnx.Param(jnp.stack([params[n].reshape(()) for n in names]))
    basis = inputs["pod_basis"] if pod else None
    sensed = inputs["u"][:, :, None]
    # A basis alone needs no coordinates.
    points = inputs["x"] if trunk else jnp.zeros((len(basis), config["d"]))
    if aligned:
        return jax.vmap(model)(points[:, None], sensed)[:, 0]
    values = jax.vmap(lambda u: model(points, u, basis_functions=basis))(sensed)
    return values[..., 0] if config["strategy"] is None else values


_UNI = {"ref": "without unified position", "sl": "without unified position"}
_ONO_ONLY = {
    "attn_type": ("linear", "selfAttention", "nystrom"),
    "mode": ("train", "eval"),
}
_GNOT_ORIGINAL = "h hid n_experts n_inner sd"
ADAPTERS = {
    "ono_block": Adapter(
        _ono_block,
        reads="attn_type h hid last_layer mlp_ratio psi_dim",
        sizes="N",
        only={"mode": ("train",), "attn_type": _ONO_ONLY["attn_type"]},
        ignores={"out_dim": "of the last layer only"},
    ),
    "ono_model": Adapter(
        _ono,
        reads="L T fx h hid mlp_ratio out psi_dim sd uni",
        sizes="N",
        only=_ONO_ONLY,
        ignores=_UNI | {"x": "with unified position"},
    ),
    "ono_original_model": Adapter(
        partial(_ono, original=True),
        reads="L T fx h hid mlp_ratio out psi_dim sd",
        sizes="N",
        only={"attn_type": ("galerkin",), "mode": ("train",)},
    ),
    "gnot_attention": Adapter(
        _gnot_attention,
        reads="dim heads",
        sizes="N N2",
        only={"attn_type": ("l1", "galerkin")},
    ),
    "gnot_block": Adapter(_gnot_block, reads="h hid mlp_ratio n_experts sd", sizes="N"),
    "gnot_model": Adapter(
        _gnot,
        reads="L T fx h hid mlp_ratio n_experts out sd uni",
        sizes="N",
        ignores=_UNI,
    ),
    "gnot_original_block": Adapter(
        _original_gnot_block, reads=f"{_GNOT_ORIGINAL} branch_points", sizes="N"
    ),
    "gnot_original_model": Adapter(
        _original_gnot,
        reads=f"L {_GNOT_ORIGINAL} branch_sizes mlp_layers out theta",
        sizes="N branch_points",
    ),
    "deeponet": Adapter(
        _deeponet,
        reads="act branch d m modes num_outputs trunk",
        sizes="N",
        only={
            "kind": ("aligned", "cartesian", "pod"),
            "strategy": (None, "split_both"),
        },
    ),
}
