"""FLARE attention through latents, with deep projections."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

import opjax
from opjax import _checks, linalg
from opjax.attention.flare import means_of
from opjax.nn import division
from opjax.nn.attention import columns
from opjax.nn.attention.heads import head_width, map_heads, merge_heads, split_heads
from opjax.nn.attention.key_sums import exponential_sums
from opjax.nn.attention.sums import Added, Given, Local, PointSums, Sums, Totals
from opjax.nn.bases.expansions import Basis
from opjax.nn.division import Use
from opjax.nn.layers import MLP, LayerNorm, Linear, ResidualMLP, RMSNorm
from opjax.projection import check_weights

_LATENT_DEVIATION = 0.1


class FlareAttention(nnx.Module, PointSums):
    r"""Multi-head attention from points to learned latents and back.

    Per head, with `K` and `V` computed from the input by residual perceptrons, and
    latents `L`,

        softmax_k(s K L^T) softmax_n(s L K^T) V,

    see `opjax.flare_attention`. The authors' parameter, a matrix `(c, k)`, stores the
    latents `(h, k, d)` in the same memory order.

    Args:
      features: channels `c` of input and output.
      num_heads: heads `h`, dividing `features`.
      num_latents: number `k` of latents per head.
      key: constructor of the perceptron of the keys, `key(features, features, rngs=)`.
      value: constructor of the perceptron of the values.
      norm: constructor of the norms of keys and latents, `norm(width)`, over the
        channels of a head and shared by all heads; `None` for no norms, as published.
      scale: factor `s` of the scores, one in the published runs.
      shared_latents: whether all heads share the latents.
      rngs: source of the initial parameters; latents are initialised from N(0, 0.1^2).

    Raises:
      ValueError: if the heads do not divide the features, there is no latent, or the
        scale is not positive.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> layer = nn.FlareAttention(8, num_heads=2, num_latents=4, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Puri et al., "FLARE: fast low-rank attention routing engine", 2025
      (arXiv:2508.12594).
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_latents: int,
        key: Callable[..., Any] = ResidualMLP,
        value: Callable[..., Any] = ResidualMLP,
        norm: Callable[[int], Any] | None = None,
        scale: float = 1.0,
        shared_latents: bool = False,
        rngs: nnx.Rngs,
    ):
        width = head_width(features, num_heads)
        _checks.positive(num_latents=num_latents, scale=scale)
        self.num_heads, self.scale = num_heads, scale
        shape = (num_latents, width)
        shape = shape if shared_latents else (num_heads, *shape)
        init = jax.nn.initializers.normal(_LATENT_DEVIATION)
        self.latents = nnx.Param(init(rngs.params(), shape, jnp.float32))
        self.key = key(features, features, rngs=rngs)
        self.value = value(features, features, rngs=rngs)
        self.key_norm = None if norm is None else norm(width)
        self.latent_norm = None if norm is None else norm(width)
        self.out = Linear(features, features, rngs=rngs)

    def __call__(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the layer on one sample.

        Args:
          x: features at the points, shape `(n, c)`.
          mesh_points: coordinates of the points, which it does not use.
          basis: `None`: there is no basis.
          quadrature_weights: weights of the points, shape `(n,)`, equal ones by
            default; zero masks a point, whose features must still be finite.

        Returns:
          Features at the points, shape `(n, c)`.

        Raises:
          ValueError: if there is a basis or the weights do not fit the points.
        """
        del mesh_points
        if basis is not None:
            raise ValueError("FlareAttention does not use a basis; omit `basis`.")
        _checks.layer_input(self.out.out_features, x=x)
        weights = quadrature_weights
        if weights is not None:
            weights = check_weights(weights, x=x)

        def attend(latents: jax.Array, key: jax.Array, value: jax.Array):
            return opjax.flare_attention(
                key, key, value, latents, key_weights=weights, scale=self.scale
            )

        # Scores are the largest array; computed again backward, see `BasisAttention`.
        head = jax.checkpoint(attend, prevent_cse=False)
        inputs = self.head_inputs(x)
        entries = self.num_heads * x.shape[0] * inputs[0].shape[1]
        heads = map_heads(head, *inputs, entries=entries)
        return self.out(checkpoint_name(merge_heads(heads), "attended"))

    def obstacle(self, use: Use, shared: Basis | None = None) -> str | None:
        """Returns why a use is not supported, see `PointSums`."""
        del shared
        name = division.name(self)
        if use == "narrow":
            return f"{name} has no products in 16 bits"
        if division.redefines(self, "__call__", "head_inputs", known_by="sums"):
            return f"{name} computes more of its points than the sums it inherits"
        for part in (self.key, self.value):
            if not isinstance(part, MLP):
                return f"whether a {division.name(part)} mixes points is not known"
        if not isinstance(self.key_norm, LayerNorm | RMSNorm | None):
            return f"whether a {division.name(self.key_norm)} mixes points is not known"
        return None

    def local(self, x: jax.Array, given: Given, shared: Basis | None = None) -> Local:
        """Returns scores `(h, k, m)` and values `(h, d, m)`, points last."""
        del given, shared
        key, value = (
            perceptron(x, linear=columns.linear).reshape(self.num_heads, -1, x.shape[1])
            for perceptron in (self.key, self.value)
        )
        if self.key_norm is not None:
            key = jax.vmap(partial(self.key_norm, axis=0))(key)
        scores = self.scale * jnp.einsum("hkd,hdm->hkm", self._latents(), key)
        return linalg.at_least_single(scores), value

    def sums(
        self, local: Local, weights: jax.Array, highest: jax.Array | None = None
    ) -> Sums:
        """Returns integrals and masses of the exponentials of the scores."""
        scores, value = local
        return exponential_sums(scores, value, weights, highest)

    def combine(
        self,
        added: Added,
        totals: Totals,
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns the means of the values for every latent, `(h, k, d)`."""
        del shared
        return jax.vmap(means_of)(columns.of_heads((*added, None), *totals))

    def spread(self, mixed: jax.Array, local: Local) -> jax.Array:
        """Returns the softmax averages over the latents, `(h d, m)`."""
        scores, value = local
        shares = columns.softmax(scores).astype(value.dtype)
        return columns.reconstruct(mixed, shares)

    def equal_weights_cancel(self, shared: Basis | None = None) -> bool:
        """Whether a common factor of all weights cancels: yes."""
        del shared
        return True

    def coefficient_shape(self, shared: Basis | None = None) -> tuple[int, int, int]:
        """Returns the numbers of heads, latents and channels of a head."""
        del shared
        width = self.out.in_features // self.num_heads
        return self.num_heads, self.latents.shape[-2], width

    def _latents(self) -> jax.Array:
        """Returns the latents of every head, `(h, k, d)`, normalised if keys are."""
        latents = self.latents[...]
        shape = (self.num_heads, *latents.shape[-2:])
        latents = jnp.broadcast_to(latents.reshape(-1, *shape[1:]), shape)
        if self.latent_norm is None:
            return latents
        return jax.vmap(self.latent_norm)(latents)

    def head_inputs(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns latents `(h, k, d)`, keys and values `(h, n, d)` of every head."""
        key, value = (
            split_heads(checkpoint_name(perceptron(x), "projected"), self.num_heads)
            for perceptron in (self.key, self.value)
        )
        if self.key_norm is not None:
            key = jax.vmap(self.key_norm)(key)
        return self._latents(), key, value
