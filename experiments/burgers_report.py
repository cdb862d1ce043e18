"""Result, table and figure of the Burgers program."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from experiments.burgers_data import Data
from opjax.learn import drawing, members
from opjax.learn.fitting import read_metrics
from opjax.learn.folder import write_json, write_text
from opjax.learn.provenance import provenance


def write(
    folder: pathlib.Path,
    config: Any,
    results: Mapping[str, Sequence[dict[str, Any]]],
    data: Data,
    *,
    seconds: float,
) -> dict[str, Any]:
    """Writes `tables.md`, `members.json` and two figures; returns the result.

    Args:
      folder: of the run.
      config: of the run.
      results: as from `members.run_all`.
      data: the samples.
      seconds: wall time of this process.

    Returns:
      What the last line of the program says.
    """
    errors = [f"error_{points}" for points in config.grids]
    columns = {name: (f"error on {name[6:]}, x 1000", 1e3) for name in errors}
    columns |= {"ratio": ("last over first", 1.0), "seconds": ("seconds", 1.0)}
    write_json(folder / "members.json", dict(results))
    text = [
        "# Burgers' equation\n",
        f"Relative L2 error of {config.num_test} test samples, mean ± standard "
        f"deviation over the seeds {config.seeds}; trained on {config.num_points} "
        f"points and {config.num_train} samples for {config.num_epochs} epochs. Data: "
        f"{data.source}.\n",
        provenance(folder, seconds=seconds),
        members.comparison(results, columns),
    ]
    write_text(folder / "tables.md", "\n".join(text))
    first = int(config.seeds.split(",")[0])
    _draw_samples(folder, config, list(results), first, data)
    _draw_curves(folder, list(results), first)
    device = jax.devices()[0]
    best = min(
        results, key=lambda name: members.summary(results, errors)[_last(name, errors)]
    )
    return {
        **members.summary(results, [*errors, "ratio", "seconds"]),
        **{
            f"parameters_{name}": rows[0]["parameters"]
            for name, rows in results.items()
        },
        "best": best,
        "seconds": seconds,
        "preset": config.preset,
        "seeds": list(members.seed_numbers(config.seeds)),
        "data": data.source,
        "device": f"{device.platform} ({device.device_kind})",
        "workdir": str(folder),
    }


def _last(name: str, errors: Sequence[str]) -> str:
    return f"{errors[-1]}_{name}"


def _draw_samples(
    folder: pathlib.Path, config: Any, names: Sequence[str], seed: int, data: Data
) -> None:
    figure = drawing.new_figure(12.0, 5.0)
    axes = figure.subplots(2, 4, sharex=True, squeeze=False)
    points = config.grids[-1]
    x = np.arange(points) / points
    test = data.tests[points]
    for column in range(min(4, config.num_test)):
        top, bottom = axes[:, column]
        top.plot(x, test["initial"][column, :, 0], color="0.7", label="initial")
        top.plot(x, test["solution"][column, :, 0], color="black", label="final")
        for name in names:
            stored = np.load(folder / f"{name}-{seed}" / "predictions.npz")
            prediction = stored[str(points)][column]
            top.plot(x, prediction, "--", linewidth=1, label=name)
            error = np.abs(prediction - test["solution"][column, :, 0])
            bottom.semilogy(x, error + 1e-9, linewidth=0.8, label=name)
        bottom.set(xlabel="x", ylim=(1e-6, None))
    axes[0, 0].set_ylabel(f"state on {points} points")
    axes[1, 0].set_ylabel("absolute error")
    axes[0, 0].legend(fontsize=7)
    drawing.save(figure, folder / "samples.png")


def _draw_curves(folder: pathlib.Path, names: Sequence[str], seed: int) -> None:
    figure = drawing.new_figure(6.0, 3.5)
    axis = figure.subplots()
    for name in names:
        rows = read_metrics(folder / f"{name}-{seed}")
        axis.semilogy(
            [row["epoch"] for row in rows],
            [row["validation"] for row in rows],
            label=name,
        )
    axis.set(xlabel="epoch", ylabel="relative L2 error, validation")
    axis.legend()
    axis.grid(alpha=0.3)
    drawing.save(figure, folder / "curves.png")
