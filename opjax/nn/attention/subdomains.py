"""Attention in a basis on overlapping subdomains and a coarse level."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import Moments, _checks, schwarz
from opjax.nn import division
from opjax.nn.attention.basis import BasisAttention
from opjax.nn.attention.heads import map_heads
from opjax.nn.bases.expansions import Basis
from opjax.nn.division import Use
from opjax.nn.mixers import Mixer, Own
from opjax.quadrature import active
from opjax.schwarz import Cover
from opjax.schwarz.operators import total


class Subdomains(NamedTuple):
    """Subdomains of a mesh and the basis functions of their coarse level.

    Attributes:
      cover: subdomains of the points with their partition of unity.
      coarse_space: non-negative coarse functions, such as `schwarz.partition_hats` or
        the partition of unity `cover` itself; `None` without a coarse level.
      coarser: subdomains of the coarse functions, with functions of a coarser level;
        `None` if the coarse level is the last.

    Examples:
      >>> from opjax import schwarz
      >>> from opjax.nn.attention import Subdomains
      >>> cover = schwarz.box_cover((6, 6), (2, 2), overlap=1)
      >>> subdomains = Subdomains(cover, schwarz.partition_hats((6, 6), (3, 3)))
      >>> subdomains.cover.num_subdomains, subdomains.coarse_space.num_subdomains
      (4, 9)
    """

    cover: Cover
    coarse_space: Cover | None = None
    coarser: "Subdomains | None" = None


@dataclasses.dataclass(frozen=True)
class GridSubdomains:
    """Boxes of a uniform grid, and hat functions as coarse space.

    Attributes:
      grid_shape: points per axis.
      num_boxes: boxes per axis.
      overlap: number of points by which a box is extended on every side.
      num_hats: number of hats per axis; `num_boxes + 1` if `None`.
      num_levels: number of levels, at least two. With more, the hats are points of a
        coarser grid. It has half as many boxes per axis, which overlap by at most
        one hat, and one hat more than boxes, and so on.

    Raises:
      ValueError: if boxes, hats or levels do not fit the grid.

    Examples:
      >>> from opjax.nn.attention import GridSubdomains
      >>> subdomains = GridSubdomains((6, 6), num_boxes=2, overlap=1).build()
      >>> subdomains.cover.num_subdomains, subdomains.coarse_space.num_subdomains
      (4, 9)
    """

    grid_shape: tuple[int, ...]
    num_boxes: int | tuple[int, ...]
    overlap: int = 2
    num_hats: int | tuple[int, ...] | None = None
    num_levels: int = 2

    def __post_init__(self):
        """Refuses boxes that do not fit, before any work is done."""
        object.__setattr__(self, "grid_shape", tuple(self.grid_shape))
        if self.num_levels < 2:
            raise ValueError(f"num_levels={self.num_levels} must be at least 2.")
        boxes = min(_per_axis(self.num_boxes, len(self.grid_shape)))
        least = 2 ** (self.num_levels - 1)
        if self.num_levels > 2 and boxes < least:
            raise ValueError(
                f"num_levels={self.num_levels} need at least {least} boxes per axis, "
                f"but num_boxes={self.num_boxes}."
            )
        self.build()

    def build(self) -> Subdomains:
        """Returns the subdomains, which are computed once."""
        return _grid_subdomains(self)

    def part(self, axis_name: str, num_points: int) -> Subdomains:
        """Returns the subdomains of one device, inside `jax.shard_map`.

        Args:
          axis_name: axis over whose devices the points of the grid are split, row by
            row, see `schwarz.split_cover`.
          num_points: number of points of a device, with padding after those of the
            grid.
        """
        devices = jax.lax.axis_size(axis_name)
        whole = _split_subdomains(self, devices, num_points, axis_name)
        place = jax.lax.axis_index(axis_name)

        def own(array: np.ndarray) -> jax.Array:
            parts = jnp.asarray(array.reshape(devices, -1, *array.shape[1:]))
            return jax.lax.dynamic_index_in_dim(parts, place, keepdims=False)

        # Every device has all coarse functions, and so the coarser levels.
        return jax.tree.map(own, whole)._replace(coarser=self.build().coarser)


@functools.lru_cache(maxsize=16)
def _grid_subdomains(grid: GridSubdomains) -> Subdomains:
    boxes = _per_axis(grid.num_boxes, len(grid.grid_shape))
    hats = tuple(n + 1 for n in boxes) if grid.num_hats is None else grid.num_hats
    hats = _per_axis(hats, len(boxes))
    cover = schwarz.box_cover(grid.grid_shape, boxes, overlap=grid.overlap)
    space = schwarz.partition_hats(grid.grid_shape, hats)
    if grid.num_levels == 2:
        return Subdomains(cover, space)
    coarser = GridSubdomains(
        hats,
        tuple(number // 2 for number in boxes),
        overlap=min(grid.overlap, 1),
        num_levels=grid.num_levels - 1,
    )
    return Subdomains(cover, space, coarser.build())


@functools.lru_cache(maxsize=16)
def _split_subdomains(
    grid: GridSubdomains, devices: int, num_points: int, axis_name: str
) -> Subdomains:
    """The subdomains of all devices, one after the other."""
    cover, coarse_space, _ = _grid_subdomains(grid)
    split = schwarz.split_cover(
        cover, devices, axis_name=axis_name, points_of_device=num_points
    )
    assert coarse_space is not None
    space = schwarz.split_coarse_space(
        coarse_space, devices, axis_name=axis_name, points_of_device=num_points
    )
    return Subdomains(split.cover, space)


class MapsOfLevels(NamedTuple):
    """Functional maps of the levels, and the basis at the points, for inspection.

    Attributes:
      maps: maps of the subdomains, shape `(h, s, k, k)`.
      coarse_map: maps of the coarsest level, shape `(h, k, k)`, or `None`.
      basis: basis functions at all points, shape `(h, n, k)`; subdomains use their
        restrictions.
      coarser: those of the subdomains of the coarse functions, or `None`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> local = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> layer = nn.SubdomainAttention(
      ...     8,
      ...     attention=local,
      ...     coarse=nn.mixers.FunctionalMap,
      ...     subdomains=nn.attention.GridSubdomains((3, 3), num_boxes=2, overlap=1),
      ...     rngs=nnx.Rngs(0),
      ... )
      >>> found = layer.inspect(jnp.ones((9, 8)))
      >>> found.maps.shape, found.coarse_map.shape
      ((2, 4, 4, 4), (2, 4, 4))
    """

    maps: jax.Array
    coarse_map: jax.Array | None
    basis: jax.Array
    coarser: "MapsOfLevels | None" = None


class SubdomainAttention(nnx.Module):
    r"""Multi-head attention in a basis on overlapping subdomains and a coarse level.

    Per head, with features `f`, basis `Phi` and quadrature weights `w` (as in
    `BasisAttention`), subdomains `R_i` with partition of unity `D_i`, and coarse
    functions `H`,

        y = sum_i R_i^T D_i F_i(R_i f) + H F_0(E f),
        E f = diag(H^T w)^{-1} H^T W f.

    `F_i` is a `BasisAttention` on subdomain `i` in the basis `R_i Phi`, with weights
    `D_i R_i w`, so that overlaps count once. `F_0` is a `BasisAttention` whose points
    are the coarse functions: its features are means over them, with the offset of
    `opjax.Moments`; its weights are `H^T w`; its basis functions are evaluated at the
    averaged basis inputs. The layer is not linear in `f`: every subdomain computes its
    own coefficients and map from its values. With more than two levels, `F_0` is the
    same sum over subdomains of the coarse functions and a coarser level.

    Subdomains share their parameters, so that their number and the mesh may change. The
    inputs of the basis functions are computed once at all points: convolutional
    projections read across the borders of subdomains. The coarsest level has a separate
    mixer, and shares all other parameters with the subdomains of all levels. With one
    subdomain and without a coarse level, the layer equals its attribute `local`.

    Args:
      features: channels `c` of input and output.
      attention: constructor of the attention on a subdomain, a `BasisAttention` with a
        basis of pointwise functions: `attention(features, rngs=)`.
      coarse: constructor of the coarsest level's mixer, see `BasisAttention`; `None`
        for no coarse level.
      subdomains: subdomains of the grid that the layer is built for; `None` if they are
        passed with every call.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the subdomains have more than two levels, and the layer no coarse
        level.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> local = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> boxes = nn.attention.GridSubdomains((3, 3), num_boxes=2, overlap=1)
      >>> build = partial(nn.SubdomainAttention, attention=local, subdomains=boxes)
      >>> layer = build(8, coarse=nn.mixers.FunctionalMap, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 4-9; Köhler and Rheinbach,
      "Hierarchical Attention via Domain Decomposition", 2026, Eq. 12-18.
    """

    def __init__(
        self,
        features: int,
        *,
        attention: Callable[..., BasisAttention],
        coarse: Callable[..., Mixer] | None,
        subdomains: GridSubdomains | None = None,
        rngs: nnx.Rngs,
    ):
        if coarse is None and subdomains is not None and subdomains.num_levels > 2:
            raise ValueError(
                f"num_levels={subdomains.num_levels} has no effect without a coarse "
                "level: pass coarse."
            )
        self.local = attention(features, rngs=rngs)
        heads = self.local.num_heads
        width = self.local.out.in_features // heads
        self.coarse = (
            None if coarse is None else coarse(width, num_heads=heads, rngs=rngs)
        )
        self.subdomains = subdomains

    def __call__(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: Basis | None = None,
        basis_functions: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
        subdomains: Subdomains | None = None,
        axis_name: str | None = None,
    ) -> jax.Array:
        """Evaluates the layer on one sample.

        Args:
          x: features at the points, shape `(n, c)`.
          mesh_points: see `BasisAttention`.
          basis: the shared basis module, if the layer owns none.
          basis_functions: see `BasisAttention`.
          quadrature_weights: weights of the points, shape `(n,)`; zero masks a point,
            see `BasisAttention`.
          subdomains: those of the mesh; by default those of the layer's grid.
          axis_name: axis of `jax.shard_map` over whose devices the points of the
            layer's grid are split; all other arrays are those of a device. Each has the
            subdomains that most of their points are its own, and devices exchange
            overlaps.

        Returns:
          Features at the points, shape `(n, c)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if points do not match, or a basis or subdomains are missing, or a
            coarse space is passed to a layer without a coarse level.
        """
        _checks.layer_input(self.local.out.out_features, x=x)
        if axis_name is not None:
            subdomains = self._part(x, subdomains, quadrature_weights, axis_name, basis)
        module, inputs = self._inputs(x, basis, mesh_points, basis_functions)
        weights = self.local.weights(module, x, quadrature_weights)
        levels = self._levels(x, subdomains, weights)
        own, coarse_own = self._own()

        def head(
            own: Own,
            coarse_own: Own,
            f: jax.Array,
            shared: Any,
        ):
            def local(weights: jax.Array | None, f: jax.Array):
                return self._attend(module, own, f, shared, weights)

            def attend(levels: _Levels, f: jax.Array) -> jax.Array:
                y = schwarz.additive(
                    f, levels.cover, local, levels.local_weights, weighting="restricted"
                )
                if levels.coarse_space is None:
                    return y
                mean, weights = levels.means(f), levels.coarse_weights
                if levels.coarser is not None:
                    y0 = attend(levels.coarser, mean)
                else:
                    y0 = self._attend(
                        module, coarse_own, mean, shared, weights, self.coarse
                    )
                return y + schwarz.coarse_prolong(y0, levels.coarse_space)

            return attend(levels, f)

        heads = map_heads(
            jax.checkpoint(head, prevent_cse=False),  # as in `BasisAttention`
            own,
            coarse_own,
            *inputs,
            entries=self.local.num_heads * levels.local_weights.size * module.num_basis,
        )
        return self.local.merge(heads)

    def obstacle(self, use: Use, shared: Basis | None = None) -> str | None:
        """Returns why a use is not supported, see `nn.division`, or `None`.

        Args:
          use: the requested use.
          shared: the basis that all layers share, if any.
        """
        if use != "devices":
            return division.needs_all_points(self)
        if self.subdomains is None:
            return "subdomains that are not boxes of a grid come with the points"
        if not isinstance(self.local.choose_basis(shared).projection, nnx.Linear):
            return "convolutional projections read the points of other devices"
        return None

    def exchange(self, axis_name: str, num_points: int) -> Subdomains:
        """Returns the subdomains of one device, and its exchange with others.

        Args:
          axis_name: axis of `jax.shard_map` over whose devices points are split.
          num_points: number of points of a device.
        """
        assert self.subdomains is not None
        part = self.subdomains.part(axis_name, num_points)
        return part if self.coarse is not None else Subdomains(part.cover)

    def inspect(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: Basis | None = None,
        basis_functions: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
        subdomains: Subdomains | None = None,
    ) -> MapsOfLevels:
        """Returns the maps of all levels and the basis of a call."""
        module, inputs = self._inputs(x, basis, mesh_points, basis_functions)
        weights = self.local.weights(module, x, quadrature_weights)
        levels = self._levels(x, subdomains, weights)
        project = self.local.projection_in(module)

        def matrix(
            mixer: Mixer,
            own: Own,
            f: jax.Array,
            shared: Any,
            weights: jax.Array | None,
        ):
            values, phi = self._expand(module, f, shared, weights)
            moments = self.local.moments(module, values, phi, weights)
            return mixer.matrix(project(moments), own)

        def head(
            own: Own,
            coarse_own: Own,
            f: jax.Array,
            shared: Any,
        ):
            def local(weights: jax.Array | None, f: jax.Array):
                return matrix(self.local.mixer, own, f, shared, weights)

            def inspect(levels: _Levels, f: jax.Array) -> MapsOfLevels:
                pieces = schwarz.restrict(f, levels.cover)
                maps = jax.vmap(local)(levels.local_weights, pieces)
                _, phi = self._expand(module, f, shared, levels.weights)
                if levels.coarse_space is None:
                    return MapsOfLevels(maps, None, phi)
                mean, weights = levels.means(f), levels.coarse_weights
                if levels.coarser is not None:
                    coarser = inspect(levels.coarser, mean)
                    return MapsOfLevels(maps, coarser.coarse_map, phi, coarser)
                assert self.coarse is not None
                coarse_map = matrix(self.coarse, coarse_own, mean, shared, weights)
                return MapsOfLevels(maps, coarse_map, phi)

            return inspect(levels, f)

        return jax.vmap(head)(*self._own(), *inputs)

    def _own(self):
        """Parameters of every head, of the subdomains and of the coarsest level."""
        coarse = None if self.coarse is None else self.coarse.own()
        return self.local.mixer.own(), coarse

    def _attend(
        self,
        module: Basis,
        own: Own,
        f: jax.Array,
        shared: Any,
        weights: jax.Array | None,
        mixer: Mixer | None = None,
    ):
        values, phi = self._expand(module, f, shared, weights)
        moments = self.local.moments(module, values, phi, weights)
        mixed = self.local.coefficients(module, moments, own, mixer)
        return self.local.expansion(mixed, phi)

    def _expand(
        self, module: Basis, f: jax.Array, shared: Any, weights: jax.Array | None
    ):
        """Splits `(n, d + e)` into features and basis functions."""
        width = self.local.out.in_features // self.local.num_heads
        values, local = jnp.split(f, [width], axis=1)
        return values, module.functions(local, shared, weights)

    def _inputs(
        self,
        x: jax.Array,
        shared: Any,
        mesh_points: jax.Array | None,
        basis_functions: jax.Array | None,
    ):
        """The basis, and per head features beside `local`, `(h, n, d + e)`."""
        module = self.local.choose_basis(shared)
        if not module.pointwise:
            raise ValueError(
                f"The functions of a {type(module).__name__} depend on all points "
                "jointly and cannot be restricted to subdomains."
            )
        values, local, parameters = module.head_inputs(
            x, mesh_points=mesh_points, basis_functions=basis_functions
        )
        heads = jnp.concatenate([values, local], axis=2)
        # Without the barrier the compiler fuses the projection with what gathers its
        # values, and spends a third of the time of the layer on their indices.
        return module, (jax.lax.optimization_barrier(heads), parameters)

    def _part(
        self,
        x: jax.Array,
        subdomains: Subdomains | None,
        quadrature_weights: jax.Array | None,
        axis_name: str,
        basis: Basis | None,
    ) -> Subdomains:
        """The subdomains of a device.

        Raises:
          ValueError: if they are given, as those of no grid have to be, if features are
            convolved, or if weights are missing that do not cancel.
        """
        if subdomains is not None:
            raise ValueError(
                f"{axis_name=} applies to the boxes of the layer's own grid; for "
                "split subdomains, omit it and use schwarz.split_cover."
            )
        if reason := self.obstacle("devices", basis):
            raise ValueError(f"{axis_name=}: {reason}.")
        module = self.local.choose_basis(basis)
        if (
            quadrature_weights is None
            and self.local.weights(module, x, None) is not None
        ):
            raise ValueError(
                "Pass quadrature_weights; they may be omitted only for weighted means."
            )
        return self.exchange(axis_name, x.shape[0])

    def _levels(
        self, x: jax.Array, subdomains: Subdomains | None, weights: jax.Array | None
    ):
        if subdomains is None:
            if self.subdomains is None:
                raise ValueError(
                    "Pass the `subdomains` of the mesh, or build the layer with the "
                    "GridSubdomains of its grid."
                )
            subdomains = self.subdomains.build()
            if self.coarse is None:
                subdomains = Subdomains(subdomains.cover)
        _check(f"x {x.shape}", x.shape[0], subdomains, self.coarse is not None)
        # Equal weights that cancel are ones here.
        weights = jnp.ones(x.shape[0], x.dtype) if weights is None else weights
        return _Levels.of(subdomains, weights)


class _Levels(NamedTuple):
    """Subdomains with the weights `w` of the points, `D_i R_i w` and `H^T w`."""

    cover: Cover
    coarse_space: Cover | None
    weights: jax.Array
    local_weights: jax.Array
    coarse_weights: jax.Array | None
    coarser: "_Levels | None"

    @classmethod
    def of(cls, subdomains: Subdomains, weights: jax.Array) -> "_Levels":
        cover, coarse_space, coarser = subdomains
        column = weights[:, None]
        partition = cover.weights_as(weights.dtype)
        local = partition * schwarz.restrict(column, cover)[..., 0]
        coarse = levels = None
        if coarse_space is not None:
            coarse = schwarz.coarse_restrict(column, coarse_space)[:, 0]
            levels = None if coarser is None else cls.of(coarser, coarse)
        return cls(cover, coarse_space, weights, local, coarse, levels)

    def means(self, f: jax.Array) -> jax.Array:
        """Means of features over the coarse functions, which are sparse."""
        assert self.coarse_space is not None
        assert self.coarse_weights is not None
        weights = self.weights.astype(f.dtype)
        weighted = weights[:, None] * f
        moments = Moments(
            integrals=schwarz.coarse_restrict(weighted, self.coarse_space),
            masses=self.coarse_weights.astype(f.dtype),
            weight=total(jnp.sum(weights), self.coarse_space),
            count=total(jnp.sum(active(weights).astype(f.dtype)), self.coarse_space),
        )
        return moments.means()


def _check(
    rows: str, num_rows: int, subdomains: Subdomains, has_coarse_level: bool
) -> None:
    """Checks subdomains of `num_rows` points, which `rows` names, on all levels."""
    cover, space, coarser = subdomains
    for name, there in {"cover": cover, "coarse_space": space}.items():
        if there is not None and there.num_points != num_rows:
            raise ValueError(
                f"{rows} must have one row for each of the {there.num_points} points "
                f"of {name}."
            )
    if (space is not None) != has_coarse_level:
        raise ValueError(
            "Pass a coarse space if and only if the layer has a coarse level: "
            f"coarse_space is {'missing' if has_coarse_level else 'given'}, the "
            f"layer has {'a' if has_coarse_level else 'no'} coarse mixer."
        )
    if coarser is not None:
        if space is None:
            raise ValueError("coarser divides coarse functions: pass a coarse_space.")
        count = space.num_subdomains
        _check(f"coarse_space with {count} functions", count, coarser, True)


def _per_axis(count: int | Sequence[int], p: int) -> tuple[int, ...]:
    return (count,) * p if isinstance(count, int) else tuple(count)
