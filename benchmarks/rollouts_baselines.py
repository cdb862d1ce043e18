r"""Baselines of `benchmarks.rollouts`: predictions that need no operator.

    python -m benchmarks.rollouts --data=data/advection --problem_in_time=advection
    python -m benchmarks.rollouts --data=data/advection --problem_in_time=advection \
      --baselines

All see what the models see: the first frame, and constant fields and scalars of the
case. They predict the frames after it.

- persistence: nothing changes.
- conserved mean: the mean of the first frame, which diffusion tends to.
- fading: the first frame, which tends to its mean as `exp(-rate t)`; the rate is fitted
  to the training series.
- solver: the equation, on the mesh or grid of the file. Not for lines, whose truth is
  on that grid.
- stencil, `r`: the next frame by least squares, from all products of the values at a
  point of a periodic line and its `r` neighbours on either side.
- linear step: the next frame by least squares, from all values of a grid.
"""

import pathlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations_with_replacement

import numpy as np

from benchmarks import rollouts_data
from opjax import metrics_time
from opjax.files import ReadOptions
from opjax.files.series import read_series
from opjax.problems import advection, navier_stokes
from opjax.problems.poisson_mesh import assemble, signed_areas
from opjax.samples import Series

# From a series of which only the first frame is looked at, to the later ones `(t, n)`.
Prediction = Callable[[Series], np.ndarray]
READERS = {
    "flow": partial(read_series, options=ReadOptions(grid_axes=2)),
    "advection": partial(
        read_series,
        options=ReadOptions(target="u", features="velocity", scalars="diffusivity"),
    ),
    "kuramoto_sivashinsky": partial(read_series, options=ReadOptions(grid_axes=1)),
}
_RATES = np.geomspace(1e-3, 10, 81)
_REACHES = (0, 1, 2, 4)  # of stencils
_RIDGE = 1e-6  # of linear steps, of the mean square of a value
_LARGEST = 1e3  # error of a frame, as in the runs


def persistence(series: Series) -> np.ndarray:
    """The first frame, again and again."""
    return np.repeat(_first(series)[None], len(series.times) - 1, axis=0)


def fading(series: Series, *, rate: float) -> np.ndarray:
    """The first frame, which tends to its mean; the mean itself at a rate of inf."""
    first = _first(series)
    mean = np.average(first, weights=series.quadrature_weights)
    left = np.exp(-rate * (series.times[1:] - series.times[0]))
    return mean + left[:, None] * (first - mean)


def fit_rate(train: Sequence[Series]) -> float:
    """The rate of `fading` with the smallest error on training series."""

    def error(rate: float) -> float:
        each = [errors(one, fading(one, rate=rate)).mean() for one in train]
        return float(np.mean(each))

    return float(min(_RATES, key=error))


def finite_elements(series: Series) -> np.ndarray:
    """Advection and diffusion on the mesh of a file, by its velocity and diffusivity.

    The stream function is that whose velocity is nearest to that of the file, zero on
    the boundary.
    """
    assert series.cells is not None
    assert series.features is not None
    assert series.scalars is not None
    nodes, cells = np.asarray(series.mesh_points, float), series.cells
    stream = stream_function(nodes, cells, np.asarray(series.features, float))
    interval = float(np.diff(series.times).mean())
    return advection.solve(
        nodes,
        cells,
        _first(series),
        stream,
        diffusivity=series.scalars["diffusivity"],
        interval=interval,
        num_frames=len(series.times) - 1,
        substeps=4,
    )


def stream_function(
    nodes: np.ndarray, cells: np.ndarray, velocity: np.ndarray
) -> np.ndarray:
    """The stream function, zero on the boundary, of the nearest velocity.

    Args:
      nodes: of a mesh of triangles, `(N, 2)`.
      cells: its triangles, `(t, 3)`.
      velocity: at the nodes, `(N, 2)`.

    Returns:
      The values at the nodes, `(N,)`.
    """
    from scipy.sparse.linalg import spsolve

    stiffness, _ = assemble(nodes, cells)
    # The velocity of a hat function, times twice the area of the triangle.
    of_hats = np.roll(nodes[cells], -2, axis=1) - np.roll(nodes[cells], -1, axis=1)
    sign = np.sign(signed_areas(nodes, cells))
    along = np.einsum("tic,tc->ti", of_hats, velocity[cells].mean(axis=1))
    right = np.zeros(len(nodes))
    np.add.at(right, cells, sign[:, None] * along / 2)
    inner = np.setdiff1d(np.arange(len(nodes)), advection.boundary_nodes(cells))
    found = np.zeros(len(nodes))
    system = stiffness.tocsr()[inner][:, inner].tocsc()
    found[inner] = np.asarray(spsolve(system, right[inner]))
    return found


def flow(series: Series) -> np.ndarray:
    """The vorticity equation on the grid of the file."""
    assert series.grid_shape is not None
    force = navier_stokes.forcing(num_points=series.grid_shape[0])
    frames = navier_stokes.solve(
        np.asarray(series.values[0], np.float32).reshape(series.grid_shape),
        np.asarray(force, np.float32),
        viscosity=rollouts_data.VISCOSITY,
        num_frames=len(series.times) - 1,
    )
    return np.asarray(frames).reshape(len(frames), -1)


def products(values: np.ndarray, reach: int) -> np.ndarray:
    """All products of at most two values of a point and its neighbours.

    Args:
      values: on a periodic line, `(..., n)`.
      reach: number of neighbours on either side.

    Returns:
      One, the values and the products of any two, `(..., n, terms)`.
    """
    near = [np.roll(values, shift, axis=-1) for shift in range(-reach, reach + 1)]
    pairs = [one * other for one, other in combinations_with_replacement(near, 2)]
    return np.stack([np.ones_like(values), *near, *pairs], axis=-1)


def fit_stencil(train: Sequence[Series], reach: int) -> Prediction:
    """The step of a periodic line by least squares, see `products`."""
    gram, right = 0.0, 0.0
    for one in train:
        frames = _frames(one)
        rows = products(frames[:-1], reach)
        rows = rows.reshape(-1, rows.shape[-1])
        gram, right = gram + rows.T @ rows, right + rows.T @ frames[1:].ravel()
    weights = np.linalg.solve(gram, right)
    return partial(_rolled, lambda frame: products(frame, reach) @ weights)


def fit_linear_step(train: Sequence[Series]) -> Prediction:
    """The step of a grid by ridge regression from all its values."""
    before = np.concatenate([_frames(one)[:-1] for one in train])
    after = np.concatenate([_frames(one)[1:] for one in train])
    before = np.concatenate([before, np.ones((len(before), 1))], axis=1)
    ridge = _RIDGE * len(before) * np.mean(before**2)
    gram = before.T @ before + ridge * np.eye(before.shape[1])
    weights = np.linalg.solve(gram, before.T @ after)
    return partial(_rolled, lambda frame: np.append(frame, 1) @ weights)


def fitted(problem: str, train: Sequence[Series]) -> dict[str, Prediction]:
    """The baselines of a problem by their names, fitted to training series."""
    rate = fit_rate(train)
    found: dict[str, Prediction] = {
        "persistence": persistence,
        "conserved mean": partial(fading, rate=np.inf),
        f"fading to the conserved mean, rate {rate:.3g}": partial(fading, rate=rate),
    }
    if problem == "advection":
        found["solver on the mesh of the file"] = finite_elements
    elif problem == "flow":
        found["linear step"] = fit_linear_step(train)
        found["solver on the grid of the file"] = flow
    else:
        for reach in _REACHES:
            found[f"stencil, r = {reach}"] = fit_stencil(train, reach)
    return found


def rows(problem: str, folder: pathlib.Path) -> list[list[str]]:
    """Rows of the table: means over the test series."""
    train, test = (READERS[problem](folder / p).series for p in ("train", "test"))
    found: list[list[str]] = []
    for name, predict in fitted(problem, train).items():
        begin = time.process_time()
        each = [predict(series) for series in test]
        seconds = (time.process_time() - begin) / len(test)
        measured = [
            measure(one, frames) for one, frames in zip(test, each, strict=True)
        ]
        means = np.mean(measured, axis=0)
        numbers = [f"{x:.3g}" if np.isfinite(x) else "–" for x in means]
        found.append([name, *numbers, f"{seconds:.2g}"])
    return found


def measure(series: Series, frames: np.ndarray) -> tuple[float, ...]:
    """Errors of three steps and of all, steps to correlation 0.8, drift."""
    of_steps, last = errors(series, frames), len(frames)
    weights = series.quadrature_weights
    true, predicted = _frames(series), np.asarray(frames)
    steps = metrics_time.correlation_time(
        predicted, true[1:], quadrature_weights=weights
    )
    means = [np.average(each, weights=weights) for each in (predicted[-1], true[-1])]
    size = np.sqrt(np.average(true[0] ** 2, weights=weights))
    return (
        *(
            float(of_steps[min(step, last) - 1])
            for step in (1, 10, rollouts_data.STEPS)
        ),
        float(of_steps.mean()),
        float(steps),
        float(abs(means[0] - means[1]) / size),
    )


def errors(series: Series, frames: np.ndarray) -> np.ndarray:
    """Relative L2 errors of the frames after the first one, at most 1000 each."""
    true = _frames(series)[1:]
    weights = series.quadrature_weights
    weights = np.ones(true.shape[1]) if weights is None else weights
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.sqrt((frames - true) ** 2 @ weights / (true**2 @ weights))
    return np.fmin(off, _LARGEST)  # also where an error is not a number


def _rolled(step: Callable[[np.ndarray], np.ndarray], series: Series) -> np.ndarray:
    """Applies a step again and again."""
    frame, found = _first(series), []
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in series.times[1:]:
            frame = step(frame)
            found.append(frame)
    return np.stack(found)


def _first(series: Series) -> np.ndarray:
    return np.asarray(series.values[0], float)[:, 0]


def _frames(series: Series) -> np.ndarray:
    return np.asarray(series.values, float)[:, :, 0]
