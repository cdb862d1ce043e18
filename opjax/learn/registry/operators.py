"""Operators between functions on any mesh, by name, for all programs.

A name is a key of `REGISTRY`; `basis:mixer` with one of `BASES` and one of `MIXERS`,
such as `fourier:functional`; or `package.module:function` for your own model or
attention:

    def build(config, *, point_dim, feature_dim, out_features, grid_shape,
              time_embedding, rngs):
        ...  # a model, called as `nn.OperatorTransformer`

is a whole model, and `attention(features, *, rngs)` is an attention layer of an
`nn.OperatorTransformer`. The attention also receives `num_heads`, `num_basis`,
`point_dim` and `grid_shape` if its signature contains them. Modules are imported from
Python's search path and from the current folder.
"""

import bisect
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import nn, normalize
from opjax.learn.config import ModelOptions
from opjax.learn.config.model_options import FLAG, Choice
from opjax.learn.registry import attentions, models, own_models
from opjax.learn.registry.attentions import BASES, MIXERS
from opjax.learn.registry.entries import (
    Configuration,
    Encoded,
    Entry,
    Layer,
    Operator,
    Sizes,
)
from opjax.learn.registry.models import Layout
from opjax.samples import Sample, summaries

_DEFAULTS = dataclasses.asdict(ModelOptions())
_HEAD_CHANNELS = 32  # of the function whose means the scalars are read off


def sizes(
    samples: Sequence[Sample],
    normalizers: Mapping[str, normalize.Normalizer] | None = None,
    *,
    out_features: int | None = None,
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    time_embedding: bool = False,
) -> Sizes:
    """Finds the sizes of the samples of a data set, in normalised coordinates.

    Args:
      samples: the data set.
      normalizers: normalisers of the task, by array name.
      out_features: number of output channels, if it differs from the target's.
      box: corners of all meshes, if they differ from the samples'.
      time_embedding: whether the model receives `time`.
    """
    first = samples[0]
    seen = summaries.of(samples)
    grids = {summary.grid_shape for summary in seen}
    counts = {summary.num_points for summary in seen}
    corners = np.stack(summaries.limits(seen, "mesh_points"))
    if normalizers and "mesh_points" in normalizers:
        corners = np.asarray(normalize.encode(normalizers["mesh_points"], corners))
    lower, upper = (tuple(map(float, corner)) for corner in corners)
    scalar_dim = 0 if first.scalars is None else len(first.scalars)
    numbers = first.target_scalars
    target, channels = first.target, 1
    if target is None and numbers is not None:
        channels = 0
    elif target is not None and target.ndim == 2:
        channels = target.shape[1]
    return Sizes(
        point_dim=first.mesh_points.shape[1],
        feature_dim=scalar_dim
        + (0 if first.features is None else first.features.shape[1]),
        out_features=channels if out_features is None else out_features,
        grid_shape=grids.pop() if len(grids) == 1 else None,
        num_points=counts.pop() if len(counts) == 1 else None,
        box=(lower, upper) if box is None else box,
        time_embedding=time_embedding,
        scalar_dim=scalar_dim,
        target_scalars=0 if numbers is None else len(numbers),
    )


def is_own(name: str) -> bool:
    """Whether a name refers to a user-defined model, `package.module:function`."""
    basis, _, mixer = name.partition(":")
    return ":" in name and not (basis in BASES and mixer in MIXERS)


def entry(name: str) -> Entry:
    """Looks up a name, composes `basis:mixer`, or imports a user-defined model."""
    if name in REGISTRY:
        return REGISTRY[name]
    basis, _, mixer = name.partition(":")
    if basis in BASES and mixer in MIXERS:
        return attentions.in_basis(basis, mixer)
    if ":" not in name:
        raise ValueError(
            f"models={name!r} is unknown; choose from {', '.join(REGISTRY)}, "
            f"compose basis:mixer from the bases {', '.join(BASES)} and the mixers "
            f"{', '.join(MIXERS)}, or pass your own model as "
            "package.module:function."
        )
    return own_models.entry(name)


def check_options(config: Configuration, preset: Configuration) -> None:
    """Raises ValueError if an option is changed that no selected model reads."""
    used = frozenset[str]().union(*(options_of(name) for name in config.models))
    for name in sorted(_DEFAULTS.keys() - used - {FLAG}):
        value, before = getattr(config, name, None), getattr(preset, name, None)
        if value != before:
            raise ValueError(
                f"{name}={value} has no effect on models={','.join(config.models)}; "
                f"omit it, or keep its value {before}."
            )
    if isinstance(config, ModelOptions):
        for choice in config.model_choices():
            _check_choice(choice, config)


def _check_choice(choice: Choice, config: Configuration) -> None:
    """Raises ValueError for a value in --model_options that no model reads."""
    models = ",".join(config.models)
    if not choice.model:
        if not any(choice.option in options_of(name) for name in config.models):
            raise ValueError(
                f"model_options: {choice.option} has no effect on models={models}; "
                "omit it."
            )
    elif choice.model not in config.models:
        raise ValueError(
            f"model_options: {choice.model}.{choice.option} belongs to a model "
            f"that is not in models={models}; omit it, or add the model."
        )
    elif choice.option not in options_of(choice.model):
        own = sorted(options_of(choice.model) - {"equal_parameters"})
        raise ValueError(
            f"model_options: {choice.option} has no effect on {choice.model}, whose "
            f"options are {', '.join(own)}; omit it."
        )
    adjusted = getattr(config, "equal_parameters", False)
    if choice.option == "width" and adjusted and choice.model != "functional":
        raise ValueError(
            "model_options: width is adjusted for equal parameters; add "
            "--noequal_parameters."
        )


def options_of(name: str) -> frozenset[str]:
    """Returns the names of the options that an operator reads."""
    registered = entry(name)
    if registered.options is None:  # a model of your own gets all of them
        return frozenset(_DEFAULTS) - {FLAG}
    around = () if registered.model else models.TRANSFORMER_OPTIONS
    return frozenset(registered.options) | {"equal_parameters", *around}


def splits_points(config: Configuration) -> bool:
    """Whether devices can share the points of a sample, for all selected operators."""
    if getattr(config, "rematerialize", False):
        return False
    return all(entry(name).splits_points for name in config.models)


def slug(name: str) -> str:
    """The name, converted to a part of a file name."""
    return name.replace(":", "_").replace("/", "_")


def build(
    config: Configuration,
    sizes: Sizes,
    *,
    layout: Layout | None = None,
    rngs: nnx.Rngs,
) -> Operator:
    """Builds the operator that `config.models` names.

    With `config.equal_parameters`, the number of channels is chosen so that the number
    of parameters is closest to that of functional attention.

    Args:
      config: configuration of one model with fields of `ModelOptions`; missing fields
        have the defaults of `ModelOptions`.
      sizes: sizes of the samples.
      layout: encoder and decoder settings of an `nn.OperatorTransformer`, the default
        ones if None; other models ignore it.
      rngs: source of the initial parameters.

    Returns:
      An operator with the interface of `nn.OperatorTransformer`; if scalars are
      predicted, it is wrapped in an `nn.models.ScalarOperator`.

    Raises:
      ValueError: if the samples lack what the model needs, or an option is out of
        range.
    """
    if sizes.target_scalars:
        q, t = sizes.out_features, sizes.target_scalars
        inner = sizes._replace(out_features=q + _HEAD_CHANNELS, target_scalars=0)
        operator = build(config, inner, layout=layout, rngs=rngs)
        head = nn.models.ScalarHead(_HEAD_CHANNELS, t, rngs=rngs)
        return nn.models.ScalarOperator(operator, head, q)
    (name,) = config.models
    registered = entry(name)
    if (
        "features" in vars(config)
        and "width" not in vars(config)
        and registered.options
    ):
        raise ValueError("The option features is called width since opjax 0.3.")
    _check_sizes(name, registered, sizes)
    # A program without the option has one model, of the size it says, and the sizes of
    # a model of your own are your own.
    options = {**_DEFAULTS, **vars(config)}
    width = options["width"]
    equal = (
        getattr(config, "equal_parameters", False) and registered.options is not None
    )
    if equal and name != "functional":
        width = _equal_width(registered, options, sizes, layout)
    return _construct(registered, {**options, "width": width}, sizes, layout, rngs)


def _check_sizes(name: str, found: Entry, sizes: Sizes) -> None:
    """Raises ValueError if the samples lack what a model needs."""
    check_mesh([name], len(sizes.grid_shape or ()))
    if found.fixed_points and sizes.num_points is None:
        raise ValueError(
            f"models={name!r} needs the same number of points in all samples; use "
            "another model."
        )
    if sizes.time_embedding:
        check_time([name])


def _construct(
    registered: Entry,
    options: Mapping[str, Any],
    sizes: Sizes,
    layout: Layout | None,
    rngs: nnx.Rngs,
) -> Operator:
    if registered.options is None:
        everything: Any = SimpleNamespace(**options)  # with what only the program knows
        assert registered.model is not None
        return registered.model(everything, sizes, rngs)
    config = ModelOptions(**{name: options[name] for name in _DEFAULTS})
    if registered.model is not None:
        return registered.model(config, sizes, rngs)
    return models.transformer(
        registered, config, sizes, rngs, layout=layout or Layout()
    )


def _equal_width(
    registered: Entry, options: Mapping[str, Any], sizes: Sizes, layout: Layout | None
) -> int:
    """Channels for about as many parameters as functional attention has."""

    def count(registered: Entry, width: int) -> int:
        def abstract(key: jax.Array) -> Operator:
            wide = {**options, "width": width}
            return _construct(registered, wide, sizes, layout, nnx.Rngs(key))

        shapes = jax.eval_shape(abstract, jax.random.key(0))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    width, heads = options["width"], options["num_heads"]
    target = count(REGISTRY["functional"], width)
    own = functools.cache(partial(count, registered))
    widths = range(heads, 2 * width + 1, heads)
    # Wider models have more parameters, so a few counts find the nearest.
    above = bisect.bisect_left(widths, target, key=own)
    near = widths[max(above - 1, 0) : above + 1]
    return min(near, key=lambda one: abs(own(one) - target))


def check_mesh(names: Sequence[str], grid_axes: int) -> None:
    """Raises ValueError if an operator does not support grids of so many axes."""

    def fits(name: str) -> bool:
        axes = entry(name).grid_axes
        return not axes or grid_axes in axes

    for name in names:
        if not fits(name):
            axes = " or ".join(map(str, entry(name).grid_axes))
            there = f"a grid of {grid_axes} axes" if grid_axes else "no common grid"
            raise ValueError(
                f"models={name!r} needs samples on one grid of {axes} axes, but they "
                f"are on {there}; choose from {', '.join(filter(fits, REGISTRY))}."
            )


def check_time(names: Sequence[str]) -> None:
    """Raises ValueError if an operator has no time embedding."""
    for name in names:
        if not entry(name).takes_time:
            raise ValueError(
                f"models={name!r} has no time embedding; use another model."
            )


# One line for each name.
REGISTRY: dict[str, Entry] = {
    "functional": attentions.in_basis("softmax", "functional"),
    "transolver": attentions.TRANSOLVER,
    "transolver_plus": attentions.TRANSOLVER_PLUS,
    "flare": models.FLARE,
    "lno": models.LNO,
    "orthogonal": attentions.ORTHOGONAL,
    "galerkin": attentions.between_points(nn.GalerkinAttention),
    "linear": attentions.between_points(nn.LinearAttention),
    "intention": attentions.between_points(nn.attention.IntentionAttention),
    "fourier": attentions.between_points(nn.FourierAttention, quadratic=True),
    "softmax": attentions.between_points(nn.SoftmaxAttention, quadratic=True),
    "performer": attentions.PERFORMER,
    "nystrom": attentions.NYSTROM,
    "linformer": attentions.LINFORMER,
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


def attention(name: str, sizes: Sizes, config: ModelOptions | None = None) -> Layer:
    """Returns the constructor of an attention layer, for user-defined models.

    Args:
      name: name in the registry, `basis:mixer`, or user-defined.
      sizes: sizes of the samples.
      config: options of the attention, the defaults if None.

    Raises:
      ValueError: if the name is unknown or belongs to a whole model.
    """
    registered, config = entry(name), config or ModelOptions()
    if registered.attention is None:
        raise ValueError(f"models={name!r} is a complete model, not an attention.")
    basis = None if registered.basis is None else registered.basis(config, sizes)
    return registered.attention(config, sizes, basis)


def call(
    model: Callable[..., Any],
    sample: Encoded,
    *,
    time: jax.Array | None = None,
    axis_name: str | None = None,
) -> Any:
    """Evaluates an operator on the arrays of a sample, see `samples.stack`.

    Only the available arguments are passed, so a model may omit the others from its
    signature. Scalars are appended to the features as channels that are constant over
    the points.

    Args:
      model: an `Operator`, or a model with fewer arguments.
      sample: see `Encoded`.
      time: time, for an operator with a time embedding.
      axis_name: axis of the devices that share the points of the sample, if any.

    Returns:
      The output of the model: values of the output function, `(n, q)`.
    """
    features, weights = sample.get("features"), sample.get("quadrature_weights")
    points = jnp.asarray(sample["mesh_points"])
    features = None if features is None else jnp.asarray(features)
    if "scalars" in sample:
        scalars = jnp.asarray(sample["scalars"])
        features = nn.models.constant_features(features, scalars, points.shape[0])
    evaluate = partial(model, points, features)
    if weights is not None:
        evaluate = partial(evaluate, quadrature_weights=jnp.asarray(weights))
    if time is not None:
        evaluate = partial(evaluate, time=time)
    if axis_name is not None:
        evaluate = partial(evaluate, axis_name=axis_name)
    return evaluate()
