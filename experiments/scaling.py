"""Time and memory of every attention against the number of points.

    python -m experiments.scaling --preset=quick

One layer of each kind with one head and its projections, forward, and the gradient in
parameters and input. At every size the layers take turns, so that a busy moment of the
machine does not fall on one of them alone.
"""

import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import scaling_report
from experiments.scaling_layers import compiled, layers
from experiments.scaling_report import PASSES
from opjax.learn import drawing, options
from opjax.learn import folder as run_folder
from opjax.learn.options import option


@dataclasses.dataclass(frozen=True)
class Config:
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option("quick", "Values of all flags that are not given")
    attentions: str = option("", "Names, separated by commas; empty: all")
    min_log2: int = option(7, "Fewest points, as a power of two", minimum=3)
    max_log2: int = option(16, "Most points", minimum=3, maximum=24)
    max_log2_quadratic: int = option(
        13, "Most points of attentions with quadratic cost", minimum=3
    )
    fit_log2: int = option(12, "Slopes are fitted from so many points on", minimum=3)
    features: int = option(128, "Channels d", minimum=1)
    num_basis: int = option(
        64, "Basis functions, landmarks, random features", minimum=1
    )
    repeats: int = option(7, "Timed rounds", minimum=1)
    seed: int = option(0, "Seed of parameters and features", minimum=0)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        options.check(self)
        for name in self.names:
            options.check_choice("attentions", name, layers(self.num_basis))
        for name in ("max_log2", "max_log2_quadratic"):
            if getattr(self, name) < self.min_log2:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be at least "
                    f"min_log2={self.min_log2}."
                )
        if self.num_basis > 2**self.min_log2:
            raise ValueError(
                f"num_basis={self.num_basis} must be at most the fewest points, "
                f"2^{self.min_log2}."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the attentions."""
        if not self.attentions:
            return tuple(layers(self.num_basis))
        return tuple(name.strip() for name in self.attentions.split(","))


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


def run(
    config: Config, *, workdir: str | os.PathLike | None = None, **unused: Any
) -> dict[str, Any]:
    """Measures all layers at all sizes, or reads a finished run.

    Args:
      config: all that the numbers depend on.
      workdir: folder of the run; `runs/scaling-<preset>` by default.
      **unused: options of other programs.

    Returns:
      What the last line of the program says: for every attention the log-log slope and
      the milliseconds at the most points measured, of both passes.

    Raises:
      ImportError: if matplotlib is missing.
      OSError: if the folder cannot be written.
      RuntimeError: if another process works in the folder.
      ValueError: if the folder holds another configuration.
    """
    del unused
    drawing.require_matplotlib()
    workdir = workdir or f"runs/scaling-{config.preset}"
    return run_folder.run_once(
        workdir, config, lambda directory: _run(config, directory)
    )


def _run(config: Config, directory: run_folder.RunDirectory) -> dict[str, Any]:
    begin = time.monotonic()
    rows = []
    for log2 in range(config.min_log2, config.max_log2 + 1):
        rows += measure(config, 2**log2)
        print(f"n = 2^{log2} measured", file=sys.stderr, flush=True)
    found = {
        f"slope_{_key(name, kind)}": slope(rows, name, kind, 2**config.fit_log2)
        for name in config.names
        for kind in PASSES
    }
    for row in rows:  # the last size of a name stays
        for kind in PASSES:
            key = _key(row["attention"], kind)
            found[f"milliseconds_{key}"] = statistics.median(row[kind]["ms"])
            found[f"points_{row['attention']}"] = row["points"]
    seconds = time.monotonic() - begin
    scaling_report.write(directory.path, config, rows, found, seconds=seconds)
    device = jax.devices()[0]
    return {
        **found,
        "seconds": seconds,
        "preset": config.preset,
        "seed": config.seed,
        "data": "random features",
        "device": f"{device.platform} ({device.device_kind})",
        "workdir": str(directory.path),
    }


def measure(config: Config, num_points: int) -> list[dict[str, Any]]:
    """Times all layers at one size in random turns, quadratic ones up to some size.

    Args:
      config: which layers, how often.
      num_points: size.

    Returns:
      A row for every layer measured: name, points, and of both passes the milliseconds
      of every round and the peak of temporary memory in bytes.
    """
    key = jax.random.key(config.seed)
    x = jax.random.normal(key, (num_points, config.features), jnp.float32)
    rows, calls = [], []
    for name in config.names:
        layer = layers(config.num_basis)[name]
        if layer.quadratic and num_points > 2**config.max_log2_quadratic:
            continue
        parameters = layer.init(key, num_points, config.features, config.num_basis)
        row: dict[str, Any] = {"attention": name, "points": num_points}
        for kind, call in compiled(layer, parameters, x).items():
            row[kind] = {"ms": [], "bytes": _temporary_bytes(call)}
            calls.append((row[kind]["ms"], call, (parameters, x)))
            if not _finite(call(parameters, x)):  # also the warm-up
                raise FloatingPointError(
                    f"{name}, n = {num_points}: {kind} not finite."
                )
        rows.append(row)
    # In another order every round: a call pays for the memory its predecessor freed.
    rng = np.random.default_rng(config.seed)
    for _ in range(config.repeats):
        for index in rng.permutation(len(calls)):
            milliseconds, call, arguments = calls[index]
            milliseconds.append(_milliseconds(call, arguments))
    return rows


def slope(
    rows: Sequence[dict[str, Any]], name: str, kind: str, first: int
) -> float | None:
    """Fits the log-log slope of the time from `first` points on; None for one size."""
    pairs = [
        (row["points"], statistics.median(row[kind]["ms"]))
        for row in rows
        if row["attention"] == name and row["points"] >= first
    ]
    if len(pairs) < 2:
        return None
    sizes, times = np.log(np.array(pairs)).T
    return float(np.polyfit(sizes, times, 1)[0])


def _milliseconds(call: Callable, arguments: tuple) -> float:
    # Small sizes are repeated until the clock can see them.
    count = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < 2e-3:
        jax.block_until_ready(call(*arguments))
        count += 1
    return 1e3 * (time.perf_counter() - begin) / count


def _finite(tree: Any) -> bool:
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))


def _temporary_bytes(call: jax.stages.Compiled) -> int:
    analysis = call.memory_analysis()
    return 0 if analysis is None else analysis.temp_size_in_bytes


def _key(name: str, kind: str) -> str:
    return name if kind == "forward" else f"{kind}_{name}"


if __name__ == "__main__":
    options.launch(PRESETS, run, program="scaling")
