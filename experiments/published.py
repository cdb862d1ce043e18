"""Published set-ups: their commands, sizes and results.

    python -m experiments.published --state=DIR

Writes the table of `results/published.md`, below its marker. With --state it includes
the results of `experiments.paper_runs` in DIR. Set-ups that have not run show the hours
of `experiments.published_hours`. `SETUPS` lists the set-ups in the order in which they
should be run. Errors are those of the papers. Parameters are counted as in the authors'
programs, without those that do not affect the output.
"""

import dataclasses
import importlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from absl import flags
from flax import nnx

from opjax.learn import Options, option
from opjax.learn.cli import command_line, report
from opjax.learn.json_files import read_object, write_json
from opjax.learn.registry import operators
from opjax.learn.tables import table

PAPERS = {
    "001": "[Functional Attention](https://arxiv.org/abs/2605.31559)",
    "004": "[Choose a Transformer](https://arxiv.org/abs/2105.14995)",
    "T": "[Transolver](https://arxiv.org/abs/2402.02366), quoted in 001",
    "F": "[FLARE](https://arxiv.org/abs/2508.12594), read off its bar chart",
    "G": "[GNOT](https://arxiv.org/abs/2302.14376), quoted in 001; set-up of "
    "Neural-Solver-Library",
    "O": "ONO, [Improved operator learning](https://arxiv.org/abs/2310.12487), quoted "
    "in 001",
    "L": "[Latent Neural Operator](https://arxiv.org/abs/2406.03923)",
}
_MOST_HOURS = 48  # on two cores
_FOLDER = pathlib.Path(__file__).parents[1] / "results"
_SETUPS = pathlib.Path(__file__).with_name("published_setups.json")


class Setup(NamedTuple):
    """A published set-up.

    Attributes:
      name: `<data>/<model>`.
      module: of `experiments`.
      flags: of the command, without those that say where data are.
      paper: key of `PAPERS`.
      row: where the error is.
      parameters: of the authors' program; None where neither it nor the paper says.
      error: relative L2 error of the test samples, or what `metric` says. None where
        the paper has a figure only.
      metric: key of the program's last line that compares with it.
    """

    name: str
    module: str
    flags: tuple[str, ...]
    paper: str
    row: str
    parameters: int | None
    error: float | None
    metric: str = "relative_l2"

    @property
    def command(self) -> str:
        """What to type."""
        return " ".join(["python -m", f"experiments.{self.module}", *self.flags])

    def written(self, error: float | None) -> str:
        """An error in words: mean square errors as they are, all others in per cent."""
        if error is None:
            return "a figure"
        squared = self.metric.startswith("mse")
        return f"MSE {error:.3g}" if squared else f"{100 * error:.4g} %"

    def data(self, data_dir: str | None) -> pathlib.Path | None:
        """The folder of its published files, if there is one in that of all."""
        folder = pathlib.Path(data_dir or "") / self.module
        return folder if data_dir and folder.is_dir() else None

    def config(self) -> Any:
        """The configuration that the command stands for."""
        presets = importlib.import_module(f"experiments.{self.module}").PRESETS
        values = flags.FlagValues()
        command_line.define_flags(presets, flag_values=values)
        values(["published", *self.flags])
        return command_line.read_flags(presets, flag_values=values)


def _setups() -> tuple[Setup, ...]:
    """Set-ups of a file: their programs are called as the data they are on."""
    setups: list[Setup] = []
    for row in json.loads(_SETUPS.read_text()):
        row["module"] = row["name"].partition("/")[0]
        row["flags"] = tuple(row["flags"].split())
        setups.append(Setup._make(row[field] for field in Setup._fields))
    return tuple(setups)


SETUPS = _setups()


def parameters(setup: Setup) -> int:
    """Counts the parameters of our model of a set-up, without making it."""
    (member, *_) = setup.config().members().values()
    program = importlib.import_module(f"experiments.{setup.module}")

    def build(key: jax.Array) -> Any:
        rngs = nnx.Rngs(key)
        if setup.module in _SIZES:
            return operators.build(member, _sizes(setup.module, member), rngs=rngs)
        return program.build(member, rngs)

    with jax.enable_x64(False):
        model = jax.eval_shape(build, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(model))


# Channels of input and output, and the grid, that programs find in their samples.
_SIZES = {
    "airfoil": (0, 1, (221, 51)),
    "darcy": (1, 1, None),  # depends on the stride
    "darcy_notch": (1, 1, (51, 51)),
    "elasticity": (0, 1, None),
    "navier_stokes": (10, 1, (64, 64)),
    "pipe": (0, 1, (129, 129)),
    "plasticity": (1, 4, (101, 31)),
}


def _sizes(module: str, config: Any) -> operators.Sizes:
    """Sizes of the samples of a program."""
    inputs, outputs, grid = _SIZES[module]
    if module == "pipe" and config.split == "functional":
        inputs = 2
    if module == "darcy":
        grid = 2 * ((config.num_points - 1) // config.stride + 1,)
    box = ((0.0, 0.0), (1.0, 1.0))
    timed = module == "plasticity"
    return operators.Sizes(2, inputs, outputs, grid, 972, box, time_embedding=timed)


def page(results: Mapping[str, str], hours: Mapping[str, Mapping[str, Any]]) -> str:
    """The table, with what set-ups have reached or what they would take, by name."""
    columns = ["set-up", "command", "parameters, published"]
    columns += ["ours", "published", "so far"]
    rows = [
        [
            setup.name,
            f"`{setup.command}`",
            "–" if setup.parameters is None else f"{setup.parameters:,}",
            f"{parameters(setup):,}",
            f"{setup.written(setup.error)} ({setup.paper}, {setup.row})",
            results.get(setup.name) or _not_run(hours.get(setup.name)),
        ]
        for setup in SETUPS
    ]
    listed = "".join(f"- {key}: {paper}\n" for key, paper in PAPERS.items())
    return f"{table(columns, rows)}\n{listed}"


def _not_run(cost: Mapping[str, Any] | None) -> str:
    """Says what a training would take, as `experiments.published_hours` knows it."""
    if cost is None:
        return "not run yet"
    hours = cost["hours"]
    shown = f"{hours:.0f}" if hours >= 10 else f"{hours:.1f}"
    text = f"not run; {shown} hours on two cores, {cost['source']}"
    return f"{text}; needs a GPU" if hours > _MOST_HOURS else text


def read_stored(path: pathlib.Path) -> dict[str, Any]:
    """The values of a file, none if it does not exist."""
    return read_object(path) if path.exists() else {}


def known(stored: pathlib.Path, state: pathlib.Path | None) -> dict[str, str]:
    """What set-ups have reached: what is stored, and what a queue has added to it."""
    results = read_stored(stored)
    if state is not None:
        results |= read_object(state / "published.json")
        write_json(stored, results)
    return results


def write(state: pathlib.Path | None, folder: pathlib.Path = _FOLDER) -> dict[str, Any]:
    """Writes the table into its page, and what it knows to `published.json`."""
    results = known(folder / "published.json", state)
    path, hours = folder / "published.md", read_stored(folder / "published_hours.json")
    kept = path.read_text().partition(report.MARK)[0]
    path.write_text(f"{kept}{report.MARK}\n\n{page(results, hours)}")
    return {"page": str(path), "set_ups": len(SETUPS), "finished": len(results)}


@dataclasses.dataclass(frozen=True)
class PageOptions(Options):
    """What the table is of."""

    state: str | None = option(
        None, "Folder of experiments.paper_runs whose results are added to the table"
    )


def work(options: PageOptions) -> dict[str, Any]:
    """Writes the table that the options ask for."""
    return write(None if options.state is None else pathlib.Path(options.state))


def main() -> None:
    """Writes the table that the flags ask for."""
    command_line.launch(PageOptions, work, doc=__doc__, continues=True)


if __name__ == "__main__":
    main()
