"""Times the Darcy generator on the CPU in float64, without the cache.

    python -m benchmarks.darcy_data --num_samples=8

Prints a Markdown table and, as the last line, the same numbers as JSON. To measure
other grids, repeat `--num_points` and `--stride` in pairs.
"""

import dataclasses
import json
import time
from collections.abc import Sequence

import jax
from absl import app, flags

from opjax.problems import darcy


@dataclasses.dataclass(frozen=True)
class Config:
    """What to measure: one stride per number of points."""

    num_samples: int = 8
    num_points: tuple[int, ...] = (421, 169)
    stride: tuple[int, ...] = (5, 2)


_NUM_SAMPLES = flags.DEFINE_integer(
    "num_samples", Config.num_samples, "Number of samples to generate", lower_bound=1
)
_NUM_POINTS = flags.DEFINE_multi_integer(
    "num_points",
    Config.num_points,
    "Number of points per side of the solve. May be repeated",
)
_STRIDE = flags.DEFINE_multi_integer(
    "stride",
    Config.stride,
    "Subsampling factor of the solve, one for each --num_points",
)


def run(config: Config) -> list[dict[str, float]]:
    """Returns one row of measurements per grid."""
    if len(config.num_points) != len(config.stride):
        raise ValueError(
            f"num_points={config.num_points} and stride={config.stride} differ in "
            "length; give one stride per number of points."
        )
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        return [
            _measure(config.num_samples, num_points, stride)
            for num_points, stride in zip(config.num_points, config.stride, strict=True)
        ]


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    rows = run(
        Config(_NUM_SAMPLES.value, tuple(_NUM_POINTS.value), tuple(_STRIDE.value))
    )
    print("| " + " | ".join(rows[0]) + " |")
    print("|" + " --- |" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(f"{value:.4g}" for value in row.values()) + " |")
    print(json.dumps(rows))


def _measure(num_samples: int, num_points: int, stride: int) -> dict[str, float]:
    keys = jax.random.split(jax.random.key(0), num_samples)

    def draw(key: jax.Array) -> darcy.DarcySample:
        return jax.block_until_ready(
            darcy.sample(key, num_points=num_points, stride=stride)
        )

    start = time.perf_counter()
    draw(keys[0])
    first = time.perf_counter() - start
    start = time.perf_counter()
    samples = [draw(key) for key in keys]
    seconds = time.perf_counter() - start
    iterations = [int(sample.iterations) for sample in samples]
    return {
        "num_points": num_points,
        "stride": stride,
        "coarse_points": samples[0].solution.shape[0],
        "ms_per_sample": 1e3 * seconds / num_samples,
        "first_call_s": first,
        "max_residual": max(float(sample.residual) for sample in samples),
        "mean_iterations": sum(iterations) / num_samples,
        "max_iterations": max(iterations),
    }


if __name__ == "__main__":
    app.run(main)
