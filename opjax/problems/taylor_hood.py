r"""Steady Navier-Stokes equations on a structured mesh of quadrilaterals, on the host.

    (u . grad) u + grad p = viscosity Laplace u + force,    div u = 0,

with velocity given on three sides of a deformed square and, on the fourth, `viscosity
du/dn = p n`. Velocity is biquadratic and pressure bilinear on every element; its nine
nodes may lie on curves. The solver is Newton's method with one sparse direct solve per
step.
"""

import functools
from typing import NamedTuple

import numpy as np

_GAUSS_POINTS = 4  # a direction: convection of biquadratics on parallelograms is exact
_LEAF = 150  # unknowns that nested dissection leaves together


class SteadyFlow(NamedTuple):
    """Solution at the nodes of `n x m` biquadratic elements.

    Attributes:
      mesh_points: coordinates, shape `(2 n + 1, 2 m + 1, 2)`.
      velocity: velocity, with the same shape.
      pressure: pressure, shape `(2 n + 1, 2 m + 1)`, bilinear between the corners of
        elements.
      num_iterations: number of Newton steps.
      residual: residual of the discrete equations, relative to that of the initial
        velocity without pressure.
    """

    mesh_points: np.ndarray
    velocity: np.ndarray
    pressure: np.ndarray
    num_iterations: int
    residual: float


def newton(
    mesh_points: np.ndarray,
    velocity: np.ndarray,
    *,
    viscosity: float,
    force: np.ndarray | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 20,
) -> SteadyFlow:
    """Solves for velocity and pressure.

    Args:
      mesh_points: nodes of `n x m` elements, shape `(2 n + 1, 2 m + 1, 2)`; the axes of
        indices and coordinates must have the same orientation.
      velocity: initial guess, with the same shape. Its values are kept at the first
        entry of the first axis and at both ends of the second axis.
      viscosity: kinematic viscosity.
      force: force at the nodes, with the same shape; zero by default.
      tolerance: maximum residual, see `SteadyFlow`.
      max_iterations: maximum number of Newton steps.

    Returns:
      The flow.

    Raises:
      RuntimeError: if the residual does not fall below the tolerance.
      ValueError: if shapes do not match, or an element is inverted.
    """
    expected = "(2 n + 1, 2 m + 1, 2)"
    shape = mesh_points.shape
    if len(shape) != 3 or shape[2] != 2 or not (shape[0] % 2 and shape[1] % 2):
        raise ValueError(f"mesh_points has shape {shape}, expected {expected}.")
    if velocity.shape != shape or (force is not None and force.shape != shape):
        raise ValueError(
            f"mesh_points has shape {shape}, velocity has shape {velocity.shape} "
            f"and force has shape {None if force is None else force.shape}, "
            f"expected {expected} for all."
        )
    layout = _layout(shape[0] // 2, shape[1] // 2)
    elements = _Elements(mesh_points.reshape(-1, 2)[layout.nodes], viscosity)
    load = 0.0
    if force is not None:
        load = elements.load(force.reshape(-1, 2)[layout.nodes])
    u = np.array(velocity, np.float64).reshape(-1, 2)
    p = np.zeros(layout.num_corners)
    first = size = 0.0
    iteration = 0
    while True:
        local, matrix = elements.linearize(u[layout.nodes], p[layout.corners])
        right = layout.vector(local - load)
        size = float(np.linalg.norm(right))
        first = first or size or 1.0
        if not size > tolerance * first or iteration == max_iterations:
            break
        step = layout.solve(matrix, right)
        u -= step[: u.size].reshape(2, -1).T
        p -= step[u.size :]
        iteration += 1
    if not size <= tolerance * first:
        raise RuntimeError(
            f"Newton's method left a residual of {size / first:.1e} after {iteration} "
            f"steps, above {tolerance=}; use a larger viscosity or more elements."
        )
    pressure = _refine(_refine(p.reshape(layout.corner_shape)).T).T
    return SteadyFlow(mesh_points, u.reshape(shape), pressure, iteration, size / first)


class _Elements:
    """Integrals over all elements; local unknowns are 9 of each velocity, 4 of p."""

    def __init__(self, nodes: np.ndarray, viscosity: float):
        values, slopes, self.bilinear, weights = _reference()
        jacobian = np.einsum("eix,qid->eqxd", nodes, slopes)
        determinant = np.linalg.det(jacobian)
        if determinant.min() <= 0:
            raise ValueError(
                f"{np.sum(determinant.min(axis=1) <= 0)} of {len(nodes)} elements "
                "are inverted; deform the mesh less, or swap its axes."
            )
        self.values, self.weights = values, weights * determinant
        # (elements, 2, quadrature points, nodes)
        self.gradients = np.einsum(
            "qid,eqdx->exqi", slopes, np.linalg.inv(jacobian), optimize=True
        )
        weighted = self.gradients * self.weights[:, None, :, None]
        self.diffusion = viscosity * np.sum(
            np.swapaxes(self.gradients, 2, 3) @ weighted, axis=1
        )
        self.divergence = self.bilinear.T @ weighted  # (elements, 2, 4, 9)

    def load(self, force: np.ndarray) -> np.ndarray:
        """Integrals of the force, `(elements, 22)`."""
        at_points = (self.values @ force) * self.weights[:, :, None]
        moments = np.swapaxes(self.values.T @ at_points, 1, 2)
        return np.pad(moments.reshape(len(force), -1), ((0, 0), (0, 4)))

    def linearize(self, u: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals `(elements, 22)` and their derivatives `(elements, 22, 22)`.

        Args:
          u: velocity at the nodes, `(elements, 9, 2)`.
          p: pressure at the corners, `(elements, 4)`.
        """
        wind = self.values @ u  # (elements, quadrature points, 2)
        slopes = self.gradients @ u[:, None]  # d u_b / d x_a at [e, a, q, b]
        along = np.einsum("eqa,eaqi->eqi", wind, self.gradients)
        weighted = self.values.T * self.weights[:, None, :]  # (elements, 9, points)
        transport = self.diffusion + weighted @ along
        momentum = np.swapaxes(transport @ u, 1, 2)
        momentum -= np.einsum("exci,ec->exi", self.divergence, p)
        mass = -np.einsum("exci,eix->ec", self.divergence, u)
        residual = np.concatenate([momentum.reshape(len(u), -1), mass], axis=1)
        matrix = np.zeros((len(u), 22, 22))
        for a in range(2):
            rows = slice(9 * a, 9 * a + 9)
            for b in range(2):
                columns = slice(9 * b, 9 * b + 9)
                reaction = weighted * slopes[:, b, None, :, a]
                matrix[:, rows, columns] = reaction @ self.values
            matrix[:, rows, rows] += transport
            matrix[:, 18:, rows] = -self.divergence[:, a]
            matrix[:, rows, 18:] = -np.swapaxes(self.divergence[:, a], 1, 2)
        return residual, matrix


class _Layout:
    """Numbering of the unknowns, and where their local matrices go."""

    def __init__(self, n: int, m: int):
        self.corner_shape = (n + 1, m + 1)
        self.num_corners = (n + 1) * (m + 1)
        self.nodes = _blocks(2 * n + 1, 2 * m + 1, step=2, size=3)
        self.corners = _blocks(n + 1, m + 1, step=1, size=2)
        count = (2 * n + 1) * (2 * m + 1)
        i, j = np.indices((2 * n + 1, 2 * m + 1)).reshape(2, -1)
        fixed = (i == 0) | (j == 0) | (j == 2 * m)
        at_corners = 2 * np.indices(self.corner_shape).reshape(2, -1)
        places = np.concatenate([[i, j], [i, j], at_corners], axis=1)
        free = np.concatenate([~fixed, ~fixed, np.ones(self.num_corners, bool)])
        unknowns = np.flatnonzero(free)
        is_pressure = unknowns >= 2 * count
        self.order = unknowns[_dissection(places[:, unknowns], is_pressure)]
        self.size = len(free)
        number = np.full(self.size, -1)
        number[self.order] = np.arange(len(self.order))
        local = [self.nodes, self.nodes + count, self.corners + 2 * count]
        self.local = np.concatenate(local, axis=1)  # global unknowns of the elements
        rows, columns = np.broadcast_arrays(
            number[self.local][:, :, None], number[self.local][:, None, :]
        )
        self.kept = (rows >= 0) & (columns >= 0)
        key = columns[self.kept] * len(self.order) + rows[self.kept]
        entries, self.entry = np.unique(key, return_inverse=True)
        self.indices = (entries % len(self.order)).astype(np.int32)
        starts = np.arange(len(self.order) + 1) * len(self.order)
        self.indptr = np.searchsorted(entries, starts).astype(np.int32)

    def vector(self, local: np.ndarray) -> np.ndarray:
        """Sums local vectors; in the order of the elimination."""
        return np.bincount(self.local.ravel(), local.ravel(), self.size)[self.order]

    def solve(self, local: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Solves with the sum of local matrices; all unknowns, zero where fixed."""
        from scipy import sparse
        from scipy.sparse import linalg  # slow to import

        data = np.bincount(self.entry, local[self.kept], len(self.indices))
        shape = (len(self.order), len(self.order))
        matrix = sparse.csc_array((data, self.indices, self.indptr), shape)
        # Pressure comes after the velocity around it, which fills its zero diagonal:
        # without exchanging rows there is a third of the fill.
        factors = linalg.splu(
            matrix,
            permc_spec="NATURAL",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        solution = factors.solve(right)
        solution += factors.solve(right - matrix @ solution)
        step = np.zeros(self.size)
        step[self.order] = solution
        return step


_layout = functools.lru_cache(maxsize=4)(_Layout)


def _blocks(rows: int, columns: int, *, step: int, size: int) -> np.ndarray:
    """Point indices of the elements of a grid, `(elements, size * size)`."""
    index = np.arange(rows * columns).reshape(rows, columns)
    windows = np.lib.stride_tricks.sliding_window_view(index, (size, size))
    return windows[::step, ::step].reshape(-1, size * size)


def _dissection(places: np.ndarray, is_pressure: np.ndarray) -> np.ndarray:
    """Nested dissection: both halves of the grid before the line between them."""

    def divide(chosen: np.ndarray) -> list[np.ndarray]:
        spans = np.ptp(places[:, chosen], axis=1)
        along = places[np.argmax(spans), chosen]
        middle = 2 * int(np.median(along) // 2)  # a line between elements
        inside = along.min() < middle < along.max()
        if len(chosen) <= _LEAF or not inside:
            return [chosen[np.argsort(is_pressure[chosen], kind="stable")]]
        line = chosen[along == middle]
        last = line[np.argsort(is_pressure[line], kind="stable")]
        return [*divide(chosen[along < middle]), *divide(chosen[along > middle]), last]

    return np.concatenate(divide(np.arange(places.shape[1])))


def _reference() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Biquadratics, their slopes, bilinears and weights at the Gauss points."""
    points, weights = np.polynomial.legendre.leggauss(_GAUSS_POINTS)
    s = (points + 1) / 2
    quadratic = np.stack([(1 - s) * (1 - 2 * s), 4 * s * (1 - s), s * (2 * s - 1)], 1)
    slope = np.stack([4 * s - 3, 4 - 8 * s, 4 * s - 1], 1)
    linear = np.stack([1 - s, s], 1)
    slopes = np.stack([np.kron(slope, quadratic), np.kron(quadratic, slope)], -1)
    values, bilinear = np.kron(quadratic, quadratic), np.kron(linear, linear)
    return values, slopes, bilinear, np.kron(weights, weights) / 4


def _refine(values: np.ndarray) -> np.ndarray:
    """Inserts the mean of neighbours along the first axis."""
    fine = np.repeat(values, 2, axis=0)[:-1]
    fine[1::2] = (values[:-1] + values[1:]) / 2
    return fine
