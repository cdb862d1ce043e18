"""Data sets: generated and cached on disk, or read from published files."""

from opjax.datasets import cache, darcy

__all__ = ["cache", "darcy"]
