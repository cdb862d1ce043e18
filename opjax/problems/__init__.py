"""Pure, seeded generators of operator learning problems."""

from opjax.problems import (
    burgers,
    darcy,
    darcy_notch,
    elasticity,
    elastoplastic,
    laplacian,
    navier_stokes,
    plasticity,
    poisson,
    random_fields,
    sinusoid,
    splines,
)

__all__ = [
    "burgers",
    "darcy",
    "darcy_notch",
    "elasticity",
    "elastoplastic",
    "laplacian",
    "navier_stokes",
    "plasticity",
    "poisson",
    "random_fields",
    "sinusoid",
    "splines",
]
