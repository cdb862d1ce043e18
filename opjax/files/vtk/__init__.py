"""Meshes with fields of `.vtu` and `.vtk` files, whole or in slices of points."""
