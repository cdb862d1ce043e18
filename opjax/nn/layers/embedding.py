"""Position features, and embedding of a scalar time."""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import _checks
from opjax.nn.layers.linear import Linear


def reference_distances(
    mesh_points: jax.Array,
    *,
    num_reference: int,
    lower: Sequence[float] | None = None,
    upper: Sequence[float] | None = None,
) -> jax.Array:
    r"""Returns distances to the points of a reference grid ("unified position").

        p_r(x) = |x - R_r|,    R the uniform grid of `num_reference^p` points on a box.

    Args:
      mesh_points: points, shape `(n, p)`.
      num_reference: number of reference points per axis, at least two.
      lower: lower corner of the reference grid; zeros by default.
      upper: upper corner of the reference grid; ones by default.

    Returns:
      The distances, shape `(n, num_reference^p)`; the first axis of space varies
      slowest.

    Raises:
      TypeError: if `mesh_points` is not floating point.
      ValueError: if `mesh_points` does not have two axes, or there is only one
        reference point.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> layers.reference_distances(jnp.array([[0.25]]), num_reference=3).tolist()
      [[0.25, 0.25, 0.75]]

    References:
      Wu et al., "Transolver", 2024; used for Darcy in Xiao et al., 2026, App. C.2.
    """
    _checks.floating(mesh_points=mesh_points)
    _checks.rank(2, mesh_points=mesh_points)
    if num_reference < 2:
        raise ValueError(f"{num_reference=} must be at least 2.")
    p = mesh_points.shape[1]
    lower, upper = lower or (0.0,) * p, upper or (1.0,) * p
    axes = [np.linspace(a, b, num_reference) for a, b in zip(lower, upper, strict=True)]
    reference = jnp.asarray(list(itertools.product(*axes)), mesh_points.dtype)
    squares = jnp.sum((mesh_points[:, None, :] - reference[None, :, :]) ** 2, axis=2)
    # The distance has no derivative where a mesh point is a reference point, up to the
    # rounding of points that were stored in single precision.
    rounding = float(np.finfo(np.float32).eps * np.abs([lower, upper]).max())
    coincide = squares <= rounding**2
    return jnp.where(coincide, 0, jnp.sqrt(jnp.where(coincide, 1, squares)))


class TimeEmbedding(nnx.Module):
    r"""Embeds a scalar time with sines, cosines and a two-layer perceptron.

        e(t) = W_2 silu(W_1 [cos(w t), sin(w t)] + b_1) + b_2,
        w_m = 10000^{-m / (features / 2)}.

    Args:
      features: width of the embedding, even.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if `features` is odd.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> layers.TimeEmbedding(8, rngs=nnx.Rngs(0))(jnp.array(0.5)).shape
      (8,)
    """

    def __init__(self, features: int, *, rngs: nnx.Rngs):
        if features % 2:
            raise ValueError(f"A time embedding needs an even width, but {features=}.")
        self.num_frequencies = features // 2
        self.hidden = Linear(features, features, rngs=rngs)
        self.out = Linear(features, features, rngs=rngs)

    def __call__(self, time: jax.Array) -> jax.Array:
        """Maps a floating-point scalar to an embedding of shape `(features,)`."""
        _checks.floating(time=time)
        _checks.rank(0, time=time)
        m = np.arange(self.num_frequencies)
        frequencies = 10000.0 ** (-m / self.num_frequencies)
        angle = time * jnp.asarray(frequencies, jnp.result_type(time))
        waves = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)])
        return self.out(jax.nn.silu(self.hidden(waves)))
