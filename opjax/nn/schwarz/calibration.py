r"""Initial factors that make training independent of the number of points.

A random initialisation of fixed size is too large by a factor that grows with the
problem, and one learning rate for all factors is too large for some levels and too
small for others. Here one batch of inputs and targets determines both. `principal_keys`
initialises keys from the inputs of each block, and queries with zero. `calibrate`
scales the factors of every level, and their learning rates relative to a common one, so
that the level's output has the size of its part of the targets.
"""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks, schwarz
from opjax._sequential import one_by_one
from opjax.nn.schwarz.factors import LowRankAttention, SchwarzAttention

# What owns factors: one block, or the blocks of one level and all coarser ones.
Factored = LowRankAttention | SchwarzAttention
Model = TypeVar("Model", LowRankAttention, SchwarzAttention)


class _Blocks(NamedTuple):
    """What the blocks of one level see and have to represent.

    Attributes:
      used: which entries of the factors are not padding, `(s, m, r)`.
      inputs: the parts of the normalised inputs that the blocks see, `(s, m, b)`.
      targets: what they have to represent, `(s, m, b)`.
      weights: weights of their outputs in the squared norm of the model's, `(s, m)`.
      local: whether these are subdomains rather than one block of all coefficients.
    """

    used: jax.Array
    inputs: jax.Array
    targets: jax.Array
    weights: jax.Array
    local: bool


def principal_keys(
    model: Model,
    inputs: jax.Array,
    targets: jax.Array,
    *,
    whitening: float | None = 1e-2,
) -> Model:
    r"""Returns the model with keys from principal components and zero queries.

    Let `X = U S V^T` be the inputs of a block, divided by the norms of the targets:

        K_i = sqrt(n_i) U                                        local blocks,
        K_0 = sqrt(n_0) U T / (T^2 + whitening^2),  T = S / S_1  other blocks.

    The keys are the leading `r` columns, and `n_i` is the number of points of a block
    with nonzero input. Local blocks have few columns, which orthonormality keeps
    distinct. Other blocks resolve all directions: whitening scales each to the same
    size, down to `whitening` times the largest and no further, because amplifying
    directions that the batch does not contain would damage the operator outside the
    batch.

    Args:
      model: a `LowRankAttention` or `SchwarzAttention`.
      inputs: input functions as columns, shape `(n, b)`; at least as many as the
        largest rank.
      targets: their images under the operator to be learned, shape `(n, b)`.
      whitening: smallest resolved singular value, relative to the largest; `None` for
        orthonormal keys in all blocks.

    Returns:
      A new model of the same structure.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match, there are fewer samples than columns of a
        block, or `whitening` is not positive.

    Examples:
      >>> from flax import nnx
      >>> import jax
      >>> from opjax.nn import schwarz
      >>> model = schwarz.LowRankAttention(8, rank=2, rngs=nnx.Rngs(0))
      >>> inputs = jax.random.normal(jax.random.key(1), (8, 4))  # four functions
      >>> model = schwarz.principal_keys(model, inputs, 2 * inputs)
      >>> float(abs(model.query[...]).max())  # training starts from zero queries
      0.0

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      section 7, leave the start open.
    """
    if whitening is not None:
        _checks.positive(whitening=whitening)

    keys = [
        jnp.where(
            blocks.used, _principal(blocks, None if blocks.local else whitening), 0
        )
        for blocks in _levels(model, inputs, targets)
    ]
    return with_factors(model, [(jnp.zeros_like(key), key) for key in keys])


def calibrate(
    model: Model, inputs: jax.Array, targets: jax.Array
) -> tuple[Model, Model]:
    r"""Scales the factors of every level to the size of its part of the targets.

    The factors of a level are multiplied by `sqrt(s)`, where queries of independent
    standard normal entries, instead of the level's own, would give its output `s^-1`
    times the root mean square of its part of the targets. The part of a local level is
    what the coarse space cannot represent; that of the coarse level is the rest; each
    is divided by the norms of the targets. Coarse functions contribute by their
    squares, without their products.

    Args:
      model: a `LowRankAttention` or `SchwarzAttention` with keys of any size.
      inputs: input functions as columns, shape `(n, b)`.
      targets: their images under the operator to be learned, shape `(n, b)`.

    Returns:
      The scaled model, and a model of the same structure whose leaves are the numbers
      `sqrt(s)`. Multiply the updates of an optimizer by them; a learning rate then has
      the same effect at every level and for every number of points.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> from flax import nnx
      >>> import jax
      >>> from opjax import training
      >>> from opjax.nn import schwarz
      >>> model = schwarz.LowRankAttention(8, rank=2, rngs=nnx.Rngs(0))
      >>> inputs = jax.random.normal(jax.random.key(1), (8, 4))  # four functions
      >>> model, sizes = schwarz.calibrate(model, inputs, 2 * inputs)
      >>> adam = training.adamw(0.1, weight_decay=0.0)
      >>> optimizer = training.chain(adam, training.scale_updates(sizes))
    """
    roots = []
    for level, blocks in zip(
        modules(model), _levels(model, inputs, targets), strict=True
    ):
        key = level.key[...].reshape(blocks.used.shape)
        scores = jnp.einsum("smr,smb->srb", key, blocks.inputs)
        energies = blocks.weights.sum(axis=1) * jnp.sum(scores**2, axis=(1, 2))
        energy = jnp.sum(energies)
        share = jnp.sum(blocks.weights[..., None] * blocks.targets**2)
        tiny = jnp.finfo(share.dtype).tiny
        root = (jnp.maximum(share, tiny) / jnp.maximum(energy, tiny)) ** 0.25
        roots.append((root, root))
    sizes = with_factors(model, roots)
    return jax.tree.map(jnp.multiply, model, sizes), sizes


def _principal(blocks: _Blocks, whitening: float | None) -> jax.Array:
    """Leading left singular vectors of the inputs `(s, m, r)`, entries of size one."""
    x, rank = blocks.inputs, blocks.used.shape[-1]
    if x.shape[-1] < rank:
        raise ValueError(
            f"inputs have {x.shape[-1]} samples, but a block has {rank} columns; "
            "pass at least as many samples."
        )
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


def _levels(model: Factored, inputs: jax.Array, targets: jax.Array) -> list[_Blocks]:
    """Returns the blocks of all levels, the coarsest first, for normalised samples."""
    inputs, targets = _checks.arrays(2, inputs=inputs, targets=targets)
    _checks.same_points(inputs=inputs, targets=targets)
    _checks.same_channels(inputs=inputs, targets=targets)
    norms = jnp.linalg.norm(targets, axis=0, keepdims=True)
    # A sample without target counts for nothing.
    factor = jnp.where(norms > 0, 1 / jnp.where(norms > 0, norms, 1), 0)
    factor = factor / jnp.sqrt(jnp.asarray(inputs.shape[1], norms.dtype))
    weights = jnp.ones(inputs.shape[0], inputs.dtype)
    return _restricted(model, inputs * factor, targets * factor, weights)


def _restricted(
    model: Factored,
    inputs: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
) -> list[_Blocks]:
    if isinstance(model, LowRankAttention):
        points, rank = model.key.shape
        if len(inputs) != points:
            raise ValueError(
                f"inputs have {len(inputs)} points, but the model has {points} "
                "points; pass functions at the model's points."
            )
        used = jnp.ones((1, points, rank), bool)
        return [_Blocks(used, inputs[None], targets[None], weights[None], False)]
    cover, space, coarse = model.cover, model.coarse_space, coarse_factors(model)
    coarser: list[_Blocks] = []
    if space is not None and coarse is not None:
        coefficients = _best_coefficients(space, targets)
        squares = schwarz.Cover(
            space.indices, jnp.square(space.weights_as(inputs.dtype)), space.num_points
        )
        coarser = _restricted(
            coarse,
            schwarz.coarse_restrict(inputs, space),
            coefficients,
            schwarz.coarse_restrict(weights[:, None], squares)[:, 0],
        )
        targets = targets - schwarz.coarse_prolong(coefficients, space)
    unity = cover.weights_as(inputs.dtype)
    local = _Blocks(
        jnp.asarray(model.used_factors(model.key.shape[-1])),
        jnp.sqrt(unity)[..., None] * schwarz.restrict(inputs, cover),
        schwarz.restrict(targets, cover),
        unity * schwarz.restrict(weights[:, None], cover)[..., 0],
        True,
    )
    return [*coarser, local]


def coarse_factors(model: Factored) -> Factored | None:
    """Returns the coarse block of a model, if it has one.

    Raises:
      TypeError: if the coarse block has no factors to scale.
    """
    if isinstance(model, LowRankAttention) or model.coarse is None:
        return None
    if not isinstance(model.coarse, (LowRankAttention, SchwarzAttention)):
        raise TypeError(
            f"The coarse block is a {type(model.coarse).__name__}; only "
            "LowRankAttention and SchwarzAttention have factors to scale."
        )
    return model.coarse


def modules(model: Factored) -> list[Factored]:
    """Returns the modules with factors, the coarsest first, as `_levels`."""
    coarse = coarse_factors(model)
    return [*([] if coarse is None else modules(coarse)), model]


def with_factors(model: Model, factors: list[tuple[jax.Array, jax.Array]]) -> Model:
    """Returns the model with its queries and keys replaced, or with numbers instead."""
    other = jax.tree.map(lambda leaf: leaf, model)
    for level, pair in zip(modules(other), factors, strict=True):
        query, key = (f.reshape(level.key.shape) if f.ndim else f for f in pair)
        level.query, level.key = nnx.Param(query), nnx.Param(key)
    return other


def _best_coefficients(space: schwarz.Cover, values: jax.Array) -> jax.Array:
    """Coefficients of the best approximation in the coarse space, in least squares."""

    def gram(coefficients: jax.Array) -> jax.Array:
        prolonged = schwarz.coarse_prolong(coefficients, space)
        return schwarz.coarse_restrict(prolonged, space)

    moments = schwarz.coarse_restrict(values, space)
    # Gram matrices of hats are well conditioned, whatever their number.
    # (Starting from zero, XLA would evaluate the first step while compiling.)
    solve = jax.scipy.sparse.linalg.cg
    return solve(gram, moments, x0=moments, tol=1e-5, maxiter=100)[0]
