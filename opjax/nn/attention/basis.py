"""Attention among coefficients: any basis with any mixer."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

import opjax
from opjax import Moments, _checks
from opjax.nn import division
from opjax.nn.attention import columns, projections
from opjax.nn.attention.folding import Sizes
from opjax.nn.attention.heads import head_width, map_heads, merge_heads
from opjax.nn.attention.projections import Projection, inner_products, means
from opjax.nn.attention.sums import Added, Given, Local, PointSums, Sums
from opjax.nn.bases.expansions import Basis, LinearInputs
from opjax.nn.division import Use
from opjax.nn.layers import FanInLinear, GridConvolution, Linear
from opjax.nn.layers.linear import promoted
from opjax.nn.mixers import FunctionalMap, Mixer
from opjax.precision import matmul, product
from opjax.projection import check_weights, reconstruct

# Methods that evaluate the layer, besides the call itself.
_STEPS = ("head", "merge", "moments", "mix", "expand", "weights", "projection_in")


def head_moments(
    project: Projection,
    values: jax.Array,
    phi: jax.Array,
    weights: jax.Array | None,
    *,
    compute_dtype: str | None = None,
) -> Moments:
    """Returns the moments of one head that a projection needs."""
    return opjax.moments(
        values,
        phi,
        quadrature_weights=weights,
        with_gram=project.needs_gram,
        compute_dtype=compute_dtype,
    )


class BasisAttention(nnx.Module, PointSums):
    r"""Multi-head self-attention among coefficients in a basis.

    Per head, with features `f` and functions `Phi` from a basis module and a mixer `C`,

        y = Phi C(P f),    P f = D^{-1} Phi^T W f  (`means`, for functions of one sign),

    or the `inner_products` `Phi^T W f`, or `least_squares`. `W = diag(w)` holds the
    quadrature weights (`1 / n` each by default) and `D = diag(Phi^T w)`, offset as in
    `opjax.Moments`: coefficients converge under mesh refinement. The mixer's maps are
    shared by the heads.

    Args:
      features: channels `c` of input and output.
      num_heads: heads, dividing `features` unless `head_features` is given.
      basis: constructor of the basis, `basis(features, num_heads=, rngs=)`, such as a
        `functools.partial` of `SoftmaxBasis`; `None` for a layer that shares the basis
        passed with every call.
      mixer: constructor of the mixer, `mixer(width, num_heads=, rngs=)`.
      projection: how moments become coefficients, a `Projection`; by default `means`
        for functions of one sign and `inner_products` for others.
      head_features: channels `d` of a head, `c / h` by default; those of the basis.
      use_bias: whether the output map has a bias.
      fan_in_init: whether the output map starts from U(-b, b), `b = fan_in^{-1/2}`,
        rather than N(0, 0.02^2) and a zero bias.
      rngs: source of the initial parameters.

    Raises:
      TypeError: if the projection is a name, or lacks an attribute.
      ValueError: if the heads do not divide the features.

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
        self.num_heads = num_heads
        self.projection = None if projection is None else projections.check(projection)
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
        given = {"mesh_points": mesh_points, "basis_functions": basis_functions}
        linear = module.linear_inputs(x, **given)
        if linear is not None and self._sizes(linear.x).folds_basis(
            module.num_basis,
            scores=not module.same_for_heads,
            shared=module.same_for_heads,
        ):
            return self._folded(module, linear, weights)
        attend = self.head(module)
        # One head: the last map acts on the coefficients, if that is less.
        folds = self.num_heads == 1 and self._sizes(x).folds_output(module.num_basis)

        def head(
            own: dict[str, jax.Array], values: jax.Array, local: jax.Array, shared: Any
        ):
            phi = module.functions(local, shared, weights)
            last = self._last_maps(values)[0] if folds else None
            return attend(values, phi, weights, last=last, **own)

        # The basis is the largest array of the layer; computing it again in the
        # backward pass costs less than keeping it. Layers are scanned, and loops keep
        # the two computations apart: barriers against merging them would, on a CPU,
        # cost ten times as much as the layer.
        head = jax.checkpoint(head, prevent_cse=False)
        inputs = module.head_inputs(x, **given)
        entries = self.num_heads * x.shape[0] * module.num_basis
        heads = map_heads(head, self.mixer.own(), *inputs, entries=entries)
        return self._with_bias(heads[0]) if folds else self.merge(heads)

    def _folded(
        self, module: Basis, linear: LinearInputs, weights: jax.Array | None
    ) -> jax.Array:
        """Maps coefficients, those of the input and those of the output, not points."""
        project = self.projection_in(module)

        def evaluate(own: dict[str, jax.Array], linear: LinearInputs):
            def coefficients(
                own: dict[str, jax.Array],
                phi: jax.Array,
                kernel: jax.Array,
                bias: jax.Array | None,
                last: jax.Array,
            ):
                found = self._moments(project, linear.x, phi, weights)
                found = project(found.mapped(kernel, bias))
                return self.mixer(found, **own).astype(last.dtype) @ last

            def functions(shared: Any):
                return module.functions(linear.local, shared, weights)

            one = module.same_for_heads
            phi = functions(()) if one else jax.vmap(functions)(linear.shared)
            by_head = jax.vmap(coefficients, in_axes=(0, None if one else 0, 0, 0, 0))
            maps = linear.kernel, linear.bias, self._last_maps(linear.x)
            mapped = checkpoint_name(by_head(own, phi, *maps), "attended")
            if one:
                return matmul(phi, jnp.sum(mapped, axis=0), self.compute_dtype)
            return product("hnk,hkc->nc", phi, mapped, self.compute_dtype)

        run = jax.checkpoint(evaluate, prevent_cse=False)  # as above
        return self._with_bias(run(self.mixer.own(), linear))

    def _sizes(self, x: jax.Array) -> Sizes:
        """Returns what the cost of a call depends on."""
        n, inputs = x.shape
        width = self.out.in_features // self.num_heads
        return Sizes(n, self.num_heads, inputs, width, self.out.out_features)

    def _last_maps(self, x: jax.Array) -> jax.Array:
        """Returns the blocks of the last map, one for each head, `(h, d, c)`."""
        _, kernel, _ = promoted(self.out, x)
        return kernel.reshape(self.num_heads, -1, kernel.shape[1])

    def _with_bias(self, y: jax.Array) -> jax.Array:
        """Adds the bias of the last map, if there is one, to `(n, c)`."""
        _, _, bias = promoted(self.out, y)
        return y if bias is None else y + bias[None, :]

    def head(self, basis: Basis, mixer: Mixer | None = None) -> Callable[..., Any]:
        """Returns `attend(values, phi, weights, last=, **own)`, attention of one head.

        From features `(n, d)` in the basis `(n, k)`, by the layer's own mixer if none
        is given, to features `(n, d)`; or further by a map `last`, `(d, c)`.
        """
        project = self.projection_in(basis)
        mix = self.mixer if mixer is None else mixer

        def attend(
            values: jax.Array,
            phi: jax.Array,
            weights: jax.Array | None,
            *,
            last: jax.Array | None = None,
            **own: jax.Array,
        ):
            coefficients = project(self._moments(project, values, phi, weights))
            mixed = mix(coefficients, **own)
            return self._reconstruct(mixed if last is None else mixed @ last, phi)

        return attend

    def _moments(
        self,
        project: Projection,
        values: jax.Array,
        phi: jax.Array,
        weights: jax.Array | None,
    ) -> Moments:
        return head_moments(
            project, values, phi, weights, compute_dtype=self.compute_dtype
        )

    def _reconstruct(self, coefficients: jax.Array, phi: jax.Array) -> jax.Array:
        if self.compute_dtype is None:
            return reconstruct(coefficients, phi)
        return matmul(phi, coefficients, self.compute_dtype)

    def merge(self, heads: jax.Array) -> jax.Array:
        """Maps what the heads found, `(h, n, d)`, to features `(n, c)`."""
        return self.out(checkpoint_name(merge_heads(heads), "attended"))

    def moments(
        self,
        x: jax.Array,
        *,
        basis: Basis | None = None,
        quadrature_weights: jax.Array | None = None,
        **given: jax.Array | None,
    ) -> Moments:
        """Returns the moments of a chunk of points, of every head.

        Those of several chunks add up; `mix` and `expand` then do what a call does with
        all points at once.

        Raises:
          ValueError: if basis functions depend on more than their point, or weights are
            missing that do not cancel: a chunk does not know the number of points.
        """
        module = self.choose_basis(basis)
        if not module.pointwise:
            raise ValueError(
                f"The functions of a {type(module).__name__} depend on all points "
                "together; evaluate the layer as a whole."
            )
        project = self.projection_in(module)
        if quadrature_weights is None and not project.weights_cancel:
            raise ValueError(
                f"Pass quadrature_weights: in {division.name(project)} they do not "
                "cancel."
            )
        weights = quadrature_weights
        if weights is not None:
            weights = check_weights(weights, x=x)
        values, phi = module(x, quadrature_weights=weights, **given)

        def head(values: jax.Array, phi: jax.Array):
            return self._moments(project, values, phi, weights)

        return jax.vmap(head)(values, phi)

    def mix(self, moments: Moments, *, basis: Basis | None = None) -> jax.Array:
        """Returns coefficients `(h, k, d)` from the moments of all points."""
        project = self.projection_in(self.choose_basis(basis))

        def head(moments: Moments, own: dict[str, jax.Array]):
            return self.mixer(project(moments), **own)

        return jax.vmap(head)(moments, self.mixer.own())

    def expand(
        self,
        coefficients: jax.Array,
        x: jax.Array,
        *,
        basis: Basis | None = None,
        **given: jax.Array | None,
    ) -> jax.Array:
        """Returns features `(n, c)` of a chunk of points from coefficients."""
        _, phi = self.choose_basis(basis)(x, **given)
        return self.merge(jax.vmap(self._reconstruct)(coefficients, phi))

    def inspect(
        self,
        x: jax.Array,
        *,
        basis: Basis | None = None,
        quadrature_weights: jax.Array | None = None,
        **given: jax.Array | None,
    ) -> opjax.MapBetweenBases:
        """Returns the maps `(h, k, k)` and bases `(h, n, k)` of a call."""
        maps, phi = self._look(self.mixer.matrix, x, basis, quadrature_weights, given)
        return opjax.MapBetweenBases(maps, phi, phi)

    def condition_numbers(
        self,
        x: jax.Array,
        *,
        basis: Basis | None = None,
        quadrature_weights: jax.Array | None = None,
        **given: jax.Array | None,
    ) -> jax.Array:
        """Returns the condition numbers `(h,)` of the systems that a call solves.

        kappa((1 - a) K K^T + a I) or kappa(K K^T + r I), see `opjax.condition_number`.

        Raises:
          ValueError: if the mixer solves no system.
        """
        look = getattr(self.mixer, "condition_number", None)
        if look is None:
            raise ValueError(
                f"{type(self.mixer).__name__} solves no system; condition_numbers is "
                "for layers with a FunctionalMap or a CrossValidatedMap."
            )
        return self._look(look, x, basis, quadrature_weights, given)[0]

    def choose_basis(self, shared: Basis | None) -> Basis:
        """Returns the basis module of a call: the owned one, or the one passed."""
        basis = self.basis if shared is None else shared
        if basis is None or (shared is not None and self.basis is not None):
            raise ValueError(
                "Pass `basis` to a layer built with basis=None and to no other."
            )
        return basis

    def projection_in(self, basis: Basis) -> Projection:
        """Returns the projection to the coefficients of a basis."""
        if self.projection is None:
            return means if basis.one_sign else inner_products
        if self.projection.needs_one_sign and not basis.one_sign:
            raise ValueError(
                f"projection={division.name(self.projection)} needs basis functions of "
                "one sign; take inner_products or least_squares for this basis."
            )
        return self.projection

    def weights(
        self, basis: Basis, x: jax.Array, quadrature_weights: jax.Array | None
    ) -> jax.Array | None:
        """Returns the weights of the points; `None` where equal weights cancel."""
        if quadrature_weights is not None:
            return check_weights(quadrature_weights, x=x)
        if self.projection_in(basis).weights_cancel and basis.pointwise:
            return None
        return jnp.full(x.shape[0], 1 / x.shape[0], x.dtype)

    def obstacle(self, use: Use, shared: Basis | None = None) -> str | None:
        """Returns what is in the way of a use, see `PointSums`."""
        if division.redefines(self, "__call__", *_STEPS, known_by="sums"):
            return f"{division.name(self)} does more than attention in a basis"
        return self.choose_basis(shared).obstacle(use)

    def local(self, x: jax.Array, given: Given, shared: Basis | None = None) -> Local:
        """Returns features `(h, d, m)` and basis functions `(h, k, m)` of columns."""
        return self.choose_basis(shared).columns(x, given)

    def sums(
        self, local: Local, weights: jax.Array, highest: jax.Array | None = None
    ) -> Sums:
        """Returns integrals, masses and Gram matrices of all heads."""
        del highest  # nothing is exponential
        values, phi = local
        found = columns.moments(
            values,
            phi,
            weights,
            with_gram=self.projection is not None and self.projection.needs_gram,
            compute_dtype=self.compute_dtype,
        )
        return Sums(found)

    def combine(
        self,
        added: Added,
        totals: tuple[jax.Array, jax.Array],
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns coefficients `(h, k, d)`."""
        return self.mix(columns.of_heads(added, *totals), basis=shared)

    def spread(self, mixed: jax.Array, local: Local) -> jax.Array:
        """Returns the expansions of coefficients, `(h d, m)`."""
        _, phi = local
        return columns.reconstruct(mixed, phi, compute_dtype=self.compute_dtype)

    def equal_weights_cancel(self, shared: Basis | None = None) -> bool:
        """Whether the projection divides by weights, see `PointSums`."""
        basis = self.choose_basis(shared)
        return self.projection_in(basis).weights_cancel and basis.pointwise

    def coefficient_shape(self, shared: Basis | None = None) -> tuple[int, int, int]:
        """Returns heads, basis functions and channels of a head."""
        width = self.out.in_features // self.num_heads
        return self.num_heads, self.choose_basis(shared).num_basis, width

    def convolved_basis(self, shared: Basis | None = None) -> Basis | None:
        """Returns the basis, if its projection is a convolution."""
        basis = self.choose_basis(shared)
        return basis if isinstance(basis.projection, GridConvolution) else None

    def arrays(self, shared: Basis | None = None) -> tuple[str, ...]:
        """Returns what the basis cannot do without."""
        return self.choose_basis(shared).arrays()

    def _look(
        self,
        function: Callable[..., jax.Array],
        x: jax.Array,
        basis: Basis | None,
        quadrature_weights: jax.Array | None,
        given: Any,
    ):
        """Applies a function of one head's coefficients to all; adds their bases."""
        module = self.choose_basis(basis)
        weights = self.weights(module, x, quadrature_weights)
        values, phi = module(x, quadrature_weights=weights, **given)
        project = self.projection_in(module)

        def head(values: jax.Array, phi: jax.Array, own: dict[str, jax.Array]):
            coefficients = project(self._moments(project, values, phi, weights))
            return function(coefficients, **own)

        return jax.vmap(head)(values, phi, self.mixer.own()), phi
