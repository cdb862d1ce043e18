"""Builds opjax modules from parameters under the original authors' names.

An adapter is a function of the authors' parameters and inputs, so that gradients with
respect to either compare without a second mapping. Torch kernels are `(out, in, ...)`,
ours `(..., in, out)`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase as fnmatch

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax import metrics, nn, normalize
from opjax.nn.attention.heads import merge_heads
from tests.builders import transformer
from tests.golden.recorded import Recorded, UnsupportedError


@dataclasses.dataclass(frozen=True)
class Adapter:
    """How a family of golden files is computed by opjax.

    An option, parameter or input that is named nowhere here makes a file UNSUPPORTED:
    ignoring it could give numbers that look right.

    Attributes:
      model: `(params, inputs, config) -> output`, differentiated.
      outputs: `(inputs, config) -> {key: array}`, for families without parameters.
      check: `arrays -> bool`, for random draws, which agree in law only.
      reads: names of the options that the function honours, separated by spaces.
      sizes: names of the options that the shapes of the arrays imply; `B`, samples in
        a batch, in all families.
      only: options, with the values for which opjax has the reference's branch.
      ignores: names (or patterns) of options, parameters, inputs or arrays that cannot
        change what is compared, with the reason.
      constants: names of stored arrays that the model finds in its `config`.
      not_offered: keys of the reference code that opjax has no function for.
    """

    model: Callable | None = None
    outputs: Callable | None = None
    check: Callable | None = None
    reads: str = ""
    sizes: str = ""
    only: Mapping[str, tuple] = dataclasses.field(default_factory=dict)
    ignores: Mapping[str, str] = dataclasses.field(default_factory=dict)
    constants: tuple[str, ...] = ()
    not_offered: frozenset = frozenset()

    def require_options(self, config: Recorded) -> None:
        """Raises `UnsupportedError` for an option or value that is not known."""
        for name, values in self.only.items():
            if name in config and config[name] not in values:
                raise UnsupportedError(f"option {name}={config[name]!r}")
        known = {"B", *self.sizes.split(), *self.reads.split(), *self.only}
        _require_known(config, set(config) - known, self.ignores)

    def require_read(self, *mappings: Recorded, known: Sequence[str] = ()) -> None:
        """Raises `UnsupportedError` for what the adapter has not looked at."""
        for mapping in mappings:
            _require_known(mapping, mapping.unread(), [*self.ignores, *known])


def _require_known(mapping, names, patterns):
    """Raises an error naming all `names` that fit none of the patterns."""
    unknown = [
        name for name in sorted(names) if not any(fnmatch(name, p) for p in patterns)
    ]
    if unknown:
        values = [
            f"{name}={mapping[name]!r}" if mapping.kind == "option" else name
            for name in unknown
        ]
        raise UnsupportedError(f"unknown {mapping.kind} {', '.join(values)}")


def find(name: str) -> Adapter | None:
    """Returns the adapter of the longest prefix of a file's name, if there is one."""
    matches = [prefix for prefix in ADAPTERS if name.startswith(prefix)]
    return ADAPTERS[max(matches, key=len)] if matches else None


def _assign_linear(linear, params, name):
    linear.kernel = nnx.Param(params[f"{name}.weight"].T)
    if f"{name}.bias" in params:
        linear.bias = nnx.Param(params[f"{name}.bias"])


def _assign_norm(norm, params, name):
    norm.scale = nnx.Param(params[f"{name}.weight"])
    norm.bias = nnx.Param(params[f"{name}.bias"])


def _assign_mlp(mlp, params, name):
    _assign_linear(mlp.hidden[0], params, f"{name}.linear_pre.0")
    _assign_linear(mlp.out, params, f"{name}.linear_post")


def _assign_basis(basis, params, prefix=""):
    """The two projections of the reference are one of ours, features before scores."""
    names = (f"{prefix}in_project_fx", f"{prefix}in_project_x")
    kernels = [
        jnp.moveaxis(params[f"{name}.weight"], (0, 1), (-1, -2)) for name in names
    ]
    basis.projection.kernel = nnx.Param(jnp.concatenate(kernels, axis=-1))
    if basis.projection.bias is not None:
        biases = [params[f"{name}.bias"] for name in names]
        basis.projection.bias = nnx.Param(jnp.concatenate(biases))
    for name in ("in_project_basis", "in_project_slice", "slice1"):
        if f"{prefix}{name}.weight" in params:
            weight = params[f"{prefix}{name}.weight"]
            basis.score_kernel = nnx.Param(weight.T)
            if basis.score_bias is not None:
                basis.score_bias = nnx.Param(params[f"{prefix}{name}.bias"])
    basis.temperature = nnx.Param(params[f"{prefix}temperature"].reshape(-1))


def _assign_attention(attention, params, prefix=""):
    for name, letter in (("query", "q"), ("key", "k"), ("value", "v")):
        _assign_linear(getattr(attention.mixer, name), params, f"{prefix}to_{letter}")
    if f"{prefix}alpha" in params:
        attention.mixer.ridge_logit = nnx.Param(params[f"{prefix}alpha"])
    _assign_linear(attention.out, params, f"{prefix}to_out.0")


def _attention(params, inputs, config):
    grid = (config["H"], config["W"]) if "H" in config else None
    layer = nn.FunctionalAttention(
        config["embed_dim"],
        num_heads=config["heads"],
        num_basis=config["basis"],
        grid_shape=grid,
        rngs=nnx.Rngs(0),
    )
    _assign_basis(layer.basis, params)
    _assign_attention(layer, params)
    return jax.vmap(layer)(inputs["x"])


def _attention_core(params, inputs, config):
    """Attention between given coefficients, in a given basis."""
    del config

    def sample(tokens, basis):
        q, k, v = (tokens @ params[f"to_{letter}.weight"].T for letter in "qkv")

        def head(q, k, v, phi):
            ridge = jax.nn.sigmoid(params["alpha"])
            moved = opjax.transport(q, k, v, ridge=opjax.Convex(ridge))
            return opjax.reconstruct(moved, phi)

        merged = merge_heads(jax.vmap(head)(q, k, v, basis))
        return merged @ params["to_out.0.weight"].T + params["to_out.0.bias"][None, :]

    return jax.vmap(sample)(inputs["slice_token"], inputs["slice_weights"])


def _model(params, inputs, config, *, structured, shared, bounds):
    model = transformer(
        point_dim=inputs["x"].shape[-1],
        feature_dim=config["fx"],
        out_features=config["out"],
        features=config["hid"],
        num_layers=config["L"],
        num_heads=config["h"],
        num_basis=config["k"],
        mlp_ratio=config["mr"],
        grid_shape=(config["H"], config["W"]) if structured else None,
        shared_basis=shared,
        reference_points=config["ref"] if config["uni"] else None,
        time_embedding=config["T"],
        temperature_bounds=bounds,
        rngs=nnx.Rngs(0),
    )
    _assign_mlp(model.encoder, params, "preprocess")
    if not structured or config["fx"] == 0:
        # A constant added to the encoder's output: part of its bias here.
        model.encoder.out.bias = nnx.Param(
            params["preprocess.linear_post.bias"] + params["placeholder"]
        )
    if config["T"]:
        _assign_linear(model.time_embedding.hidden, params, "time_fc.0")
        _assign_linear(model.time_embedding.out, params, "time_fc.2")
    if shared:
        _assign_basis(model.basis, params)
    blocks = [_block(params, f"blocks.{i}.", model) for i in range(config["L"])]
    model.blocks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks)
    last = f"blocks.{config['L'] - 1}."
    _assign_norm(model.decoder_norm, params, last + "ln_3")
    _assign_linear(model.decoder, params, last + "mlp2")

    mesh_points = inputs["x"]
    if structured and config["uni"]:
        nodes = _nodes((config["H"], config["W"]))
        mesh_points = jnp.broadcast_to(nodes[None], mesh_points.shape)
    time = inputs["T"][:, 0] if config["T"] else None
    axes = (0, 0 if config["fx"] else None, 0 if config["T"] else None)
    return jax.vmap(lambda x, f, t: model(x, f, time=t), in_axes=axes)(
        mesh_points, inputs.get("fx"), time
    )


def _block(params, prefix, model):
    block = jax.tree.map(lambda leaf: leaf[0], model.blocks)
    _assign_norm(block.attention_norm, params, prefix + "ln_1")
    _assign_norm(block.mlp_norm, params, prefix + "ln_2")
    _assign_mlp(block.mlp, params, prefix + "mlp")
    _assign_attention(block.attention, params, prefix + "Attn.")
    if block.attention.basis is not None:
        _assign_basis(block.attention.basis, params, prefix + "Attn.")
    return block


def _nodes(grid_shape):
    """Returns the nodes of a uniform mesh on [0, 1]^p, the first axis slowest."""
    axes = [[i / (n - 1) for i in range(n)] for n in grid_shape]
    return jnp.asarray(list(itertools.product(*axes)))


def _normalizer(inputs, config):
    del config
    out = {}
    for rank in ("2d", "3d"):
        fitted, values = inputs[f"fit{rank}"], inputs[f"apply{rank}"]
        if rank == "2d":
            fitted, values = fitted[..., None], values[..., None]
        normalizer = normalize.fit(fitted)
        shape = (1, 1) if rank == "2d" else (1, 1, -1)
        out[f"out.mean{rank}"] = normalizer.mean.reshape(shape)
        out[f"out.std{rank}"] = normalizer.std.reshape(shape)
        encode = normalize.encode(normalizer, values)
        decode = normalize.decode(normalizer, values)
        out[f"out.encode{rank}"] = encode.reshape(inputs[f"apply{rank}"].shape)
        out[f"out.decode{rank}"] = decode.reshape(inputs[f"apply{rank}"].shape)
    pointwise = normalize.fit(inputs["fit2d"][..., None], pointwise=True)
    values = inputs["apply2d"][..., None]
    out["out.gauss_mean"] = pointwise.mean.reshape(-1)
    # The reference keeps its offset out of the stored deviation.
    out["out.gauss_std"] = pointwise.std.reshape(-1) - 1e-5
    out["out.gauss_encode"] = normalize.encode(pointwise, values)[..., 0]
    out["out.gauss_decode"] = normalize.decode(pointwise, values)[..., 0]
    return out


def _relative_l2(inputs, config):
    del config
    x, y = inputs["x"], inputs["y"]

    def total(x, y):
        return jnp.sum(jax.vmap(metrics.relative_l2)(x, y))

    per_sample = jax.vmap(metrics.relative_l2)(x, y)
    gradient = jax.grad(total, argnums=(0, 1))(x, y)
    return {
        "out.rel_per_sample": per_sample,
        "out.rel_sum": jnp.sum(per_sample),
        "out.rel_mean": jnp.mean(per_sample),
        "grad_rel_sum.x": gradient[0],
        "grad_rel_sum.y": gradient[1],
    }


def _darcy_loss(inputs, config):
    grid_shape = (config["s"], config["s"])
    normalizer = normalize.Normalizer(inputs["y_mean"][0], inputs["y_std"][0])

    def parts(model_out, y_encoded):
        prediction = normalize.decode(normalizer, model_out[..., None])
        target = normalize.decode(normalizer, y_encoded[..., None])
        l2 = jnp.sum(jax.vmap(metrics.relative_l2)(prediction, target))

        def gradient_error(p, t):
            return metrics.relative_gradient_error(p, t, grid_shape=grid_shape)

        return l2, jnp.sum(jax.vmap(gradient_error)(prediction, target))

    def loss(*fields):
        l2, gradient_error = parts(*fields)
        return l2 + 0.1 * gradient_error

    fields = inputs["model_out"], inputs["y_encoded"]
    l2, gradient_error = parts(*fields)
    gradient = jax.grad(loss, argnums=(0, 1))(*fields)
    return {
        "out.l2loss": l2,
        "out.deriv_loss": gradient_error,
        "out.loss": loss(*fields),
        "grad_input.model_out": gradient[0],
        "grad_input.y_encoded": gradient[1],
    }


_CORE = "N basis embed_dim heads"


def _model_family(**options):
    structured = options["structured"]
    dead = {"x": "the nodes of the mesh", "placeholder": "with an input function"}
    return Adapter(
        lambda p, i, c: _model(p, i, c, **options),
        reads="L T fx h hid k mr out uni" + (" H W" if structured else ""),
        sizes="N",
        ignores=REFERENCE | (dead if structured else {}),
    )


CLIPPED = (0.1, 5.0)
REFERENCE = {"ref": "of the unified position, without it"}
ADAPTERS = {
    "funcattn_structured2d": Adapter(
        _attention, reads="embed_dim heads basis H W", only={"kernel": (3,)}
    ),
    "funcattn_structured2d_shared_core": Adapter(_attention_core, sizes=_CORE),
    "funcattn_irregular_shared_core": Adapter(_attention_core, sizes=_CORE),
    "rna_attention": Adapter(_attention, reads="embed_dim heads basis", sizes="N"),
    "airfrans_attention": Adapter(
        _attention,
        reads="embed_dim heads basis",
        sizes="N",
        only={"note": ("I_d injected",)},
    ),
    "model_irregular_shared": _model_family(structured=False, shared=True, bounds=None),
    "model_structured2d": _model_family(structured=True, shared=False, bounds=CLIPPED),
    "model_structured2d_shared": _model_family(
        structured=True, shared=True, bounds=CLIPPED
    ),
    "normalizer": Adapter(outputs=_normalizer, sizes="S n C"),
    "testloss": Adapter(
        outputs=_relative_l2,
        sizes="n C",
        not_offered=frozenset({"out.rel_mean_p1", "out.abs_mean", "out.abs_sum"}),
    ),
    "darcy_derivative_loss": Adapter(
        outputs=_darcy_loss,
        reads="s",
        # Differences of a field are internal to the loss, which cancels their spacing.
        ignores={"dx": "cancels", "field": "of the field's differences"},
        not_offered=frozenset({"out.field_gx", "out.field_gy"}),
    ),
}

# At the end: the other files build on `Adapter`.
from tests.golden import (  # noqa: E402
    adapters_attention,
    adapters_few_shot,
    adapters_fno,
    adapters_galerkin,
    adapters_models,
    adapters_ono_gnot,
    adapters_problems,
    adapters_rivals,
    initialization,
)

for module in (
    adapters_attention,
    adapters_few_shot,
    adapters_fno,
    adapters_galerkin,
    adapters_models,
    adapters_problems,
    adapters_ono_gnot,
    adapters_rivals,
):
    ADAPTERS |= module.ADAPTERS
ADAPTERS["init_stats"] = Adapter(
    check=initialization.agree,
    ignores={
        "*.count": "the sum of the sizes, which are compared",
        "*.gram_minus_I.*": "of those that the reference overwrites",
    },
)
