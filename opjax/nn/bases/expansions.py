"""Bases in which heads expand their features: learned, fixed or passed to the call.

A basis module projects the input of a layer to features of its heads and defines the
functions to expand them in. `local` contains the inputs of the functions at each point,
so that attention can work on chunks of points and on subdomains.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

import opjax
from opjax import _checks
from opjax.nn import division
from opjax.nn.attention import columns
from opjax.nn.attention.heads import head_width, split_heads
from opjax.nn.division import Use
from opjax.nn.layers import FanInLinear, GridConvolution, fan_in_uniform
from opjax.nn.layers.initializers import orthogonal
from opjax.nn.layers.linear import is_affine, promoted
from opjax.precision import matmul, product


class HeadInputs(NamedTuple):
    """Features and inputs of basis functions for every head.

    Attributes:
      values: features to expand, shape `(h, n, d)`.
      local: inputs of the basis functions at every point, `(h, n, e)`.
      shared: parameters of the functions, a pytree of arrays `(h, ...)`.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import bases
      >>> basis = bases.SoftmaxBasis(8, num_heads=2, num_basis=4, rngs=nnx.Rngs(0))
      >>> inputs = basis.head_inputs(jnp.ones((9, 8)))
      >>> inputs.values.shape, inputs.local.shape
      ((2, 9, 4), (2, 9, 4))
    """

    values: jax.Array
    local: jax.Array
    shared: Any


class LinearInputs(NamedTuple):
    """Head inputs of a basis with one head, computed by linear maps.

    Attributes:
      x: features with coordinates, shape `(n, e)`.
      kernel: map to the features to expand, shape `(e, d)`.
      bias: added bias, shape `(d,)`, or `None`.
      shared: parameters with which `functions` computes the basis functions from `x`.
    """

    x: jax.Array
    kernel: jax.Array
    bias: jax.Array | None
    shared: Any


class Basis(nnx.Module, abc.ABC):
    """Features to expand and basis functions, for every head.

    Attributes:
      num_heads: heads `h`.
      num_basis: number `k` of functions per head.
      point_dim: number of coordinates that calls append to the channels.
      one_sign: whether functions are non-negative, so that means over them exist.
      pointwise: whether the value of a function at a point depends only on this point.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> basis = nn.bases.SoftmaxBasis(8, num_heads=2, num_basis=4, rngs=nnx.Rngs(0))
      >>> isinstance(basis, nn.bases.Basis)
      True
      >>> values, functions = basis(jnp.ones((9, 8)))
      >>> values.shape, functions.shape
      ((2, 9, 4), (2, 9, 4))
    """

    num_heads: int
    num_basis: int
    point_dim: int
    one_sign: bool = True
    pointwise: bool = True
    projection: Any = None  # of features, where it is one map at the start
    compute_dtype: str | None = None  # see `with_precision`

    def project(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        axis_name: str | None = None,
    ) -> jax.Array:
        """Maps features `(n, c)` to the input `(n, e)` of `from_projected`.

        `axis_name` is the axis of devices that each hold rows of a grid.
        """
        x = with_points(x, mesh_points if self.point_dim else None, self.point_dim)
        if axis_name is None:
            projected = self.projection(x)
        else:
            projected = self.projection(x, axis_name=axis_name)
        return checkpoint_name(projected, "projected")

    def from_projected(
        self,
        projected: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis_functions: jax.Array | None = None,
    ) -> HeadInputs:
        """Returns the result of `head_inputs`, from the result of `project`."""
        raise NotImplementedError

    def head_inputs(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis_functions: jax.Array | None = None,
    ) -> HeadInputs:
        """Projects features `(n, c)` at points `(n, p)` to the inputs of the heads."""
        return self.from_projected(
            self.project(x, mesh_points=mesh_points),
            mesh_points=mesh_points,
            basis_functions=basis_functions,
        )

    @abc.abstractmethod
    def functions(
        self, local: jax.Array, shared: Any, quadrature_weights: jax.Array | None
    ) -> jax.Array:
        """Evaluates the functions `(n, k)` of one head at `local` `(n, e)`."""

    def linear_inputs(
        self, x: jax.Array, mesh_points: jax.Array | None
    ) -> LinearInputs | None:
        """Returns the linear maps of one head; `None` if there are no such maps."""
        del x, mesh_points
        return None

    def __call__(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis_functions: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
        projected: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Maps `(n, c)` to features `(h, n, d)` and basis functions `(h, n, k)`.

        `projected` is what `project` makes of the features, if it is known.
        """
        if projected is None:
            project, inputs = self.head_inputs, x
        else:
            project, inputs = self.from_projected, projected
        values, local, shared = project(
            inputs, mesh_points=mesh_points, basis_functions=basis_functions
        )

        def functions(local: jax.Array, shared: Any) -> jax.Array:
            return self.functions(local, shared, quadrature_weights)

        return values, jax.vmap(functions)(local, shared)

    def columns(
        self, x: jax.Array, given: Mapping[str, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        """Maps `(c, m)` to features `(h, d, m)` and basis functions `(h, k, m)`.

        Args:
          x: features of some points; the functions must be pointwise.
          given: further arrays of the points, `(m, ...)`; and `projected`, `(e, m)`, if
            `project` was applied to all points.

        Raises:
          ValueError: if the basis does not use a given array, or one is missing.
        """
        arrays = dict(given)
        projected = arrays.pop("projected", None)
        inputs = None if projected is None else projected.T
        values, phi = self(x.T, projected=inputs, **arrays)
        return values.swapaxes(1, 2), phi.swapaxes(1, 2)

    def arrays(self) -> tuple[str, ...]:
        """Returns the names of the per-point arrays that every call requires."""
        return ()

    def obstacle(self, use: Use) -> str | None:
        """Returns why a use is not supported, see `nn.division`, or `None`."""
        name = division.name(self)
        if use == "narrow":
            return f"the functions of a {name} are not computed in 16 bits"
        if not self.pointwise:
            return f"functions of a {name} depend on all points together"
        if isinstance(self.projection, nnx.Linear):
            return None
        if not isinstance(self.projection, GridConvolution):
            return f"the projection of a {name} is not known"
        if use == "stream":
            return "convolutional projections read neighbouring points"
        return None

    def _obstacle_of_narrow_maps(self) -> str | None:
        """Says why one linear map of the features is not taken in 16 bits, if so."""
        if not is_affine(self.projection):
            return f"a {division.name(self.projection)} is not computed in 16 bits"
        if self.point_dim:
            return "coordinates beside features of every layer would lose their digits"
        return None


class SoftmaxBasisOptions(TypedDict, total=False):
    """Options of `SoftmaxBasis`, shared with the attention layers that use it.

    Attributes:
      point_dim: number of coordinates that calls append to the channels.
      grid_shape: points per axis of a uniform grid, for convolutional projections.
      temperature: initial temperature of the softmax.
      temperature_bounds: range to which temperatures are clipped, or `None`.
    """

    point_dim: int
    grid_shape: Sequence[int] | None
    temperature: float
    temperature_bounds: tuple[float, float] | None


class SoftmaxBasis(Basis):
    """A softmax basis of scores, computed linearly from projected features.

    Two projections of the input, pointwise or 3 x ... x 3 convolutions, give the
    features and the inputs of the basis functions. One linear map from head width to
    scores is shared by all heads.

    Args:
      features: channels `c` of the input.
      num_heads: heads `h`, dividing `features` unless `head_features` is given.
      num_basis: number `k` of basis functions per head.
      head_features: channels `d` of a head, `c / h` by default.
      point_dim: number of coordinates that calls append to the channels.
      grid_shape: points per axis of a uniform grid for convolutional projections;
        `None` for pointwise projections on any mesh.
      use_bias: whether projections and scores have biases.
      temperature: initial temperature of the softmax, one per head.
      temperature_bounds: range to which temperatures are clipped, or `None`.
      rngs: source of the initial parameters; the map to scores is initialised with an
        orthogonal matrix.

    Raises:
      ValueError: if the heads do not divide the features, there is no basis function,
        or a temperature is not positive.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> basis = partial(nn.bases.SoftmaxBasis, num_basis=4, grid_shape=(3, 3))
      >>> layer = nn.BasisAttention(8, num_heads=2, basis=basis, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape  # convolutions on a grid of 3 x 3 points
      (9, 8)

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 9 and 10.
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
        use_bias: bool = True,
        temperature: float = 0.5,
        temperature_bounds: tuple[float, float] | None = (0.1, 5.0),
        rngs: nnx.Rngs,
    ):
        width = head_width(features, num_heads, head_features)
        _checks.positive(num_basis=num_basis, temperature=temperature)
        self.num_heads, self.num_basis = num_heads, num_basis
        self.point_dim, self.temperature_bounds = point_dim, temperature_bounds
        self.projection = _projection(
            features + point_dim,
            2 * num_heads * width,
            grid_shape=grid_shape,
            use_bias=use_bias,
            rngs=rngs,
        )
        self.score_kernel = nnx.Param(
            orthogonal(rngs.params(), (width, num_basis), jnp.float32)
        )
        bias_init = fan_in_uniform(width)
        self.score_bias = (
            nnx.Param(bias_init(rngs.params(), (num_basis,))) if use_bias else None
        )
        self.temperature = nnx.Param(jnp.full(num_heads, temperature, jnp.float32))

    def from_projected(
        self,
        projected: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis_functions: jax.Array | None = None,
    ) -> HeadInputs:
        """Splits features `(n, 2 h d)` into features to expand and score inputs."""
        refuse_functions(basis_functions)
        heads = split_heads(projected, 2 * self.num_heads)
        values, local = heads[: self.num_heads], heads[self.num_heads :]
        return HeadInputs(values, local, self.score_map())

    def linear_inputs(
        self, x: jax.Array, mesh_points: jax.Array | None
    ) -> LinearInputs | None:
        """Returns the linear maps of one head, if the projection is pointwise."""
        if self._has_other_functions() or not is_affine(self.projection):
            return None
        x = with_points(x, mesh_points, self.point_dim)
        x, kernel, bias = promoted(self.projection, x)
        to_values, to_local = jnp.split(kernel, 2, axis=1)
        scores, offset = (a[0] for a in self.score_map())
        if bias is None:
            return LinearInputs(x, to_values, None, (to_local @ scores, offset))
        value_bias, local_bias = jnp.split(bias, 2)
        offset = offset + local_bias @ scores
        return LinearInputs(x, to_values, value_bias, (to_local @ scores, offset))

    def score_map(self) -> tuple[jax.Array, jax.Array]:
        """Returns kernels `(h, d, k)` and biases `(h, k)` of the scores of every head.

        The temperature divides the weights instead of the scores: the result is the
        same, with less work.
        """
        temperature = self.temperature[...]
        if self.temperature_bounds is not None:
            temperature = jnp.clip(temperature, *self.temperature_bounds)
        kernel = self.score_kernel[...][None] / temperature[:, None, None]
        if self.score_bias is None:
            bias = jnp.zeros((self.num_heads, self.num_basis), temperature.dtype)
        else:
            bias = self.score_bias[...][None] / temperature[:, None]
        return kernel, bias

    def functions(
        self, local: jax.Array, shared: Any, quadrature_weights: jax.Array | None
    ) -> jax.Array:
        """Returns the softmax of the scores, `(n, k)`."""
        return opjax.softmax_basis(_scores(local, shared, self.compute_dtype))

    def columns(
        self, x: jax.Array, given: Mapping[str, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        """Maps `(c, m)` to features and functions without transposition."""
        projected = given.get("projected")
        plain = projected is not None or is_affine(self.projection)
        if self._has_other_functions() or not plain:
            return super().columns(x, given)
        refuse_functions(given.get("basis_functions"))
        if projected is None:
            if self.point_dim:
                x = with_points(x.T, given.get("mesh_points"), self.point_dim).T
            projected = columns.linear(self.projection, x)
        heads = projected.reshape(2, self.num_heads, -1, x.shape[1])
        kernel, bias = self.score_map()
        scores = product("hdk,hdm->hkm", kernel, heads[1], self.compute_dtype)
        return heads[0], columns.softmax(scores + bias[:, :, None])

    def obstacle(self, use: Use) -> str | None:
        """Returns why a use is not supported, see `Basis`."""
        if use == "narrow" and not self._has_other_functions():
            return self._obstacle_of_narrow_maps()
        return super().obstacle(use)

    def _has_other_functions(self) -> bool:
        """Whether a subclass computes functions or inputs of its own."""
        others = ("functions", "head_inputs", "from_projected", "score_map", "project")
        return division.redefines(self, *others, known_by="columns")


class IndicatorBasis(SoftmaxBasis):
    """The limit of `SoftmaxBasis`: each point belongs to the function of highest score.

    The choice has no gradient, so the scores keep their initial values.

    Examples:
      >>> from flax import nnx
      >>> import jax
      >>> from opjax.nn import bases
      >>> basis = bases.IndicatorBasis(8, num_heads=2, num_basis=4, rngs=nnx.Rngs(0))
      >>> _, functions = basis(jax.random.normal(jax.random.key(0), (9, 8)))
      >>> functions[0].sum(axis=1).tolist()  # a point belongs to one function
      [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

    def functions(
        self, local: jax.Array, shared: Any, quadrature_weights: jax.Array | None
    ) -> jax.Array:
        """Returns zeros and ones, `(n, k)`."""
        return opjax.indicator_basis(_scores(local, shared))


class FixedBasis(Basis):
    """Fixed functions of the coordinates, the same for all heads, not learned.

    Args:
      features: channels `c` of the input.
      num_heads: heads `h`, dividing `features`.
      functions: `functions(mesh_points)`, values `(n, k)`, such as a
        `functools.partial` of `opjax.fourier_basis` or `opjax.hat_basis`; `None` if
        functions `(n, num_basis)` are passed with every call, such as eigenfunctions of
        the mesh.
      num_basis: number `k` of functions.
      one_sign: whether they are non-negative.
      point_dim: number of coordinates that calls append to the channels.
      grid_shape: see `SoftmaxBasis`.
      use_bias: whether the projection has a bias.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> import opjax
      >>> from opjax import nn
      >>> hats = partial(opjax.hat_basis, num_nodes=2)
      >>> basis = partial(nn.bases.FixedBasis, functions=hats, num_basis=4)
      >>> layer = nn.BasisAttention(8, num_heads=2, basis=basis, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8)), mesh_points=jnp.ones((9, 2))).shape
      (9, 8)
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        functions: Callable[[jax.Array], jax.Array] | None,
        num_basis: int,
        one_sign: bool = False,
        point_dim: int = 0,
        grid_shape: Sequence[int] | None = None,
        use_bias: bool = True,
        rngs: nnx.Rngs,
    ):
        width = head_width(features, num_heads)
        _checks.positive(num_basis=num_basis)
        self.num_heads, self.num_basis, self.one_sign = num_heads, num_basis, one_sign
        self.point_dim, self.of_points = point_dim, functions
        self.projection = _projection(
            features + point_dim,
            num_heads * width,
            grid_shape=grid_shape,
            use_bias=use_bias,
            rngs=rngs,
        )

    def from_projected(
        self,
        projected: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis_functions: jax.Array | None = None,
    ) -> HeadInputs:
        """Splits features `(n, h d)` into heads, and evaluates the functions."""
        functions = self._functions(projected, mesh_points, basis_functions)
        values = split_heads(projected, self.num_heads)
        local = jnp.broadcast_to(functions, (self.num_heads, *functions.shape))
        return HeadInputs(values, local, ())

    def _functions(
        self,
        x: jax.Array,
        mesh_points: jax.Array | None,
        basis_functions: jax.Array | None,
    ) -> jax.Array:
        """Returns the functions `(n, k)`, given or of the coordinates."""
        if self.of_points is not None:
            refuse_functions(basis_functions)
            if mesh_points is None:
                raise ValueError(
                    "This basis consists of functions of the coordinates: pass "
                    "mesh_points."
                )
            basis_functions = self.of_points(mesh_points)
        where = f"the points of x {x.shape} and num_basis={self.num_basis} functions"
        expected = (x.shape[0], self.num_basis)
        functions = _checks.shaped("basis_functions", basis_functions, expected, where)
        return functions.astype(x.dtype)

    def functions(
        self, local: jax.Array, shared: Any, quadrature_weights: jax.Array | None
    ) -> jax.Array:
        """Returns `local`, `(n, k)`."""
        return local

    def arrays(self) -> tuple[str, ...]:
        """Returns `basis_functions`, if they are passed with every call."""
        return ("basis_functions",) if self.of_points is None else ()

    def obstacle(self, use: Use) -> str | None:
        """Returns why a use is not supported, see `Basis`."""
        others = ("functions", "head_inputs", "from_projected", "project")
        own = not division.redefines(self, *others, known_by="obstacle")
        if use == "narrow" and own:
            return self._obstacle_of_narrow_maps()
        return super().obstacle(use)


class OrthonormalBasis(Basis):
    """Orthonormal functions that span the same space as another basis, `Q^T W Q = I`.

    Args:
      features: channels `c` of the input.
      num_heads: heads `h`.
      inner: constructor of the wrapped basis, `inner(features, num_heads=, rngs=)`.
      rngs: source of the initial parameters.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax
      >>> from opjax.nn import bases
      >>> inner = partial(bases.SoftmaxBasis, num_basis=3)
      >>> basis = bases.OrthonormalBasis(8, num_heads=2, inner=inner, rngs=nnx.Rngs(0))
      >>> _, functions = basis(jax.random.normal(jax.random.key(0), (9, 8)))
      >>> functions.shape
      (2, 9, 3)
    """

    one_sign = False
    pointwise = False

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        inner: Callable[..., Basis],
        rngs: nnx.Rngs,
    ):
        self.inner = inner(features, num_heads=num_heads, rngs=rngs)
        self.num_heads, self.num_basis = num_heads, self.inner.num_basis
        self.point_dim = self.inner.point_dim

    def head_inputs(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis_functions: jax.Array | None = None,
    ) -> HeadInputs:
        """Returns the head inputs of the wrapped basis."""
        return self.inner.head_inputs(
            x, mesh_points=mesh_points, basis_functions=basis_functions
        )

    def functions(
        self, local: jax.Array, shared: Any, quadrature_weights: jax.Array | None
    ) -> jax.Array:
        """Returns the orthonormalised functions `(n, k)` of the wrapped basis."""
        raw = self.inner.functions(local, shared, quadrature_weights)
        return opjax.orthonormalize(raw, quadrature_weights=quadrature_weights)


def with_points(
    x: jax.Array, mesh_points: jax.Array | None, point_dim: int
) -> jax.Array:
    """Appends coordinates to features, for layers with `point_dim`."""
    if point_dim == 0:
        return x
    if mesh_points is None or jnp.shape(mesh_points)[-1] != point_dim:
        shape = None if mesh_points is None else jnp.shape(mesh_points)
        raise ValueError(
            f"mesh_points {shape} do not match a layer built with {point_dim=}."
        )
    _checks.floating(mesh_points=mesh_points)
    _checks.same_points(x=x, mesh_points=mesh_points)
    return jnp.concatenate([x, mesh_points.astype(x.dtype)], axis=1)


def _projection(
    in_features: int,
    out_features: int,
    *,
    grid_shape: Sequence[int] | None,
    use_bias: bool,
    rngs: nnx.Rngs,
):
    if grid_shape is None:
        return FanInLinear(in_features, out_features, use_bias=use_bias, rngs=rngs)
    return GridConvolution(
        in_features, out_features, grid_shape=grid_shape, use_bias=use_bias, rngs=rngs
    )


def _scores(
    local: jax.Array,
    shared: tuple[jax.Array, jax.Array],
    compute_dtype: str | None = None,
) -> jax.Array:
    kernel, bias = shared
    return matmul(local, kernel, compute_dtype) + bias[None, :]


def refuse_functions(basis_functions: jax.Array | None) -> None:
    """Raises ValueError if functions are passed to a basis that computes its own."""
    if basis_functions is not None:
        raise ValueError(
            "basis_functions can only be passed to a layer whose basis has no "
            "functions of its own (FixedBasis with functions=None)."
        )
