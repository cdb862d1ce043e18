"""Result, table and figure of the inverse Darcy program."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from experiments.darcy_inverse_data import Data
from opjax.learn import drawing, members
from opjax.learn.folder import write_json, write_text
from opjax.learn.provenance import provenance
from opjax.learn.tables import mean_and_deviation, table

Results = Mapping[str, Sequence[dict[str, Any]]]

# Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), Table 3: errors x 100 at
# these noises, by the points per side of fine and coarse grid.
_PAPER_NOISES = (0.0, 0.01, 0.1)
_PAPER = {
    (141, 36): {
        "galerkin": ("GT Ln on K, V", (1.944, 2.552, 6.689)),
        "fourier": ("FT Ln on Q, K", (1.921, 2.717, 6.725)),
        "softmax": ("ST Ln on Q, K", (2.160, 2.807, 6.995)),
        "linear": ("LT Ln on K, V", (2.360, 3.196, 8.656)),
        "fno": ("FNO2d (only nc)", (14.17, 14.31, 17.30)),
    },
    (211, 71): {
        "galerkin": ("GT Ln on K, V", (1.651, 2.729, 7.903)),
        "fourier": ("FT Ln on Q, K", (1.523, 2.691, 8.286)),
        "softmax": ("ST Ln on Q, K", (1.889, 3.123, 8.788)),
        "linear": ("LT Ln on K, V", (2.136, 3.539, 9.622)),
        "fno": ("FNO2d (only nc)", (13.60, 13.69, 16.04)),
    },
}


def write(
    folder: pathlib.Path, config: Any, results: Results, data: Data, *, seconds: float
) -> dict[str, Any]:
    """Writes `tables.md`, `members.json` and the figure; returns the result.

    Args:
      folder: of the run.
      config: of the run.
      results: as from `members.run_all`.
      data: the samples.
      seconds: wall time of this process.

    Returns:
      What the last line of the program says.
    """
    write_json(folder / "members.json", dict(results))
    grids = config.grid_shape[0], config.coarse_shape[0]
    paper = grids if grids in _PAPER else (141, 36)
    text = [
        "# Inverse Darcy flow: the coefficient from a noisy solution\n",
        f"Relative L2 error x 100 of {config.num_test} test samples, mean ± standard "
        f"deviation over the seeds {config.seeds}, beside Table 3 of arXiv:2105.14995. "
        f"Ours: {grids[0]} points per side, {grids[1]} of the coarse grid, "
        f"{config.num_train} training samples, {config.num_epochs} epochs; the "
        f"paper's: {paper[0]} and {paper[1]}, 1024, 100. Data: {data.source}.\n",
        provenance(folder, seconds=seconds),
        _table(config, results, _PAPER[paper]),
    ]
    write_text(folder / "tables.md", "\n".join(text))
    _draw(folder, config)
    device = jax.devices()[0]
    first = config.noise_sizes[0]
    return {
        **members.summary(results, ["error"]),
        **{
            f"parameters_{name}": results[member_name(name, first)][0]["parameters"]
            for name in config.model_names
        },
        "seconds": seconds,
        "preset": config.preset,
        "seeds": list(members.seed_numbers(config.seeds)),
        "data": data.source,
        "device": f"{device.platform} ({device.device_kind})",
        "workdir": str(folder),
    }


def member_name(model: str, noise: float) -> str:
    """Returns the name of a model trained with a noise, such as `galerkin_0.01`."""
    return f"{model}_{noise:g}"


def _table(
    config: Any, results: Results, paper: Mapping[str, tuple[str, Sequence[float]]]
) -> str:
    columns = ["model", "parameters", "seconds each"]
    for noise in config.noise_sizes:
        columns += [f"noise {noise:g}", "paper"]
    lines = []
    for model in config.model_names:
        label, published = paper[model]
        cells = dict(zip(_PAPER_NOISES, published, strict=True))
        rows = [results[member_name(model, noise)] for noise in config.noise_sizes]
        seconds = np.mean([row["seconds"] for group in rows for row in group])
        line = [
            f"{model} (paper: {label})",
            f"{rows[0][0]['parameters']:,}",
            f"{seconds:.0f}",
        ]
        for noise, group in zip(config.noise_sizes, rows, strict=True):
            line.append(mean_and_deviation([row["error"] for row in group], 100))
            line.append(f"{cells[noise]:.4g}" if noise in cells else "")
        lines.append(line)
    return table(columns, lines)


def _draw(folder: pathlib.Path, config: Any) -> None:
    """Draws the first test sample: noisy input, coefficient and what models say."""
    seed = members.seed_numbers(config.seeds)[0]
    names, noises = config.model_names, config.noise_sizes
    figure = drawing.new_figure(2.6 * (2 + len(names)), 2.6 * len(noises))
    axes = figure.subplots(len(noises), 2 + len(names), squeeze=False)
    for row, noise in zip(axes, noises, strict=True):
        stored = {
            name: np.load(
                folder / f"{member_name(name, noise)}-{seed}" / "predictions.npz"
            )
            for name in names
        }
        first = stored[names[0]]
        truth = first["coefficient"][0]
        colours = {"cmap": "cividis", "vmin": truth.min(), "vmax": truth.max()}
        _image(figure, row[0], first["measurement"][0], "solution", cmap="viridis")
        _image(figure, row[1], truth, "coefficient", **colours)
        for axis, name in zip(row[2:], names, strict=True):
            error = 100 * float(stored[name]["errors"][0])
            title = f"{name}, error {error:.3g} %"
            _image(figure, axis, stored[name]["prediction"][0], title, **colours)
        row[0].set_ylabel(f"noise {noise:g}")
    drawing.save(figure, folder / "samples.png")


def _image(
    figure: Any, axis: Any, values: np.ndarray, title: str, **colours: Any
) -> None:
    image = axis.imshow(values.T, origin="lower", extent=(0, 1, 0, 1), **colours)
    axis.set_title(title, fontsize=9)
    axis.set(xticks=[], yticks=[])
    drawing.add_colorbar(figure, image, axis)
