"""Pure, seeded generators of operator learning problems."""

from opjax.problems import darcy, laplacian, poisson, random_fields, sinusoid, splines

__all__ = ["darcy", "laplacian", "poisson", "random_fields", "sinusoid", "splines"]
