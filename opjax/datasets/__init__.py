"""Data sets: generated and cached on disk, or read from published files.

A module for every data set, with `splits` for benchmarks (`samples.benchmark`), and
behind it `load`, which reads published files, `save`, which writes them, and
`generate`, which runs a solver of `opjax.problems`. The two packages are apart because
they share neither user nor machine: problems are functions of arrays, data sets are
files on the host in one contract, `samples.Sample`; surfaces of RNA and your own data
have no solver, and sine waves and Poisson's problem need no files.
"""

from opjax.datasets import (
    airfoil,
    airfrans,
    bodies,
    burgers,
    cache,
    cars,
    darcy,
    darcy_inverse,
    darcy_notch,
    elasticity,
    heat,
    navier_stokes,
    normalizers,
    own,
    own_splits,
    pipe,
    plasticity,
    ranges,
    rna,
    samples,
)

__all__ = [
    "airfoil",
    "airfrans",
    "bodies",
    "burgers",
    "cache",
    "cars",
    "darcy",
    "darcy_inverse",
    "darcy_notch",
    "elasticity",
    "heat",
    "navier_stokes",
    "normalizers",
    "own",
    "own_splits",
    "pipe",
    "plasticity",
    "ranges",
    "rna",
    "samples",
]
