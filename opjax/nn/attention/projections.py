"""Projections: how the moments of features become coefficients in a basis."""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from opjax import Moments


@runtime_checkable
class Projection(Protocol):
    """Maps the moments of one head to coefficients `(k, d)`, and says what it needs.

    Any object with these attributes is a projection, such as

        class Ridge:
            needs_gram, needs_one_sign, weights_cancel = True, False, False

            def __call__(self, moments):
                return moments.least_squares(ridge=1e-3)
    """

    @property
    def needs_gram(self) -> bool:
        """Whether the moments have to have a Gram matrix."""
        ...

    @property
    def needs_one_sign(self) -> bool:
        """Whether the basis functions have to be non-negative."""
        ...

    @property
    def weights_cancel(self) -> bool:
        """Whether a common factor of all weights changes nothing."""
        ...

    def __call__(self, moments: Moments, /) -> jax.Array:
        """Returns the coefficients."""
        ...


class Means:
    """Weighted means over basis functions of one sign, see `Moments.means`."""

    needs_gram, needs_one_sign, weights_cancel = False, True, True

    def __call__(self, moments: Moments) -> jax.Array:
        """Returns the means."""
        return moments.means()


class InnerProducts:
    """Inner products with the basis functions, `Phi^T W f`."""

    needs_gram, needs_one_sign, weights_cancel = False, False, False

    def __call__(self, moments: Moments) -> jax.Array:
        """Returns the integrals."""
        return moments.integrals


class LeastSquares:
    """Best fit, with a ridge of a hundredth of the mean square of the functions."""

    needs_gram, needs_one_sign, weights_cancel = True, False, True

    def __call__(self, moments: Moments) -> jax.Array:
        """Returns the coefficients of the best fit."""
        assert moments.gram is not None
        ridge = 1e-2 * jnp.trace(moments.gram) / moments.gram.shape[0]
        return moments.least_squares(ridge=ridge)


means = Means()
inner_products = InnerProducts()
least_squares = LeastSquares()

# What `projection=` of the pure functions calls them.
_BY_NAME = {
    "mean": "means",
    "transpose": "inner_products",
    "pseudo_inverse": "least_squares",
}


def check(projection: Any) -> Projection:
    """Returns a projection.

    Raises:
      TypeError: if it is a name, as the pure functions take it, or lacks an attribute.
    """
    if isinstance(projection, str):
        known = _BY_NAME.get(projection, projection)
        known = [known] if known in _BY_NAME.values() else _BY_NAME.values()
        way_out = " or ".join(f"projection=nn.attention.{name}" for name in known)
        raise TypeError(
            f"projection={projection!r} is a name; modules take an object: {way_out}."
        )
    if isinstance(projection, Projection):
        return projection
    wanted = ("needs_gram", "needs_one_sign", "weights_cancel", "__call__")
    missing = [name for name in wanted if not hasattr(projection, name)]
    raise TypeError(
        f"projection={projection!r} has no {', '.join(missing)}; a projection says "
        "what it needs, see nn.attention.Projection."
    )
