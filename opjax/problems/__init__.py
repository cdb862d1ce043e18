"""Pure, seeded generators of operator learning problems."""

from opjax.problems import (
    airfoil_forces,
    burgers,
    darcy,
    darcy_notch,
    elasticity,
    joukowski,
    laplacian,
    navier_stokes,
    plasticity,
    poisson,
    random_fields,
    sinusoid,
    splines,
)

__all__ = [
    "airfoil_forces",
    "burgers",
    "darcy",
    "darcy_notch",
    "elasticity",
    "joukowski",
    "laplacian",
    "navier_stokes",
    "plasticity",
    "poisson",
    "random_fields",
    "sinusoid",
    "splines",
]
