"""Predicted scalars of the test samples, and their errors."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax import metrics
from opjax.learn.named_types import Numbers
from opjax.learn.predict.scaling import Scaling
from opjax.samples import Sample

WEIGHT = 0.1  # of errors of scalars beside those of the output function


def over_std(guess: jax.Array, true: jax.Array, std: ArrayLike) -> jax.Array:
    """Returns the RMS error of scalars, each divided by its standard deviation.

        sqrt(mean_j ((r_j - s_j) / d_j)^2 + 1e-12).

    Its gradient is defined even if all predictions are exact.

    Args:
      guess: predicted scalars, in physical units, `(t,)`.
      true: true scalars, `(t,)`.
      std: standard deviations over the training samples.
    """
    return jnp.sqrt(jnp.mean(((guess - true) / std) ** 2) + 1e-12)


def names_of(names: Mapping[str, Sequence[str]], count: int) -> Sequence[str]:
    """Returns the names of the target scalars; generates missing names.

    Args:
      names: names of the channels, by array.
      count: number of target scalars.
    """
    return names.get("target_scalars") or [f"scalar_{i}" for i in range(count)]


def errors(
    predicted: np.ndarray, truth: np.ndarray, names: Sequence[str] | None
) -> Numbers:
    """Returns mean absolute error, R^2 and rank correlation of each scalar.

    If all true values are equal, R^2 and rank correlation are omitted; if all
    predictions are equal, the rank correlation is omitted.

    Args:
      predicted: predicted scalars of the test samples, `(num_test, t)`.
      truth: true scalars, `(t,)`.
      names: names of the scalars.

    Returns:
      `NAME_error`, `NAME_r2` and `NAME_rank`, Spearman's rank correlation.
    """
    listed = names or names_of({}, truth.shape[1])
    numbers: Numbers = {}
    columns = (np.asarray(values, np.float64).T for values in (predicted, truth))
    for name, guess, true in zip(listed, *columns, strict=True):
        numbers[f"{name}_error"] = float(np.abs(guess - true).mean())
        pairs = agreement(guess, true).items()
        numbers |= {f"{name}_{kind}": value for kind, value in pairs}
    return numbers


def physical(
    scaling: Scaling | None, samples: Sequence[Sample], scalars: np.ndarray
) -> np.ndarray:
    """Returns predicted scalars of samples in physical units."""
    if scaling is None:
        return scalars
    pairs = zip(scalars, samples, strict=True)
    return np.stack([scaling.physical(*pair, role="target_scalars") for pair in pairs])


def agreement(predicted: np.ndarray, true: np.ndarray) -> Numbers:
    """Returns `r2` and `rank` of one quantity where they are defined, in float64.

    r2 = 1 - sum_i (r_i - s_i)^2 / sum_i (s_i - mean(s))^2.
    """
    numbers: Numbers = {}
    if np.ptp(true) > 0:
        with jax.enable_x64(True):
            numbers["r2"] = float(metrics.r_squared(predicted, true))
            if np.ptp(predicted) > 0:
                numbers["rank"] = float(metrics.rank_correlation(predicted, true))
    return numbers


def mean_and_worst(errors: np.ndarray) -> Numbers:
    """Returns the mean and the largest error of the test samples.

    Args:
      errors: errors of the scalars of each sample, divided by their standard deviation
        in training.
    """
    worst = float(errors.max())
    return {"error_over_std": float(errors.mean()), "error_over_std_worst": worst}
