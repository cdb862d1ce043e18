"""Time and memory of every attention against the number of points.

    python -m experiments.scaling --preset=quick

One layer of each kind, built as `opjax.learn` builds it, forward, and the gradient in
parameters and input. At every size the layers take turns, so that a busy moment of the
machine does not fall on one of them alone.
"""

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import nn
from opjax.learn import Options, Program, Report, models, operators, option
from opjax.learn.attentions import Entry
from opjax.learn.drawing import new_figure, plain, save
from opjax.learn.folder import write_json
from opjax.learn.tables import table

_PASSES = {"forward": "", "gradient": "gradient_"}  # with their parts of keys
_UNITS: dict[str, Callable[[dict[str, Any]], float]] = {
    "milliseconds": lambda found: statistics.median(found["ms"]),
    "MiB": lambda found: found["bytes"] / 2**20,
}


class _FourierBlock(nn.FourierBlock):
    """The block of the Fourier neural operator, called as an attention."""

    def __call__(self, x: jax.Array, **unused: Any) -> jax.Array:
        return super().__call__(x)


_FNO = "fourier_neural_operator"  # measured besides the attentions of the registry
NAMES = (*(k for k, v in operators.REGISTRY.items() if v.attention), _FNO)


def _entry(name: str) -> Entry:
    block = Entry(attention=_FourierBlock)
    return block if name == _FNO else operators.entry(name)


@dataclasses.dataclass(frozen=True)
class Config(Options):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option("quick", "Values of all flags that are not given")
    models: tuple[str, ...] = option(NAMES, "Attentions by name")
    min_log2: int = option(7, "Fewest points, as a power of two", minimum=3)
    max_log2: int = option(16, "Most points", minimum=3, maximum=24)
    max_log2_quadratic: int = option(
        13, "Most points of attentions with quadratic cost", minimum=3
    )
    fit_log2: int = option(12, "Slopes are fitted from so many points on", minimum=3)
    features: int = option(128, "Channels d", minimum=1)
    num_heads: int = option(1, "Heads; must divide the features", minimum=1)
    num_basis: int = option(
        64, "Basis functions, landmarks, random features, wave numbers", minimum=1
    )
    repeats: int = option(7, "Timed rounds", minimum=1)
    seed: int = option(0, "Seed of parameters and features", minimum=0)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        for name in self.models:
            if _entry(name).attention is None:
                raise ValueError(
                    f"models={name!r} is no attention; choose from {', '.join(NAMES)}."
                )
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
        self.parameters(self.models[0], 2**self.min_log2)  # heads fit

    def sizes(self, name: str) -> list[int]:
        """Numbers of points that an attention is measured at."""
        last = self.max_log2
        last = min(last, self.max_log2_quadratic) if _entry(name).quadratic else last
        return [2**k for k in range(self.min_log2, last + 1)]

    def build(self, name: str, num_points: int) -> Any:
        """Builds a layer for points on a line."""
        if name == _FNO:
            grid: Any = (num_points,)
            modes = models.kept_modes(self.num_basis, grid)
            construct = partial(_FourierBlock, grid_shape=grid, modes=modes)
        else:
            grid = (num_points,) if operators.entry(name).grid_axes else None
            counts = ("num_basis", "num_landmarks", "num_random", "num_projected")
            construct = operators.attention(
                name,
                operators.Sizes(1, 0, 1, grid, num_points, ((0.0,), (1.0,))),
                features=self.features,
                num_heads=self.num_heads,
                convolution=False,
                **dict.fromkeys(counts, self.num_basis),
            )
        return construct(self.features, rngs=nnx.Rngs(self.seed))

    def parameters(self, name: str, num_points: int) -> int:
        """Counts the parameters of a layer."""
        found = jax.eval_shape(lambda: self.build(name, num_points))
        return sum(leaf.size for leaf in jax.tree.leaves(found))


PRESETS = {
    "smoke": Config(
        preset="smoke",
        min_log2=5,
        max_log2=8,
        max_log2_quadratic=7,
        fit_log2=6,
        features=16,
        num_basis=8,
        repeats=2,
    ),
    "quick": Config(),
    "paper": Config(preset="paper", max_log2_quadratic=15, repeats=15),
}


def _forward(layer: Any, x: jax.Array, mesh_points: jax.Array) -> jax.Array:
    return layer(x, mesh_points=mesh_points)


def _loss(*given: Any) -> jax.Array:
    return jnp.mean(_forward(*given) ** 2)  # its gradient needs all of the output


def measure(config: Config, num_points: int) -> list[dict[str, Any]]:
    """Times all layers at one size in random turns, quadratic ones up to some size.

    Rows have name, points, and of both passes the milliseconds of every round and the
    peak of temporary memory in bytes.
    """
    shape = num_points, config.features
    x = jax.random.normal(jax.random.key(config.seed), shape, jnp.float32)
    points = (jnp.arange(num_points, dtype=jnp.float32)[:, None] + 0.5) / num_points
    rows, calls = [], []
    for name in config.models:
        if num_points not in config.sizes(name):
            continue
        given = config.build(name, num_points), x, points
        row: dict[str, Any] = {"attention": name, "points": num_points}
        for kind in _PASSES:
            function = _forward if kind == "forward" else jax.grad(_loss, (0, 1))
            call = jax.jit(function).lower(*given).compile()
            found = call.memory_analysis()
            size = 0 if found is None else found.temp_size_in_bytes
            row[kind] = {"ms": [], "bytes": size}
            calls.append((row[kind]["ms"], call, given))
            leaves = jax.tree.leaves(call(*given))  # also the warm-up
            if not all(bool(jnp.isfinite(leaf).all()) for leaf in leaves):
                raise FloatingPointError(
                    f"{name}, n = {num_points}: {kind} not finite."
                )
        rows.append(row)
    # In another order every round: a call pays for the memory its predecessor freed.
    rng = np.random.default_rng(config.seed)
    for _ in range(config.repeats):
        for index in rng.permutation(len(calls)):
            milliseconds, call, given = calls[index]
            milliseconds.append(_milliseconds(call, given))
    return rows


def _milliseconds(call: Callable, given: tuple) -> float:
    # Small sizes are repeated until the clock can see them.
    count = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < 2e-3:
        jax.block_until_ready(call(*given))
        count += 1
    return 1e3 * (time.perf_counter() - begin) / count


def curve(rows: Sequence[dict[str, Any]], name: str, kind: str, unit: str) -> Any:
    """What was measured of an attention, by its numbers of points."""
    mine = [row for row in rows if row["attention"] == name]
    return {row["points"]: _UNITS[unit](row[kind]) for row in mine}


def slope(times: Mapping[int, float], first: int) -> float | None:
    """Fits the log-log slope from `first` points on; None for a single size."""
    pairs = [pair for pair in times.items() if pair[0] >= first]
    if len(pairs) < 2:
        return None
    sizes, values = np.log(np.array(pairs)).T
    return float(np.polyfit(sizes, values, 1)[0])


def work(config: Config, directory: Any, cache_dir: str | None) -> Report:
    """Measures all layers at all sizes; writes `measurements.json` and a figure."""
    del cache_dir
    rows: list[dict[str, Any]] = []
    for log2 in range(config.min_log2, config.max_log2 + 1):
        rows += measure(config, 2**log2)
        print(f"n = 2^{log2} measured", file=sys.stderr, flush=True)
    write_json(directory.path / "measurements.json", {"rows": rows})
    result: dict[str, Any] = {"seed": config.seed, "data": "random features"}
    for name in config.models:
        for kind, part in _PASSES.items():
            times = curve(rows, name, kind, "milliseconds")
            most, last = [*times.items()][-1]
            result[f"slope_{part}{name}"] = slope(times, 2**config.fit_log2)
            result |= {f"points_{name}": most, f"milliseconds_{part}{name}": last}
    head = (
        f"One layer with its projections, d = {config.features}, heads: "
        f"{config.num_heads}, k = {config.num_basis} (basis functions, landmarks, "
        "random features or wave numbers), one sample of points on a line, float32. "
        f"Median of {config.repeats} rounds in which the layers take turns. Gradient: "
        "in parameters and input, forward pass included. Memory: temporary arrays of "
        "the compiled program, without arguments and results. Slopes are fitted from "
        f"n = {2**config.fit_log2} on."
    )
    figure = new_figure(11.0, 7.0)
    axes = figure.subplots(2, 2, sharex=True)
    parts = []
    for across, unit in zip(axes, _UNITS, strict=True):
        for axis, kind in zip(across, _PASSES, strict=True):
            parts.append(f"## {kind.capitalize()}, {unit}\n")
            parts.append(_panel(axis, rows, kind, unit, result))
    axes[0, 0].legend(fontsize=8, ncols=2)
    save(figure, directory.path / "scaling.png")
    # Transolver's layer is Physics-Attention: its numbers have had that name, too.
    for key in [key for key in result if key.endswith("transolver")]:
        result[key.replace("transolver", "physics")] = result[key]
    return Report("\n".join(parts), result, head)


def _panel(axis: Any, rows: Any, kind: str, unit: str, result: dict[str, Any]) -> str:
    """Draws a panel of the figure; returns its table."""
    sizes = sorted({row["points"] for row in rows})
    columns, lines = ["layer", *map(str, sizes)], []
    if unit == "milliseconds":
        columns.append("slope")
    for k, name in enumerate(dict.fromkeys(row["attention"] for row in rows)):
        found = curve(rows, name, kind, unit)
        color = f"C{k}" if k < 10 else "black"
        width = 2.4 if name == "functional" else 1.1
        values = np.maximum([*found.values()], 1e-6)
        axis.plot(found.keys(), values, "o-", c=color, lw=width, ms=3, label=name)
        lines.append([name, *(f"{found[n]:.3g}" if n in found else "" for n in sizes)])
        if unit == "milliseconds":
            last = result[f"slope_{_PASSES[kind]}{name}"]
            lines[-1].append("" if last is None else f"{last:.2f}")
    axis.set(title=kind, xlabel="points n", ylabel=unit, yscale="log")
    axis.set_xscale("log", base=2)
    plain(axis)
    return table(columns, lines)


def describe(config: Config) -> dict[str, Any]:
    """Says what is measured, and how large the layers are."""
    found: dict[str, Any] = {"data": "random features", "models": list(config.models)}
    for name in config.models:
        *_, most = config.sizes(name)
        found[f"points_{name}"] = most
        found[f"parameters_{name}"] = config.parameters(name, most)
    found["parameters"] = found[f"parameters_{config.models[0]}"]
    steps = config.repeats * sum(len(config.sizes(name)) for name in config.models)
    return found | {"steps": steps}


_TITLE = "Cost of attention layers"
PROGRAM = Program("scaling", PRESETS, title=_TITLE, work=work, describe_work=describe)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
