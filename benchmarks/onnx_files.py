"""Compares ONNX files of all models with JAX: values, sizes, time of a call.

    python -m benchmarks.onnx_files [model ...]

Builds every model of the registry with its default options and random parameters,
exports it, and calls ONNX Runtime and jitted JAX in turn, each on one thread. Prints a
table: the largest relative L2 distance of both at three numbers of points, the distance
of JAX in float32 from float64 there, the size of the file, also relative to the
parameters, and medians of the times of calls and of their ratio.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time
from types import SimpleNamespace

# One thread for XLA; read when JAX starts.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import jax  # noqa: E402
import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
from flax import nnx  # noqa: E402

from benchmarks.provenance import provenance  # noqa: E402
from opjax import export, onnx_files  # noqa: E402
from opjax.learn.registry import operators  # noqa: E402

HEAD = """
| model | points | difference | rounding | file, MB | of parameters | JAX, ms | ONNX, ms | ratio |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""  # noqa: E501
GRID, QUADRATIC = (100, 100), ("fourier", "softmax")
SIZES, REPEATS = (731, 2048, 10_000), 5


def build(name: str, grid: tuple[int, int]) -> tuple[nnx.Module, export.Inputs]:
    """Returns a model and the arguments of its calls."""
    entry = operators.entry(name)
    bound = bool(entry.fixed_points or entry.grid_axes)
    num_points = grid[0] * grid[1] if bound else None
    sizes = operators.Sizes(
        point_dim=2,
        feature_dim=2,
        out_features=1,
        grid_shape=grid if bound else None,
        num_points=num_points,
        box=((0.0, 0.0), (1.0, 1.0)),
        time_embedding=False,
        scalar_dim=0,
        target_scalars=0,
    )
    options = SimpleNamespace(models=(name,))
    model = operators.build(options, sizes, rngs=nnx.Rngs(0))
    least = 1 if bound else 64
    return model, export.Inputs(2, 2, num_points=num_points, min_points=least)


def distance(actual: np.ndarray, expected: np.ndarray) -> float:
    """Returns the relative L2 distance of two arrays."""
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def in_double(model: nnx.Module, *arrays: np.ndarray) -> np.ndarray:
    """Returns the values of a model in double precision."""
    with jax.enable_x64(True):
        graph, state = nnx.split(model)
        state = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), state)
        wide = nnx.merge(graph, state)
        return np.asarray(jax.jit(wide)(*(a.astype(np.float64) for a in arrays)))


def call_times(*calls) -> list[list[float]]:
    """Returns milliseconds of calls, in turn."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(REPEATS):
        for call, times in zip(calls, found, strict=True):
            begin = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - begin))
    return found


def row(name: str) -> str:
    """Exports a model and returns its row of the table."""
    try:
        model, inputs = build(name, GRID)
    except ValueError:  # the number of points must be a multiple
        model, inputs = build(name, (85, 85))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "operator.onnx")
        try:
            onnx_files.save(path, model, inputs)
        except ValueError as error:
            reason = str(error).partition(": ")[2].partition(" has no")[0]
            return f"| {name} | | refused: `{reason}` | | | | | | |"
        size = path.stat().st_size
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options)
    jitted = jax.jit(lambda model, *arrays: model(*arrays))
    sizes = SIZES[:2] if name in QUADRATIC else SIZES
    sizes = (inputs.num_points,) if inputs.num_points else sizes
    distances: dict[float, float] = {}
    for n in sizes:
        rng = np.random.default_rng(n)
        x = rng.uniform(size=(n, 2)).astype(np.float32)
        a = rng.normal(size=(n, 2)).astype(np.float32)
        given = {"mesh_points": x, "features": a}
        expected = np.asarray(jitted(model, x, a))
        (actual,) = session.run(None, given)
        distances[distance(actual, expected)] = distance(
            expected, in_double(model, x, a)
        )
    ours, theirs = call_times(
        lambda: jax.block_until_ready(jitted(model, x, a)),
        lambda: session.run(None, given),
    )
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    parameters = sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(model)))
    random = name == "performer"  # draws other features in double precision
    numbers = (
        f"{n:,}",
        f"{max(distances):.1e}",
        "–" if random else f"{distances[max(distances)]:.1e}",
        f"{size / 1e6:.2f}",
        f"{size / parameters:.2f}",
        f"{statistics.median(ours):.0f}",
        f"{statistics.median(theirs):.0f}",
        f"{ratio:.2f}",
    )
    return f"| {name} | {' | '.join(numbers)} |"


def main(names: list[str]) -> None:
    for key, value in provenance(["jax", "jaxlib", "onnx", "onnxruntime"]).items():
        print(f"- {key}: {value}")
    print(HEAD)
    for name in names or list(operators.REGISTRY):
        print(row(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
