"""Attentions that transfer functions from a cell to another, linearly in the functions.

All have the same channels, `2 k` functions of the descriptors.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

import opjax
from experiments.domain_maps_problem import Cell
from opjax.linalg import Additive, Convex
from opjax.nn import MLP
from opjax.nn.layers import Initializer
from opjax.nn.layers.initializers import trunk_init
from opjax.projection import LeastSquares, Means

if TYPE_CHECKING:
    from experiments.domain_maps import Config

_GEOMETRY = 3  # descriptors that are no probes
_LARGE = nnx.initializers.lecun_normal()


class Transfer(nnx.Module):
    """A perceptron of waves of the descriptors, of random frequencies.

    Waves of the geometry and of the probes are apart, and all numbers are trained.
    """

    # Small kernels, of channels that are nearly linear in the waves.
    kernel_init: Initializer = staticmethod(trunk_init)

    def __init__(self, config: "Config", rngs: nnx.Rngs):
        def waves(channels: int, frequency: float) -> nnx.Linear:
            return nnx.Linear(
                *(channels, config.num_waves),
                kernel_init=nnx.initializers.normal(frequency),
                bias_init=nnx.initializers.normal(jnp.pi),
                rngs=rngs,
            )

        parts = [waves(_GEOMETRY, config.frequency)]
        if config.num_probes:
            parts.append(waves(config.num_probes, config.probe_frequency))
        self.waves = nnx.List(parts)
        self.perceptron = MLP(
            config.num_waves * len(parts),
            (config.width, config.width),
            2 * config.num_basis,
            kernel_init=self.kernel_init,
            rngs=rngs,
        )
        # Of a ridge and a projection, or of scores.
        self.logarithms = nnx.Param(jnp.array([-5.0, -7.0, 1.0]))

    def features(self, cell: Cell) -> Float[Array, "n c"]:
        """Returns `2 k` channels at the points of a cell."""
        inputs = cell.descriptors[:, :_GEOMETRY], cell.descriptors[:, _GEOMETRY:]
        waves = [jnp.sin(w(x)) for w, x in zip(self.waves, inputs, strict=False)]
        return self.perceptron(jnp.concatenate(waves, axis=1))

    def basis(self, cell: Cell) -> Float[Array, "n k"] | None:
        """Returns the functions that the transferred ones are combinations of."""
        del cell
        return None

    def __call__(self, source: Cell, target: Cell) -> Float[Array, "m f"]:
        """Transfers the values of the source to the points of the target."""
        raise NotImplementedError


class Functional(Transfer):
    """A functional map: least squares in bases, and between their coefficients."""

    def halves(self, cell: Cell) -> tuple[jax.Array, jax.Array]:
        """Basis functions, and the other half of the channels."""
        phi, others = jnp.split(self.features(cell), 2, axis=1)
        return phi, others

    def fits(self) -> tuple[Additive | Convex, LeastSquares | Means]:
        """The ridge of the map, and the projection on the bases."""
        ridge, projection, _ = jnp.exp(self.logarithms[...])
        return Additive(ridge, relative=True), LeastSquares(projection, relative=True)

    def basis(self, cell: Cell) -> Float[Array, "n k"]:
        """Half of the channels."""
        return self.halves(cell)[0]

    def __call__(self, source: Cell, target: Cell) -> Float[Array, "m f"]:
        """Fits the map to the other half of the channels."""
        ridge, projection = self.fits()
        (phi, key), (psi, query) = map(self.halves, (source, target))
        return opjax.functional_attention(
            *(query, key, source.values, psi, phi),
            ridge=ridge,
            query_weights=target.weights,
            key_weights=source.weights,
            projection=projection,
        )


class Published(Functional):
    """Functional attention as in the paper's code: softmax functions and means."""

    def halves(self, cell: Cell) -> tuple[jax.Array, jax.Array]:
        """A softmax of half of the channels, and the others."""
        phi, others = super().halves(cell)
        return opjax.softmax_basis(phi), others

    def fits(self) -> tuple[Additive | Convex, LeastSquares | Means]:
        """A convex ridge, and means."""
        return Convex(jax.nn.sigmoid(self.logarithms[0])), Means()


class Intention(Transfer):
    """Ridge regression of the values on all channels."""

    def basis(self, cell: Cell) -> Float[Array, "n k"]:
        """All channels."""
        return self.features(cell)

    def __call__(self, source: Cell, target: Cell) -> Float[Array, "m f"]:
        """Evaluates the regression at the target."""
        return opjax.intention(
            *(self.features(target), self.features(source), source.values),
            ridge=jnp.exp(self.logarithms[1]),
            key_weights=source.weights,
        )


class Softmax(Transfer):
    """Softmax of scaled dot products of all channels."""

    kernel_init = staticmethod(_LARGE)  # of small channels, no query finds its key

    def __call__(self, source: Cell, target: Cell) -> Float[Array, "m f"]:
        """Averages the values of the source."""
        return opjax.softmax_attention(
            jnp.exp(self.logarithms[2]) * self.features(target),
            self.features(source),
            source.values,
            key_weights=source.weights,
        )


class Distances(Transfer):
    """Softmax of negative squared distances between channels, as dot products."""

    kernel_init = staticmethod(_LARGE)

    def __call__(self, source: Cell, target: Cell) -> Float[Array, "m f"]:
        """Averages the values of the source."""
        query, key = self.features(target), self.features(source)
        squares = jnp.sum(key**2, axis=1, keepdims=True)
        query = jnp.pad(query, ((0, 0), (0, 1)), constant_values=1)
        scale = jnp.exp(self.logarithms[2]) * jnp.sqrt(query.shape[1])
        return opjax.softmax_attention(
            scale * query,
            jnp.concatenate([key, -squares / 2], axis=1),
            source.values,
            key_weights=source.weights,
        )


MODELS: dict[str, tuple[str, type[Transfer]]] = {
    "functional": ("functional attention, least squares", Functional),
    "published": ("functional attention, softmax basis and means", Published),
    "intention": ("intention", Intention),
    "softmax": ("softmax attention", Softmax),
    "distances": ("softmax attention, distances", Distances),
}
