r"""Fine-tuning: some parameters of a model are trained, the others are frozen.

`tuned` puts the trained parameters beside the frozen model, and `merged` returns an
ordinary model again. So losses, metrics and files know nothing of fine-tuning:

    loss(merged(tuned), batch).

A parameter is trained as a whole, or by a low-rank update of a matrix,

    W + A B,    A (n, r),    B (r, m),    B = 0 at first,

so a tuned model starts with the predictions of the frozen one. Only trained parameters
have gradients and a state of the optimizer.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from opjax import _checks
from opjax._trees import PyTree
from opjax.training.matrix_optimizers import is_kernel


class Frozen(NamedTuple):
    """A part of a model that is carried along, but not trained.

    Attributes:
      tree: any pytree of arrays.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> from opjax.training import tuning
      >>> model = {"a": tuning.Frozen(jnp.ones(2)), "b": jnp.ones(2)}
      >>> gradient = training.value_and_grad(lambda m, x: x * m["a"].tree @ m["b"])
      >>> gradient(model, 2.0)[1]["b"].tolist(), gradient(model, 2.0)[1]["a"]
      ([2.0, 2.0], None)
    """

    tree: PyTree


class Factors(NamedTuple):
    """The factors of a low-rank update `down @ up` of a matrix, or of a stack of them.

    Attributes:
      down: shape `(..., n, r)`.
      up: shape `(..., r, m)`; zero at first.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.training import tuning
      >>> factors = tuning.Factors(jnp.ones((3, 1)), jnp.zeros((1, 2)))
      >>> (factors.down @ factors.up).shape
      (3, 2)
    """

    down: Array
    up: Array


class Tuned(NamedTuple):
    """A frozen model, and the parameters that are trained.

    Attributes:
      base: the model.
      parts: new values of parameters, or factors of their updates, by `named`.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax.training import tuning
      >>> model = {"kernel": jnp.ones((8, 8)), "bias": jnp.zeros(8)}
      >>> found = tuning.tuned(model, {"bias": 0}, key=jax.random.key(0))
      >>> sorted(found.parts)
      ['bias']
    """

    base: Frozen
    parts: dict[str, Any]


def named(model: PyTree) -> dict[str, Array]:
    """Returns the parameters of a model by their path, such as `encoder.out.kernel`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.training import tuning
      >>> sorted(tuning.named({"layers": [{"kernel": jnp.ones((2, 2))}]}))
      ['layers.0.kernel']
    """
    return {name: leaf for name, (_, leaf) in _leaves(model).items()}


def tuned(model: PyTree, ranks: Mapping[str, int], *, key: Array) -> Tuned:
    """Freezes a model except for some of its parameters.

    The first factor is normal with variance `1 / r`, so that a step of Adam changes an
    entry of the matrix about as much as if it was trained itself.

    Args:
      model: the model.
      ranks: rank of the update of each trained parameter, by `named`. 0 trains it as a
        whole, like every parameter that is no matrix, or that has no more entries than
        its factors.
      key: PRNG key of the first factors.

    Raises:
      ValueError: if a name is unknown, a rank is negative, or nothing is trained.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax.training import tuning
      >>> model = {"kernel": jnp.ones((8, 8)), "bias": jnp.zeros(8)}
      >>> found = tuning.tuned(model, {"kernel": 2}, key=jax.random.key(0))
      >>> tuning.num_trained(found), bool((tuning.merged(found)["kernel"] == 1).all())
      (32, True)
    """
    leaves = _leaves(model)
    unknown = sorted(ranks.keys() - leaves.keys())
    if unknown or not ranks:
        raise ValueError(
            f"Parameters to train are {', '.join(unknown) or 'none'}; the model has "
            f"{', '.join(leaves)}."
        )
    parts: dict[str, Any] = {}
    keys = jax.random.split(key, len(ranks))
    for name, own in zip(sorted(ranks), keys, strict=True):
        (path, leaf), rank = leaves[name], ranks[name]
        _checks.non_negative(rank=rank)
        factored = rank and is_kernel(path, leaf)
        n, m = leaf.shape[-2:] if factored else (0, 0)
        if rank * (n + m) < n * m:
            down = jax.random.normal(own, (*leaf.shape[:-1], rank), leaf.dtype)
            up = jnp.zeros((*leaf.shape[:-2], rank, m), leaf.dtype)
            parts[name] = Factors(down / jnp.sqrt(rank).astype(leaf.dtype), up)
        else:
            parts[name] = leaf
    return Tuned(Frozen(model), parts)


def merged(model: PyTree) -> PyTree:
    """Returns the ordinary model of a tuned one; other models are returned unchanged.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax.training import tuning
      >>> found = tuning.tuned({"w": jnp.ones(2)}, {"w": 0}, key=jax.random.key(0))
      >>> tuning.merged(found._replace(parts={"w": jnp.zeros(2)}))["w"].tolist()
      [0.0, 0.0]
    """
    if not isinstance(model, Tuned):
        return model

    def value(path: tuple[Any, ...], leaf: Array) -> Array:
        part = model.parts.get(_name(path))
        if isinstance(part, Factors):
            return leaf + part.down @ part.up
        return leaf if part is None else part

    return jax.tree_util.tree_map_with_path(value, model.base.tree)


def untuned(model: PyTree) -> PyTree:
    """Returns the frozen model of a tuned one; other models are returned unchanged.

    Examples:
      >>> from opjax.training import tuning
      >>> tuning.untuned({"w": 1.0})
      {'w': 1.0}
    """
    return model.base.tree if isinstance(model, Tuned) else model


def matrices(model: PyTree) -> set[str]:
    """Returns the names of the matrices that `tuned` can update by factors.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.training import tuning
      >>> tuning.matrices({"kernel": jnp.ones((8, 8)), "bias": jnp.zeros(8)})
      {'kernel'}
    """
    leaves = _leaves(model).items()
    return {name for name, (path, leaf) in leaves if is_kernel(path, leaf)}


def num_parameters(model: PyTree) -> int:
    """Returns the number of parameters, for a tuned model of the ordinary one.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.training import tuning
      >>> tuning.num_parameters({"w": jnp.ones((2, 3))})
      6
    """
    return sum(leaf.size for leaf in jax.tree.leaves(untuned(model)))


def num_trained(model: Tuned) -> int:
    """Returns the number of trained parameters, including those of factors.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax.training import tuning
      >>> model = {"kernel": jnp.ones((8, 8)), "bias": jnp.zeros(8)}
      >>> tuning.num_trained(tuning.tuned(model, {"bias": 0}, key=jax.random.key(0)))
      8
    """
    return sum(leaf.size for leaf in jax.tree.leaves(model.parts))


def _leaves(model: PyTree) -> dict[str, tuple[tuple[Any, ...], Array]]:
    """Paths and leaves by name."""
    leaves = jax.tree_util.tree_flatten_with_path(model)[0]
    return {_name(path): (path, leaf) for path, leaf in leaves}


def _name(path: tuple[Any, ...]) -> str:
    """The name of a path; the `value` of a variable of Flax is not part of it."""
    keys = [
        str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", ""))))
        for key in path
    ]
    if len(keys) > 1 and keys[-1] == "value":
        keys = keys[:-1]
    return ".".join(keys)
