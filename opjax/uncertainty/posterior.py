"""Laplace's approximation of a posterior: a normal distribution around its maximum."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks

_FAR = 1e-2  # of a standard deviation, that a Newton step may be long


class Normal(NamedTuple):
    """A multivariate normal distribution.

    Attributes:
      mean: `(d,)`.
      covariance: `(d, d)`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.uncertainty import Normal
      >>> Normal(jnp.zeros(2), jnp.diag(jnp.array([1.0, 9.0]))).std.tolist()
      [1.0, 3.0]
    """

    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]

    @property
    def std(self) -> Float[Array, " d"]:
        """Standard deviations, `(d,)`."""
        return jnp.sqrt(jnp.diagonal(self.covariance))

    def sample(self, key: Array, count: int) -> Float[Array, "count d"]:
        """Draws from the distribution, `(count, d)`."""
        noise = jax.random.normal(key, (count, len(self.mean)), self.mean.dtype)
        root = jnp.linalg.cholesky(self.covariance)
        return self.mean[None, :] + jnp.matmul(noise, root.T, precision="highest")


def laplace(
    loss: Callable[..., Array], mode: Float[ArrayLike, " d"], *arguments: Any
) -> Normal:
    r"""Approximates a posterior by a normal distribution around its maximum.

        N(z, H^{-1}),    H = hessian of `loss` at z,

    where `loss` is the negative logarithm of the posterior up to a constant, such as

        |s(z) - d|^2 / (2 noise^2) + |z - z_0|^2 / (2 prior^2)

    for data `d` and predicted sensor values `s(z)`. It is exact if `s` is linear.

    Args:
      loss: `loss(parameters, *arguments)`, a scalar that is twice differentiable in
        the parameters `(d,)`. It is compiled once for all calls with the same function.
      mode: minimum of the loss, `(d,)`, from a minimiser such as
        `scipy.optimize.minimize`; in float64 under `jax.enable_x64(True)`.
      *arguments: arrays such as the data.

    Returns:
      The distribution.

    Raises:
      TypeError: if the mode is not floating point.
      ValueError: if the mode is no minimum: a Newton step from it is longer than a
        hundredth of a standard deviation, or the loss does not grow in some direction,
        so that the data do not determine the parameters.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.uncertainty import laplace
      >>> found = laplace(lambda z: jnp.sum(2 * z**2), jnp.zeros(1))
      >>> float(found.std[0])
      0.5

    References:
      MacKay, "Information Theory, Inference, and Learning Algorithms", 2003, ch. 27.
    """
    _checks.floating(mode=mode)
    _checks.rank(1, mode=mode)
    place = jnp.asarray(mode)
    derivatives = _derivatives(loss, place, arguments)
    slope, hessian = (np.asarray(one, np.float64) for one in derivatives)
    if not (np.isfinite(slope).all() and np.isfinite(hessian).all()):
        raise ValueError(f"The derivatives of the loss at {place} are not finite.")
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    rounding = float(jnp.finfo(place.dtype).eps) * np.abs(values).max()
    if not values[0] > rounding:
        raise ValueError(
            f"The loss does not grow in the direction {np.round(vectors[:, 0], 3)} at "
            f"{place}: its curvature there is {values[0]:.3g}, expected positive. The "
            "data do not determine the parameters; add sensors or a prior, or minimise "
            "the loss first."
        )
    step = float(np.sqrt(np.sum((vectors.T @ slope) ** 2 / values)))
    if step > _FAR:
        raise ValueError(
            f"{place} is not the minimum of the loss: a Newton step is {step:.3g} "
            f"standard deviations long, expected at most {_FAR}. Minimise the loss "
            "first, in float64."
        )
    covariance = (vectors / values) @ vectors.T
    return Normal(place, jnp.asarray(covariance, place.dtype))


@partial(jax.jit, static_argnames="loss")
def _derivatives(
    loss: Callable[..., Array], place: Array, arguments: tuple[Any, ...]
) -> tuple[Array, Array]:
    return jax.grad(loss)(place, *arguments), jax.hessian(loss)(place, *arguments)
