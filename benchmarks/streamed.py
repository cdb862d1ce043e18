"""The mode `streamed` of `benchmarks.scale`: the mesh is in a file, and read in chunks.

The file is written in pieces, to a folder that is removed afterwards, and mapped. With
`storage` what is kept of the layers is in that folder too; otherwise nothing is kept,
and memory and disk do not depend on the number of points but for the mesh itself.
"""

import math
import pathlib
import resource
import sys
import tempfile
import time
from typing import Any

import numpy as np


def write_mesh(folder: pathlib.Path, num_points: int) -> dict[str, np.ndarray]:
    """Writes a random cloud and a function on it, and maps them read-only."""
    rng, names = np.random.default_rng(0), {"mesh_points": 3, "target": 1}
    for name, columns in names.items():
        header = (num_points, columns)
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, header)
    with (folder / "mesh_points.npy").open("r+b") as points_file:
        with (folder / "target.npy").open("r+b") as target_file:
            for file, columns in ((points_file, 3), (target_file, 1)):
                file.seek(-4 * columns * num_points, 2)
            for start in range(0, num_points, 2**18):
                size = min(2**18, num_points - start)
                points = rng.uniform(size=(size, 3)).astype(np.float32)
                points_file.write(points.tobytes())
                target_file.write(np.sin(5 * points[:, :1]).tobytes())
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}


def measure(model: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    """Times steps on a mesh in a file, as `scale.measure` does.

    Returns:
      The numbers of `scale.measure`; `bytes_per_point` is what is stored of the layers,
      for each point, and `seconds_before` the time of a step on two chunks, which
      compiles all programs.
    """
    import jax

    from opjax import streaming, training

    n, every = sizes["points"], sizes["store_every"]
    optimizer = training.adamw(1e-3, weight_decay=1e-5)
    with tempfile.TemporaryDirectory(dir=sizes["scratch"] or None) as name:
        mesh = write_mesh(pathlib.Path(name), n)
        step = streaming.make_step(
            optimizer,
            loss=streaming.MEAN_SQUARED_ERROR,
            chunk_size=sizes["chunk_size"],
            store_every=every,
            storage=name if every else None,
        )
        state, begin = training.init(model, optimizer), time.perf_counter()
        few = {k: a[: 2 * sizes["chunk_size"]] for k, a in mesh.items()}
        jax.block_until_ready(step(state, few))
        before, seconds, first = time.perf_counter() - begin, [], None
        for _ in range(sizes["steps"]):
            begin = time.perf_counter()
            state, metrics = jax.block_until_ready(step(state, mesh))
            seconds.append(time.perf_counter() - begin)
            first = float(metrics["loss"]) if first is None else first
    layers, channels = sizes["layers"], sizes["features"]
    kept = math.ceil(layers / every) * channels * 4 if every else 0
    median = sorted(seconds)[len(seconds) // 2]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "step_seconds": median,
        "microseconds_per_point": 1e6 * median / n,
        "loss": first,
        "bytes_per_point": kept,
        "compile_seconds": before,
        "peak_mib": peak / (2**20 if sys.platform == "darwin" else 2**10),
    }
