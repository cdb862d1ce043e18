"""Time, operations and memory of every attention by number of points.

    python -m experiments.scaling --preset=quick

Measures one layer of each kind, built as in `opjax.learn`, with one and with eight
heads: the forward pass, and the gradient with respect to parameters and input. At every
size the layers take turns, so that a busy moment of the machine affects all of them.
The preset models measures whole models of one layer, encoder the ten encoder layers of
Table 1 of Cao (2021), and pairs the attentions that compare all pairs of points beside
PyTorch's (needs the extra benchmark).
"""

import dataclasses
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from experiments import scaling_flops, scaling_layers, scaling_torch
from experiments.studies import Row, Rows, StudyOptions
from opjax.learn import Program, Report, option
from opjax.learn.json_files import write_json
from opjax.learn.messages import say
from opjax.learn.report.drawing import new_figure, plain, save
from opjax.learn.run.folder import RunDirectory
from opjax.learn.tables import number, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PASSES = {"forward": "", "gradient": "gradient_"}  # with their parts of keys
_SLOW = 500.0  # milliseconds; slower calls are timed three times at most
_UNITS: dict[str, Callable[[Row, int], float]] = {
    "milliseconds": lambda found, n: statistics.median(found["ms"]),
    "kFLOP per point": lambda found, n: found["flops"] / n / 1e3,
    "MiB": lambda found, n: found["bytes"] / 2**20,
}
# What figures show of them: per point, flat where the cost is linear.
_DRAWN: dict[str, tuple[str, Callable[[float, int], float]]] = {
    "milliseconds": ("microseconds per point", lambda value, n: 1e3 * value / n),
    "kFLOP per point": ("kFLOP per point", lambda value, n: value),
    "MiB": ("KiB per point", lambda value, n: 2**10 * value / n),
}
# Table 1 of Cao (2021), encoders only: GFLOP of one backpropagation of four samples,
# CUDA and allocated memory in GB, iterations per second.
PUBLISHED = {
    "softmax": ("1876", "31.34", "18.53", "4.12"),
    "fourier": ("1610", "22.32", "10.80", "5.46"),
    "linear": ("773", "2.66", "2.73", "10.98"),
    "galerkin": ("412", "2.33", "2.53", "19.20"),
}


@dataclasses.dataclass(frozen=True)
class Config(StudyOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    models: tuple[str, ...] = option(
        scaling_layers.names(),
        "Attentions to measure, whole models as model:NAME, or torch:softmax, which is "
        "PyTorch's fused attention",
    )
    heads: tuple[int, ...] = option(
        (1, 8), "Numbers of heads to measure. Each must divide --width", minimum=1
    )
    min_log2: int = option(10, "Minimum number of points, as a power of two", minimum=3)
    max_log2: int = option(
        16, "Maximum number of points, as a power of two", minimum=3, maximum=24
    )
    step_log2: int = option(
        2, "Step between numbers of points, as a power of two", minimum=1
    )
    max_log2_quadratic: int = option(
        13,
        "Maximum number of points for attentions of quadratic cost, as a power of two",
        minimum=3,
    )
    fit_log2: int = option(
        12,
        "Minimum number of points for fitting the slopes, as a power of two",
        minimum=3,
    )
    width: int = option(128, "Width of the layers, in channels", minimum=1)
    num_basis: int = option(
        64,
        "Number of basis functions, landmarks, random features or Fourier modes",
        minimum=1,
    )
    num_layers: int = option(
        0,
        "Number of encoder layers (attention and perceptron). 0 measures a single "
        "attention",
        minimum=0,
    )
    batch_size: int = option(1, "Number of samples in a batch", minimum=1)
    repeats: int = option(5, "Number of timed rounds", minimum=1)
    seed: int = option(0, "Seed of the parameters and features", minimum=0)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        for name in self.models:
            scaling_layers.check(name)
            alone = name.startswith(scaling_layers.WHOLE) or name == scaling_torch.NAME
            if self.num_layers and alone:
                raise ValueError(f"num_layers={self.num_layers} has no {name}.")
        for name in ("max_log2", "max_log2_quadratic"):
            if (value := getattr(self, name)) < self.min_log2:
                raise ValueError(
                    f"{name}={value} must be at least min_log2={self.min_log2}."
                )
        if self.num_basis > 2**self.min_log2:
            raise ValueError(
                f"num_basis={self.num_basis} must be at most the fewest points, "
                f"2^{self.min_log2}."
            )
        for heads in self.heads:
            if self.width % heads:
                raise ValueError(f"{heads=} must divide width={self.width}.")

    def sizes(self, name: str) -> list[int]:
        """Numbers of points that a layer is measured at, the most among them."""
        quadratic = scaling_layers.is_quadratic(name)
        last = min(self.max_log2, self.max_log2_quadratic if quadratic else 24)
        return sorted({2**k for k in (*self._powers(), last) if k <= last})

    def all_sizes(self) -> list[int]:
        """Numbers of points that any layer is measured at."""
        return sorted({size for name in self.models for size in self.sizes(name)})

    def cases(self) -> list[tuple[str, int]]:
        """Layers and their heads; those without heads are measured with the first."""
        return [
            (name, heads)
            for heads in self.heads
            for name in self.models
            if heads == self.heads[0] or scaling_layers.has_heads(name)
        ]

    def build(self, name: str, heads: int, num_points: int) -> Any:
        """Builds a layer for points on a line."""
        return scaling_layers.build(self, name, heads, num_points)

    def parameters(self, name: str, heads: int, num_points: int) -> int:
        """Counts the parameters of a layer."""
        if name == scaling_torch.NAME:
            return 4 * self.width * (self.width + 1)
        shapes = jax.eval_shape(lambda: self.build(name, heads, num_points))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    def _powers(self) -> Iterable[int]:
        return range(self.min_log2, self.max_log2 + 1, self.step_log2)


PRESETS = {
    "smoke": Config(
        preset="smoke",
        heads=(1, 2),
        min_log2=5,
        max_log2=8,
        max_log2_quadratic=7,
        fit_log2=6,
        width=16,
        num_basis=8,
        repeats=2,
    ),
    "quick": Config(),
    "paper": Config(
        preset="paper", min_log2=7, step_log2=1, max_log2_quadratic=15, repeats=15
    ),
    "pairs": Config(
        preset="pairs",
        models=("functional", "softmax", "fourier", scaling_torch.NAME),
        step_log2=1,
        max_log2=14,
        max_log2_quadratic=14,
        fit_log2=11,
    ),
    "models": Config(
        preset="models", models=scaling_layers.whole_names(), heads=(8,), max_log2=14
    ),
    "encoder": Config(
        preset="encoder",
        models=tuple(PUBLISHED),
        heads=(1,),
        min_log2=13,
        max_log2=13,
        num_layers=10,
        batch_size=4,
        repeats=3,
    ),
}


def _functions(name: str) -> dict[str, Callable]:
    """Functions of a layer, its input and the points."""
    return {
        "forward": partial(scaling_layers.forward, name),
        "gradient": jax.grad(partial(scaling_layers.loss, name), (0, 1)),
    }


class Prepared(NamedTuple):
    """A pass of a layer, ready to be timed.

    Attributes:
      call: computes it.
      flops: floating point operations.
      bytes: peak of temporary memory, None if unknown.
    """

    call: Callable[[], Any]
    flops: float
    bytes: int | None


def _prepare(
    config: Config, name: str, heads: int, num_points: int
) -> dict[str, Prepared]:
    """Compiles the passes of one of our layers."""
    x, points = scaling_layers.inputs(config, name, num_points)
    arguments = config.build(name, heads, num_points), x, points
    prepared = {}
    for kind, function in _functions(name).items():
        compiled = jax.jit(function).lower(*arguments).compile()
        analysis = compiled.memory_analysis()
        size = 0 if analysis is None else analysis.temp_size_in_bytes
        flops = scaling_flops.count(function, *arguments)
        prepared[kind] = Prepared(partial(compiled, *arguments), flops, size)
    return prepared


def _prepare_torch(
    config: Config, name: str, heads: int, num_points: int
) -> dict[str, Prepared]:
    """Builds the passes of PyTorch's layer."""
    del name
    sizes = config.batch_size, num_points, config.width
    calls = scaling_torch.passes(*sizes, heads, config.seed)
    flops = scaling_torch.flops(*sizes)
    return {kind: Prepared(call, flops[kind], None) for kind, call in calls.items()}


def measure(config: Config, num_points: int) -> list[Row]:
    """Times all layers at one size in random turns, quadratic ones up to some size.

    Rows have name, heads, points, and of both passes the milliseconds of every round,
    the floating point operations and the peak of temporary memory in bytes.
    """
    rows, calls = [], []
    for name, heads in config.cases():
        if num_points not in config.sizes(name):
            continue
        row = {"attention": name, "heads": heads, "points": num_points}
        prepare = _prepare_torch if name == scaling_torch.NAME else _prepare
        for kind, prepared in prepare(config, name, heads, num_points).items():
            row[kind] = {"ms": [], "bytes": prepared.bytes, "flops": prepared.flops}
            calls.append((row[kind]["ms"], prepared.call))
            leaves = jax.tree.leaves(prepared.call())  # also the warm-up
            if not all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in leaves):
                raise FloatingPointError(
                    f"{name}, n = {num_points}: {kind} not finite."
                )
        rows.append(row)
    # In another order every round: a call pays for the memory its predecessor freed.
    rng = np.random.default_rng(config.seed)
    for _ in range(config.repeats):
        for index in rng.permutation(len(calls)):
            milliseconds, call = calls[index]
            if len(milliseconds) < 3 or min(milliseconds) < _SLOW:
                milliseconds.append(_milliseconds(call))
    return rows


def _milliseconds(call: Callable[[], Any]) -> float:
    # Small sizes are repeated until the clock can see them.
    count = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < 2e-3:
        jax.block_until_ready(call())
        count += 1
    return 1e3 * (time.perf_counter() - begin) / count


def curve(rows: Rows, name: str, heads: int, kind: str, unit: str) -> dict[int, float]:
    """What was measured of a layer, by its numbers of points."""
    mine = [r for r in rows if (r["attention"], r["heads"]) == (name, heads)]
    measured = [r for r in mine if unit != "MiB" or r[kind]["bytes"] is not None]
    return {row["points"]: _UNITS[unit](row[kind], row["points"]) for row in measured}


def slope(times: Mapping[int, float], first: int) -> float | None:
    """Fits the log-log slope from `first` points on; None for a single size."""
    pairs = [pair for pair in times.items() if pair[0] >= first]
    if len(pairs) < 2:
        return None
    sizes, values = np.log(np.array(pairs)).T
    return float(np.polyfit(sizes, values, 1)[0])


def work(config: Config, directory: RunDirectory, cache_dir: str | None) -> Report:
    """Measures all layers at all sizes; writes `measurements.json` and a figure."""
    del cache_dir
    if scaling_torch.NAME in config.models:
        scaling_torch.check()
    rows: list[Row] = []
    for size in config.all_sizes():
        rows += measure(config, size)
        say(f"n = {size} measured")
    write_json(directory.path / "measurements.json", {"rows": rows})
    result = _result(config, rows)
    parts = [_published(config, rows)] if config.num_layers else []
    parts += [
        f"## {kind.capitalize()}, {_spell(heads)}, {unit}\n\n"
        + _table(config, rows, (heads, kind, unit))
        for heads in config.heads
        for kind in _PASSES
        for unit in _UNITS
    ]
    if len(config.all_sizes()) > 1:
        _draw(config, rows, directory.path / "scaling.png")
    return Report("\n".join(parts), result, _head(config))


def _spell(heads: int) -> str:
    return "one head" if heads == 1 else f"{heads} heads"


def _result(config: Config, rows: Rows) -> dict[str, Any]:
    """The last line: keys of the first number of heads are without that number."""
    result: dict[str, Any] = {"seed": config.seed, "data": "random features"}
    for name, heads in config.cases():
        own = name.replace(":", "_")
        if heads != config.heads[0]:
            own += f"_{heads}_heads"
        for kind, part in _PASSES.items():
            times = curve(rows, name, heads, kind, "milliseconds")
            most, last = [*times.items()][-1]
            result[f"slope_{part}{own}"] = slope(times, 2**config.fit_log2)
            result |= {f"points_{own}": most, f"milliseconds_{part}{own}": last}
            flops = curve(rows, name, heads, kind, "kFLOP per point")
            result[f"kflop_per_point_{part}{own}"] = flops[most]
    # Transolver's layer is Physics-Attention: its numbers have had that name, too.
    for key in [key for key in result if key.endswith("_transolver")]:
        result[key.replace("transolver", "physics")] = result[key]
    return result


def _head(config: Config) -> str:
    what = "One layer with its projections"
    if config.num_layers:
        what = f"{config.num_layers} encoder layers with perceptrons of {2}d channels"
    return (
        f"{what} (model:NAME: a whole model of one layer), d = {config.width}, k = "
        f"{config.num_basis} (basis functions, landmarks, random features or wave "
        f"numbers), {config.batch_size} sample(s) of points on a line, float32. Median "
        f"of {config.repeats} rounds, at most three of calls of half a second, in "
        "which the layers take turns. Gradient: in parameters and input, forward pass "
        "included. FLOP: two for each multiplication in matrix products, convolutions, "
        "transforms and solves, and those alone. Memory: temporary arrays of the "
        "compiled program, without arguments and results. Slopes are fitted from n = "
        f"{2**config.fit_log2} on."
    )


def _published(config: Config, rows: Rows) -> str:
    """Table 1 of Cao (2021), ours beside the published numbers."""
    columns = ["encoder", "points", "heads", "GFLOP", "GB", "iterations per second"]
    columns += ["published GFLOP", "CUDA GB", "allocated GB", "iterations per second"]
    lines = []
    for row in rows:
        costs = row["gradient"]
        seconds = statistics.median(costs["ms"]) / 1e3
        ours = costs["flops"] / 1e9, costs["bytes"] / 1e9, 1 / seconds
        # The published ones are of this set-up only.
        same = row["points"], config.num_layers, config.width, config.batch_size
        published = PUBLISHED.get(row["attention"]) if same == _TABLE_1 else None
        own = row["attention"], str(row["points"]), str(row["heads"])
        lines.append([*own, *map(number, ours), *(published or [""] * 4)])
    return (
        "## Encoder layers, one backpropagation\n\nPublished: Table 1 of Cao (2021), "
        "encoders only, on a GPU, with a profiler whose rules for FLOP the paper does "
        "not give; nor does it give the heads and the width of the perceptrons of "
        "these encoders.\n\n" + table(columns, lines)
    )


_TABLE_1 = (8192, 10, 128, 4)


def _table(config: Config, rows: Rows, panel: tuple[int, str, str]) -> str:
    """The table of a panel, of some heads, one pass and one unit."""
    heads, kind, unit = panel
    sizes, timed = config.all_sizes(), unit == "milliseconds"
    columns = ["layer", *map(str, sizes), *(["slope"] if timed else [])]
    lines = []
    for name, own in config.cases():
        if own != heads:
            continue
        values = curve(rows, name, heads, kind, unit)
        lines.append([name, *(number(values[n]) if n in values else "" for n in sizes)])
        if timed:
            fitted = slope(values, 2**config.fit_log2)
            lines[-1].append("" if fitted is None else f"{fitted:.2f}")
    return table(columns, lines)


def _draw(config: Config, rows: Rows, path: pathlib.Path) -> None:
    """Draws a row of panels for each unit, a column for each pass and heads."""
    across = [(heads, kind) for heads in config.heads for kind in _PASSES]
    figure = new_figure(3.1 * len(across) + 2.6, 9.0)
    axes = figure.subplots(len(_UNITS), len(across), sharex=True, sharey="row")
    axes = np.asarray(axes).reshape(len(_UNITS), len(across))
    for line, unit in zip(axes, _UNITS, strict=True):
        line[0].set_ylabel(_DRAWN[unit][0])
        for axis, (heads, kind) in zip(line, across, strict=True):
            _panel(axis, config, rows, (heads, kind, unit))
    for axis, (heads, kind) in zip(axes[0], across, strict=True):
        axis.set_title(f"{kind}, {_spell(heads)}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("points n")
    lines, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside right upper", fontsize=9)
    save(figure, path)


_MARKERS = "osD^v"


def _panel(
    axis: "Axes", config: Config, rows: Rows, panel: tuple[int, str, str]
) -> None:
    heads, kind, unit = panel
    for k, name in enumerate(config.models):
        values = curve(rows, name, heads, kind, unit)
        if not values:
            continue
        drawn = [_DRAWN[unit][1](value, n) for n, value in values.items()]
        axis.plot(
            list(values),
            np.maximum(drawn, 1e-6),
            label=name,
            c=f"C{k % 10}",
            marker=_MARKERS[k // 10],
            lw=2.6 if name.endswith("functional") else 1.0,
            ms=4,
            ls="--" if scaling_layers.is_quadratic(name) else "-",
        )
    axis.set_yscale("log")
    axis.set_xscale("log", base=2)
    plain(axis)


def describe(config: Config) -> dict[str, Any]:
    """Says what is measured, and how large the layers are."""
    description: dict[str, Any] = {
        "data": "random features",
        "models": list(config.models),
    }
    for name in config.models:
        *_, most = config.sizes(name)
        description[f"points_{name}"] = most
        description[f"parameters_{name}"] = config.parameters(
            name, config.heads[0], most
        )
    description["parameters"] = description[f"parameters_{config.models[0]}"]
    steps = config.repeats * sum(len(config.sizes(name)) for name, _ in config.cases())
    return description | {"steps": steps}


_TITLE = "Cost of attention layers"
PROGRAM = Program("scaling", PRESETS, title=_TITLE, work=work, describe_work=describe)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
