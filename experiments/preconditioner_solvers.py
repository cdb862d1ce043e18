"""Conjugate gradients and untrained preconditioners, in double precision."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from experiments import preconditioner_problem as problem
from opjax import schwarz

TOLERANCE = 1e-8
MAX_ITERATIONS = 2000

Apply = Callable[[np.ndarray], np.ndarray]


class System(NamedTuple):
    """A matrix with the boxes of its Schwarz operators.

    Attributes:
      flow: its entries.
      matrix: the scaled matrix, shape `(n, n)`.
      boxes: number of boxes along a side.
      cover: the boxes, with entries of padding zero.
    """

    flow: problem.Flow
    matrix: sparse.csr_array
    boxes: int
    cover: schwarz.Cover

    @property
    def roots(self) -> np.ndarray:
        """Roots of the diagonal before scaling, shape `(n,)`."""
        return np.asarray(self.flow.roots).ravel()


class Solved(NamedTuple):
    """What one solve needed.

    Attributes:
      iterations: of conjugate gradients.
      residual: norm of f - A u over that of f, recomputed from u.
      seconds: of the processor, for the iterations.
      setup: the same for setting up the preconditioner a second time: the first
        compiles, and fills caches.
    """

    iterations: int
    residual: float
    seconds: float
    setup: float


def matrix_of(flow: problem.Flow) -> sparse.csr_array:
    """The scaled matrix of a flow."""
    size = len(flow.east)
    east, south = (np.asarray(x, float).ravel() for x in flow[:2])
    lines = [south[:-size], east[:-1], np.ones(size**2), east[:-1], south[:-size]]
    offsets: Any = [-size, -1, 0, 1, size]
    return sparse.diags_array(lines, offsets=offsets).tocsr()


def solve(
    matrix: sparse.csr_array, right: np.ndarray, make: Callable[[], Apply]
) -> Solved:
    """Solves by flexible conjugate gradients: preconditioners may be unsymmetric."""
    make()
    start = time.process_time()
    precondition = make()
    setup = time.process_time() - start
    start = time.process_time()
    u, residual = np.zeros_like(right), right
    z = precondition(residual)
    direction, product = z, residual @ z
    count = 0
    while count < MAX_ITERATIONS:
        count += 1
        image = matrix @ direction
        step = product / (direction @ image)
        u, earlier = u + step * direction, residual
        residual = residual - step * image
        if np.linalg.norm(residual) <= TOLERANCE * np.linalg.norm(right):
            break
        z = precondition(residual)
        before, product = product, residual @ z
        direction = z + (product - z @ earlier) / before * direction
    seconds = time.process_time() - start
    true = np.linalg.norm(right - matrix @ u) / np.linalg.norm(right)
    return Solved(count, float(true), seconds, setup)


def two_level(
    system: System, local: Callable[[np.ndarray], np.ndarray], shift: float = 0.0
) -> Apply:
    """Adds local operators, a coarse solve and a multiple of the identity.

    Args:
      system: the matrix and its boxes.
      local: from local values `(s, m, 1)` to local images.
      shift: the multiple.
    """
    _, matrix, boxes, cover = system
    roots = system.roots
    labels = problem.parts(boxes, int(len(roots) ** 0.5) // boxes)
    ones = sparse.csr_array((roots, (np.arange(len(roots)), labels)))
    functions = problem.smoothed(matrix.__matmul__, ones)
    coarse = linalg.splu((functions.T @ matrix @ functions).tocsc())
    inside = np.asarray(cover.weights) > 0
    rows, points = np.flatnonzero(inside), np.asarray(cover.indices)[inside]
    shape = inside.size, len(roots)
    gather = sparse.csr_array((np.ones(len(rows)), (rows, points)), shape)
    scatter, adjoint = gather.T.tocsr(), functions.T.tocsr()

    def apply(r: np.ndarray) -> np.ndarray:
        images = local((gather @ r).reshape(*inside.shape, 1))
        corrected = functions @ coarse.solve(adjoint @ r)
        return scatter @ images.ravel() + corrected + shift * r

    return apply


def local_inverses(system: System) -> np.ndarray:
    """Exact inverses in the boxes, zero in padding, shape `(s, m, m)`."""
    flow, cover = system.flow, system.cover
    indices, inside = np.asarray(cover.indices), np.asarray(cover.weights) > 0
    east, south = (np.asarray(x, float).ravel()[indices] for x in flow[:2])
    step = indices[:, None] - indices[:, :, None]
    upper = np.where(step == 1, east[:, :, None], 0)
    upper += np.where(step == len(flow.east), south[:, :, None], 0)
    both = inside[:, :, None] & inside[:, None]
    blocks = np.where(both, upper + upper.swapaxes(1, 2), 0) + np.eye(indices.shape[1])
    return np.linalg.inv(blocks) * both


def classical(system: System) -> Iterator[tuple[str, Callable[[], Apply]]]:
    """Yields names of preconditioners and what sets them up."""
    matrix = system.matrix

    def schwarz_of_two_levels(power: float) -> Apply:
        weights = np.asarray(system.cover.weights) ** power
        inverses = local_inverses(system) * weights[:, :, None]
        inverses *= weights[:, None]
        return two_level(system, inverses.__matmul__)

    def incomplete(drop: float) -> Apply:
        return linalg.spilu(
            matrix.tocsc(),
            drop_tol=drop,
            diag_pivot_thresh=0,
            permc_spec="MMD_AT_PLUS_A",
            options={"SymmetricMode": True},
        ).solve

    yield "diagonal", lambda: lambda r: r
    yield "two-level Schwarz", lambda: schwarz_of_two_levels(0)
    yield "two-level Schwarz, weighted", lambda: schwarz_of_two_levels(0.5)
    yield "incomplete LU", lambda: incomplete(1e-2)
    amg: Any = _pyamg()
    if amg is not None:
        make = amg.smoothed_aggregation_solver
        scaled = sparse.csr_matrix(matrix)
        yield (
            "algebraic multigrid",
            lambda: make(scaled, B=system.roots[:, None]).aspreconditioner().matvec,
        )


def _pyamg() -> Any:
    """The library, if it is there."""
    try:
        import pyamg  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return pyamg
