"""Data sets: generated and cached on disk, or read from published files."""

from opjax.datasets import (
    airfoil,
    airfrans,
    burgers,
    cache,
    darcy,
    darcy_inverse,
    darcy_notch,
    elasticity,
    navier_stokes,
    own,
    pipe,
    plasticity,
    rna,
    samples,
)

__all__ = [
    "airfoil",
    "airfrans",
    "burgers",
    "cache",
    "darcy",
    "darcy_inverse",
    "darcy_notch",
    "elasticity",
    "navier_stokes",
    "own",
    "pipe",
    "plasticity",
    "rna",
    "samples",
]
