"""Figures of predicted flows: error against step, and frames of one flow."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from opjax.datasets.samples import Sample
from opjax.learn import drawing

NUM_SHOWN = 1  # flows in `predictions.npz`


def draw(test: Sequence[Sample], folder: pathlib.Path, names: Sequence[str]) -> None:
    """Draws `steps.png` and `fields.png`.

    Args:
      test: test flows.
      folder: of the run, with a folder `<name>-<seed>` and `predictions.npz` for every
        member.
      names: of the models.
    """
    members = {name: sorted(folder.glob(f"{name}-[0-9]*")) for name in names}
    loaded = {name: [_load(path) for path in paths] for name, paths in members.items()}
    _draw_steps(test, folder, loaded)
    _draw_fields(test[0], folder, {name: runs[0] for name, runs in loaded.items()})


def _load(member: pathlib.Path) -> dict[str, np.ndarray]:
    with np.load(member / "predictions.npz") as file:
        return dict(file)


def _draw_steps(
    test: Sequence[Sample],
    folder: pathlib.Path,
    loaded: dict[str, list[dict[str, np.ndarray]]],
) -> None:
    """Mean errors of every step, a line for each seed, and of the last true frame."""
    figure = drawing.new_figure(5.0, 3.4, "constrained")
    axis = figure.subplots()
    steps = np.arange(1, next(iter(loaded.values()))[0]["step_errors"].shape[1] + 1)
    for index, (name, runs) in enumerate(loaded.items()):
        for seed, run in enumerate(runs):
            label = None if seed else name
            means = run["step_errors"].mean(axis=0)
            axis.plot(steps, means, ".-", color=f"C{index}", label=label)
    axis.plot(steps, _persistence(test), "--", color="0.5", label="last true frame")
    axis.set(xlabel="predicted frame", ylabel="relative $L^2$ error", ylim=(0, None))
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.legend(frameon=False)
    drawing.save(figure, folder / "steps.png")


def _persistence(test: Sequence[Sample]) -> np.ndarray:
    """Mean errors of the prediction that nothing moves any more."""
    errors = []
    for sample in test:
        history, target = _frames(sample)
        difference = np.linalg.norm(target - history[:, -1:], axis=0)
        errors.append(difference / np.linalg.norm(target, axis=0))
    return np.mean(errors, axis=0)


def _draw_fields(
    sample: Sample, folder: pathlib.Path, loaded: dict[str, dict[str, np.ndarray]]
) -> None:
    """Truth, and prediction and error of every model, at three steps."""
    history, target = _frames(sample)
    shape = sample.grid_shape
    assert shape is not None
    last = target.shape[1] - 1
    steps = (0, last // 2, last)
    figure = drawing.new_figure(2.4 * (2 + 2 * len(loaded)), 2.4 * len(steps))
    axes = figure.subplots(len(steps), 2 + 2 * len(loaded), squeeze=False)

    def show(axis: Any, values: np.ndarray, title: str, limit: float) -> None:
        image = axis.imshow(
            values.reshape(shape).T,
            origin="lower",
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
        )
        axis.set(xticks=[], yticks=[])
        axis.set_title(title, fontsize=9)
        drawing.add_colorbar(figure, image, axis)

    for row, step in zip(axes, steps, strict=True):
        truth = target[:, step]
        limit = float(np.abs(truth).max())
        show(row[0], history[:, -1], "last input frame", float(np.abs(history).max()))
        show(row[1], truth, f"truth, frame {step + 1}", limit)
        for index, (name, run) in enumerate(loaded.items()):
            found = run["frames"][0, :, step]
            show(row[2 + 2 * index], found, name, limit)
            error = float(np.linalg.norm(found - truth) / np.linalg.norm(truth))
            title = f"{name}: error, {error:.2g}"
            show(row[3 + 2 * index], found - truth, title, limit)
    drawing.save(figure, folder / "fields.png")


def _frames(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    assert sample.features is not None
    assert sample.target is not None
    return sample.features, sample.target
