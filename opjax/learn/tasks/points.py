"""Requirements of training on random subsets of points, checked before the training."""

from collections.abc import Sequence
from typing import Any

from opjax.learn.registry import operators
from opjax.learn.registry.entries import Sizes
from opjax.samples import Sample, summaries


def check(
    config: Any, train: Sequence[Sample], sizes: Sizes, *, obstacle: str = ""
) -> None:
    """Raises ValueError if steps should use random points but cannot.

    Args:
      config: configuration with `models`; its `train_points` are fractions, by default
        all points.
      train: the training samples.
      sizes: sizes of all samples.
      obstacle: part of the task that needs all points, if any.
    """
    shares = getattr(config, "train_points", (1.0,))
    if set(shares) == {1.0}:
        return
    said = f"train_points={','.join(map(str, shares))}"
    if obstacle:
        raise ValueError(f"{said}: {obstacle}; omit it.")
    for name in config.models:
        reason = _obstacle(config, name, sizes)
        if reason:
            raise ValueError(f"{said}: models={name!r} {reason}.")
    options = [operators.entry(name).min_points for name in config.models]
    least = max([1, *(getattr(config, option) for option in options if option)])
    fewest = min(summaries.num_points(train))
    left = min(min(share, fewest) if share > 1 else share * fewest for share in shares)
    if left < least:
        raise ValueError(
            f"{said} leaves {left:.3g} of the {fewest} points of the smallest "
            f"training mesh, but at least {least} are needed; use a larger "
            "fraction."
        )


def _obstacle(config: Any, name: str, sizes: Sizes) -> str:
    """Why a model cannot be trained on some of the points; empty if it can."""
    entry = operators.entry(name)
    if entry.grid_axes:
        return "needs the whole grid; omit train_points or use another model"
    if entry.fixed_points:
        return "needs a fixed number of points; omit train_points or use another model"
    convolves = getattr(config, "convolution", False)
    reads = "convolution" in operators.options_of(name)
    if sizes.grid_shape is not None and convolves and reads:
        return (
            "has convolutions, which need the whole grid; add --noconvolution or leave "
            "train_points out"
        )
    return ""


def epochs_of(config: Any, counts: Sequence[int]) -> int:
    """Returns the equivalent number of epochs on all points, rounded; at least one.

    A fraction applies to the padded points. For a fixed number of points, padding adds
    no cost.

    Args:
      config: configuration, optionally with `num_epochs`, `num_steps`, `train_points`
        and `full_points`.
      counts: numbers of points of the training samples.
    """
    epochs = getattr(config, "num_epochs", 1)
    if steps := getattr(config, "num_steps", 0):
        epochs = steps * config.batch_size / len(counts)
    shares = getattr(config, "train_points", (1.0,))
    if set(shares) == {1.0}:
        return max(1, round(epochs))
    full = getattr(config, "full_points", 0.0)
    few = [0 if share > 1 else share for share in shares]
    return max(1, round(epochs * (full + (1 - full) * sum(few) / len(few))))
