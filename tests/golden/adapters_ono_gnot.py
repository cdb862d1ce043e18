"""Adapters of ONO, GNOT and DeepONet, by their authors and by others."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import nn
from tests.golden.adapters import (
    TIME,
    Adapter,
    _nodes,
    assign,
    evaluated,
    stacked,
)


def _assign_placeholder(mlp, params):
    """A constant added to the output: part of its bias here."""
    mlp.out.bias = nnx.Param(mlp.out.bias[...] + params["placeholder"])


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


# ONO

BATCH = "batch"


MEAN = {"query": "query", "key": "key", "value": "value", "out": "proj"}
EFFICIENT = {"query": "to_q", "key": "to_k", "value": "to_v", "out": "to_out"}


def _assign_mean(layer, params, prefix):
    assign(layer, params, MEAN, prefix)


def _assign_efficient(layer, params, prefix):
    assign(layer, params, EFFICIENT, prefix)


def _assign_nystrom(layer, params, prefix):
    _assign_in_rows((layer.query, layer.key, layer.value), params, f"{prefix}to_qkv")
    layer.filters = nnx.Param(params[f"{prefix}res_conv.weight"][:, 0, :, 0])
    assign(layer, params, {"out": "to_out.0"}, prefix)


def _assign_shared_norm(layer, params, prefix):
    _assign_in_rows((layer.query, layer.key, layer.value), params, f"{prefix}to_qkv")
    for norm, name in ((layer.key_norm, "k_norm"), (layer.partner_norm, "v_norm")):
        norm.scale = nnx.Param(params[f"{prefix}{name}.weight"][None])
        norm.bias = nnx.Param(params[f"{prefix}{name}.bias"][None])
    assign(layer, params, {"out": "to_out.0"}, prefix)


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


ONO_BLOCK = {"mesh.attention_norm": "ln_1", "mesh.mlp_norm": "ln_2", "norm": "ln_3"}
ONO_BLOCK |= {"mesh.mlp": "mlp", "modes": "proj", "out": "mlp2"}


def _assign_ono_block(block, params, prefix, config):
    assign(block, params, ONO_BLOCK, prefix)
    assign_attention = ONO_ATTENTIONS[config["attn_type"]][1]
    assign_attention(block.mesh.attention, params, f"{prefix}Attn.")
    block.gain_logits = nnx.Param(params[f"{prefix}mu"])


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
    _assign_ono_block(block, params, "", config)
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
    encoders = {"mesh_encoder": "preprocess_x", "encoder": "preprocess_z"}
    names = {"encoder": "preprocess"} if original else encoders
    assign(model, params, names | (TIME if config["T"] else {}))
    if not original:
        _assign_placeholder(model.encoder, params)

    def assign_block(block, i):
        _assign_ono_block(block, params, f"blocks.{i}.", config)

    model.blocks = stacked(model.blocks, config["L"] - 1, assign_block)
    assign_block(model.last, config["L"] - 1)
    covariances = None
    if config["mode"] == "eval":
        covariances = jnp.stack(
            [inputs[f"feature_cov.{i}"] for i in range(config["L"])]
        )
    call = partial(model, covariances=covariances)
    return evaluated(call, points, inputs, config, axis_name=BATCH)


# GNOT


def _assign_experts(experts, params, prefix):
    def assign_expert(mlp, i):
        assign(mlp, params, {"hidden.0": "0", "out": "2"}, f"{prefix}.{i}.")

    count = len(jax.tree.leaves(experts)[0])
    experts.experts = stacked(experts.experts, count, assign_expert)


GNOT_BLOCK = {"cross_norm": "ln1", "cross_experts_norm": "ln3", "self_norm": "ln4"}
GNOT_BLOCK |= {"self_experts_norm": "ln5"}
CROSS = {"query": "query", "out": "proj"}
ONE_INPUT = {"input_norms.0": "ln2", "cross_attention.keys.0": "crossattn.key"}
ONE_INPUT |= {"cross_attention.values.0": "crossattn.value"}


def _assign_gnot_block(block, params, prefix, *, original=False):
    count = len(block.gates.hidden)
    names = GNOT_BLOCK | {"gates.out": f"gatenet.{2 * count}"}
    names |= {f"gates.hidden.{i}": f"gatenet.{2 * i}" for i in range(count)}
    names |= {} if original else ONE_INPUT
    for i in range(len(block.input_norms) if original else 0):
        names |= {
            f"input_norms.{i}": f"ln2_branch.{i}",
            f"cross_attention.keys.{i}": f"crossattn.keys.{i}",
            f"cross_attention.values.{i}": f"crossattn.values.{i}",
        }
    assign(block, params, names, prefix)
    assign(block.cross_attention, params, CROSS, f"{prefix}crossattn.")
    _assign_experts(block.cross_experts, params, f"{prefix}moe_mlp1")
    _assign_mean(block.self_attention, params, f"{prefix}selfattn.")
    _assign_experts(block.self_experts, params, f"{prefix}moe_mlp2")


def _gnot_attention(params, inputs, config):
    options = {"num_heads": config["heads"], "rngs": nnx.Rngs(0)}
    if config["attn_type"] == "galerkin":
        layer = nn.attention.MeanAttention(config["dim"], **options)
        _assign_mean(layer, params, "")
        return jax.vmap(layer)(inputs["x"])
    layer = nn.attention.NormalizedCrossAttention(config["dim"], **options)
    assign(layer, params, CROSS | {"keys.0": "key", "values.0": "value"})
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
    names = {"point_encoder": "preprocess_x", "encoder": "preprocess_z"}
    names |= {"decoder.hidden.0": "fc1", "decoder.out": "fc2"}
    assign(model, params, names | (TIME if config["T"] else {}))
    _assign_placeholder(model.encoder, params)

    def assign_block(block, i):
        _assign_gnot_block(block, params, f"blocks.{i}.")

    model.blocks = stacked(model.blocks, config["L"], assign_block)

    def evaluate(both, f, time):
        # Experts see coordinates, whatever the position features are of.
        points, coordinates = both
        streams = model.encode(points, f, time=time)
        return model.decode(*streams, coordinates)

    return evaluated(evaluate, (points, inputs["x"]), inputs, config)


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
        names = {"hidden.0": "linear_pre", "out": "linear_post"}
        rest = range(len(mlp.hidden) - 1)
        names |= {f"hidden.{i + 1}": f"linears.{i}" for i in rest}
        assign(mlp, params, names, f"{name}.")

    assign_mlp(model.point_encoder, "trunk_mlp")
    for i, encoder in enumerate(model.encoders):
        assign_mlp(encoder, f"branch_mlps.{i}")
    assign_mlp(model.decoder, "out_mlp")

    def assign_block(block, i):
        _assign_gnot_block(block, params, f"blocks.{i}.", original=True)

    model.blocks = stacked(model.blocks, config["L"], assign_block)
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
            count = len(net.hidden)
            names = {f"hidden.{i}": f"{i}" for i in range(count)} | {"out": f"{count}"}
            assign(net, params, names, f"{name}.linears.")
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
