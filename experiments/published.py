"""Published set-ups: their commands, sizes and results.

    python -m experiments.published --state=DIR

Writes the table of `results/published.md`, below its marker. With --state it includes
the results of `experiments.paper_runs` in DIR. Set-ups that have not run show the hours
of `experiments.published_hours`. `SETUPS` lists the set-ups in the order in which they
should be run. Errors are those of the papers. Parameters are counted as in the authors'
programs, without those that do not affect the output.
"""

import importlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from absl import flags
from flax import nnx

from opjax.learn.cli import command_line, report
from opjax.learn.json_files import write_json
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

    def config(self) -> Any:
        """The configuration that the command stands for."""
        presets = importlib.import_module(f"experiments.{self.module}").PRESETS
        values = flags.FlagValues()
        command_line.define_flags(presets, flag_values=values)
        values(["published", *self.flags])
        return command_line.read_flags(presets, flag_values=values)


def _setup(
    name: str, row: str, parameters: int | None, error: float | None, *given: str
) -> Setup:
    """A set-up of the program `<data>`, `--preset=paper --models=<model>`."""
    module, _, model = name.partition("/")
    paper, _, row = row.partition(" ")
    own = tuple(flag for flag in given if flag.startswith("--"))
    metric = [word for word in given if not word.startswith("--")]
    metric.append(_METRICS.get(module, "relative_l2"))
    command = ("--preset=paper", f"--models={model.partition(' ')[0]}", *own)
    return Setup(name, module, command, paper, row, parameters, error, metric[0])


def _cao(
    name: str, table: str, errors: tuple[float | None, ...], *given: str
) -> tuple[Setup, ...]:
    """Set-ups of a column of a table of 004, one for each attention.

    `errors` are in the unit of the table, in the order of `_ATTENTIONS`, with None for
    a set-up that is listed elsewhere. The attention stands for `*` in `name`.
    """
    unit = 1e-3 if table == "2a" else 1e-2
    known = None if "regular" in name else _PARAMETERS.get(name.partition("/")[0])
    return tuple(
        _setup(
            name.replace("*", model),
            f"004 Table {table}",
            2_368_001 if known and model == "fno" else known,
            unit * error,
            *given,
        )
        for model, error in zip(_ATTENTIONS, errors, strict=False)
        if error is not None
    )


_ATTENTIONS = ("galerkin", "fourier", "softmax", "linear", "fno")
_PARAMETERS = {"darcy": 2_220_829, "darcy_inverse": 2_383_873}
_METRICS = {"rna": "accuracy", "airfrans": "lift_error", "darcy_inverse": "error"}
_FINE = "--stride=2"  # the finer one of two grids
_FINER = _FINE, "--target_stride=6"  # of the inverse problem
_FINE_2D = _FINE, "--model_options=coarse_points=61,norm_epsilon=1e-5"
_REGULAR = "--model_options=outer_norm=true"  # the regular layer normalisation
_REGULAR_FINE = _FINE, f"{_FINE_2D[1]},outer_norm=true"
_FEATURES = "--normalization=features"  # likewise, of other programs
_512 = "--num_points=512", "--test_points=512", "error_512"
_2048 = "--num_points=2048", "--test_points=2048", "error_2048"
# Batches of four: 004, Table 8.
_8192 = "--num_points=8192", "--test_points=8192", "--batch_size=4", "error_8192"
_NO_NOISE, _NOISE_1, _NOISE_10 = "--noises=0", "--noises=0.01", "--noises=0.1"
_ANGLES = "--split=aoa", "--num_train=723", "--num_validation=81", "--num_test=196"
_SINE = "001 Fig. 2"  # its bottom
_BY_US = "the authors' program, seed 0, run by us"
_ONE_SEED = "--seeds=0"  # of the three of the preset
SETUPS = (
    _setup("sinusoid/functional", f"{_SINE}, {_BY_US}", 50_825, 1.6e-4, "mse"),
    _setup("sinusoid/linear", _SINE, 99_713, None, "mse"),
    _setup("sinusoid/transolver", _SINE, 199_945, None, "mse"),
    _setup("sinusoid/attention", _SINE, 593_409, None, "mse"),
    _setup("sinusoid/intention", _SINE, 3_005_000, None, _ONE_SEED, "mse"),
    _setup("darcy/functional", "001 Table 1", 752_977, 0.0042),
    _setup("elasticity/functional", "001 Table 1", 738_001, 0.0050),
    _setup("elasticity/transolver", "T Table 1", None, 0.0064),
    _setup("elasticity/flare", "F Figure", 592_641, 0.0034),
    _setup("rna/functional", "001 Table 2", 542_888, 0.890),
    _setup("burgers/functional", "001 Table 5", 600_241, 1.081e-3, "error_8192"),
    _setup("burgers/galerkin", "001 Table 5", None, 1.175e-3, "error_8192"),
    _setup("burgers/fno", "001 Table 5", 549_569, 1.195e-3, "error_8192"),
    _setup("burgers/transolver", "001 Table 5", None, 1.243e-3, "error_8192"),
    _setup("pipe/functional", "001 Table 1", 2_811_209, 0.0029),
    _setup("airfoil/functional", "001 Table 1", 736_977, 0.0043),
    _setup("navier_stokes/functional", "001 Table 1", 11_232_073, 0.080),
    _setup("plasticity/functional", "001 Table 1", 2_844_364, 0.0011),
    _setup("darcy/transolver", "T Table 1", None, 0.0057),
    _setup("pipe/transolver", "T Table 1", None, 0.0031),
    _setup("airfoil/transolver", "T Table 1", None, 0.0053),
    _setup("navier_stokes/transolver", "T Table 1", None, 0.0944),
    _setup("plasticity/transolver", "T Table 1", None, 0.0013),
    _setup("rna/transolver", "001 Table 2", None, 0.875),
    _setup("darcy_notch/functional", "001 Table 4", None, 0.0064),
    _setup("darcy/galerkin2d", "004 Table 2b", 2_220_829, 0.00839),
    _setup("darcy/galerkin2d fine", "004 Table 2b", 2_220_829, 0.00844, *_FINE_2D),
    _setup("darcy/fourier2d", "004 Table 2b", 2_220_829, 0.00873),
    _setup("darcy/softmax2d", "004 Table 2b", 2_220_829, 0.00946),
    _setup("darcy/linear2d", "004 Table 2b", 2_220_829, 0.00875),
    _setup("darcy/fourier2d regular", "004 Table 2b", None, 0.00838, _REGULAR),
    _setup("darcy/galerkin2d regular", "004 Table 2b", None, 0.00894, _REGULAR),
    _setup("darcy/softmax2d regular", "004 Table 2b", None, 0.01075, _REGULAR),
    _setup("darcy/linear2d regular", "004 Table 2b", None, 0.01024, _REGULAR),
    _setup("darcy/fno", "004 Table 2b", 2_368_001, 0.01419),
    _setup("darcy/fno fine", "004 Table 2b", 2_368_001, 0.01424, _FINE),
    *_cao("darcy_inverse/*", "3", (1.944, 1.921, 2.160, 2.360, 14.17), _NO_NOISE),
    _setup("burgers/fourier", "004 Table 2a", None, 1.123e-3, "error_2048"),
    _setup("burgers/softmax", "004 Table 2a", None, 1.266e-3, "error_2048"),
    _setup("burgers/linear", "004 Table 2a", None, 1.149e-3, "error_2048"),
    *_cao("burgers/* 512", "2a", (1.203, 1.135, 1.271, 1.139, 4.373), *_512),
    _setup("darcy/flare", "F Figure", 691_009, 0.0051),
    _setup("airfoil/flare", "F Figure", 690_945, 0.0043),
    _setup("pipe/flare", "F Figure", 625_409, 0.0029),
    _setup("elasticity/lno", "L Table", 1_831_745, 0.0052),
    _setup("pipe/lno", "L Table", 1_292_161, 0.0026),
    _setup("navier_stokes/lno", "L Table", 5_076_481, 0.0845),
    _setup("darcy/lno", "L Table", 762_113, 0.0049),
    _setup("elasticity/gnot", "G Table 1", 4_870_553, 0.0086),
    _setup("airfoil/gnot", "G Table 1", 2_891_161, 0.0076),
    _setup("darcy/gnot", "G Table 1", 1_889_674, 0.0105),
    _setup("navier_stokes/gnot", "G Table 1", 1_891_978, 0.138),
    _setup("plasticity/gnot", "G Table 1", 2_925_212, 0.0336),
    _setup("airfoil/ono_original", "O Table 1", None, 0.0061),
    _setup("darcy/ono_original", "O Table 1", None, 0.0076),
    _setup("pipe/ono_original", "O Table 1", None, 0.0052),
    _setup("navier_stokes/ono_original", "O Table 1", None, 0.1195),
    _setup("plasticity/ono_original", "O Table 1", None, 0.0048),
    _setup("airfrans/functional", "001 Table 3", 3_893_580, 0.234),
    _setup("airfrans/transolver", "001 Table 3", None, 0.322),
    _setup("airfrans/functional angles", "001 Table 3", 3_893_580, 0.133, *_ANGLES),
    _setup("airfrans/transolver angles", "001 Table 3", None, 0.228, *_ANGLES),
    *_cao(
        "burgers/* 512 regular", "2a", (2.181, 1.400, 1.927, 1.813), _FEATURES, *_512
    ),
    *_cao("burgers/* regular", "2a", (1.512, 1.477, 2.307, 1.770), _FEATURES, *_2048),
    *_cao(
        "darcy_inverse/* noise 0.01", "3", (2.552, 2.717, 2.807, 3.196, 14.31), _NOISE_1
    ),
    *_cao(
        "darcy_inverse/* noise 0.1", "3", (6.689, 6.725, 6.995, 8.656, 17.30), _NOISE_10
    ),
    *_cao(
        "darcy_inverse/* fine",
        "3",
        (1.651, 1.523, 1.889, 2.136, 13.60),
        *_FINER,
        _NO_NOISE,
    ),
    *_cao(
        "darcy_inverse/* fine noise 0.01",
        "3",
        (2.729, 2.691, 3.123, 3.539, 13.69),
        *_FINER,
        _NOISE_1,
    ),
    *_cao(
        "darcy_inverse/* fine noise 0.1",
        "3",
        (7.903, 8.286, 8.788, 9.622, 16.04),
        *_FINER,
        _NOISE_10,
    ),
    *_cao(
        "darcy_inverse/* regular",
        "3",
        (2.026, 1.799, 2.434, 2.254),
        _FEATURES,
        _NO_NOISE,
    ),
    *_cao(
        "darcy_inverse/* regular noise 0.01",
        "3",
        (2.536, 2.467, 3.106, 3.194),
        _FEATURES,
        _NOISE_1,
    ),
    *_cao(
        "darcy_inverse/* regular noise 0.1",
        "3",
        (6.659, 6.814, 7.431, 9.056),
        _FEATURES,
        _NOISE_10,
    ),
    *_cao(
        "darcy_inverse/* fine regular",
        "3",
        (1.732, 1.563, 2.069, 2.063),
        _FEATURES,
        *_FINER,
        _NO_NOISE,
    ),
    *_cao(
        "darcy_inverse/* fine regular noise 0.01",
        "3",
        (2.775, 2.704, 3.365, 3.544),
        _FEATURES,
        *_FINER,
        _NOISE_1,
    ),
    *_cao(
        "darcy_inverse/* fine regular noise 0.1",
        "3",
        (8.024, 8.110, 8.918, 9.874),
        _FEATURES,
        *_FINER,
        _NOISE_10,
    ),
    *_cao("darcy/*2d fine", "2b", (None, 0.921, 0.959, 0.970), *_FINE_2D),
    *_cao("darcy/*2d fine regular", "2b", (0.856, 0.847, 1.131, 1.130), *_REGULAR_FINE),
    *_cao("burgers/* 8192", "2a", (1.025, 1.071, 1.330, 1.221, 4.151), *_8192),
    *_cao(
        "burgers/* 8192 regular", "2a", (2.747, 1.172, 1.981, 1.617), _FEATURES, *_8192
    ),
)


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


def known(stored: pathlib.Path, state: pathlib.Path | None) -> dict[str, str]:
    """What set-ups have reached: what is stored, and what a queue has added to it."""
    results = json.loads(stored.read_text()) if stored.exists() else {}
    if state is not None:
        results |= json.loads((state / "published.json").read_text())
        write_json(stored, results)
    return results


def write(state: pathlib.Path | None, folder: pathlib.Path = _FOLDER) -> dict[str, Any]:
    """Writes the table into its page, and what it knows to `published.json`."""
    results = known(folder / "published.json", state)
    path, costs = folder / "published.md", folder / "published_hours.json"
    hours = json.loads(costs.read_text()) if costs.exists() else {}
    kept = path.read_text().partition(report.MARK)[0]
    path.write_text(f"{kept}{report.MARK}\n\n{page(results, hours)}")
    return {"page": str(path), "set_ups": len(SETUPS), "finished": len(results)}


def main() -> None:
    """Writes the table that the flags ask for."""
    flags.DEFINE_string(
        "state",
        None,
        "Folder of experiments.paper_runs whose results are added to the table",
    )
    command_line.start(
        lambda: write(flags.FLAGS.state and pathlib.Path(flags.FLAGS.state)),
        {"Flags": ["state"]},
    )


if __name__ == "__main__":
    main()
