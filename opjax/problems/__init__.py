"""Pure, seeded generators of operator learning problems."""

from opjax.problems import (
    airfoil,
    burgers,
    darcy,
    euler,
    laplacian,
    pipe,
    poisson,
    random_fields,
    sinusoid,
    splines,
    taylor_hood,
)

__all__ = [
    "airfoil",
    "burgers",
    "darcy",
    "euler",
    "laplacian",
    "pipe",
    "poisson",
    "random_fields",
    "sinusoid",
    "splines",
    "taylor_hood",
]
