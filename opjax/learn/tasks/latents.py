"""Comparison of a model's latents with eigenfunctions of the target operator.

`latents.npz` in the folder of a member contains, for the first test sample,

    modes           leading left singular vectors of what enters the encoder and of what
                    leaves each of its layers, (layers + 1, n, k); zero beyond its rank
    eigenfunctions  the first ones of the operator, (n, k)
    angles          principal angles between their spans in degrees, (layers + 1, k)
    shares          of every eigenfunction in the span of all channels, its squared norm
                    there, (layers + 1, k)
    chance          what a random space of so many dimensions would have of it
    grid_shape      points per axis
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from opjax._trees import PyTree
from opjax.files import npz
from opjax.learn.json_files import replacing
from opjax.learn.tasks.task import Task

FILE = "latents.npz"
NUM_FUNCTIONS = 8


def beside(
    task: Task,
    operator: Callable[[Any, Mapping[str, Any]], tuple[Any, np.ndarray] | None],
) -> Task:
    """Returns the task with an evaluation that also compares latents.

    Args:
      task: task with test samples.
      operator: `operator(model, sample)` returns the number of points per axis of the
        model's latents, and eigenfunctions there, `(n, k)`, for an encoded sample; None
        if the grid is too coarse for any.

    Returns:
      A task whose members write the file. Models with a method `latents` have the
      number `latent_angle`, the mean principal angle of the last layer in degrees, and
      `latent_share`, the fraction of the eigenfunctions in its channels.
    """
    numbers = task.evaluate
    assert numbers is not None
    sample = {name: array[0] for name, array in task.test[0].items()}

    def evaluate(model: PyTree, folder: pathlib.Path) -> dict[str, Any]:
        results = numbers(model, folder)
        beside = operator(model, sample) if hasattr(model, "latents") else None
        if beside is None:
            return results
        shape, functions = beside
        points, features = sample["mesh_points"], sample["features"]
        latents = jax.jit(type(model).latents)(model, points, features)
        arrays: dict[str, Any] = compare(
            np.asarray(latents), functions[:, : latents.shape[2]]
        )
        with replacing(folder / FILE) as path:
            npz.add(path, arrays | {"grid_shape": np.asarray(shape)})
        last = {"latent_angle": arrays["angles"][-1].mean()}
        last["latent_share"] = arrays["shares"][-1].mean()
        return {**results, **{name: float(value) for name, value in last.items()}}

    return dataclasses.replace(task, evaluate=evaluate)


def compare(latents: ArrayLike, functions: ArrayLike) -> dict[str, np.ndarray]:
    r"""Compares the spans of latents with the span of given functions.

        cos(angles) = singular values of U_k^T Phi,    shares = |U^T phi_j|^2,

    with the left singular vectors `U` of a layer, its first `k` singular vectors `U_k`,
    and an orthonormal basis `Phi` of the functions. Neither number depends on the basis
    of the channels. Dimensions missing in a span count as 90 degrees.

    Args:
      latents: latents of the layers, shape `(l, n, c)`.
      functions: linearly independent functions, shape `(n, k)`; `k` at most `c` and
        `n`.

    Returns:
      Arrays as in `latents.npz`.

    Raises:
      ValueError: if the numbers of points differ or there are too few channels.
    """
    latents, functions = (np.asarray(a, np.float64) for a in (latents, functions))
    (_, n, c), k = latents.shape, functions.shape[1]
    if len(functions) != n or k > min(n, c):
        raise ValueError(
            f"functions {functions.shape} must have {n} rows, one per point of "
            f"latents {latents.shape}, and at most as many columns as there are "
            "points or channels."
        )
    unit, _ = np.linalg.qr(functions)
    lengths = np.linalg.norm(functions, axis=0)
    modes, angles, shares, ranks = [], [], [], []
    for layer in latents:
        left, sizes, _ = np.linalg.svd(layer, full_matrices=False)
        left = left * (sizes > 1e-6 * sizes[0])  # the others are rounding
        span = left[:, sizes > 1e-6 * sizes[0]]
        cosines = np.linalg.svd(left[:, :k].T @ unit, compute_uv=False)
        angles.append(np.degrees(np.arccos(np.minimum(cosines, 1))))
        shares.append(np.sum((span.T @ (functions / lengths)) ** 2, axis=0))
        modes.append(_oriented(left[:, :k]))
        ranks.append(span.shape[1])
    return {
        "modes": np.asarray(modes, np.float32),
        "eigenfunctions": np.asarray(_oriented(functions / lengths), np.float32),
        "angles": np.asarray(angles),
        "shares": np.asarray(shares),
        "chance": np.asarray(ranks) / n,
    }


def _oriented(columns: np.ndarray) -> np.ndarray:
    """Columns that are positive where they are largest in size."""
    largest = np.argmax(np.abs(columns), axis=0)
    return columns * np.sign(columns[largest, np.arange(columns.shape[1])])
