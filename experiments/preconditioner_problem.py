"""Flow in two phases on grids, scaled to a unit diagonal, with its cover."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax import schwarz
from opjax.problems.random_fields import gaussian_random_field

_Array = TypeVar("_Array")
_SMOOTHING = 3  # steps of the aggregates


class System(NamedTuple):
    """A matrix with the subdomains of its Schwarz operators.

    Attributes:
      matrix: divided by roots of its diagonal on both sides, dense in training, else
        sparse, shape `(n, n)`.
      roots: roots of the diagonal before, shape `(n,)`; zero for padding.
      points: shape `(n, 2)`.
      labels: the part of every point, which has a coarse function, shape `(n,)`.
      cover: the parts with their overlap.
    """

    matrix: Any
    roots: Any
    points: Any
    labels: Any
    cover: schwarz.Cover


class Flow(NamedTuple):
    """The matrix of -div(a grad u), divided by roots of its diagonal on both sides.

    Attributes:
      east: entries for a point and the next in its row, shape `(n, n)`; zero where
        there is none.
      south: the same for the next row.
      roots: roots of the diagonal, shape `(n, n)`.
    """

    east: jax.Array
    south: jax.Array
    roots: jax.Array


def draw(key: jax.Array, size: int, contrast: ArrayLike) -> Flow:
    """Draws a coefficient: two phases where a random field has either sign.

    Finite elements on squares split in two triangles: the flux between two points is
    that through the mean coefficient of the two squares beside their edge. Unknowns are
    the interior points, `size` on each side.
    """
    field = gaussian_random_field(key, num_points=size + 1)
    a = jnp.where(field > 0, jnp.sqrt(contrast), 1 / jnp.sqrt(contrast))
    rows = (a[:-1] + a[1:]) / 2  # of edges along a row, with those to the boundary
    columns = (a[:, :-1] + a[:, 1:]) / 2
    roots = jnp.sqrt(rows[:, :-1] + rows[:, 1:] + columns[:-1] + columns[1:])
    east = -rows[:, 1:-1] / (roots[:, :-1] * roots[:, 1:])
    south = -columns[1:-1] / (roots[:-1] * roots[1:])
    return Flow(
        jnp.pad(east, ((0, 0), (0, 1))), jnp.pad(south, ((0, 1), (0, 0))), roots
    )


def apply(flow: Flow, values: jax.Array) -> jax.Array:
    """Applies the scaled matrix to columns, shape `(n * n, c)`."""
    u = jnp.asarray(values).reshape(*flow.east.shape, -1)
    east, south = flow.east[..., None], flow.south[..., None]
    right, below = (east * u)[:, :-1], (south * u)[:-1]
    image = u.at[:, :-1].add(east[:, :-1] * u[:, 1:]).at[:, 1:].add(right)
    image = image.at[:-1].add(south[:-1] * u[1:]).at[1:].add(below)
    return image.reshape(values.shape)


def windows(boxes: int, width: int, overlap: int) -> schwarz.Cover:
    """Boxes of one shape, where `schwarz.box_cover` cuts those at the boundary.

    Points beyond it are padding: a perceptron needs every point at the same place.
    """
    size, m = boxes * width, width + 2 * overlap
    lines = np.arange(boxes)[:, None] * width + np.arange(m)[None] - overlap
    inside = (lines >= 0) & (lines < size)
    lines = np.clip(lines, 0, size - 1)
    both = lines[:, None, :, None] * size + lines[None, :, None, :]
    weights = inside[:, None, :, None] & inside[None, :, None, :]
    indices, weights = (x.reshape(boxes**2, m**2) for x in (both, weights))
    counts = np.bincount(indices[weights], minlength=size**2)
    return schwarz.Cover(indices, weights / counts[indices], size**2)


def parts(boxes: int, width: int) -> np.ndarray:
    """The box of every point, shape `(n * n,)`."""
    line = np.arange(boxes * width) // width
    return (line[:, None] * boxes + line[None]).ravel()


def system(flow: Flow, matrix: Any, cover: schwarz.Cover) -> System:
    """The system of a matrix, dense or sparse."""
    size, boxes = len(flow.east), round(cover.num_subdomains**0.5)
    line = (np.arange(size, dtype=np.float32) + 1) / (size + 1)
    points = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    labels = parts(boxes, size // boxes)
    return System(matrix, flow.roots.reshape(-1), points, labels, cover)


def smoothed(matrix: Callable[[_Array], _Array], functions: _Array) -> _Array:
    """Steps of Jacobi, damped, as in `schwarz.smoothed_aggregates`, under `jax.jit`."""
    for _ in range(_SMOOTHING):
        functions = functions - 2 / 3 * matrix(functions)  # pyright: ignore
    return functions
