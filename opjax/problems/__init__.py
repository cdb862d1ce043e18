"""Pure, seeded generators of operator learning problems."""

from opjax.problems import (
    burgers,
    darcy,
    laplacian,
    pipe,
    poisson,
    random_fields,
    sinusoid,
    splines,
    taylor_hood,
)

__all__ = [
    "burgers",
    "darcy",
    "laplacian",
    "pipe",
    "poisson",
    "random_fields",
    "sinusoid",
    "splines",
    "taylor_hood",
]
