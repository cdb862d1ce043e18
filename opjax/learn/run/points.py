"""Random subsets of the points of training meshes, drawn anew in every step."""

import functools
import math
from typing import Any

import jax

from opjax import samples, training
from opjax._trees import Batch, Model
from opjax.learn.run.settings import Settings
from opjax.training import Gradient


def number(share: float, num_points: int) -> int:
    """Returns the number of points of a fraction, rounded up.

    Args:
      share: fraction in (0, 1]; above 1, a number of points, limited by the size of the
        mesh.
      num_points: number of points of a mesh, with padding.
    """
    if share > 1:
        return min(int(share), num_points)
    # Not one more where 0.1 * 30 is 3.0000000000000004.
    return max(1, math.ceil(round(share * num_points, 6)))


# The same function for the same task, so that members of a study share their programs.
@functools.lru_cache(maxsize=16)
def drawn(gradient: Gradient, needs_key: bool, share: float) -> Gradient:
    """Converts loss and gradients on whole meshes to those on a subset of their points.

    Args:
      gradient: `Task.value_and_grad` of samples with `mesh_points`.
      needs_key: whether the loss itself draws random numbers.
      share: fraction of the points of a batch, see `number`; 1 returns the function
        unchanged.

    Returns:
      A function of the same form, which draws different points for every sample, see
      `samples.draw_points`. Sums over points keep their expectation.
    """
    if share == 1:
        return gradient

    def of_share(model: Model, batch: Batch, key: jax.Array) -> Any:
        of_points, own = jax.random.split(key)
        count, num_points = batch["mesh_points"].shape[:2]
        draw = functools.partial(
            samples.draw_points, num_points=number(share, num_points), unbiased=True
        )
        keys = jax.random.split(of_points, count)
        few = training.over_samples(draw)(batch, keys)
        return gradient(model, few, own if needs_key else None)

    return of_share


def full_epochs(share: float, num_epochs: int) -> int:
    """Returns the number of final epochs on all points; zero without a share.

    Args:
      share: fraction of the epochs, in [0, 1).
      num_epochs: number of epochs of the training.
    """
    return min(max(1, round(share * num_epochs)), num_epochs) if share else 0


def mean_of_largest(settings: Settings, num_points: int) -> float:
    """Returns the mean number of points of a step over the maximum.

    Args:
      settings: settings of the training.
      num_points: number of points of a mesh, with padding.
    """
    counts = [number(share, num_points) for share in settings.train_points]
    mean, full = sum(counts) / len(counts), settings.full_points
    if not full:
        return mean / max(counts)
    return (full * num_points + (1 - full) * mean) / num_points
