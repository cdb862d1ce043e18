"""Figures of formed blocks: error against time, and the mesh of one die."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from opjax.datasets.samples import Sample
from opjax.learn import drawing


def draw(
    sample: Sample, truth: np.ndarray, folder: pathlib.Path, names: Sequence[str]
) -> None:
    """Draws `times.png` and `fields.png`.

    Args:
      sample: the first test sample, for its grid.
      truth: its coordinates and displacements, `(frames, n, 4)`.
      folder: of the run, with a folder `<name>-<seed>` and `predictions.npz` for every
        member.
      names: of the models.
    """
    loaded = {}
    for name in names:
        for member in sorted(folder.glob(f"{name}-[0-9]*")):
            with np.load(member / "predictions.npz") as file:
                loaded.setdefault(name, []).append(dict(file))
    _draw_times(folder, loaded)
    assert sample.grid_shape is not None
    motions = {name: runs[0]["motion"] for name, runs in loaded.items()}
    _draw_meshes(folder, sample.grid_shape, truth, motions)


def _draw_times(
    folder: pathlib.Path, loaded: dict[str, list[dict[str, np.ndarray]]]
) -> None:
    """Mean errors of every frame, a line for each seed."""
    figure = drawing.new_figure(5.0, 3.4, "constrained")
    axis = figure.subplots()
    for index, (name, runs) in enumerate(loaded.items()):
        for seed, run in enumerate(runs):
            means = run["frame_errors"].mean(axis=0)
            label = None if seed else name
            axis.plot(
                np.arange(1, len(means) + 1), means, ".-", c=f"C{index}", label=label
            )
    axis.set(
        xlabel="frame",
        ylabel="error of displacements\nover their largest norm",
        yscale="log",
    )
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.legend(frameon=False)
    drawing.save(figure, folder / "times.png")


def _draw_meshes(
    folder: pathlib.Path,
    shape: tuple[int, ...],
    truth: np.ndarray,
    motions: dict[str, np.ndarray],
) -> None:
    """True and predicted meshes of a middle and the last frame, coloured by errors."""
    frames = (len(truth) // 2, len(truth) - 1)
    figure = drawing.new_figure(5.0 * len(frames), 2.0 * (1 + len(motions)))
    axes = figure.subplots(
        1 + len(motions), len(frames), squeeze=False, sharex=True, sharey=True
    )
    axes[0, 0].set(
        xlim=(truth[..., 0].min() - 1, truth[..., 0].max() + 1),
        ylim=(truth[..., 1].min() - 1, truth[..., 1].max() + 1),
    )
    for column, frame in enumerate(frames):
        size = np.linalg.norm(truth[frame, :, 2:], axis=1)
        title = f"frame {frame + 1}: truth, displacement in mm"
        _mesh(figure, axes[0, column], shape, truth[frame], size, title)
        for row, (name, motion) in enumerate(motions.items(), start=1):
            difference = motion[frame, :, 2:] - truth[frame, :, 2:]
            size = np.linalg.norm(difference, axis=1)
            title = f"{name}: error in mm"
            _mesh(figure, axes[row, column], shape, motion[frame], size, title)
    drawing.save(figure, folder / "fields.png")


def _mesh(
    figure: Any,
    axis: Any,
    shape: tuple[int, ...],
    values: np.ndarray,
    colours: np.ndarray,
    title: str,
) -> None:
    x, y = (values[:, i].reshape(shape) for i in (0, 1))
    image = axis.pcolormesh(x, y, colours.reshape(shape), shading="gouraud")
    axis.plot(x, y, color="k", linewidth=0.2)
    axis.plot(x.T, y.T, color="k", linewidth=0.2)
    axis.set_aspect("equal")
    axis.set_title(title, fontsize=9)
    drawing.add_colorbar(figure, image, axis)
