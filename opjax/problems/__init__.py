"""Pure, seeded generators of operator learning problems."""

from opjax.problems import (
    burgers,
    darcy,
    laplacian,
    navier_stokes,
    poisson,
    random_fields,
    sinusoid,
    splines,
)

__all__ = [
    "burgers",
    "darcy",
    "laplacian",
    "navier_stokes",
    "poisson",
    "random_fields",
    "sinusoid",
    "splines",
]
