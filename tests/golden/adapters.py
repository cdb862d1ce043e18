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
from tests.nn.parameters import layer_of


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


NORMS = nn.layers.LayerNorm, nn.layers.RMSNorm


def assign(module, params, names, prefix=""):
    """Gives parts of a module, by their paths, the parameters of these names.

    They are linear maps, norms, or perceptrons as the Neural-Solver-Library names them.
    """
    for path, name in names.items():
        part, name = module, f"{prefix}{name}"
        for key in path.split("."):
            part = part[int(key)] if key.isdigit() else getattr(part, key)
        if isinstance(part, nn.MLP):
            assign(part, params, {"hidden.0": "linear_pre.0"}, f"{name}.")
            assign(part, params, {"out": "linear_post"}, f"{name}.")
            continue
        weight = params[f"{name}.weight"]
        if isinstance(part, NORMS):
            part.scale = nnx.Param(weight)
        else:
            part.kernel = nnx.Param(weight.T)
        if f"{name}.bias" in params:
            part.bias = nnx.Param(params[f"{name}.bias"])


def stacked(blocks, count, assign_block):
    """Blocks like the first of a stack, each with its parameters, stacked again."""
    found = []
    for i in range(count):
        block = layer_of(blocks, 0)
        assign_block(block, i)
        found.append(block)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


def evaluated(model, points, inputs, config, **batch):
    """The model on all samples, with their features and times where there are any."""
    time = inputs["T"][:, 0] if config["T"] else None
    axes = (0, 0 if config["fx"] else None, 0 if config["T"] else None)

    def sample(points, features, time):
        return model(points, features, time=time)

    mapped = jax.vmap(sample, in_axes=axes, **batch)
    return mapped(points, inputs.get("fx"), time)


TIME = {"time_embedding.hidden": "time_fc.0", "time_embedding.out": "time_fc.2"}


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


MAPS = {"mixer.query": "to_q", "mixer.key": "to_k", "mixer.value": "to_v"}
MAPS |= {"out": "to_out.0"}


def _assign_attention(attention, params, prefix=""):
    assign(attention, params, MAPS, prefix)
    if f"{prefix}alpha" in params:
        attention.mixer.ridge_logit = nnx.Param(params[f"{prefix}alpha"])


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
    assign_transformer(model, params, config)
    if not structured or config["fx"] == 0:
        shift_encoder(model, params)
    if shared:
        _assign_basis(model.basis, params)
    mesh_points = inputs["x"]
    if structured and config["uni"]:
        nodes = _nodes((config["H"], config["W"]))
        mesh_points = jnp.broadcast_to(nodes[None], mesh_points.shape)
    return evaluated(model, mesh_points, inputs, config)


BLOCK = {"attention_norm": "ln_1", "mlp_norm": "ln_2", "mlp": "mlp"}


def assign_transformer(model, params, config):
    """Encoder, embedding of time, blocks and decoder."""
    assign(model, params, {"encoder": "preprocess"} | (TIME if config.get("T") else {}))
    assign_blocks(model, params, config["L"])
    last = f"blocks.{config['L'] - 1}."
    assign(model, params, {"decoder_norm": "ln_3", "decoder": "mlp2"}, last)


def assign_blocks(model, params, count, prefix=""):
    def assign_block(block, i):
        own = f"{prefix}blocks.{i}."
        assign(block, params, BLOCK, own)
        _assign_attention(block.attention, params, f"{own}Attn.")
        if block.attention.basis is not None:
            _assign_basis(block.attention.basis, params, f"{own}Attn.")

    model.blocks = stacked(model.blocks, count, assign_block)


def shift_encoder(model, params, prefix=""):
    """A constant added to the encoder's output is part of its bias here."""
    bias = params[f"{prefix}preprocess.linear_post.bias"]
    bias = bias + params[f"{prefix}placeholder"]
    model.encoder.out.bias = nnx.Param(bias)


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
