"""Two-level Schwarz attention whose subdomains attend by functional maps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from opjax import _checks, schwarz
from opjax.nn.attention import FunctionalAttention, HeadMaps, convex_transport
from opjax.nn.heads import head_width, map_heads, merge_heads
from opjax.nn.learned_basis import LearnedBasis, head_basis
from opjax.schwarz import Cover
from opjax.schwarz.covers import weights_as


class SchwarzTransport(NamedTuple):
    """Functional maps of both levels with the basis at the points, for inspection.

    Attributes:
      functional_map: maps of the subdomains, shape `(h, s, k, k)`.
      coarse_map: maps of the coarse level, shape `(h, k, k)`, or `None`.
      basis: basis functions at all points, shape `(h, n, k)`; a subdomain has their
        restrictions.
    """

    functional_map: jax.Array
    coarse_map: jax.Array | None
    basis: jax.Array


class FunctionalSchwarzAttention(nnx.Module):
    r"""Multi-head functional attention on overlapping subdomains and a coarse level.

    Per head, with features `f`, basis `Phi` and quadrature weights `w` (ones by
    default), subdomains `R_i` with partition of unity `D_i`, and coarse functions `H`,

        y = sum_i R_i^T D_i F_i(R_i f) + H F_0(E f),
        E f = diag(H^T w)^{-1} H^T W f.

    `F_i` is `FunctionalAttention` on subdomain `i` in the basis `R_i Phi`, with weights
    `D_i R_i w`, so that overlaps count once. `F_0` is one on the coarse functions as
    points: its features are means over them, offset as in `opjax.project`, its weights
    `H^T w`, its basis the softmax basis of the means of the score features. The layer
    is not linear in `f`: every subdomain has a basis, coefficients and a map of its
    own, computed from its own values.

    Subdomains share their parameters, so that their number and the mesh may change.
    Features and score features are computed once, at all points: convolutional
    projections see across the borders of subdomains. The coarse level has maps of
    coefficients and a ridge of its own, and shares projections, score kernel,
    temperature and output map with the subdomains. With one subdomain and without a
    coarse level the layer is its attribute `local`.

    Args:
      features: channels `c` of input and output.
      num_heads: heads `h`, dividing `features`.
      coarse: whether the layer has a coarse level.
      ridge_logit: initial value of the learned logit, of both levels.
      rngs: source of the initial parameters.
      **options: further options of `FunctionalAttention`, except `point_dim` and
        `ridge_per_head`.

    Raises:
      ValueError: if the heads do not divide the features, or an option is not offered.

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 4-9; Köhler and Rheinbach,
      "Hierarchical Attention via Domain Decomposition", 2026, Eq. 12-18.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        coarse: bool = True,
        ridge_logit: float = 0.0,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        if options.get("point_dim") or options.get("ridge_per_head"):
            raise ValueError(
                "Schwarz attention takes no coordinates and has one ridge per level; "
                f"got point_dim={options.get('point_dim')}, "
                f"ridge_per_head={options.get('ridge_per_head')}."
            )
        self.num_heads = num_heads
        self.local = FunctionalAttention(
            features, num_heads=num_heads, ridge_logit=ridge_logit, rngs=rngs, **options
        )
        width = head_width(features, num_heads, options.get("head_features"))
        self.coarse = (
            HeadMaps(
                width,
                ridge_logit=ridge_logit,
                fan_in_init=options.get("fan_in_init", False),
                rngs=rngs,
            )
            if coarse
            else None
        )

    def __call__(
        self,
        x: jax.Array,
        *,
        cover: Cover,
        coarse_space: Cover | None = None,
        basis: LearnedBasis | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the layer on one sample.

        Args:
          x: features at the points, shape `(n, c)`.
          cover: subdomains of the points with their partition of unity.
          coarse_space: non-negative coarse functions, if the layer has a coarse level,
            such as `schwarz.partition_hats` or the partition of unity `cover` itself.
          basis: the shared basis module, if the layer owns none.
          quadrature_weights: weights of the points, shape `(n,)`; zero masks a point,
            see `FunctionalAttention`.

        Returns:
          Features at the points, shape `(n, c)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if points do not match, or a basis or a coarse space is missing,
            or passed to a layer that owns or has none.
        """
        levels = self._levels(x, cover, coarse_space, quadrature_weights)
        on_cpu = jax.default_backend() == "cpu"
        solve = _transport_one_by_one if on_cpu else convex_transport

        def head(f, *scores):
            def local(weights, f):
                return self.local.attend(*_expand(f, *scores), weights, solve=solve)

            y = schwarz.additive(
                local, cover, f, levels.local_weights, weighting="restricted"
            )
            if coarse_space is None or self.coarse is None:
                return y
            means = _coarse_means(coarse_space, f, levels)
            y0 = self.coarse.attend(*_expand(means, *scores), levels.coarse_weights)
            return y + schwarz.coarse_prolong(coarse_space, y0)

        inputs = self._head_inputs(x, basis)
        num_basis = inputs[-1].shape[-1]
        heads = map_heads(
            jax.checkpoint(head, prevent_cse=False),  # as in `FunctionalAttention`
            *inputs,
            entries=self.num_heads * levels.local_weights.size * num_basis,
        )
        return self.local.out(checkpoint_name(merge_heads(heads), "attended"))

    def inspect(
        self,
        x: jax.Array,
        *,
        cover: Cover,
        coarse_space: Cover | None = None,
        basis: LearnedBasis | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> SchwarzTransport:
        """Returns the functional maps of both levels and the basis of a call."""
        levels = self._levels(x, cover, coarse_space, quadrature_weights)

        def head(f, *scores):
            def local(weights, f):
                return self.local.functional_map(*_expand(f, *scores), weights)

            maps = jax.vmap(local)(levels.local_weights, schwarz.restrict(cover, f))
            _, phi = _expand(f, *scores)
            if coarse_space is None or self.coarse is None:
                return SchwarzTransport(maps, None, phi)
            means = _coarse_means(coarse_space, f, levels)
            coarse_map = self.coarse.functional_map(
                *_expand(means, *scores), levels.coarse_weights
            )
            return SchwarzTransport(maps, coarse_map, phi)

        return jax.vmap(head)(*self._head_inputs(x, basis))

    def _head_inputs(self, x, shared):
        """Features and score features `(h, n, 2 d)`, and kernels and biases."""
        projected, *scores = self.local.choose_basis(shared).point_inputs(x)
        n = x.shape[0]
        pairs = projected.reshape(n, 2, self.num_heads, -1)
        heads = pairs.transpose(2, 0, 1, 3).reshape(self.num_heads, n, -1)
        # Without the barrier the compiler fuses the projection with what gathers its
        # values, and spends a third of the time of the layer on their indices.
        return jax.lax.optimization_barrier(heads), *scores

    def _levels(self, x, cover, coarse_space, quadrature_weights):
        for name, given in (("cover", cover), ("coarse_space", coarse_space)):
            if given is not None and given.num_points != x.shape[0]:
                raise ValueError(
                    f"x {x.shape} must have one row for each of the "
                    f"{given.num_points} points of {name}."
                )
        if (coarse_space is None) != (self.coarse is None):
            raise ValueError(
                "Pass `coarse_space` to a layer built with coarse=True and to no "
                f"other: coarse_space is {'missing' if self.coarse else 'given'}, the "
                f"layer has coarse={self.coarse is not None}."
            )
        if quadrature_weights is None:
            quadrature_weights = jnp.ones(x.shape[0], x.dtype)
        weights = jnp.asarray(quadrature_weights)
        _checks.floating(quadrature_weights=weights)
        _checks.rank(1, quadrature_weights=weights)
        _checks.same_points(x=x, quadrature_weights=weights)
        _checks.non_negative(quadrature_weights=quadrature_weights)
        column = weights[:, None]
        partition = weights_as(cover, weights.dtype)
        local_weights = partition * schwarz.restrict(cover, column)[..., 0]
        if coarse_space is None:
            return _Levels(weights, local_weights)
        coarse_weights = schwarz.coarse_restrict(coarse_space, column)[:, 0]
        return _Levels(weights, local_weights, coarse_weights)


# jaxlib splits a large batch of solves over the threads of the CPU and waits for them
# on one of these threads: two such batches at once, forward and backward, wait for
# ever on two cores, from 64 systems of 16 unknowns on (jaxlib 0.10.2).
@jax.custom_batching.custom_vmap
def _transport_one_by_one(*arguments: jax.Array) -> jax.Array:
    return convex_transport(*arguments)


@_transport_one_by_one.def_vmap
def _(size, batched, *arguments):
    arguments = [
        argument if is_batched else jnp.broadcast_to(argument, (size, *argument.shape))
        for argument, is_batched in zip(arguments, batched, strict=True)
    ]
    return jax.lax.map(lambda one: convex_transport(*one), arguments), True


class _Levels(NamedTuple):
    """Quadrature weights: `w` of the points, `D_i R_i w` and `H^T w`."""

    weights: jax.Array
    local_weights: jax.Array
    coarse_weights: jax.Array | None = None


def _expand(f, kernel, bias):
    """Splits `(n, 2 d)` into features and the basis that score features give."""
    values, features = jnp.split(f, 2, axis=1)
    return values, head_basis(features, kernel, bias)


def _coarse_means(coarse_space, f, levels):
    """Means over the coarse functions: `opjax.project` for sparse `H`."""
    weights, masses = levels.weights.astype(f.dtype), levels.coarse_weights
    count = jnp.sum((weights > 0).astype(f.dtype))
    average = jnp.sum(weights) / jnp.maximum(count, 1)
    unit = jnp.where(count > 0, average, 1)
    weighted = weights[:, None] * f
    sums = schwarz.coarse_restrict(coarse_space, weighted)
    return sums / (masses.astype(f.dtype) + 1e-5 * unit)[:, None]
