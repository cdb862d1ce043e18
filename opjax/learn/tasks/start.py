"""Training that starts from a trained operator: checks, and the initial model."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax.learn.config import ModelOptions
from opjax.learn.config.fields import spell
from opjax.learn.config.start import StartOptions
from opjax.learn.json_files import to_json
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.scaling import Scaling
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Configuration, Sizes
from opjax.learn.tasks.channels import ARRAYS, Match, expanded
from opjax.normalize import Normalizer
from opjax.samples.base import check_plane
from opjax.samples.normalizers import Names

# Options that parameters do not depend on.
_FREE = frozenset(
    {
        "chunk_size",
        "compute_dtype",
        "dropout",
        "equal_parameters",
        "initial_kernels",
        "rematerialize",
        "storage_dtype",
    }
)
Build = Callable[[Any, nnx.Rngs], Any]


def check_options(start: Learned, config: Configuration) -> None:
    """Raises ValueError if `config` describes a different model than `start`.

    Args:
      start: the operator.
      config: configuration of the new run, with the fields of `ModelOptions`.
    """
    before = dataclasses.asdict(ModelOptions()) | start.config
    if list(config.models) != [start.name]:
        raise ValueError(
            f"init_from: {start.folder} contains models={start.name}, but this run "
            f"has models={','.join(config.models)}; pass --models={start.name}."
        )
    names = sorted(operators.options_of(start.name) - _FREE)
    if getattr(config, "equal_parameters", False) != before["equal_parameters"]:
        names.append("equal_parameters")
    pairs = {name: (before[name], getattr(config, name)) for name in names}
    differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if differing:
        pairs = differing.items()
        pairs_named = ", ".join(f"{k}={v[0]} there and {v[1]} here" for k, v in pairs)
        raise ValueError(
            f"init_from: the model in {start.folder} is different: {pairs_named}. "
            "Use the same options as that run."
        )


def check_sizes(
    start: Learned,
    found: Sizes,
    names: Names,
    axes: tuple[int, ...] = (),
    *,
    channels: bool = True,
) -> Sizes:
    """Returns the sizes of an operator if they match those of new samples.

    Args:
      start: the operator.
      found: sizes of the new samples.
      names: names of their channels, by array.
      axes: their axes of space, see `Sample`.
      channels: whether inputs and fields must be the same, too.

    Raises:
      ValueError: if the dimension, the plane, the channels or their names differ, or
        the points, if the operator supports only one number of points.
    """
    there = start.sizes._asdict()
    inputs = ["feature_dim", "out_features", "scalar_dim"] if channels else []
    compared = ["point_dim", *inputs, "time_embedding", "target_scalars"]
    if start.fixed_points:
        compared += ["grid_shape", "num_points"]
    for name in compared:
        before, now = to_json(there[name]), to_json(getattr(found, name))
        if before != now:
            raise ValueError(
                f"init_from: {name} is {before} in {start.folder}, but {now} in "
                f"these samples; they must be equal.{_other_channels(start, name)}"
            )
    before = f"init_from: the operator in {start.folder}"
    check_plane(before, start.description.axes, "these samples", axes)
    for array, before in start.channel_names.items():
        if not channels and array in ARRAYS:
            continue
        now = list(names.get(array, ()))
        if before and now and before != now:
            raise ValueError(
                f"init_from: the channels of {array} are {', '.join(before)} in "
                f"{start.folder}, but {', '.join(now)} in these samples; use the "
                f"same fields in the same order.{_other_channels(start, array)}"
            )
    return start.sizes


def _other_channels(start: Learned, name: str) -> str:
    """A sentence about the option for other channels, where it applies."""
    applies = name in (*ARRAYS, "feature_dim", "out_features", "scalar_dim")
    if not applies or start.description.time is not None:
        return ""
    return " To keep what has the same name, pass --init_channels=by_name."


def check_scaling(start: Learned, scaling: Scaling | None, *, channels: bool) -> None:
    """Raises ValueError if the samples have other scales than the operator.

    Args:
      start: the operator.
      scaling: scaling of the samples.
      channels: whether the channels must be the same, too.
    """
    before, now = start.scaling, scaling
    if not channels and before is not None and now is not None:
        own, other = (
            {name for listed in one.names.values() for name in listed}
            for one in (before, now)
        )
        apart = own ^ other  # channels of one side only may have any scale
        before, now = (
            [one.angles, {k: v for k, v in one.scales.items() if k not in apart}]
            for one in (before, now)
        )
    if before != now:
        raise ValueError(
            f"init_from: the operator in {start.folder} was trained with other "
            "scales or angles; use the same ones."
        )


def started_normalizers(
    start: Learned,
    fitted: Mapping[str, Normalizer],
    how: StartOptions,
    found: Match | None,
    names: Names,
) -> dict[str, Normalizer]:
    """Returns the normalisers of a training that starts from an operator.

    Args:
      start: the operator.
      fitted: normalisers fitted to the new samples.
      how: which of them to take.
      found: the channels that the operator knows, if others may be new.
      names: names of the channels, by array.
    """
    kept = {
        name: start.normalizers[name]
        if found is None
        else found.normalizer(name, start.normalizers.get(name, own), own)
        for name, own in fitted.items()
    }
    if how.init_normalizers == "renew":
        return dict(fitted)
    if how.init_normalizers == "blend":
        kept = {name: blended(name, kept[name], fitted[name]) for name in fitted}
    for name in ("mesh_points", "features", "scalars", "target"):
        if name in kept:
            _warn_of_alike(name, kept[name], fitted[name], names.get(name, ()))
    return kept


def blended(name: str, first: Normalizer, second: Normalizer) -> Normalizer:
    """Returns the normaliser of two sets of samples in equal parts.

    Means and variances are those of the mixture; the box of `mesh_points` contains the
    boxes of both.

    Args:
      name: name of the array.
      first: normaliser of one set.
      second: normaliser of the other.

    Examples:
      >>> import numpy as np
      >>> from opjax.learn.tasks.start import blended
      >>> from opjax.normalize import Normalizer
      >>> one, other = (Normalizer(np.array([m]), np.array([1.0])) for m in (0.0, 2.0))
      >>> blended("features", one, other).mean.tolist()
      [1.0]
    """
    means, stds = (
        np.stack(pair).astype(np.float64) for pair in zip(first, second, strict=True)
    )
    if name == "mesh_points":
        low, high = np.min(means - stds, axis=0), np.max(means + stds, axis=0)
        half = np.full_like(low, np.max(high - low) / 2)
        return Normalizer((low + high) / 2, half)
    mean = means.mean(axis=0)
    return Normalizer(mean, np.sqrt(np.mean(stds**2 + (means - mean) ** 2, axis=0)))


def _warn_of_alike(
    name: str, kept: Normalizer, fitted: Normalizer, names: Sequence[str]
) -> None:
    """Warns of channels that hardly vary, or are far away, in a normaliser's units."""
    mean, std = (np.asarray(part, np.float64) for part in kept)
    own_mean, own_std = (np.asarray(part, np.float64) for part in fitted)
    safe = np.where(std > 0, std, np.inf)
    spread, shift = own_std / safe, np.abs(own_mean - mean) / safe
    odd = (spread < _ALIKE) | (spread > 1 / _ALIKE) | (shift > _FAR)
    odd &= (std > 0) & (own_std != 1)  # a constant channel keeps its scale
    odd, spread, shift = (np.atleast_2d(part)[0] for part in (odd, spread, shift))
    for i in np.flatnonzero(odd)[:_MOST]:
        label = names[i] if len(names) == len(odd) else f"channel {i} of {name}"
        warnings.warn(
            f"{label}: in units of the normaliser of the initial operator, the new "
            f"samples lie {shift[i]:.2g} standard deviations from its mean and spread "
            f"by {spread[i]:.2g}, so that cases look alike or saturate the model. "
            "Check the units; --init_normalizers=renew fits the normalisers to the "
            "new samples, and --scales removes known factors.",
            stacklevel=2,
        )


# A channel with a smaller share of the spread hardly varies, and one whose mean is so
# many deviations away is unlike all that the operator has seen.
_ALIKE, _FAR, _MOST = 0.1, 5.0, 3


def build_from(start: Learned, build: Build, found: Match | None = None) -> Build:
    """Returns a function that builds a model with the parameters of an operator.

    Args:
      start: the operator.
      build: builds a model for the samples.
      found: the channels that the operator knows, if others may be new.
    """

    def started(config: Configuration, rngs: nnx.Rngs) -> Any:
        model = build(config, rngs)
        if found is not None:
            return expanded(start, model, found, config)
        leaves, earlier = jax.tree.leaves(model), jax.tree.leaves(start.model)
        if list(map(jnp.shape, leaves)) != list(map(jnp.shape, earlier)):
            raise ValueError(
                f"init_from: the parameters in {start.folder} have different "
                "shapes than in this run; use the same options as that run."
            )
        # Copies, since a step of training overwrites what it is given.
        copies = [leaf.copy() for leaf in earlier]
        return jax.tree.unflatten(jax.tree.structure(model), copies)

    return started


def started(start: Learned, how: StartOptions, found: Match | None = None) -> str:
    """Returns a sentence about the initial operator and what is kept of it."""
    parts = [f"normalisers: {how.init_normalizers}"]
    parts += [f"trained: {spell(how.train_only)}"] if how.train_only else []
    parts += [f"updates of rank {how.rank}"] if how.rank else []
    parts += [] if found is None else [f"channels {found.sentence()}"]
    return f"Started from {start.folder}; {'; '.join(parts)}."
