"""Spots transported and mixed by a steady flow, on meshes of random shapes.

A small data set of series, in the same files as user data. Every series has a different
mesh, velocity and diffusivity. `opjax.problems.advection` solves the problem on a mesh
that is refined twice; the first points of that mesh are the points of the file.
"""

import os
import pathlib
from typing import Any

import numpy as np

from opjax import _checks
from opjax.problems import advection
from opjax.problems.poisson_mesh import assemble

DIFFUSIVITIES = (2e-3, 1e-2)
_REFINEMENTS = 2


def write_series(
    folder: str | os.PathLike[str],
    num_series: int,
    *,
    seed: int = 0,
    spacing: float = 0.11,
    num_frames: int = 41,
    interval: float = 0.1,
    substeps: int = 4,
) -> pathlib.Path:
    r"""Writes series to a folder, one `.npz` file per series.

    A file contains the frames `u`, and two inputs: the field `velocity` and the scalar
    `diffusivity`. The stream function is

        psi = (1 - rho^2) (c_0 + c_1 x + c_2 y),

    where `rho` is 1 on the boundary, and `c_0` has a random sign: the flow makes about
    one turn in ten units of time. The initial field is a sum of three spots.

    Args:
      folder: folder; created if missing.
      num_series: number of files.
      seed: seed; series `i` depends only on it and on `i`.
      spacing: distance of the points, in radii of the shapes; 0.11 gives about 300
        points.
      num_frames: number of frames of a series, including the first one.
      interval: time between frames.
      substeps: number of solver steps between frames.

    Returns:
      The folder.

    Raises:
      ValueError: if there are fewer than two frames, a number is not positive, or as
        from `problems.advection.mesh`.
    """
    _checks.positive(num_series=num_series)
    if num_frames < 2:
        raise ValueError(
            f"{num_frames=} must be at least 2: the first frame and a later one."
        )
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(num_series):
        arrays = _series(
            np.random.default_rng((seed, index)),
            spacing=spacing,
            num_frames=num_frames,
            interval=interval,
            substeps=substeps,
        )
        np.savez(folder / f"advection_{index:04d}.npz", **arrays)
    return folder


def _series(
    rng: np.random.Generator,
    *,
    spacing: float,
    num_frames: int,
    interval: float,
    substeps: int,
) -> dict[str, Any]:
    """The arrays of a file."""
    shape = advection.Shape(
        int(rng.integers(2, 5)), rng.uniform(0, 0.15), rng.uniform(0, 2 * np.pi)
    )
    nodes, cells = advection.mesh(shape, spacing=spacing, seed=int(rng.integers(2**31)))
    fine, finer = nodes, cells
    for _ in range(_REFINEMENTS):
        fine, finer = advection.refine(shape, fine, finer)
    stream, initial = _stream(rng, shape, fine), _spots(rng, shape, fine)
    stream[advection.boundary_nodes(finer)] = 0  # but for rounding
    low, high = np.log(DIFFUSIVITIES)
    diffusivity = float(np.exp(rng.uniform(low, high)))
    later = advection.solve(
        fine,
        finer,
        initial,
        stream,
        diffusivity=diffusivity,
        interval=interval,
        num_frames=num_frames - 1,
        substeps=substeps,
    )
    count, single = len(nodes), np.float32
    frames = np.concatenate([initial[None], later])[:, :count]
    _, mass = assemble(nodes, cells)
    return {
        "mesh_points": nodes.astype(single),
        "cells": cells,
        "quadrature_weights": np.asarray(mass.sum(axis=1)).ravel().astype(single),
        "times": interval * np.arange(num_frames),
        "u": frames.astype(single),
        "velocity": advection.velocity(fine, finer, stream)[:count].astype(single),
        "diffusivity": np.asarray(diffusivity, single),
    }


def _stream(
    rng: np.random.Generator, shape: advection.Shape, points: np.ndarray
) -> np.ndarray:
    """The stream function at points."""
    turning = rng.choice([-1, 1]) * rng.uniform(0.2, 0.4)
    slopes = rng.uniform(-0.2, 0.2, 2)
    return (1 - shape.relative(points) ** 2) * (turning + points @ slopes)


def _spots(
    rng: np.random.Generator, shape: advection.Shape, points: np.ndarray
) -> np.ndarray:
    """The field at the start, at points."""
    angle, reach = rng.uniform(0, 2 * np.pi, 3), 0.7 * np.sqrt(rng.uniform(0, 1, 3))
    reach = reach * shape.radius(angle)
    centres = np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)
    heights, widths = rng.uniform(0.5, 1.5, 3), rng.uniform(0.12, 0.25, 3)
    squares = np.sum((points[:, None] - centres) ** 2, axis=2)
    return np.exp(-squares / (2 * widths**2)) @ heights
