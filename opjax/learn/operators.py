"""Operators between functions on any mesh, by name, for all programs.

Names are those of `REGISTRY`, `basis:mixer` for any of `BASES` with any of `MIXERS`,
such as `fourier:functional`, or `package.module:function`, your own:

    def build(config, *, point_dim, feature_dim, out_features, grid_shape,
              time_embedding, rngs):
        ...  # a model, called as `nn.OperatorTransformer`

is a whole model, and `attention(features, *, rngs)` an attention layer of an
`nn.OperatorTransformer`; it also gets those of `num_heads`, `num_basis`, `point_dim`
and `grid_shape` that its signature names. Modules are found as Python finds them, and
in the current folder.
"""

import bisect
import dataclasses
import functools
import types
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import nn, normalize
from opjax.datasets import summaries
from opjax.datasets.samples import Sample
from opjax.learn import attentions, models, own_models
from opjax.learn.attentions import BASES, MIXERS, Entry
from opjax.learn.config import ModelOptions

_DEFAULTS = dataclasses.asdict(ModelOptions())


class Sizes(NamedTuple):
    """What a model has to know of the samples.

    Attributes:
      point_dim: dimension of space.
      feature_dim: channels of the input function; zero if the mesh is the input.
      out_features: channels of the output function.
      grid_shape: points per axis, where all samples are on such a grid.
      num_points: points of every sample, where all have as many.
      box: lower and upper corner of all meshes, as the model sees them.
      time_embedding: whether calls take `time`.
    """

    point_dim: int
    feature_dim: int
    out_features: int
    grid_shape: tuple[int, ...] | None = None
    num_points: int | None = None
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    time_embedding: bool = False


def sizes(
    samples: Sequence[Sample],
    normalizers: Mapping[str, normalize.Normalizer] | None = None,
    **changes: Any,
) -> Sizes:
    """Finds the sizes of all samples of a data set, in normalised coordinates.

    Changes are taken instead of what is found.
    """
    first = samples[0]
    known = summaries.of(samples)
    grids = {summary.grid_shape for summary in known}
    counts = {summary.num_points for summary in known}
    corners: Any = np.stack(summaries.limits(known, "mesh_points"))
    if normalizers and "mesh_points" in normalizers:
        corners = normalize.encode(normalizers["mesh_points"], corners)
    lower, upper = (tuple(map(float, corner)) for corner in corners)
    target = first.target
    found = Sizes(
        point_dim=first.mesh_points.shape[1],
        feature_dim=0 if first.features is None else first.features.shape[1],
        out_features=target.shape[1] if target is not None and target.ndim == 2 else 1,
        grid_shape=grids.pop() if len(grids) == 1 else None,
        num_points=counts.pop() if len(counts) == 1 else None,
        box=(lower, upper),
    )
    return found._replace(**changes)


def is_own(name: str) -> bool:
    """Whether a name is one of your own, `package.module:function`."""
    basis, _, mixer = name.partition(":")
    return ":" in name and not (basis in BASES and mixer in MIXERS)


def entry(name: str) -> Entry:
    """Looks a name up, composes `basis:mixer`, or imports your own."""
    if name in REGISTRY:
        return REGISTRY[name]
    basis, _, mixer = name.partition(":")
    if basis in BASES and mixer in MIXERS:
        return attentions.in_basis(basis, mixer)
    if ":" not in name:
        raise ValueError(
            f"models={name!r} is unknown; choose from {', '.join(REGISTRY)}, compose "
            f"basis:mixer of the bases {', '.join(BASES)} and the mixers "
            f"{', '.join(MIXERS)}, or name your own, package.module:function."
        )
    return own_models.entry(name)


def check_options(config: Any, preset: Any) -> None:
    """Raises ValueError if an option is not as in the preset that no model reads."""
    used = frozenset[str]().union(*(options_of(name) for name in config.models))
    for name in sorted(_DEFAULTS.keys() - used):
        value, before = getattr(config, name, None), getattr(preset, name, None)
        if value != before:
            raise ValueError(
                f"{name}={value} means nothing to models={','.join(config.models)}; "
                f"leave it out, it is {before}."
            )


def options_of(name: str) -> frozenset[str]:
    """Names of the options that an operator reads."""
    found = entry(name)
    if found.options is None:  # a model of your own gets all of them
        return frozenset(_DEFAULTS)
    trunk = () if found.model else models.around(found).options or ()
    return frozenset(found.options) | {"equal_parameters", *trunk}


def splits_points(config: Any) -> bool:
    """Whether devices may share the points of a sample, for all operators."""
    if getattr(config, "rematerialize", False):
        return False
    return all(entry(name).splits_points for name in config.models)


def slug(name: str) -> str:
    """The name as part of a file name."""
    return name.replace(":", "_").replace("/", "_")


def build(
    config: Any, sizes: Sizes, *, options: Mapping[str, Any] | None = None, rngs: Any
) -> Any:
    """Builds the operator `config.models` names.

    With `config.equal_parameters`, operators get the number of channels that brings
    their number of parameters nearest to that of functional attention.

    Args:
      config: of one model, with fields of `ModelOptions`; the others are as there.
      sizes: of the samples.
      options: further arguments of `nn.OperatorTransformer`; other models have none.
      rngs: source of the initial parameters, `nnx.Rngs`.

    Returns:
      An operator, called as `nn.OperatorTransformer`.

    Raises:
      ValueError: if the samples have not what the model needs.
    """
    (name,) = config.models
    found, features = entry(name), config.features
    check_mesh([name], len(sizes.grid_shape or ()))
    if found.fixed_points and sizes.num_points is None:
        raise ValueError(
            f"models={name!r} needs the same number of points in all samples; take "
            "another model."
        )

    def construct(found: Entry, features: int, rngs: nnx.Rngs) -> nnx.Module:
        values = {**_DEFAULTS, **vars(config), "features": features}
        chosen = types.SimpleNamespace(**values)
        whole = found if found.model else models.around(found, **(options or {}))
        assert whole.model is not None
        return whole.model(chosen, sizes, rngs)

    @functools.cache
    def count(found: Entry, features: int) -> int:
        def abstract(key: jax.Array) -> nnx.Module:
            return construct(found, features, nnx.Rngs(key))

        shapes = jax.eval_shape(abstract, jax.random.key(0))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    # A program without the option has one model, of the size it says, and the sizes of
    # a model of your own are your own.
    equal = getattr(config, "equal_parameters", False) and found.options is not None
    if equal and name != "functional":
        wanted, own = count(REGISTRY["functional"], features), partial(count, found)
        widths = range(config.num_heads, 2 * features + 1, config.num_heads)
        # Wider models have more parameters, so a few counts find the nearest.
        above = bisect.bisect_left(widths, wanted, key=own)
        near = widths[max(above - 1, 0) : above + 1]
        features = min(near, key=lambda width: abs(own(width) - wanted))
    return construct(found, features, rngs)


def check_mesh(names: Sequence[str], grid_axes: int) -> None:
    """Raises ValueError if an operator needs another grid than one of so many axes."""

    def fits(name: str) -> bool:
        wanted = entry(name).grid_axes
        return not wanted or grid_axes in wanted

    for name in names:
        if not fits(name):
            wanted = " or ".join(map(str, entry(name).grid_axes))
            there = f"a grid of {grid_axes} axes" if grid_axes else "no common grid"
            raise ValueError(
                f"models={name!r} needs samples on one grid of {wanted} axes, but they "
                f"are on {there}; choose from {', '.join(filter(fits, REGISTRY))}."
            )


# One line for each: what it is made of, the options it reads, and what it needs.
REGISTRY: dict[str, Entry] = {
    "functional": attentions.in_basis("softmax", "functional"),
    "transolver": attentions.TRANSOLVER,
    "transolver_plus": attentions.TRANSOLVER_PLUS,
    "flare": models.FLARE,
    "lno": models.LNO,
    "orthogonal": attentions.ORTHOGONAL,
    "galerkin": attentions.pointwise(nn.GalerkinAttention),
    "linear": attentions.pointwise(nn.LinearAttention),
    "intention": attentions.pointwise(nn.IntentionAttention),
    "fourier": attentions.pointwise(nn.FourierAttention, quadratic=True),
    "softmax": attentions.pointwise(nn.SoftmaxAttention, quadratic=True),
    "performer": attentions.pointwise(nn.PerformerAttention, num_features="num_random"),
    "nystrom": attentions.pointwise(
        nn.NystromAttention, num_landmarks="num_landmarks", min_points="num_landmarks"
    ),
    "linformer": attentions.pointwise(
        nn.LinformerAttention, num_projected="num_projected", fixed_points=True
    ),
    "functional_schwarz": attentions.on_boxes("softmax", "functional"),
    "ono": models.ONO,
    "ono_original": models.ONO_ORIGINAL,
    "gnot": models.GNOT,
    "gnot_original": models.GNOT_ORIGINAL,
    "deeponet": models.DEEPONET,
    "fno": models.FNO,
    "orthogonal_network": models.ORTHOGONAL_NETWORK,
    "galerkin2d": models.on_coarse_grid(nn.GalerkinAttention),
    "linear2d": models.on_coarse_grid(nn.LinearAttention),
    "fourier2d": models.on_coarse_grid(nn.FourierAttention, quadratic=True),
    "softmax2d": models.on_coarse_grid(nn.SoftmaxAttention, quadratic=True),
}


# Every attention that does not belong to one grid or to one number of points.
ATTENTIONS = tuple(
    name
    for name, found in REGISTRY.items()
    if found.attention and not (found.grid_axes or found.fixed_points)
)


def attention(name: str, sizes: Sizes, **options: Any) -> Any:
    """Returns the constructor of an attention layer, for models of your own.

    Options are those of `ModelOptions` that are not as there.
    """
    found, config = entry(name), ModelOptions(**options)
    if found.attention is None:
        raise ValueError(f"models={name!r} is a whole model, not an attention.")
    basis = None if found.basis is None else found.basis(config, sizes)
    return found.attention(config, sizes, basis)


def call(model: Any, sample: Any, **given: Any) -> jax.Array:
    """Evaluates an operator on a sample of arrays, as from `samples.stack`."""
    weights = sample.get("quadrature_weights")
    if weights is not None:
        given["quadrature_weights"] = jnp.asarray(weights)
    return model(sample["mesh_points"], sample.get("features"), **given)
