"""Writes square.xdmf and square.h5 with dolfinx 0.5.2 (apt: python3-dolfinx)."""

import numpy as np
from dolfinx import fem, io, mesh
from mpi4py import MPI

square = mesh.create_unit_square(MPI.COMM_WORLD, 3, 2)
u = fem.Function(fem.FunctionSpace(square, ("CG", 1)), name="u")
d = fem.Function(fem.FunctionSpace(square, ("DG", 0)), name="d")
with io.XDMFFile(square.comm, "square.xdmf", "w") as file:
    file.write_mesh(square)
    for time in (0.0, 0.5, 1.0):
        u.interpolate(lambda x, time=time: x[0] + 10 * x[1] + 100 * time)
        d.interpolate(lambda x, time=time: np.full(x.shape[1], time))
        file.write_function(u, time)
        file.write_function(d, time)
