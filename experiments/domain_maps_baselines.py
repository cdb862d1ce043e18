"""Transfers between cells without training."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy import interpolate

import opjax
from experiments.domain_maps_problem import Cell
from opjax.linalg import Additive
from opjax.point_clouds import nearest_points
from opjax.projection import LeastSquares

_NEIGHBOURS = 32
_DEGREE = 10  # of polynomials: 66 basis functions
_PROBE_DEGREE = 3

Transfer = Callable[[Cell, Cell], np.ndarray]
Coordinates = Callable[[Cell], np.ndarray]


def methods(num_probes: int) -> Iterator[tuple[str, Transfer]]:
    """Yields names and transfers of the values of one cell to another."""
    kinds: dict[str, Coordinates] = {
        "same coordinates": lambda cell: np.asarray(cell.points),
        "exact map": lambda cell: np.asarray(cell.reference),
    }
    for name, at in kinds.items():
        yield f"nearest point, {name}", partial(nearest, at=at)
        yield f"thin plates, {name}", partial(thin_plates, at=at)
    if num_probes:
        probes = partial(_probes, num_probes=num_probes)
        yield "radial functions of the probes", partial(radial, at=probes)
        yield (
            "functional map, polynomials",
            partial(polynomial_map, num_probes=num_probes),
        )


def _probes(cell: Cell, num_probes: int) -> np.ndarray:
    return np.asarray(cell.descriptors)[:, -num_probes:]


def nearest(source: Cell, target: Cell, at: Coordinates) -> np.ndarray:
    """The value of the nearest point."""
    return np.asarray(source.values)[np.asarray(nearest_points(at(target), at(source)))]


def thin_plates(source: Cell, target: Cell, at: Coordinates) -> np.ndarray:
    """Interpolation of the nearest points by thin-plate splines."""
    return _interpolated(source, target, at, "thin_plate_spline")


def radial(source: Cell, target: Cell, at: Coordinates) -> np.ndarray:
    """Interpolation of the nearest points by distances, in any dimension."""
    return _interpolated(source, target, at, "linear")


def _interpolated(
    source: Cell, target: Cell, at: Coordinates, kernel: str
) -> np.ndarray:
    count = min(_NEIGHBOURS, len(source.values))
    interpolant = interpolate.RBFInterpolator(
        at(source), source.values, neighbors=count, kernel=kernel
    )
    return interpolant(at(target))


def polynomial_map(source: Cell, target: Cell, num_probes: int) -> np.ndarray:
    """A functional map in polynomials of the coordinates, fitted to the probes.

    The corresponding functions are monomials of the probes.
    """

    def basis(cell: Cell) -> np.ndarray:
        x, y = 2 * np.asarray(cell.descriptors)[:, :2].T
        return legendre(x, y, _DEGREE)

    moved = opjax.functional_attention(
        monomials(_probes(target, num_probes)),
        monomials(_probes(source, num_probes)),
        source.values,
        basis(target),
        basis(source),
        ridge=Additive(1e-6, relative=True),
        query_weights=target.weights,
        key_weights=source.weights,
        projection=LeastSquares(1e-6, relative=True),
    )
    return np.asarray(moved)


def monomials(values: np.ndarray) -> np.ndarray:
    """Products of at most three columns, with repetition, shape `(n, d)`."""
    columns = np.concatenate([np.ones_like(values[:, :1]), values], axis=1)
    chosen = itertools.combinations_with_replacement(
        range(columns.shape[1]), _PROBE_DEGREE
    )
    return np.stack([columns[:, list(one)].prod(axis=1) for one in chosen], axis=1)


def legendre(x: np.ndarray, y: np.ndarray, degree: int) -> np.ndarray:
    """Products of Legendre polynomials of total degree up to `degree`, `(n, k)`."""
    in_x, in_y = (np.polynomial.legendre.legvander(z, degree) for z in (x, y))
    first, second = np.nonzero(np.add.outer(*[np.arange(degree + 1)] * 2) <= degree)
    return in_x[:, first] * in_y[:, second]
