"""Pure, seeded generators of operator learning problems."""

from opjax.problems import (
    burgers,
    darcy,
    laplacian,
    poisson,
    random_fields,
    sinusoid,
    splines,
)

__all__ = [
    "burgers",
    "darcy",
    "laplacian",
    "poisson",
    "random_fields",
    "sinusoid",
    "splines",
]
