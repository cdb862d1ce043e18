"""Meshes with fields, whole or in slices of points.

XML files, `.vtu`, `.vtp` and `.vtm`, and the surface files `.stl` and `.ply` are parsed
here, not by VTK. VTK takes half a gigabyte, which `opjax[learn]` does not install. Its
readers lose fields of `.ply` files, silently repair damaged `.stl` files, and reading a
hundred small files in the separate process takes three times as long. Only the legacy
format, `.vtk`, needs VTK.
"""
