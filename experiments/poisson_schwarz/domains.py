"""Where Poisson's equation is solved: points, right-hand sides and exact inverses."""

import dataclasses
import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from opjax.problems import poisson, poisson_coefficients, poisson_mesh


@dataclasses.dataclass(frozen=True)
class Grid:
    """The unit cube with finite differences.

    Attributes:
      shape: interior points per axis.
      coefficient: `a` in `-(a u')'`, see `poisson_coefficients`; in one dimension.
      contrast: its largest over its smallest value.
      coefficient_seed: which of the random ones.
    """

    shape: tuple[int, ...]
    coefficient: str = "constant"
    contrast: float = 1.0
    coefficient_seed: int = 0

    source = "own solver: finite differences, exact discrete inverse"
    # Masses of points relative to their mean, and what else L2 norms need.
    root_masses = mass_factor = None

    @property
    def num_points(self) -> int:
        """Interior points."""
        return math.prod(self.shape)

    @property
    def mesh_points(self) -> np.ndarray:
        """Interior points, shape `(n, p)`."""
        points = np.indices(self.shape).reshape(len(self.shape), self.num_points).T
        return (points + 1) / (np.asarray(self.shape) + 1)

    @property
    def grid_shape(self) -> tuple[int, ...] | None:
        """Points per axis of a grid."""
        return self.shape

    @property
    def values(self) -> np.ndarray | None:
        """The coefficient between points where it varies, shape `(n + 1,)`."""
        if self.coefficient == "constant":
            return None
        return poisson_coefficients.coefficient(
            self.coefficient,
            self.num_points,
            contrast=self.contrast,
            seed=self.coefficient_seed,
        )

    def solver(self) -> jax.tree_util.Partial:
        """The exact inverse, from values on the grid to values there."""
        if self.values is None:
            return jax.tree_util.Partial(poisson.solve)
        coefficient = jnp.asarray(self.values)
        solve = poisson_coefficients.solve
        return jax.tree_util.Partial(solve, coefficient=coefficient)

    def problem(self, num_modes: int, decay: float) -> poisson.FourierProblem:
        """Modes and their solutions, as many modes as the points can tell apart."""
        num_modes = min(num_modes, *self.shape)
        return poisson.fourier_problem(
            self.shape, num_modes=num_modes, decay=decay, solver=self.solver()
        )


@dataclasses.dataclass(frozen=True)
class LShape:
    """An L-shaped domain with linear finite elements, values times roots of masses.

    Attributes:
      num_columns: spacings of the mesh along the longest side.
      seed: of the mesh.
    """

    num_columns: int
    seed: int = 0

    source = "own solver: linear finite elements, exact discrete inverse"
    grid_shape = None

    @property
    def elements(self) -> poisson_mesh.Elements:
        """The discrete problem."""
        return _elements(self.num_columns, self.seed)

    @property
    def num_points(self) -> int:
        """Interior points."""
        return len(self.mesh_points)

    @property
    def mesh_points(self) -> np.ndarray:
        """Interior points, shape `(n, 2)`."""
        return self.elements.mesh_points

    @property
    def root_masses(self) -> np.ndarray:
        """Roots of the lumped masses relative to their mean, shape `(n,)`."""
        lumped = self.elements.lumped
        return np.sqrt(lumped / lumped.mean())

    @property
    def mass_factor(self) -> np.ndarray:
        """`L^T` where the mass matrix is `L L^T`, for values times roots of masses."""
        factor = np.linalg.cholesky(self.elements.mass.toarray()).T
        return factor / self.root_masses

    def solver(self) -> jax.tree_util.Partial:
        """The exact inverse."""
        inverse = jnp.asarray(poisson_mesh.inverse(self.elements))
        return jax.tree_util.Partial(jnp.matmul, inverse)

    def problem(self, num_modes: int, decay: float) -> poisson.FourierProblem:
        """Modes and their solutions."""
        return poisson_mesh.fourier_problem(
            self.elements, num_modes=num_modes, decay=decay
        )


@lru_cache(maxsize=2)
def _elements(num_columns: int, seed: int) -> poisson_mesh.Elements:
    mesh = poisson_mesh.l_shaped_mesh(num_columns=num_columns, seed=seed)
    return poisson_mesh.discretize(*mesh)
