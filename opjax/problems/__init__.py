"""Pure, seeded generators of operator learning problems."""

from opjax.problems import darcy, random_fields, splines

__all__ = ["darcy", "random_fields", "splines"]
