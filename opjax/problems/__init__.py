"""Pure, seeded generators of operator learning problems.

They know no files: `opjax.datasets` stores what they make.
"""

from opjax.problems import (
    airfoil,
    airfoil_forces,
    bodies,
    burgers,
    darcy,
    darcy_notch,
    elasticity,
    elastoplastic,
    euler,
    grids,
    joukowski,
    laplacian,
    navier_stokes,
    pipe,
    plasticity,
    poisson,
    poisson_coefficients,
    poisson_mesh,
    random_fields,
    sinusoid,
    splines,
    taylor_hood,
)

__all__ = [
    "airfoil",
    "airfoil_forces",
    "bodies",
    "burgers",
    "darcy",
    "darcy_notch",
    "elasticity",
    "elastoplastic",
    "euler",
    "grids",
    "joukowski",
    "laplacian",
    "navier_stokes",
    "pipe",
    "plasticity",
    "poisson",
    "poisson_coefficients",
    "poisson_mesh",
    "random_fields",
    "sinusoid",
    "splines",
    "taylor_hood",
]
