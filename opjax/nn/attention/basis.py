"""Attention between coefficients: any basis with any mixer."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

import opjax
from opjax import Moments, _checks
from opjax.nn import division
from opjax.nn.attention import columns
from opjax.nn.attention.heads import head_width, map_heads, merge_heads
from opjax.nn.attention.sums import Added, Given, Local, PointSums, Sums, Totals
from opjax.nn.bases.expansions import Basis, LinearInputs
from opjax.nn.division import Use
from opjax.nn.layers import FanInLinear, GridConvolution, Linear
from opjax.nn.layers.linear import is_affine, promoted
from opjax.nn.mixers import FunctionalMap, Mixer, Own
from opjax.precision import matmul
from opjax.projection import (
    InnerProducts,
    Means,
    Projection,
    check_projection,
    check_weights,
    reconstruct,
)

# Methods that evaluate the layer, besides the call itself.
_STEPS = ("moments", "coefficients", "expansion", "merge", "weights", "projection_in")


class BasisAttention(nnx.Module, PointSums):
    r"""Multi-head self-attention between coefficients in a basis.

    Per head, with features `f` and functions `Phi` from a basis module and a mixer `C`,

        y = Phi C(P f),    P f = D^{-1} Phi^T W f  (`Means`, for functions of one sign),

    or `InnerProducts` `Phi^T W f`, or `LeastSquares`. `W = diag(w)` holds the
    quadrature weights (`1 / n` each by default) and `D = diag(Phi^T w)`, with the
    offset of `opjax.Moments`. Coefficients converge under mesh refinement. The mixer's
    maps are shared by the heads.

    Args:
      features: channels `c` of input and output.
      num_heads: heads, dividing `features` unless `head_features` is given.
      basis: constructor of the basis, `basis(features, num_heads=, rngs=)`, such as a
        `functools.partial` of `SoftmaxBasis`; `None` for a layer that receives a shared
        basis with every call.
      mixer: constructor of the mixer, `mixer(width, num_heads=, rngs=)`.
      projection: computes coefficients from moments, a `Projection`; by default `Means`
        for basis functions of one sign and `InnerProducts` for others.
      head_features: channels `d` of a head, `c / h` by default; they must match the
        basis.
      use_bias: whether the output map has a bias.
      fan_in_init: whether the output map is initialised from U(-b, b), `b =
        fan_in^{-1/2}`, instead of N(0, 0.02^2) with zero bias.
      rngs: source of the initial parameters.

    Raises:
      TypeError: if the projection is a name, or lacks an attribute.
      ValueError: if the heads do not divide the features.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> basis = partial(nn.bases.SoftmaxBasis, num_basis=4)
      >>> build = partial(nn.BasisAttention, basis=basis, mixer=nn.mixers.GalerkinMap)
      >>> layer = build(8, num_heads=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 4-9, Table 7 and Table 12.
    """

    compute_dtype: str | None = None  # see `with_precision`

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        basis: Callable[..., Basis] | None,
        mixer: Callable[..., Mixer] = FunctionalMap,
        projection: Projection | None = None,
        head_features: int | None = None,
        use_bias: bool = True,
        fan_in_init: bool = False,
        rngs: nnx.Rngs,
    ):
        width = head_width(features, num_heads, head_features)
        if projection is not None:
            check_projection(projection)
        self.num_heads = num_heads
        self.projection = projection
        self.basis = (
            None if basis is None else basis(features, num_heads=num_heads, rngs=rngs)
        )
        self.mixer = mixer(width, num_heads=num_heads, rngs=rngs)
        linear = FanInLinear if fan_in_init else Linear
        self.out = linear(num_heads * width, features, use_bias=use_bias, rngs=rngs)

    def __call__(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: Basis | None = None,
        basis_functions: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the layer on one sample.

        Args:
          x: features at the points, shape `(n, c)`.
          mesh_points: coordinates of the points, shape `(n, p)`, for bases that use
            them.
          basis: the shared basis module, if the layer owns none.
          basis_functions: functions `(n, k)`, for a `FixedBasis` without its own.
          quadrature_weights: weights of the points, shape `(n,)`; zero masks a point,
            whose features must still be finite. Convolutional projections do read
            masked neighbours.

        Returns:
          Features at the points, shape `(n, c)`.

        Raises:
          ValueError: if a basis, functions or coordinates are missing, or passed to a
            layer that has its own.
        """
        _checks.layer_input(self.out.out_features, x=x)
        module = self.choose_basis(basis)
        weights = self.weights(module, x, quadrature_weights)
        steps = ("moments", "coefficients", "expansion", "merge")
        changed = division.redefines(self, *steps, known_by="_by_one_map")
        whole = basis_functions is None and not changed and is_affine(self.out)
        if self.num_heads == 1 and whole:
            linear = module.linear_inputs(x, mesh_points)
            if linear is not None:
                return self._by_one_map(module, linear, weights)

        def head(own: Own, values: jax.Array, local: jax.Array, shared: Any):
            phi = module.functions(local, shared, weights)
            moments = self.moments(module, values, phi, weights)
            return self.expansion(self.coefficients(module, moments, own), phi)

        # The basis is the largest array of the layer; computing it again in the
        # backward pass costs less than keeping it. Layers are scanned, and loops keep
        # the two computations apart: barriers against merging them would, on a CPU,
        # cost ten times as much as the layer.
        head = jax.checkpoint(head, prevent_cse=False)
        inputs = module.head_inputs(
            x, mesh_points=mesh_points, basis_functions=basis_functions
        )
        entries = self.num_heads * x.shape[0] * module.num_basis
        return self.merge(map_heads(head, self.mixer.own(), *inputs, entries=entries))

    def _by_one_map(
        self, module: Basis, linear: LinearInputs, weights: jax.Array | None
    ) -> jax.Array:
        """Maps coefficients of the one head, to and from its channels, not points.

        A training step of `burgers --preset=paper` is 1.2 times faster by it.
        """
        _, last, bias = promoted(self.out, linear.x)

        def head(own: Own, linear: LinearInputs, last: jax.Array) -> jax.Array:
            phi = module.functions(linear.x, linear.shared, weights)
            moments = self.moments(module, linear.x, phi, weights)
            moments = moments.mapped(linear.kernel, linear.bias)
            coefficients = self.coefficients(module, moments, own)
            return self.expansion(coefficients.astype(last.dtype) @ last, phi)

        head = jax.checkpoint(head, prevent_cse=False)  # as above
        y = head(jax.tree.map(lambda a: a[0], self.mixer.own()), linear, last)
        return y if bias is None else y + bias[None, :]

    def moments(
        self,
        basis: Basis,
        values: jax.Array,
        phi: jax.Array,
        weights: jax.Array | None,
    ) -> Moments:
        """Returns the moments of one head: sums over its points.

        Args:
          basis: basis of the layer.
          values: features, shape `(n, d)`.
          phi: basis functions, shape `(n, k)`.
          weights: weights of the points, shape `(n,)`.
        """
        return opjax.moments(
            values,
            phi,
            quadrature_weights=weights,
            with_gram=self.projection_in(basis).needs_gram,
            compute_dtype=self.compute_dtype,
        )

    def coefficients(
        self,
        basis: Basis,
        moments: Moments,
        own: Own,
        mixer: Mixer | None = None,
    ) -> jax.Array:
        """Returns the coefficients `(k, d)` that one head computes from its moments.

        Args:
          basis: basis of the layer.
          moments: moments over all points.
          own: parameters of the head, one entry of `mixer.own()`.
          mixer: mixer; by default that of the layer.
        """
        mix = self.mixer if mixer is None else mixer
        return mix(self.projection_in(basis)(moments), own)

    def expansion(self, coefficients: jax.Array, phi: jax.Array) -> jax.Array:
        """Returns the expansion `(n, d)` of one head's coefficients."""
        if self.compute_dtype is None:
            return reconstruct(coefficients, phi)
        return matmul(phi, coefficients, self.compute_dtype)

    def merge(self, heads: jax.Array) -> jax.Array:
        """Maps the outputs of the heads, `(h, n, d)`, to features `(n, c)`."""
        return self.out(checkpoint_name(merge_heads(heads), "attended"))

    def inspect(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: Basis | None = None,
        basis_functions: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> opjax.MapBetweenBases:
        """Returns the maps `(h, k, k)` and bases `(h, n, k)` of a call."""
        look = self.mixer.matrix
        maps, phi = self._look(
            look, x, basis, quadrature_weights, mesh_points, basis_functions
        )
        return opjax.MapBetweenBases(maps, phi, phi)

    def condition_numbers(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: Basis | None = None,
        basis_functions: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Returns the condition numbers `(h,)` of the linear systems of a call.

        kappa((1 - a) K K^T + a I) or kappa(K K^T + r I), see `opjax.condition_number`.

        Raises:
          ValueError: if the mixer solves no linear system.
        """
        look = getattr(self.mixer, "condition_number", None)
        if look is None:
            raise ValueError(
                f"{type(self.mixer).__name__} does not solve a linear system; "
                "condition_numbers needs a layer with a FunctionalMap or a "
                "CrossValidatedMap."
            )
        return self._look(
            look, x, basis, quadrature_weights, mesh_points, basis_functions
        )[0]

    def choose_basis(self, shared: Basis | None) -> Basis:
        """Returns the basis module of a call: the layer's own, or the given one."""
        basis = self.basis if shared is None else shared
        if basis is None or (shared is not None and self.basis is not None):
            raise ValueError("Pass `basis` only to a layer built with basis=None.")
        return basis

    def projection_in(self, basis: Basis) -> Projection:
        """Returns the projection to coefficients in a basis."""
        if self.projection is None:
            return Means() if basis.one_sign else InnerProducts()
        if self.projection.needs_one_sign and not basis.one_sign:
            raise ValueError(
                f"projection={division.name(self.projection)} needs basis functions "
                "of one sign; use InnerProducts or LeastSquares for this basis."
            )
        return self.projection

    def weights(
        self, basis: Basis, x: jax.Array, quadrature_weights: jax.Array | None
    ) -> jax.Array | None:
        """Returns the weights of the points; `None` if equal weights cancel."""
        if quadrature_weights is not None:
            return check_weights(quadrature_weights, x=x)
        if self.projection_in(basis).weights_cancel and basis.pointwise:
            return None
        return jnp.full(x.shape[0], 1 / x.shape[0], x.dtype)

    def obstacle(self, use: Use, shared: Basis | None = None) -> str | None:
        """Returns why a use is not supported, see `PointSums`."""
        if division.redefines(self, "__call__", *_STEPS, known_by="sums"):
            return f"{division.name(self)} does more than attention in a basis"
        return self.choose_basis(shared).obstacle(use)

    def local(self, x: jax.Array, given: Given, shared: Basis | None = None) -> Local:
        """Returns features `(h, d, m)` and basis functions `(h, k, m)`, points last."""
        return self.choose_basis(shared).columns(x, given)

    def sums(
        self, local: Local, weights: jax.Array, highest: jax.Array | None = None
    ) -> Sums:
        """Returns integrals, masses and Gram matrices of all heads."""
        del highest  # nothing is exponential
        values, phi = local
        moments = columns.moments(
            values,
            phi,
            weights,
            with_gram=self.projection is not None and self.projection.needs_gram,
            compute_dtype=self.compute_dtype,
        )
        return Sums(moments)

    def combine(
        self,
        added: Added,
        totals: Totals,
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns coefficients `(h, k, d)`."""
        combine = partial(self.coefficients, self.choose_basis(shared))
        return jax.vmap(combine)(columns.of_heads(added, *totals), self.mixer.own())

    def spread(self, mixed: jax.Array, local: Local) -> jax.Array:
        """Returns the expansions of coefficients, `(h d, m)`."""
        _, phi = local
        return columns.reconstruct(mixed, phi, compute_dtype=self.compute_dtype)

    def equal_weights_cancel(self, shared: Basis | None = None) -> bool:
        """Whether equal weights cancel in the projection, see `PointSums`."""
        basis = self.choose_basis(shared)
        return self.projection_in(basis).weights_cancel and basis.pointwise

    def coefficient_shape(self, shared: Basis | None = None) -> tuple[int, int, int]:
        """Returns the numbers of heads, basis functions and channels of a head."""
        width = self.out.in_features // self.num_heads
        return self.num_heads, self.choose_basis(shared).num_basis, width

    def convolved_basis(self, shared: Basis | None = None) -> Basis | None:
        """Returns the basis, if its projection is a convolution."""
        basis = self.choose_basis(shared)
        return basis if isinstance(basis.projection, GridConvolution) else None

    def arrays(self, shared: Basis | None = None) -> tuple[str, ...]:
        """Returns the names of the arrays that the basis requires."""
        return self.choose_basis(shared).arrays()

    def _look(
        self,
        function: Callable[..., jax.Array],
        x: jax.Array,
        basis: Basis | None,
        quadrature_weights: jax.Array | None,
        mesh_points: jax.Array | None,
        basis_functions: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        """Applies a function of one head's coefficients to all; adds their bases."""
        module = self.choose_basis(basis)
        weights = self.weights(module, x, quadrature_weights)
        values, phi = module(
            x,
            mesh_points=mesh_points,
            basis_functions=basis_functions,
            quadrature_weights=weights,
        )
        project = self.projection_in(module)

        def head(values: jax.Array, phi: jax.Array, own: Own):
            return function(project(self.moments(module, values, phi, weights)), own)

        return jax.vmap(head)(values, phi, self.mixer.own()), phi
