"""Training that starts from a trained operator: checks, and the initial model."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from opjax.learn.config import ModelOptions
from opjax.learn.json_files import to_json
from opjax.learn.predict.learned import Learned
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Sizes

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


def check_options(start: Learned, config: Any) -> None:
    """Raises ValueError if `config` describes a different model than `start`.

    Args:
      start: the operator.
      config: configuration of the new run, with the fields of `ModelOptions`.
    """
    before = dataclasses.asdict(ModelOptions()) | start.description.config
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
    start: Learned, found: Sizes, names: Mapping[str, Sequence[str]]
) -> Sizes:
    """Returns the sizes of an operator if they match those of new samples.

    Args:
      start: the operator.
      found: sizes of the new samples.
      names: names of their channels, by array.

    Raises:
      ValueError: if the dimension, the channels or their names differ, or the points,
        if the operator supports only one number of points.
    """
    there = start.sizes._asdict()
    wanted = ["point_dim", "feature_dim", "out_features", "time_embedding"]
    wanted += ["scalar_dim", "target_scalars"]
    if start.fixed_points:
        wanted += ["grid_shape", "num_points"]
    for name in wanted:
        before, now = to_json(there[name]), to_json(getattr(found, name))
        if before != now:
            raise ValueError(
                f"init_from: {name} is {before} in {start.folder}, but {now} in "
                "these samples; they must be equal."
            )
    for array, before in start.description.names.items():
        now = list(names.get(array, ()))
        if before and now and before != now:
            raise ValueError(
                f"init_from: the channels of {array} are {', '.join(before)} in "
                f"{start.folder}, but {', '.join(now)} in these samples; use the "
                "same fields in the same order."
            )
    return start.sizes


def build_from(start: Learned, build: Build) -> Build:
    """Returns a function that builds a model with the parameters of an operator."""

    def started(config: Any, rngs: nnx.Rngs) -> Any:
        model = build(config, rngs)
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
