"""Adapters of the models on point sets: Transolver, AirfRANS, RNA and Burgers."""

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import nn
from tests.builders import transformer
from tests.golden.adapters import (
    CLIPPED,
    Adapter,
    _assign_attention,
    _assign_basis,
    _nodes,
    assign,
    assign_blocks,
    assign_transformer,
    evaluated,
    shift_encoder,
    stacked,
)

FEED_FORWARD = {"hidden": "ff.lr1", "out": "ff.lr2"}
ENCODER_NORMS = {"attention_norm": "layer_norm1", "mlp_norm": "layer_norm2"}


def _physics_attention(params, inputs, config):
    layer = nn.PhysicsAttention(
        config["dim"],
        num_heads=config["heads"],
        head_features=config["dim_head"],
        num_basis=config["slice_num"],
        grid_shape=config["shapelist"],
        temperature_bounds=CLIPPED if config["shapelist"] else None,
        rngs=nnx.Rngs(0),
    )
    _assign_basis(layer.basis, params)
    _assign_attention(layer, params)
    return jax.vmap(layer)(inputs["x"])


def _transolver(params, inputs, config):
    """Unified positions exist on structured meshes only, whatever the option says."""
    unified = config["uni"] and config["sl"]
    model = transformer(
        point_dim=len(config["sl"]) if unified else inputs["x"].shape[-1],
        feature_dim=config["fx"],
        out_features=config["out"],
        features=config["hid"],
        num_layers=config["L"],
        num_heads=config["h"],
        num_basis=config["k"],
        mlp_ratio=config["mr"],
        grid_shape=config["sl"],
        attention="transolver",
        shared_basis=False,
        reference_points=config["ref"] if unified else None,
        time_embedding=config["T"],
        temperature_bounds=CLIPPED if config["sl"] else None,
        rngs=nnx.Rngs(0),
    )
    assign_transformer(model, params, config)
    shift_encoder(model, params)
    mesh_points = inputs["x"]
    if unified:
        nodes = _nodes(config["sl"])
        mesh_points = jnp.broadcast_to(nodes[None], (len(mesh_points), *nodes.shape))
    return evaluated(model, mesh_points, inputs, config)


def _airfrans(params, inputs, config):
    """The second perceptron of every block, `mlp_new`, is never evaluated."""
    channels, unified = config["sd"], config["uni"]
    model = transformer(
        point_dim=2 if unified else channels,
        feature_dim=channels if unified else 0,
        out_features=config["out"],
        features=config["hid"],
        num_layers=config["L"],
        num_heads=config["h"],
        num_basis=config["k"],
        mlp_ratio=config["mr"],
        shared_basis=False,
        reference_points=config["ref"] if unified else None,
        reference_box=((-2.0, -1.5), (4.0, 1.5)) if unified else None,
        rngs=nnx.Rngs(0),
    )
    assign_transformer(model, params, config)
    shift_encoder(model, params)
    if unified:
        # Distances come first here, features of the mesh in the reference code.
        kernel = jnp.roll(model.encoder.hidden[0].kernel[...], -channels, axis=0)
        model.encoder.hidden[0].kernel = nnx.Param(kernel)
    if unified:
        return model(inputs["data_pos"], inputs["data_x"])
    return model(inputs["data_x"])


def _rna(params, inputs, config):
    prefix = "feature_extractor."
    model = transformer(
        point_dim=3,
        feature_dim=0,
        out_features=config["ncls"],
        features=config["hid"],
        num_layers=config["L"],
        num_heads=config["h"],
        num_basis=config["k"],
        mlp_ratio=config["mr"],
        shared_basis=False,
        residual_encoder=True,
        decoder_norm=False,
        rngs=nnx.Rngs(0),
    )
    params = params.renamed(lambda name: name.replace("SelfAttn.", "Attn."))
    names = {"encoder": "preprocess", "encoder.hidden.1": "preprocess.linears.0.0"}
    assign(model, params, names, prefix)
    shift_encoder(model, params, prefix)
    assign_blocks(model, params, config["L"], prefix)
    assign(model, params, {"decoder": "last_lin"})
    return jax.nn.log_softmax(jax.vmap(model)(inputs["verts"]), axis=-1)


def _assign_coordinate_attention(layer, params, prefix=""):
    """Attention whose projections see coordinates, without biases."""
    names = {"in_proj.": "in_project_x.", "out_proj.": "to_out.0."}
    own = {
        name.removeprefix(prefix): params[name]
        for name in params
        if name.startswith(prefix)
    }
    for old, new in names.items():
        own = {name.replace(old, new): p for name, p in own.items()}
    _assign_basis(layer.basis, own)
    ridges = {"alpha": own["alpha"].reshape(-1)}
    _assign_attention(layer, own | ridges)


def _burgers_attention(params, inputs, config):
    layer = nn.FunctionalAttention(
        config["n_dim"],
        num_heads=config["heads"],
        num_basis=config["basis"],
        point_dim=1,
        use_bias=False,
        ridge_per_head=True,
        rngs=nnx.Rngs(0),
    )
    _assign_coordinate_attention(layer, params)
    return jax.vmap(lambda x, points: layer(x, mesh_points=points))(
        inputs["x"], inputs["pos"]
    )


def _burgers_model(params, inputs, config):
    """One head and 64 basis functions, whatever the configuration says."""
    model = nn.SuperResolutionTransformer(
        feature_dim=config["node_feats"],
        out_features=config["n_targets"],
        features=config["n_hidden"],
        num_layers=config["num_encoder_layers"],
        hidden_features=config["dim_feedforward"],
        modes=config["fourier_modes"],
        decoder_features=config["freq_dim"],
        outer_norm=config["layer_norm"],
        rngs=nnx.Rngs(0),
    )
    regressor = {"hidden.0": "0", "out": "2"}
    assign(model, params, {"lift": "feat_extract.id"})
    assign(model.decoder.perceptron, params, regressor, "regressor.regressor.")
    norms = ENCODER_NORMS if config["layer_norm"] else {}

    def assign_layer(layer, i):
        prefix = f"encoder_layers.{i}."
        _assign_coordinate_attention(layer.attention, params, f"{prefix}attn.")
        assign(layer, params, FEED_FORWARD | norms, prefix)

    model.layers = stacked(model.layers, config["num_encoder_layers"], assign_layer)
    for i, filters in enumerate(model.decoder.layers):
        prefix = f"regressor.spectral_conv.{i}."
        kernel = jnp.moveaxis(params[f"{prefix}fourier_weight"], 2, 0)
        filters.convolution.kernel = nnx.Param(kernel)
        assign(filters, params, {"skip": "linear"}, prefix)
    return jax.vmap(model)(inputs["pos"], inputs["node"])


_TRANSOLVER = "L T fx h hid k mr out sl uni"
# Options of the transformer that hold in evaluation mode, for given parameters.
UNUSED = dict.fromkeys(
    ("diagonal_weight", "symmetric_init", "xavier_init"), "initial parameters"
) | dict.fromkeys(
    ("debug", "return_attn_weight", "return_latent"), "what else is returned"
)
OFF = {
    "batch_norm": (False,),
    "bulk_regression": (False,),
    "decoder_dropout": (0.0,),
    "dropout": (0.0,),
    "edge_feats": (None, 0),
    "encoder_dropout": (0.0,),
    "feat_extract_type": (None,),
    "ffn_dropout": (0.0,),
    "n_freq_targets": (0,),
    "num_feat_layers": (0,),
    "pred_len": (0, None),
    "seq_len": (None,),
    "spacial_residual": (False,),
}
ADAPTERS = {
    "transolver_attention": Adapter(
        _physics_attention,
        reads="dim heads dim_head slice_num shapelist",
        sizes="N",
        only={"kernel": (3,)},
    ),
    "model_transolver": Adapter(
        _transolver,
        reads=_TRANSOLVER,
        sizes="N",
        only={
            "geo": ("unstructured", "structured_1D", "structured_2D", "structured_3D")
        },
        ignores={"ref": "without unified position", "x": "the nodes of the mesh"},
    ),
    "model_airfrans": Adapter(
        _airfrans,
        reads="L h hid k mr out sd uni",
        sizes="N",
        ignores={
            "ref": "without unified position",
            "data_pos": "without unified position",
        },
    ),
    "model_rna": Adapter(_rna, reads="L h hid k mr ncls", sizes="N"),
    "burgers_attention": Adapter(
        _burgers_attention, reads="n_dim heads basis", sizes="N"
    ),
    "burgers_model": Adapter(
        _burgers_model,
        reads="n_hidden num_encoder_layers dim_feedforward fourier_modes freq_dim"
        " layer_norm n_targets node_feats",
        only=OFF
        | {
            "attention_type": ("functional",),
            "decoder_type": ("ifft",),
            "num_regressor_layers": (2,),
            "pos_dim": (1,),
            "residual_type": ("plus", "add"),
            "spacial_dim": (1,),
        },
        ignores=UNUSED
        | {name: "unused by the reference" for name in ("attn_norm", "n_head")},
    ),
}
