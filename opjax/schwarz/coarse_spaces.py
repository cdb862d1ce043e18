"""Coarse spaces from given functions, and operator-dependent ones."""

from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax import _checks
from opjax.schwarz.boxes import interface_hats, interval_starts
from opjax.schwarz.covers import Cover, padded
from opjax.schwarz.meshes import checked_labels


def coarse_space_of(basis: Float[ArrayLike, "n n0"]) -> Cover:
    """Returns the coarse space of given functions, such as hats at points of a cloud.

    Args:
      basis: values of the functions at the points, shape `(n, n0)`, such as
        `opjax.hat_basis(mesh_points, num_nodes=4)`; only nonzero values are stored.

    Returns:
      The coarse space with `n0` functions.

    Raises:
      TypeError: if the basis is not floating point.
      ValueError: if it does not have two axes, or a function is zero at all points.

    Examples:
      >>> import numpy as np
      >>> import opjax
      >>> from opjax import schwarz
      >>> mesh_points = np.linspace(0, 1, 9)[:, None]
      >>> hats = schwarz.coarse_space_of(opjax.hat_basis(mesh_points, num_nodes=3))
      >>> hats.num_subdomains, hats.num_points
      (3, 9)
    """
    _checks.on_host(basis=basis)
    values = np.asarray(basis)
    _checks.floating(basis=values)
    _checks.rank(2, basis=values)
    supports = [np.flatnonzero(column) for column in values.T]
    empty = [number for number, support in enumerate(supports) if not support.size]
    if empty or not supports:
        raise ValueError(
            f"basis {values.shape}: functions {empty[:8]} are zero at all points; "
            "remove them."
        )
    on_supports = [
        column[support] for column, support in zip(values.T, supports, strict=True)
    ]
    return padded(supports, on_supports, num_points=len(values))


def harmonic_hats(coefficient: Float[ArrayLike, " e"], num_boxes: int) -> Cover:
    r"""Returns hats on interfaces of an interval, with `(a phi')' = 0` between them.

    Their maxima are those of `interface_hats`. Between maxima they are linear in the
    resistance `sum 1 / a` instead of the distance; for constant `a` both are the same.
    The Galerkin solution of `-(a u')' = f` in their span is exact at the maxima.

    Args:
      coefficient: positive values `a` between neighbouring points and at both ends,
        shape `(e,)`, one more than the number of points.
      num_boxes: number of intervals, at least two.

    Returns:
      The coarse space with `num_boxes - 1` functions.

    Raises:
      TypeError: if the coefficient is not floating point.
      ValueError: if it is not positive, or there are fewer than two intervals or more
        than points.

    Examples:
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> coefficient = np.array([1.0, 1, 1, 1, 9, 9, 9, 9])  # stiff on the right
      >>> hats = schwarz.harmonic_hats(coefficient, 2)
      >>> hats.weights.round(2).tolist()
      [[0.24, 0.49, 0.73, 0.97, 1.0, 0.67, 0.33]]

    References:
      Dohrmann, Klawonn and Widlund, "Domain decomposition for less regular subdomains:
      overlapping Schwarz in two dimensions", SIAM J. Numer. Anal. 46, 2008.
    """
    coefficient = np.asarray(coefficient)
    _checks.floating(coefficient=coefficient)
    if coefficient.ndim != 1 or not np.all(coefficient > 0):
        raise ValueError(
            f"coefficient has shape {coefficient.shape} and minimum "
            f"{coefficient.min(initial=np.inf)}; expected (n + 1,), all positive."
        )
    size = len(coefficient) - 1
    interface_hats(size, num_boxes)  # refuses numbers that do not fit
    peaks = interval_starts(size, num_boxes)[1:-1]
    # Entry i + 1 is that of point i; the first and the last are those of the ends.
    resistance = np.cumsum(np.append(0, 1 / coefficient.astype(float)))
    nodes = np.concatenate([[-1], peaks, [size]])
    supports, values = [], []
    for left, peak, right in zip(nodes, nodes[1:], nodes[2:], strict=False):
        points = np.arange(left + 1, right)
        ends = resistance[[left + 1, peak + 1, right + 1]]
        supports.append(points)
        values.append(np.interp(resistance[points + 1], ends, [0, 1, 0]))
    return padded(supports, values, num_points=size)


def smoothed_aggregates(
    labels: Int[ArrayLike, " n"], matrix: Any, *, num_steps: int
) -> Cover:
    r"""Returns the parts of a partition, smoothed by damped Jacobi steps.

        phi_i = (I - (2/3) diag(A)^{-1} A)^num_steps 1_i,

    where `1_i` is one on part `i`. Each step extends the supports by one layer of
    neighbours. Away from the boundary the functions are a partition of unity.

    Args:
      labels: index of the part of every point, from zero, shape `(n,)`.
      matrix: sparse matrix `A` with positive diagonal and no positive off-diagonal
        entry, such as that of linear elements on a Delaunay mesh, shape `(n, n)`.
      num_steps: number of steps; zero returns the parts themselves.

    Returns:
      The coarse space with one function per part.

    Raises:
      TypeError: if labels are not integers.
      ValueError: if shapes do not match, labels are negative or skip a number, an entry
        has the wrong sign, or `num_steps` is negative.

    Examples:
      >>> import numpy as np
      >>> from scipy.sparse import diags_array
      >>> from opjax import schwarz
      >>> matrix = diags_array([-1.0, 2, -1], offsets=[-1, 0, 1], shape=(6, 6))
      >>> labels = np.array([0, 0, 0, 1, 1, 1])
      >>> space = schwarz.smoothed_aggregates(labels, matrix, num_steps=1)
      >>> space.sizes.tolist()  # parts of three points, and a neighbour
      [4, 4]

    References:
      Vanek, Mandel and Brezina, "Algebraic multigrid by smoothed aggregation for second
      and fourth order elliptic problems", Computing 56, 1996.
    """
    from scipy.sparse import coo_array, csr_array, diags_array

    labels, matrix = checked_labels(labels), csr_array(matrix)
    _checks.non_negative(num_steps=num_steps)
    size = len(labels)
    if matrix.shape != (size, size):
        raise ValueError(
            f"matrix has shape {matrix.shape}, expected {(size, size)} for {size} "
            "labels."
        )
    diagonal = matrix.diagonal()
    beside = matrix - diags_array(diagonal)
    # Rounding leaves entries of right angles on either side of zero.
    if diagonal.min() <= 0 or beside.max() > 1e-12 * diagonal.max():
        raise ValueError(
            "matrix needs a positive diagonal (its minimum is "
            f"{diagonal.min():.3g}) and no positive off-diagonal entry (the "
            f"maximum is {beside.max():.3g})."
        )
    functions = coo_array((np.ones(size), (np.arange(size), labels))).tocsr()
    step = diags_array(-2 / 3 / diagonal) @ beside
    step.data = np.maximum(step.data, 0)
    for _ in range(num_steps):
        functions = functions / 3 + step @ functions
    columns = functions.tocsc()
    columns.sort_indices()
    columns.eliminate_zeros()
    ends = columns.indptr[1:-1]
    supports, values = (np.split(x, ends) for x in (columns.indices, columns.data))
    return padded(supports, values, num_points=size)
