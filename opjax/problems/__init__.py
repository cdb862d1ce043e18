"""Pure, seeded generators of operator learning problems.

They read and write no files: `opjax.datasets` stores their samples.
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
