"""Right-hand sides on the L-shaped domain, solutions on a fine mesh, and errors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments import adaptivity_mesh as meshes
from experiments.adaptivity_mesh import Mesh
from experiments.studies import TEST_SEED
from opjax.problems import poisson, poisson_mesh

_NEAR = 0.1  # of the corner


class Truth(NamedTuple):
    """Solutions of unseen right-hand sides on a fine mesh.

    Attributes:
      mesh: the fine mesh, of `n` nodes.
      solutions: of the functions of `modes_at`, shape `(n, k)`.
      train: coefficients of the training's right-hand sides, shape `(k, b)`.
      test: coefficients of the unseen ones.
      stiffness: sparse, `(n, n)`.
      mass: sparse, `(n, n)`.
      at: matrices of `meshes.interpolation` at other points.
    """

    mesh: Mesh
    solutions: np.ndarray
    train: np.ndarray
    test: np.ndarray
    stiffness: Any
    mass: Any
    at: Callable[[np.ndarray], Any]

    def errors(self, values: np.ndarray) -> dict[str, float]:
        """Mean relative errors of values at the nodes: `l2`, and `h1` of gradients."""
        errors, exact = dict[str, float](), self.solutions @ self.test
        for name, matrix in (("l2", self.mass), ("h1", self.stiffness)):
            squares = [
                np.sum(v * (matrix @ v), axis=0) for v in (values - exact, exact)
            ]
            errors[name] = float(np.mean(np.sqrt(squares[0] / squares[1])))
        return errors


def make_truth(
    base: Mesh, diameter: float, *, num_modes: int, num_train: int, num_test: int
) -> Truth:
    """Solves on a mesh that is graded to the corner."""
    mesh = meshes.graded(base, diameter)
    modes = modes_at(mesh[0], num_modes)
    rng = np.random.default_rng(TEST_SEED)
    train, test = (
        np.concatenate([np.ones((1, n)), rng.normal(size=(modes.shape[1] - 1, n))])
        for n in (num_train, num_test)
    )
    matrices = *poisson_mesh.assemble(*mesh), meshes.interpolation(mesh)
    return Truth(mesh, meshes.solve(mesh, modes), train, test, *matrices)


def modes_at(points: np.ndarray, num_modes: int) -> np.ndarray:
    """Returns one and damped products of sine and cosine modes at points, `(n, k)`."""
    x, y = (poisson.modes_at(line, num_modes) for line in points.T)
    damping = poisson.damping_of(num_modes, 1.5, axes=2) / 2
    products = np.einsum("ni,nj->nij", x, y).reshape(len(points), -1)
    return np.concatenate([np.ones((len(points), 1)), damping * products], axis=1)


def parts_of_error(
    truth: Truth, mesh: Mesh, field: np.ndarray, elements: np.ndarray
) -> dict[str, float]:
    """Returns errors of fields that are linear between the points of a mesh.

    Args:
      truth: the fine solutions.
      mesh: the points.
      field: predictions at the points for the unseen right-hand sides, `(n, b)`.
      elements: linear elements on the mesh, `(n, b)`.

    Returns:
      Errors, as `<part>_l2` and `<part>_h1`, of the predictions (nodes), of the exact
      values at the points (points) and of the linear elements (elements), and the
      differences of predictions (model) and elements (labels) from the exact values at
      the points; the number of points and of those near the corner.
    """
    to_fine = meshes.interpolation(mesh)(truth.mesh[0])
    at_points = truth.at(mesh[0]) @ truth.solutions
    everywhere = truth.solutions @ truth.test
    exact, own, solved = (
        to_fine @ values for values in (at_points @ truth.test, field, elements)
    )
    parts = {
        "nodes": own,
        "points": exact,
        "elements": solved,
        "model": own - exact + everywhere,
        "labels": solved - exact + everywhere,
    }
    near = np.linalg.norm(mesh[0] - meshes.CORNER, axis=1) < _NEAR
    return {"num_points": len(mesh[0]), "near": int(near.sum())} | {
        f"{part}_{norm}": error
        for part, values in parts.items()
        for norm, error in truth.errors(values).items()
    }
