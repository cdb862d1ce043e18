"""The functions of a design and their derivatives, compiled and evaluated together."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax._trees import PyTree
from opjax.design._variables import Layout, unpack

Function = Callable[[Any], Any]  # of a case
_FIRST = 0.25  # length of the first step, in widths of the bounds
_MARGIN = 1e-4  # of the trust region, that the optimiser does not use: rounding


class Functions(NamedTuple):
    """What a design is compiled for; see `minimise`."""

    objective: Function
    case: Callable[..., Any] | None
    band: Function | None
    unlikeness: Function | None
    quantities: tuple[Function, ...]
    volumes: Function | None
    layout: Layout

    def at(
        self, units: ArrayLike, low: ArrayLike, width: ArrayLike, constants: PyTree
    ) -> PyTree:
        """Returns the case of a unit vector."""
        variables = unpack(self.layout, low + units * width)
        if self.case is None:
            return variables
        more = () if constants is None else (constants,)
        return self.case(variables, *more)


@functools.lru_cache(maxsize=8)
def _compiled(functions: Functions) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Derivatives of the terms of a design, and the volumes of its cells."""

    def terms(
        units: jax.Array,
        low: ArrayLike,
        width: ArrayLike,
        constants: PyTree,
        *numbers: PyTree,
    ) -> tuple[jax.Array, PyTree]:
        weight, limit, values = numbers
        at = functions.at(units, low, width, constants)
        value = _scalar("objective", functions.objective, at)
        band = unlike = jnp.zeros_like(value)
        if functions.band is not None:
            band = _scalar("band", functions.band, at)
        if functions.unlikeness is not None:
            unlike = _scalar("unlikeness", functions.unlikeness, at)
        reached = [_scalar("quantity to reach", q, at) for q in functions.quantities]
        gaps = [found - v for found, v in zip(reached, values, strict=True)]
        room = limit - _MARGIN * (1 + abs(limit)) - unlike
        rows = jnp.stack([value + weight * band, room, *gaps])
        return rows, (rows, (value, band, unlike, *reached))

    def volumes(
        units: jax.Array,
        low: ArrayLike,
        width: ArrayLike,
        constants: PyTree,
        *_: PyTree,
    ) -> jax.Array:
        assert functions.volumes is not None
        return functions.volumes(functions.at(units, low, width, constants))

    return jax.jit(jax.jacrev(terms, has_aux=True)), jax.jit(volumes)


class Evaluated(NamedTuple):
    """Values and gradients of the objective and the constraints, one row each.

    They are scaled by the norms of the first gradients.
    """

    values: np.ndarray
    slopes: np.ndarray
    numbers: tuple[float, ...]  # value, band, unlikeness, quantities to reach


class Terms:
    """All functions of a design and their derivatives, evaluated together, once."""

    def __init__(self, functions: Functions, given: tuple[Any, ...]):
        self.constraints = [(1, "ineq")] if functions.unlikeness is not None else []
        self.constraints += [(2 + i, "eq") for i in range(len(functions.quantities))]
        self._slopes, _ = _compiled(functions)
        self._given = jax.tree.map(_array, given)
        self._scales: np.ndarray | None = None
        self._last: tuple[bytes, Evaluated] | None = None

    def __call__(self, units: np.ndarray, number: int) -> Evaluated:
        key = units.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self._evaluate(units, number)
        return self._last[1]

    def _evaluate(self, units: np.ndarray, number: int) -> Evaluated:
        found, (rows, numbers) = self._slopes(_array(units), *self._given)
        slopes, values = (np.asarray(a, np.float64) for a in (found, rows))
        if not (np.isfinite(slopes).all() and np.isfinite(values).all()):
            raise ValueError(
                f"step {number}: a value or a derivative is not finite. Use quantities "
                "that are differentiable between the bounds."
            )
        if self._scales is None:
            sizes = np.linalg.norm(slopes, axis=1)
            if sizes[0] == 0:
                raise ValueError(
                    "The derivative of the objective is zero at the start: it does not "
                    "depend on the variables, or it is not differentiable."
                )
            self._scales = np.where(sizes > 0, sizes, 1)
            self._scales[0] /= _FIRST
        scales = self._scales
        said = tuple(map(float, numbers))
        return Evaluated(values / scales, slopes / scales[:, None], said)


class Cells:
    """Volumes of the cells of a mesh, compared with those at the start."""

    def __init__(self, functions: Functions, given: tuple[Any, ...]):
        _, self._volumes = _compiled(functions)
        self._given = jax.tree.map(_array, given)
        self._first: np.ndarray | None = None

    def smallest(self, units: np.ndarray, number: int) -> float:
        """Returns the smallest ratio; raises ValueError where a cell is turned over."""
        found = self._volumes(_array(units), *self._given)
        volumes = np.asarray(found, np.float64)
        if self._first is None:
            self._first = volumes
        ratios = volumes / self._first
        if turned := int(np.sum(~(ratios > 0))):
            raise ValueError(
                f"step {number}: the shape folds the mesh, {turned} of {len(ratios)} "
                "cells are turned over. Use narrower bounds for the shape, or a larger "
                "radius."
            )
        return float(ratios.min())


def _array(values: ArrayLike) -> jax.Array:
    """An array of JAX; numbers of NumPy in JAX' default precision."""
    if isinstance(values, jax.Array):
        return values
    found = np.asarray(values)
    real = np.issubdtype(found.dtype, np.floating)
    return jnp.asarray(found, float if real else found.dtype)


def _scalar(name: str, function: Function, case: PyTree) -> jax.Array:
    found = jnp.asarray(function(case))
    if found.shape != () or not jnp.issubdtype(found.dtype, jnp.floating):
        raise ValueError(
            f"The {name} is {found.dtype} of shape {found.shape}, expected a "
            "floating-point scalar."
        )
    return found
