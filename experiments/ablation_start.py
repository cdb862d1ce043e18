"""Models at initialisation: difference of basis functions, size of the maps."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax.learn.registry import operators
from opjax.learn.tables import median_and_range, table
from opjax.problems import darcy

_SIDE = 29  # points, those of the quick preset
_HEADINGS = "second basis direction", "norm of the maps", "condition number"


def text(variants: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """Returns the table of variants that have functional maps, on Darcy flow.

    Args:
      variants: configurations of `experiments.darcy` by name.
      seeds: of the initial parameters.
    """
    lines = []
    with jax.enable_x64(False):
        points, coefficient = _sample()
        for name, config in variants.items():
            try:
                rows = measure(config, seeds, points, coefficient)
            except ValueError:  # an attention without maps to be solved for
                continue
            cells = zip(*rows, strict=True)
            lines.append([name, *(median_and_range(cell, digits=3) for cell in cells)])
    return (
        "Before training, on one permeability: the second singular value of the first "
        "layer's basis over its first, zero if all functions are the same; the "
        "Frobenius norm of its functional maps; the condition number of the systems. "
        "Median [smallest, largest] over the seeds of means over heads.\n\n"
        + table(["model", *_HEADINGS], lines)
    )


def measure(
    config: Any, seeds: Sequence[int], points: jax.Array, coefficient: jax.Array
) -> list[tuple[float, float, float]]:
    """Returns the numbers of a model at its starts, one for each seed, see `text`.

    Raises:
      ValueError: if its attention solves no systems.
    """
    box = ((0.0, 0.0), (1.0, 1.0))
    sizes = operators.Sizes(2, 1, 1, (_SIDE, _SIDE), len(points), box)

    @jax.jit
    def look(model: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        conditions = model.condition_numbers(points, coefficient)
        seen = model.inspect(points, coefficient)
        return conditions, seen.functional_map[0], seen.key_basis[0]

    rows = []
    for seed in seeds:
        model = operators.build(config, sizes, rngs=nnx.Rngs(seed))
        conditions, maps, basis = map(np.asarray, look(model))
        values = np.linalg.svd(basis, compute_uv=False)
        norms = np.linalg.norm(maps, axis=(1, 2))
        ratio = np.mean(values[:, 1] / values[:, 0])
        rows.append((float(ratio), float(norms.mean()), float(conditions.mean())))
    return rows


def _sample() -> tuple[jax.Array, jax.Array]:
    """Points and normalised permeability of a sample."""
    flow = darcy.sample(jax.random.key(0), num_points=2 * _SIDE - 1, stride=2)
    line = jnp.linspace(0, 1, _SIDE)
    points = jnp.stack(jnp.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    values = jnp.asarray(flow.coefficient, jnp.float32).reshape(-1, 1)
    return points, (values - values.mean()) / values.std()
