r"""Starting factors that make training independent of the number of points.

A random start of fixed size is too large by a factor that grows with the problem, and
one rate for all factors is too large for some levels and too small for others. Here one
batch of inputs and targets decides both, whatever the problem: `principal_keys` starts
keys from what each block sees and queries from zero, and `calibrate` gives the factors
of every level, and their learning rates relative to a common one, the size at which the
level's output is as large as what it has to represent.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks, schwarz
from opjax._sequential import one_by_one
from opjax.nn.schwarz import LowRankAttention, SchwarzAttention

_Model = TypeVar("_Model", LowRankAttention, SchwarzAttention)
_Block = tuple[jax.Array, jax.Array]  # queries and keys


def principal_keys(
    model: _Model,
    inputs: jax.Array,
    targets: jax.Array,
    *,
    whitening: float | None = 1e-2,
) -> _Model:
    r"""Returns the model with keys from principal components and with zero queries.

    Let `X = U S V^T` be the inputs of a block, divided by the norms of the targets:

        K_i = sqrt(n_i) U                                        local blocks,
        K_0 = sqrt(n_0) U T / (T^2 + whitening^2),  T = S / S_1  other blocks,

    the leading `r` columns, with `n_i` the points of a block that see anything. Local
    blocks have few columns, which orthonormality keeps apart. Others resolve all
    directions: whitening gives each an equal share, down to `whitening` times the
    largest and no further, because amplifying what the batch does not contain would
    spoil the operator outside the batch.

    Args:
      model: a `LowRankAttention` or `SchwarzAttention`.
      inputs: functions, one a column, shape `(n, b)`; at least as many as the largest
        rank.
      targets: their images under the operator to be learned, shape `(n, b)`.
      whitening: smallest singular value to resolve, over the largest; `None` for
        orthonormal keys in all blocks.

    Returns:
      A new model of the same structure.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match, there are fewer samples than a block has
        columns, or `whitening` is not positive.

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      section 7, leave the start open.
    """
    if whitening is not None:
        _checks.positive(whitening=whitening)

    def update(query, key, x, targets, weights, *, local):
        del targets, weights
        if x.shape[-1] < key.shape[-1]:
            raise ValueError(
                f"inputs have {x.shape[-1]} samples, but a block has {key.shape[-1]} "
                "columns; pass a batch of at least as many."
            )
        filter_width = None if local else whitening
        return jnp.zeros_like(query), _principal(x, key.shape[-1], filter_width)

    return _update(model, inputs, targets, update)


def calibrate(
    model: _Model, inputs: jax.Array, targets: jax.Array
) -> tuple[_Model, _Model]:
    r"""Scales the factors of every level to the size of its share of the targets.

    The factors of a level are multiplied by `sqrt(s)`, where queries of independent
    standard normal entries in place of the level's own would give its output `s^-1`
    times the root mean square of its share: locally what the coarse space cannot
    represent, on the coarse level the rest, each divided by the norms of the targets.
    Coarse functions count by their squares, without their products.

    Args:
      model: a `LowRankAttention` or `SchwarzAttention` with keys of any size.
      inputs: functions, one a column, shape `(n, b)`.
      targets: their images under the operator to be learned, shape `(n, b)`.

    Returns:
      The scaled model and a model of the same structure whose leaves are the numbers
      `sqrt(s)`: multiply the updates of an optimizer by them, and a rate means the same
      at every level and for every number of points.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.
    """

    def root(key, x, targets, weights):
        scores = jnp.einsum("smr,smb->srb", key, x)
        energy = jnp.sum(weights.sum(axis=1) * jnp.sum(scores**2, axis=(1, 2)))
        share = jnp.sum(weights[..., None] * targets**2)
        tiny = jnp.finfo(share.dtype).tiny
        return (jnp.maximum(share, tiny) / jnp.maximum(energy, tiny)) ** 0.25

    def size(query, key, x, targets, weights, *, local):
        del query, local
        common = root(key, x, targets, weights)
        return common, common

    sizes = _update(model, inputs, targets, size)
    return jax.tree.map(jnp.multiply, model, sizes), sizes


def _principal(x: jax.Array, rank: int, whitening: float | None) -> jax.Array:
    """Leading left singular vectors of blocks `(s, m, b)`, entries of size one."""
    vectors, values = jax.vmap(_left_singular)(x)
    # A padded point sees zero; vectors that the data leave free may not.
    seen = jnp.any(x != 0, axis=2)
    sizes = jnp.sqrt(jnp.sum(seen, axis=1).astype(x.dtype))
    keys = jnp.where(seen[..., None], sizes[:, None, None] * vectors, 0)
    if whitening is not None:
        largest = jnp.maximum(values[:, :1], jnp.finfo(x.dtype).tiny)
        relative = values / largest
        keys = keys * (relative / (relative**2 + whitening**2))[:, None, :]
    return keys[:, :, :rank]


@one_by_one
def _left_singular(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Left singular vectors and singular values."""
    vectors, values, _ = jnp.linalg.svd(x, full_matrices=False)
    return vectors, values


def _update(
    model: Any,
    inputs: jax.Array,
    targets: jax.Array,
    update: Callable[..., _Block],
) -> Any:
    """Returns a copy of the model with the factors of all blocks replaced.

    `update` gets queries, keys, the inputs of the blocks and what they have to
    represent, `(s, m, b)`, weights of their outputs in the squared norm of the model's
    output `(s, m)`, and whether the blocks are local.
    """
    inputs, targets = jnp.asarray(inputs), jnp.asarray(targets)
    _checks.floating(inputs=inputs, targets=targets)
    _checks.rank(2, inputs=inputs, targets=targets)
    _checks.same_points(inputs=inputs, targets=targets)
    _checks.same_channels(inputs=inputs, targets=targets)
    norms = jnp.linalg.norm(targets, axis=0, keepdims=True)
    # A sample without target counts for nothing.
    factor = jnp.where(norms > 0, 1 / jnp.where(norms > 0, norms, 1), 0)
    factor = factor / jnp.sqrt(jnp.asarray(inputs.shape[1], norms.dtype))
    weights = jnp.ones(inputs.shape[0], inputs.dtype)
    model = jax.tree.map(lambda leaf: leaf, model)  # a copy, to be written into
    _replace(model, inputs * factor, targets * factor, weights, update)
    return model


def _replace(model, inputs, targets, weights, update) -> None:
    if isinstance(model, LowRankAttention):
        if len(inputs) != len(model.key[...]):
            raise ValueError(
                f"inputs have {len(inputs)} points, the model has "
                f"{len(model.key[...])} points; pass functions at the model's points."
            )
        factors = (f[...][None] for f in (model.query, model.key))
        blocks = (inputs[None], targets[None], weights[None])
        query, key = update(*factors, *blocks, local=False)
        model.query, model.key = (
            nnx.Param(f[0] if f.ndim else f) for f in (query, key)
        )
        return
    cover, space = model.cover, model.coarse_space
    if space is not None:
        coefficients = _best_coefficients(space, targets)
        squares = schwarz.Cover(
            space.indices, jnp.square(space.weights_as(inputs.dtype)), space.num_points
        )
        _replace(
            model.coarse,
            schwarz.coarse_restrict(space, inputs),
            coefficients,
            schwarz.coarse_restrict(squares, weights[:, None])[:, 0],
            update,
        )
        targets = targets - schwarz.coarse_prolong(space, coefficients)
    unity = cover.weights_as(inputs.dtype)
    blocks = (
        jnp.sqrt(unity)[..., None] * schwarz.restrict(cover, inputs),
        schwarz.restrict(cover, targets),
        unity * schwarz.restrict(cover, weights[:, None])[..., 0],
    )
    factors = update(model.query[...], model.key[...], *blocks, local=True)
    used = jnp.asarray(model.used_factors(model.query.shape[-1]))
    model.query, model.key = (
        nnx.Param(jnp.where(used, f, 0) if f.ndim else f) for f in factors
    )


def _best_coefficients(space: schwarz.Cover, values: jax.Array) -> jax.Array:
    """Coefficients of the best approximation in the coarse space, in least squares."""

    def gram(coefficients):
        prolonged = schwarz.coarse_prolong(space, coefficients)
        return schwarz.coarse_restrict(space, prolonged)

    moments = schwarz.coarse_restrict(space, values)
    # Gram matrices of hats are well conditioned, whatever their number.
    # (Starting from zero, XLA would evaluate the first step while compiling.)
    solve = jax.scipy.sparse.linalg.cg
    return solve(gram, moments, x0=moments, tol=1e-5, maxiter=100)[0]
