"""Smallest usable ridge: float32 compared with float64, without training."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

import opjax
from opjax.learn.tables import table

# Below, the reference in float64 loses its digits too.
LOGITS = (6, 3, 0, -2, -4, -6, -8, -10, -12, -16, -20)
_COLUMNS = ("logit", "ridge", "condition", "value_error", "gradient_error")


def text(rows: Sequence[dict[str, float]]) -> str:
    """Returns the part of the tables about `boundary`."""
    cells = [[f"{row[name]:.3g}" for name in _COLUMNS] for row in rows]
    return (
        "## How small a ridge float32 allows, no training\n\n"
        "Relative errors against float64 of one attention and its gradient in the key "
        "coefficients: 32 of smooth functions with 16 channels, a system that is "
        "singular without a ridge. No value is NaN: past an error of one they are "
        "noise.\n\n" + table([name.replace("_", " ") for name in _COLUMNS], cells)
    )


def boundary() -> list[dict[str, float]]:
    """Measures what float32 makes of smaller and smaller ridges.

    The coefficients of smooth functions, whose singular values fall fast, with twice as
    many basis functions as channels: without a ridge the system is singular. Nothing
    becomes NaN: where the ridge is below the rounding of the system, the solution of a
    singular system is noise, of an error above one. A ridge near one loses digits too,
    those of `1 - ridge`.

    Returns:
      For every logit, from large to small, the ridge, the condition number, and the
      relative errors of value and gradient in key coefficients against float64.
    """
    with jax.enable_x64(True):
        return [_measured(logit) for logit in LOGITS]


def _measured(logit: float) -> dict[str, float]:
    exact, single = (_value_and_gradient(logit, t) for t in (np.float64, np.float32))
    ridge = jax.nn.sigmoid(jnp.float64(logit))
    key = _coefficients(np.float64)[1]
    condition = opjax.condition_number(key, ridge=opjax.Convex(ridge))
    errors = [
        np.linalg.norm(values - true) / np.linalg.norm(true)
        for values, true in zip(single, exact, strict=True)
    ]
    numbers = map(float, (logit, ridge, condition, *errors))
    return dict(zip(_COLUMNS, numbers, strict=True))


def _coefficients(dtype: DTypeLike) -> list[jax.Array]:
    """Queries, keys and values, `(32, 16)`, of smooth functions of 256 points."""
    x = jnp.linspace(0, 1, 256, dtype=jnp.float64)[:, None]
    centres = jnp.linspace(0, 1, 32, dtype=jnp.float64)[None, :]
    basis = opjax.softmax_basis(-8 * (x - centres) ** 2)
    modes = opjax.fourier_basis(x, num_frequencies=3)
    mixing = jax.random.normal(jax.random.key(0), (3, 7, 16), jnp.float64)
    return [
        opjax.project(modes @ m, basis, projection=opjax.Means()).astype(dtype)
        for m in mixing
    ]


def _value_and_gradient(
    logit: float, dtype: DTypeLike
) -> tuple[np.ndarray, np.ndarray]:
    query, key, value = _coefficients(dtype)
    ridge = jax.nn.sigmoid(jnp.asarray(logit, dtype))

    def moved(key: jax.Array) -> jax.Array:
        return opjax.transport(query, key, value, ridge=opjax.Convex(ridge))

    gradient = jax.grad(lambda key: jnp.sum(moved(key) ** 2))(key)
    return np.asarray(moved(key)), np.asarray(gradient)
