"""Multi-head functional attention on irregular points and uniform grids."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

import opjax
from opjax import _checks
from opjax.nn.heads import head_width, map_heads, merge_heads
from opjax.nn.layers import FanInLinear, Linear
from opjax.nn.learned_basis import LearnedBasis, head_basis


def convex_transport(
    query: jax.Array, key: jax.Array, value: jax.Array, ridge: jax.Array
) -> jax.Array:
    """Returns `opjax.transport` of one head, with convex regularisation."""
    return opjax.transport(query, key, value, ridge=ridge, regularization="convex")


class CoefficientMaps(nnx.Module):
    """Query, key and value maps of coefficients that the heads of an attention share.

    How coefficients attend to each other is `transport` and `functional_map` of a
    subclass.

    Args:
      width: channels `d` of a head.
      fan_in_init: whether kernels start from U(-b, b), `b = d^{-1/2}`, rather than
        N(0, 0.02^2).
      rngs: source of the initial parameters.
    """

    def __init__(self, width: int, *, fan_in_init: bool = False, rngs: nnx.Rngs):
        linear = FanInLinear if fan_in_init else Linear
        self.query = linear(width, width, use_bias=False, rngs=rngs)
        self.key = linear(width, width, use_bias=False, rngs=rngs)
        self.value = linear(width, width, use_bias=False, rngs=rngs)

    def transport(
        self, query: jax.Array, key: jax.Array, value: jax.Array, **options: Any
    ) -> jax.Array:
        """Returns the coefficients `(k, d)` that attention makes of `value`."""
        raise NotImplementedError

    def functional_map(
        self,
        values: jax.Array,
        phi: jax.Array,
        quadrature_weights: jax.Array | None,
        **options: Any,
    ) -> jax.Array:
        """Returns the map `(k, k)` that `attend` applies to the value coefficients."""
        raise NotImplementedError

    def attend(
        self,
        values: jax.Array,
        phi: jax.Array,
        quadrature_weights: jax.Array | None,
        **options: Any,
    ) -> jax.Array:
        """Attends to features `(n, d)` of one head in the basis `(n, k)`."""
        coefficients = means(values, phi, quadrature_weights)
        transported = self.transport(
            self.query(coefficients),
            self.key(coefficients),
            self.value(coefficients),
            **options,
        )
        return opjax.reconstruct(transported, phi)


class HeadMaps(CoefficientMaps):
    """The maps of coefficients that the heads of one functional attention share.

    Args:
      width: channels `d` of a head.
      ridge_logit: initial value of the learned logit of the ridge.
      num_ridges: number of logits, one per head; `None` for one that all heads share.
      fan_in_init: see `CoefficientMaps`.
      rngs: source of the initial parameters.
    """

    def __init__(
        self,
        width: int,
        *,
        ridge_logit: float,
        num_ridges: int | None = None,
        fan_in_init: bool = False,
        rngs: nnx.Rngs,
    ):
        super().__init__(width, fan_in_init=fan_in_init, rngs=rngs)
        shape = () if num_ridges is None else (num_ridges,)
        self.ridge_logit = nnx.Param(jnp.full(shape, ridge_logit, jnp.float32))

    @property
    def ridge(self) -> jax.Array:
        """Weight of the convex regularisation, between zero and one."""
        return jax.nn.sigmoid(self.ridge_logit[...])

    def transport(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        *,
        ridge: jax.Array | None = None,
        solve: Callable[..., jax.Array] = convex_transport,
    ) -> jax.Array:
        """Returns coefficients `(k, d)` moved by the functional map of `query`, `key`.

        Pass `ridge`, the head's own, where the layer has one per head.
        """
        return solve(query, key, value, self.ridge if ridge is None else ridge)

    def functional_map(
        self,
        values: jax.Array,
        phi: jax.Array,
        quadrature_weights: jax.Array | None,
        *,
        ridge: jax.Array | None = None,
    ) -> jax.Array:
        """Returns the map `(k, k)` that `attend` applies to the value coefficients."""
        coefficients = means(values, phi, quadrature_weights)
        return opjax.functional_map(
            self.query(coefficients),
            self.key(coefficients),
            ridge=self.ridge if ridge is None else ridge,
            regularization="convex",
        )

    def condition_number(
        self,
        values: jax.Array,
        phi: jax.Array,
        quadrature_weights: jax.Array | None,
        *,
        ridge: jax.Array | None = None,
    ) -> jax.Array:
        """Returns the condition number of the system `(k, k)` that `attend` solves."""
        return opjax.condition_number(
            self.key(means(values, phi, quadrature_weights)),
            ridge=self.ridge if ridge is None else ridge,
            regularization="convex",
        )


def means(
    values: jax.Array, phi: jax.Array, quadrature_weights: jax.Array | None
) -> jax.Array:
    """Returns the coefficients `(k, d)` of features `(n, d)`: means over the basis."""
    return opjax.project(
        values, phi, quadrature_weights=quadrature_weights, method="mean"
    )


class BasisAttention(CoefficientMaps):
    r"""Multi-head self-attention among coefficients in a learned basis.

    Per head, with features `f` and basis `Phi` from a `LearnedBasis`,

        S = D^{-1} Phi^T W f,    y = Phi C (S W_v),

    where `W = diag(w)` holds the quadrature weights (ones by default) and
    `D = diag(Phi^T w)`, offset as in `opjax.project`, makes coefficients weighted
    means, which converge under mesh refinement. The heads share `W_q, W_k, W_v`. The
    base of the layers that differ in `C`, which the other base of a layer computes
    from `S W_q` and `S W_k`: `class Layer(BasisAttention, Maps)`.

    Args:
      features: channels `c` of input and output.
      num_heads: heads, dividing `features` unless `head_features` is given.
      num_basis: basis functions per head.
      head_features: channels `d` of a head, `c / h` by default.
      point_dim: coordinates that calls append to the input of the projections.
      grid_shape: see `LearnedBasis`.
      shared_basis: whether a basis module is passed with every call, for sharing it
        across layers, rather than owned.
      use_bias: whether projections, scores and output map have biases.
      fan_in_init: whether maps of coefficients and output start from U(-b, b),
        `b = fan_in^{-1/2}`, rather than N(0, 0.02^2) and a zero bias.
      temperature: see `LearnedBasis`.
      temperature_bounds: see `LearnedBasis`.
      rngs: source of the initial parameters.
      **map_options: options of the maps of coefficients.

    Raises:
      ValueError: if the heads do not divide the features.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        head_features: int | None = None,
        point_dim: int = 0,
        grid_shape: Sequence[int] | None = None,
        shared_basis: bool = False,
        use_bias: bool = True,
        fan_in_init: bool = False,
        temperature: float = 0.5,
        temperature_bounds: tuple[float, float] | None = (0.1, 5.0),
        rngs: nnx.Rngs,
        **map_options: Any,
    ):
        width = head_width(features, num_heads, head_features)
        self.point_dim = point_dim
        self.basis = (
            None
            if shared_basis
            else LearnedBasis(
                features,
                num_heads=num_heads,
                num_basis=num_basis,
                head_features=head_features,
                point_dim=point_dim,
                grid_shape=grid_shape,
                use_bias=use_bias,
                temperature=temperature,
                temperature_bounds=temperature_bounds,
                rngs=rngs,
            )
        )
        super().__init__(width, fan_in_init=fan_in_init, rngs=rngs, **map_options)
        merged = num_heads * width
        linear = FanInLinear if fan_in_init else Linear
        self.out = linear(merged, features, use_bias=use_bias, rngs=rngs)

    def __call__(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: LearnedBasis | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the layer on one sample.

        Args:
          x: features at the points, shape `(n, c)`.
          mesh_points: coordinates of the points, shape `(n, point_dim)`, if the layer
            has a `point_dim`.
          basis: the shared basis module, if the layer owns none.
          quadrature_weights: weights of the points, shape `(n,)`; zero masks a point,
            whose features must still be finite. Convolutional projections do read
            masked neighbours.

        Returns:
          Features at the points, shape `(n, c)`.

        Raises:
          ValueError: if a basis or coordinates are missing, or passed to a layer that
            owns a basis or takes no coordinates.
        """

        def head(values, own, *scores):
            phi = head_basis(*scores)
            return self.attend(values, phi, quadrature_weights, **own)

        # The basis is the largest array of the layer; computing it again in the
        # backward pass costs less than keeping it. Layers are scanned, and loops keep
        # the two computations apart: barriers against merging them would, on a CPU,
        # cost ten times as much as the layer.
        head = jax.checkpoint(head, prevent_cse=False)
        x = self._append(x, mesh_points)
        values, *scores = self.choose_basis(basis).head_inputs(x)
        h, n, _ = values.shape
        entries = h * n * scores[-1].shape[-1]
        own = self.head_options()
        heads = map_heads(head, values, own, *scores, entries=entries)
        return self.out(checkpoint_name(merge_heads(heads), "attended"))

    def inspect(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: LearnedBasis | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> opjax.Transport:
        """Returns the functional maps `(h, k, k)` and bases `(h, n, k)` of a call."""
        values, phi = self.choose_basis(basis)(self._append(x, mesh_points))
        maps = self._of_heads(self.functional_map, values, phi, quadrature_weights)
        return opjax.Transport(maps, phi, phi)

    def _of_heads(self, function, values, phi, quadrature_weights):
        """Applies a function of one head's maps to the features and bases of all."""

        def head(values, phi, own):
            return function(values, phi, quadrature_weights, **own)

        return jax.vmap(head)(values, phi, self.head_options())

    def head_options(self) -> dict[str, jax.Array]:
        """Returns what every head has of its own: options of the maps, `(h, ...)`."""
        return {}

    def choose_basis(self, shared: LearnedBasis | None) -> LearnedBasis:
        """Returns the basis module of a call: the owned one, or the one passed."""
        basis = self.basis if shared is None else shared
        if basis is None or (shared is not None and self.basis is not None):
            raise ValueError(
                "Pass `basis` to a layer built with shared_basis=True and to no other."
            )
        return basis

    def _append(self, x, mesh_points):
        channels = 0 if mesh_points is None else jnp.shape(mesh_points)[-1]
        if channels != self.point_dim:
            raise ValueError(
                f"mesh_points with {channels} coordinates do not fit a layer built "
                f"with point_dim={self.point_dim}."
            )
        if mesh_points is None:
            return x
        _checks.same_points(x=x, mesh_points=mesh_points)
        return jnp.concatenate([x, mesh_points], axis=1)


class FunctionalAttention(BasisAttention, HeadMaps):
    r"""Multi-head functional self-attention in a learned basis.

    Per head, with features `f` and basis `Phi` from a `LearnedBasis`,

        S = D^{-1} Phi^T W f,    y = Phi C (S W_v),
        C = Q K^T ((1 - a) K K^T + a I)^{-1},    Q = S W_q, K = S W_k,

    with the weighted means `S` of `BasisAttention`. The number `a =
    sigmoid(ridge_logit)` is learned, and the heads share `W_q, W_k, W_v`. In the
    notation of the paper this is the ridge `exp(ridge_logit)` and a factor
    `1 + exp(ridge_logit)`.

    Args:
      features: channels `c` of input and output.
      num_heads: heads, dividing `features` unless there are `head_features`.
      num_basis: basis functions per head.
      ridge_logit: initial value of the learned logit.
      ridge_per_head: whether every head learns a logit of its own.
      rngs: source of the initial parameters.
      **options: further options of `BasisAttention`.

    Raises:
      ValueError: if the heads do not divide the features.

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 4-9 and App. C.2.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        ridge_logit: float = 0.0,
        ridge_per_head: bool = False,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        super().__init__(
            features,
            num_heads=num_heads,
            num_basis=num_basis,
            ridge_logit=ridge_logit,
            num_ridges=num_heads if ridge_per_head else None,
            rngs=rngs,
            **options,
        )

    def condition_numbers(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: LearnedBasis | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Returns the condition numbers `(h,)` of the systems that a call solves.

        kappa((1 - a) K K^T + a I),    see `opjax.condition_number`.
        """
        values, phi = self.choose_basis(basis)(self._append(x, mesh_points))
        return self._of_heads(self.condition_number, values, phi, quadrature_weights)

    def head_options(self) -> dict[str, jax.Array]:
        """Returns the ridges `(h,)`, if every head has one of its own."""
        return {"ridge": self.ridge} if self.ridge.ndim else {}
