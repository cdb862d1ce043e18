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
    system: problem.System,
    local: Callable[[np.ndarray], np.ndarray],
    shift: float = 0.0,
) -> Apply:
    """Adds local operators, a coarse solve and a multiple of the identity.

    Args:
      system: the matrix and its boxes.
      local: from local values `(s, m, 1)` to local images.
      shift: the multiple.
    """
    matrix, roots, _, labels, cover = system
    ones = sparse.csr_array((roots, (np.arange(len(roots)), labels)))
    functions = problem.smoothed(matrix.__matmul__, ones)
    coarse = linalg.splu((functions.T @ matrix @ functions).tocsc())
    restrict, adjoint = _restriction(cover), functions.T.tocsr()
    prolong, shape = restrict.T.tocsr(), (*np.shape(cover.indices), 1)

    def apply(r: np.ndarray) -> np.ndarray:
        images = local((restrict @ r).reshape(shape))
        corrected = functions @ coarse.solve(adjoint @ r)
        return prolong @ images.ravel() + corrected + shift * r

    return apply


def _restriction(cover: schwarz.Cover) -> sparse.csr_array:
    """From values at points to those in subdomains, zero in padding."""
    inside = np.asarray(cover.weights) > 0
    rows, points = np.flatnonzero(inside), np.asarray(cover.indices)[inside]
    shape = inside.size, cover.num_points
    return sparse.csr_array((np.ones(len(rows)), (rows, points)), shape)


def blocks(matrix: sparse.csr_array, cover: schwarz.Cover) -> np.ndarray:
    """The matrix in the subdomains, zero in padding, shape `(s, m, m)`."""
    s, m = np.shape(cover.indices)
    restrict = _restriction(cover)
    found = sparse.coo_array(restrict @ matrix)
    # Places of points in subdomains, by subdomain and point.
    own = restrict.tocoo()
    keys, wanted = (
        x.row // m * cover.num_points + x.col.astype(int) for x in (own, found)
    )
    order = np.argsort(keys)
    place = order[np.searchsorted(keys[order], wanted).clip(max=len(keys) - 1)]
    kept = keys[place] == wanted
    out = np.zeros((s * m, m))
    out[found.row[kept], own.row[place[kept]] % m] = found.data[kept]
    return out.reshape(s, m, m)


def local_inverses(system: problem.System) -> np.ndarray:
    """Exact inverses in the subdomains, zero in padding, shape `(s, m, m)`."""
    outside = np.asarray(system.cover.weights) == 0
    inverses = blocks(system.matrix, system.cover)
    identity = np.eye(outside.shape[1]) * outside[:, None]
    inverses = np.linalg.inv(inverses + identity)
    return inverses - identity


def classical(system: problem.System) -> Iterator[tuple[str, Callable[[], Apply]]]:
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
