"""Darcy flow in a notched triangle: generated here, or read from published files.

The input is the function `f(x)` on the boundary, extended to all points by their first
coordinate; the target is the solution. Points are the nodes of a mesh, or the points of
a grid on the square around the triangle, with the solution extended to the outside.

There are published files in both layouts: `Darcy_Triangular.mat` has 2295 nodes,
`Darcy_Triangular_FNO.mat` 101 x 101 points. Papers split the 2000 samples differently:

    training    test      paper
    first 1000  last 100  Tripura and Chakraborty, arXiv:2205.02191
    first 1900  last 100  Lu et al., arXiv:2111.05512; Xiao et al., Table 9

all of them with every other point of the grid, 51 x 51. Generated samples use the
equation and boundary functions of `opjax.problems.darcy_notch`, which agree with the
published data up to 4e-4 of the solution; the nodes of the mesh are different.
"""

import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from opjax import _checks
from opjax._files import OnePath
from opjax.datasets import _arrays, _generated
from opjax.datasets.requests import Request
from opjax.files import variables
from opjax.problems import darcy_notch
from opjax.samples import Sample, Splits

_LOGGER = logging.getLogger(__name__)
LAYOUTS = {"mesh": "Darcy_Triangular", "grid": "Darcy_Triangular_FNO"}
_SOURCE = "the data of the wavelet neural operator, github.com/TapasTripura/WNO"


def splits(
    request: Request,
    *,
    layout: str = "mesh",
    stride: int = 2,
    num_columns: int = 46,
    num_points: int = 51,
    notch: str = "boundary",
) -> Splits:
    """Returns the samples of a benchmark (`requests.Request`), see `generate`.

    The stride refers to the grid of the file, as for `load`.
    """
    if request.data_dir:
        source = f"published {layout} in {request.data_dir}"
        return request.read(partial(load, layout=layout, stride=stride), source)
    divided = request.generate_together(
        partial(
            generate,
            layout=layout,
            num_columns=num_columns,
            num_points=num_points,
            notch=notch,
        ),
        "own solver",
    )
    size = f"{layout} of {divided.train[0].num_points} points"
    source = f"own solver, {size}, notch: {notch}, seed {request.seed}"
    return divided._replace(source=source)


def generate(
    num_samples: int,
    *,
    seed: int,
    layout: str = "mesh",
    num_columns: int = 46,
    num_points: int = 51,
    notch: str = "boundary",
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Generates pairs of boundary function and solution, or reads them from the cache.

    Sample `i` depends only on `seed` and `i`, so a smaller data set is the start of a
    larger one. The equation is solved once, in about a second, for any number of
    samples.

    Args:
      num_samples: number of pairs.
      seed: seed of the data set; use different seeds for training and test data.
      layout: `"mesh"` or `"grid"`.
      num_columns: number of elements along the bottom on either side of the notch, for
        both layouts; 46 gives a mesh of 2257 nodes.
      num_points: number of points per side of the grid.
      notch: as for `opjax.problems.darcy_notch.operator`.
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      Samples with `mesh_points` `(n, 2)`, `features` `(n, 1)` and `target` `(n, 1)`;
      samples on a mesh have `cells`, samples on a grid `grid_shape`, y before x.

    Raises:
      ImportError: if scikit-fem is missing and the samples are not in the cache.
      ValueError: if a number is too small, `seed` is negative, or `layout` or `notch`
        is unknown.
    """
    _checks.option("layout", layout, LAYOUTS)
    if num_points < 2:
        raise ValueError(f"{num_points=} must be at least 2, the two ends of a side.")
    arrays = _build(
        num_samples,
        seed,
        cache_dir,
        num_columns=num_columns,
        num_points=num_points if layout == "grid" else 0,
        notch=notch,
    )
    points, values = arrays["points"], arrays["boundary_values"]
    x = np.linspace(0, 1, values.shape[1])
    extended = np.stack([np.interp(points[:, 0], x, row) for row in values])
    return _to_samples(
        points,
        extended,
        arrays["solution"],
        cells=arrays.get("cells"),
        grid_shape=(num_points, num_points) if layout == "grid" else None,
    )


def load(
    data_dir: OnePath,
    *,
    layout: str = "mesh",
    stride: int = 2,
    num_train: int = 1000,
    num_test: int = 100,
) -> tuple[list[Sample], list[Sample]]:
    """Reads a published file, or a file of the same layout made by `save`.

    Searches for `Darcy_Triangular` (arrays `x_bc`, `f_bc`, `xx`, `yy`, `u_field`) or
    `Darcy_Triangular_FNO` (`boundCoeff`, `coord_x`, `coord_y`, `sol`), with suffix
    `.mat` (any MATLAB version) or `.npz`.

    Args:
      data_dir: folder of the file.
      layout: `"mesh"` or `"grid"`.
      stride: keep every `stride`-th point of each axis of the grid.
      num_train: number of training samples, the first ones; see the module docstring.
      num_test: number of test samples, the last ones.

    Returns:
      Training and test samples, as from `generate` but without `cells`.

    Raises:
      FileNotFoundError: if the file is missing. The message lists the searched paths.
      ImportError: if scipy or h5py is needed but missing.
      ValueError: if `layout` is unknown, or the file is damaged, lacks an array, or its
        shapes, axes, number of samples or values are invalid.

    References:
      Tripura and Chakraborty, "Wavelet Neural Operator", CMAME 404, 2023
      (arXiv:2205.02191).
      Lu et al., "A comprehensive and fair comparison of two neural operators", CMAME
      393, 2022 (arXiv:2111.05512).
    """
    _checks.option("layout", layout, LAYOUTS)
    _checks.positive(stride=stride)
    names = [f"{LAYOUTS[layout]}{suffix}" for suffix in (".mat", ".npz")]
    path = _arrays.find(data_dir, names, source=_SOURCE)
    if layout == "mesh":
        points, features, target = _read_mesh(path)
        grid_shape = None
    else:
        points, features, target, grid_shape = _read_grid(path, stride)
    parts = _arrays.split(len(target), num_train, num_test, test="last", what=str(path))
    train, test = (
        _to_samples(points, features[part], target[part], grid_shape=grid_shape)
        for part in parts
    )
    return train, test


def save(data_dir: OnePath, samples: Sequence[Sample]) -> Path:
    """Writes samples in a published layout, so that `load` reads them.

    A grid is written unchanged: load it with `stride=1`. For a mesh, the boundary
    function is written at the first coordinates of all nodes.

    Args:
      data_dir: folder of the file; created if missing.
      samples: samples from `generate` or `load`, all with the same points.

    Returns:
      The path of the file, `Darcy_Triangular.mat` or `Darcy_Triangular_FNO.mat`.

    Raises:
      ImportError: if scipy is missing.
      ValueError: if there is no sample, or points differ between samples.
      OSError: if the file cannot be written; an existing file is then unchanged.
    """
    if not samples:
        raise ValueError("There are no samples to save.")
    points, grid_shape = samples[0].mesh_points, samples[0].grid_shape
    if any(
        s.grid_shape != grid_shape or not np.array_equal(s.mesh_points, points)
        for s in samples
    ):
        raise ValueError("All samples must have the same points as the first one.")
    features = np.stack([np.asarray(s.features)[:, 0] for s in samples])
    target = np.stack([np.asarray(s.target)[:, 0] for s in samples])
    if grid_shape is None:
        x, rows = np.unique(points[:, 0], return_index=True)
        arrays = {"x_bc": x, "f_bc": features[:, rows], "u_field": target}
        arrays |= {"xx": points[:, :1], "yy": points[:, 1:]}
    else:
        shape = (len(samples), *grid_shape)
        arrays = {
            "boundCoeff": features.reshape(shape),
            "coord_x": np.broadcast_to(points[:, 0].reshape(grid_shape), shape),
            "coord_y": np.broadcast_to(points[:, 1].reshape(grid_shape), shape),
            "sol": target.reshape(shape),
        }
    stem = LAYOUTS["mesh" if grid_shape is None else "grid"]
    path = Path(data_dir).expanduser() / f"{stem}.mat"
    path.parent.mkdir(parents=True, exist_ok=True)
    variables.write(path, arrays)
    return path


def _read_mesh(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x_bc, xx, yy = (_vector(path, key) for key in ("x_bc", "xx", "yy"))
    if not (np.diff(x_bc) > 0).all():
        raise ValueError(
            f"x_bc in {path} must be ascending; get the file from {_SOURCE}."
        )
    if len(xx) != len(yy):
        raise ValueError(
            f"xx in {path} has {len(xx)} points, but yy has {len(yy)}: each node "
            "needs one of both."
        )
    values = _arrays.read(path, "f_bc", shape=(None, len(x_bc)), source=_SOURCE)
    shape = (len(values), len(xx))
    solution = _arrays.read(path, "u_field", shape=shape, source=_SOURCE)
    features = np.stack([np.interp(xx, x_bc, row) for row in values])
    return np.stack([xx, yy], axis=1), features, solution


def _read_grid(
    path: Path, stride: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, ...]]:
    every = (slice(None), *(slice(None, None, stride),) * 2)
    arrays, shape = {}, (None, None, None)
    for key in ("coord_x", "coord_y", "boundCoeff", "sol"):
        array = _arrays.read(path, key, shape=shape, source=_SOURCE)
        shape = array.shape
        # A copy, so that the full array can be freed before the next one is read.
        arrays[key] = array[every].copy()
    x, y = arrays["coord_x"], arrays["coord_y"]
    same = all((array == array[:1]).all() for array in (x, y))
    if not same or np.ptp(x, axis=1).any() or np.ptp(y, axis=2).any():
        raise ValueError(
            f"coord_x and coord_y in {path} have shape {shape}, but do not form a "
            "grid (samples, y, x) shared by all samples: the axes may be in "
            "another order."
        )
    points = np.stack([x[0].ravel(), y[0].ravel()], axis=1)
    count, *grid_shape = x.shape
    features, target = (arrays[key].reshape(count, -1) for key in ("boundCoeff", "sol"))
    return points, features, target, tuple(grid_shape)


def _vector(path: Path, key: str) -> np.ndarray:
    """A row, column or plain vector; MATLAB has no arrays of one axis."""
    array = np.asarray(variables.read_variable(path, key, source=_SOURCE))
    if array.dtype.kind not in "fiu" or array.size != max(array.shape, default=0):
        raise ValueError(
            f"{key} in {path} has shape {array.shape} and dtype {array.dtype}, "
            f"expected a vector of numbers; get the file from {_SOURCE}."
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{key} in {path} has non-finite values; download it again from {_SOURCE}."
        )
    return array.ravel().astype(np.float64)


def _to_samples(
    points: np.ndarray,
    features: np.ndarray,
    target: np.ndarray,
    *,
    cells: np.ndarray | None = None,
    grid_shape: tuple[int, ...] | None = None,
) -> list[Sample]:
    points, features, target = (
        np.asarray(array, np.float32) for array in (points, features, target)
    )
    return [
        Sample(
            points,
            target=u[:, None],
            features=f[:, None],
            cells=cells,
            grid_shape=grid_shape,
        )
        for f, u in zip(features, target, strict=True)
    ]


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("darcy_notch", version=1)
def _build(
    *, num_samples: int, seed: int, num_columns: int, num_points: int, notch: str
) -> dict[str, np.ndarray]:
    start = time.perf_counter()
    grid = None
    if num_points:
        side = np.linspace(0, 1, num_points)
        grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    operator = darcy_notch.operator(grid, num_columns=num_columns, notch=notch)
    solved = time.perf_counter()
    with _generated.keys(seed) as key_of:
        drawn = map(darcy_notch.boundary_values, map(key_of, range(num_samples)))
        values = np.stack(list(map(np.asarray, drawn)))
    solutions = operator(values).astype(np.float32)
    _LOGGER.info(
        "Darcy in the notched triangle: operator in %.1f s, %d samples at %d points, "
        "%.2f ms each",
        solved - start,
        num_samples,
        len(operator.points),
        1e3 * (time.perf_counter() - solved) / num_samples,
    )
    arrays = {
        "points": operator.points,
        "boundary_values": values,
        "solution": solutions,
    }
    return arrays if operator.cells is None else arrays | {"cells": operator.cells}
