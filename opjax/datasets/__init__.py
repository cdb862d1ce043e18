"""Data sets: generated and cached on disk, or read from published files."""

from opjax.datasets import airfoil, burgers, cache, darcy, darcy_inverse, pipe, samples

__all__ = ["airfoil", "burgers", "cache", "darcy", "darcy_inverse", "pipe", "samples"]
