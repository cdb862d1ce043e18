"""Meshes with fields, whole or in slices of points.

XML files, `.vtu`, `.vtp` and `.vtm`, and the surfaces `.stl` and `.ply` are parsed here
and not by VTK. That takes half a gigabyte, which `opjax[learn]` does not install; its
readers lose fields of `.ply` files, repair damaged `.stl` files in silence, and reading
a hundred small files in the process that guards them takes three times as long. Only
the legacy format, `.vtk`, needs VTK.
"""
