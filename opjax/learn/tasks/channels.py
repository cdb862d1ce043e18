"""Channels of samples that an operator to start from knows, by their names."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax._trees import Model, PyTree
from opjax.learn.predict.description import Channels
from opjax.learn.predict.learned import Learned
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Configuration, Sizes
from opjax.normalize import Normalizer
from opjax.samples.normalizers import Names
from opjax.training import tuning

NEW = -1  # the place of a channel that the operator does not know
ARRAYS = {"features": "feature", "scalars": "scalar", "target": "field"}
_POINTS = 256  # of the mesh of a check, for models of any mesh


class Match(NamedTuple):
    """The channels of samples in an operator to start from.

    Attributes:
      before: sizes that the operator was built for.
      sizes: sizes for the samples.
      places: for each channel of an array of the samples, its place in the operator, or
        `NEW`.
      kept: names of the channels that the operator knows, in words.
      new: names of the others.
      lost: names of the channels of the operator that the samples lack.
    """

    before: Sizes
    sizes: Sizes
    places: dict[str, np.ndarray]
    kept: str
    new: str
    lost: str

    @property
    def inputs(self) -> np.ndarray:
        """Places of the channels that the model receives, features before scalars."""
        scalars = self.places["scalars"]
        features = self.before.feature_dim - self.before.scalar_dim
        shifted = np.where(scalars == NEW, NEW, scalars + features)
        return np.concatenate([self.places["features"], shifted])

    def sentence(self) -> str:
        """What is kept and what is new, in words."""
        parts = {"kept": self.kept, "new": self.new, "no longer used": self.lost}
        return "; ".join(f"{what}: {text}" for what, text in parts.items() if text)

    def normalizer(
        self,
        name: str,
        kept: Normalizer,
        fitted: Normalizer,
    ) -> Normalizer:
        """Returns the normaliser of an operator for the channels of new samples.

        Args:
          name: name of the array.
          kept: normaliser of the operator.
          fitted: normaliser of the new samples, which that of new channels is.
        """
        if name not in self.places:
            return kept
        places = self.places[name]
        parts = (
            np.where(places == NEW, new, np.asarray(old)[..., places])
            for old, new in zip(kept, fitted, strict=True)
        )
        return Normalizer(*parts)


def match(start: Learned, sizes: Sizes, names: Names) -> Match:
    """Finds the channels of samples in an operator, by their names.

    Several channels of one name, such as a vector's, are taken in their order.

    Args:
      start: the operator.
      sizes: sizes for the samples.
      names: names of the channels of the samples, as the model receives them.

    Raises:
      ValueError: if channels have no names, or none of the fields is known.
    """
    scaling, before = start.scaling, start.sizes
    theirs = start.channel_names if scaling is None else scaling.reduced_names()
    counts = {
        array: (getattr(Channels.of(before), array), getattr(Channels.of(sizes), array))
        for array in ARRAYS
    }
    places: dict[str, np.ndarray] = {}
    words: dict[str, list[str]] = {"kept": [], "new": [], "lost": []}
    for array, noun in ARRAYS.items():
        earlier, own = (list(listed.get(array, ())) for listed in (theirs, names))
        sides = (earlier, f"{start.folder}"), (own, "these samples")
        for (listed, where), count in zip(sides, counts[array], strict=True):
            if len(listed) != count:
                raise ValueError(
                    f"init_channels=by_name: the {count} channels of {array} in "
                    f"{where} have {len(listed)} names; name all of them, for example "
                    "with --feature_names and --target_names."
                )
        keys = _numbered(earlier)
        own_places = [keys.index(key) if key in keys else NEW for key in _numbered(own)]
        places[array] = np.asarray(own_places, np.int64)
        groups = {
            "kept": [
                name for name, place in zip(own, own_places, strict=True) if place >= 0
            ],
            "new": [
                name for name, place in zip(own, own_places, strict=True) if place < 0
            ],
            "lost": [earlier[i] for i in range(len(earlier)) if i not in own_places],
        }
        for what, some in groups.items():
            if some:
                words[what].append(f"{noun} {_counted(some)}")
    if sizes.out_features and not (places["target"] >= 0).any():
        raise ValueError(
            f"init_channels=by_name: {start.folder} predicts "
            f"{_counted(theirs.get('target', ()))}, and these samples have none of "
            "these fields. Rename them, or train from the beginning."
        )
    modulates = before.scalar_dim and start.config.get("scalar_modulation")
    if modulates and list(theirs["scalars"]) != list(names.get("scalars", ())):
        raise ValueError(
            f"init_channels=by_name: the model in {start.folder} has "
            "scalar_modulation and needs the same input scalars, "
            f"{', '.join(theirs['scalars'])}."
        )
    changed = before._replace(
        feature_dim=sizes.feature_dim,
        scalar_dim=sizes.scalar_dim,
        out_features=sizes.out_features,
    )
    return Match(
        before, changed, places, **{k: ", ".join(some) for k, some in words.items()}
    )


def _numbered(names: Iterable[str]) -> list[tuple[str, int]]:
    """Names with the number of equal names before them."""
    listed = list(names)
    return [(name, listed[:i].count(name)) for i, name in enumerate(listed)]


def _counted(names: Iterable[str]) -> str:
    """Names, each once, with the number of their channels."""
    listed = list(names)
    return ", ".join(
        f"{name} ({listed.count(name)} channels)" if listed.count(name) > 1 else name
        for name in dict.fromkeys(listed)
    )


def head(config: Configuration, sizes: Sizes) -> set[str]:
    """Names of the parameters whose shape depends on the number of output channels."""
    return set(_grown(config, sizes, outputs=True))


def _shapes(config: Configuration, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters of a model that is not built."""
    model = jax.eval_shape(lambda: operators.build(config, sizes, rngs=nnx.Rngs(0)))
    return {name: leaf.shape for name, leaf in tuning.named(model).items()}


def _grown(
    config: Configuration, sizes: Sizes, *, outputs: bool
) -> dict[str, int | None]:
    """Parameters that grow with the features, or with the outputs.

    Of each, the axis that grows by one; None if there is no such axis.
    """
    before = _shapes(config, sizes)
    larger = sizes._replace(feature_dim=sizes.feature_dim + 1)
    if outputs:
        larger = sizes._replace(out_features=sizes.out_features + 1)
    after = _shapes(config, larger)
    grown: dict[str, int | None] = {}
    for name, shape in before.items():
        change = np.subtract(after[name], shape)
        axes = np.flatnonzero(change)
        if len(axes):
            single = len(axes) == 1 and change[axes[0]] == 1
            grown[name] = int(axes[0]) if single else None
    return grown


def expanded(start: Learned, model: Model, found: Match, config: Configuration) -> Any:
    """Returns a model for other channels with the parameters of an operator.

    Parameters of new channels are zero: a new input has no effect, and a new output is
    zero, the mean of the field.

    Args:
      start: the operator.
      model: model for the sizes of the match, whose parameters are replaced.
      found: the channels.
      config: configuration of the model.

    Raises:
      ValueError: if the architecture does not support other channels.
    """
    inputs, outputs = (_grown(config, found.before, outputs=o) for o in (False, True))
    before, parameters = tuning.named(start.model), tuning.named(model)
    leaves: list[jax.Array] = []
    for name, leaf in parameters.items():
        value = before.get(name)
        if value is None:
            raise _unsupported(start, f"{name} is not there")
        if name in inputs:
            constant = _constant(value, inputs[name], found.before.feature_dim)
            rows = np.where(found.inputs == NEW, NEW, found.inputs + constant)
            rows = np.concatenate([np.arange(constant), rows])
            value = _taken(value, rows, inputs[name])
        if name in outputs:
            constant = _constant(value, outputs[name], found.before.out_features)
            rest = found.before.out_features + np.arange(constant)
            rows = np.concatenate([found.places["target"], rest])
            value = _taken(value, rows, outputs[name])
        if value.shape != leaf.shape:
            raise _unsupported(start, f"{name} depends on them in another way")
        leaves.append(jnp.array(value))
    model = jax.tree.unflatten(jax.tree.structure(model), leaves)
    _check(start, model, found)
    return model


def new_parameters(config: Configuration, found: Match) -> set[str]:
    """Names of the parameters that have parts of new channels."""
    names: set[str] = set()
    if (found.inputs == NEW).any():
        names |= _grown(config, found.before, outputs=False).keys()
    if (found.places["target"] == NEW).any():
        names |= _grown(config, found.before, outputs=True).keys()
    return names


def _constant(value: jax.Array, axis: int | None, channels: int) -> int:
    """Entries of an axis that belong to no channel."""
    return 0 if axis is None else value.shape[axis] - channels


def _taken(value: jax.Array, rows: np.ndarray, axis: int | None) -> jax.Array:
    """Entries of an axis; zeros for `NEW`."""
    if axis is None:
        return value
    values = np.moveaxis(np.asarray(value), axis, 0)
    padded = np.concatenate([values, np.zeros_like(values[:1])])  # `NEW` is the last
    return jnp.asarray(np.moveaxis(padded[rows], 0, axis))


def _unsupported(start: Learned, why: str) -> ValueError:
    return ValueError(
        f"init_channels=by_name: models={start.name} does not support other channels "
        f"({why}). Use the same channels, or another model."
    )


def _check(start: Learned, model: PyTree, found: Match) -> None:
    """Raises ValueError unless both models predict the same known fields."""
    sizes, rng = found.sizes, np.random.default_rng(0)
    count = sizes.num_points if start.fixed_points and sizes.num_points else _POINTS
    points = rng.uniform(-1, 1, (count, sizes.point_dim)).astype(np.float32)
    drawn = rng.normal(size=(count, sizes.feature_dim)).astype(np.float32)
    before = np.zeros((count, found.before.feature_dim), np.float32)
    is_kept = found.inputs != NEW
    before[:, found.inputs[is_kept]] = drawn[:, is_kept]

    def values(model: Callable[..., Any], features: np.ndarray) -> np.ndarray:
        arrays = {"mesh_points": points}
        arrays |= {"features": features} if features.shape[1] else {}
        return np.asarray(jax.jit(operators.call)(model, arrays))

    places = found.places["target"]
    now, then = values(model, drawn), values(start.model, before)
    kept = np.flatnonzero(places != NEW)
    now, then = now[:, kept], then[:, places[kept]]
    atol = 1e-4 * np.abs(then).max(initial=0)
    if not np.allclose(now, then, rtol=1e-4, atol=atol):
        raise _unsupported(start, "its predictions of known fields would change")
