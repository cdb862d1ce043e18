"""The mode `streamed` of `benchmarks.scale`: a mesh in a file, read in chunks.

The file is written in pieces to a temporary folder and memory-mapped. With `storage`,
the stored layers are in that folder, too. Otherwise nothing is stored, and memory and
disk use do not grow with the number of points, apart from the mesh itself.
"""

import math
import pathlib
import resource
import sys
import tempfile
import time
from typing import Any

import numpy as np

PIECE = 2**18  # points that are written at once


def write_mesh(folder: pathlib.Path, num_points: int) -> dict[str, np.ndarray]:
    """Writes a random cloud and a function on it, and maps them read-only."""
    rng, columns = np.random.default_rng(0), {"mesh_points": 3, "target": 1}
    paths = {name: folder / f"{name}.npy" for name in columns}
    for start in range(0, num_points, PIECE):
        points = rng.uniform(size=(min(PIECE, num_points - start), 3))
        pieces = {"mesh_points": points, "target": np.sin(5 * points[:, :1])}
        for name, piece in pieces.items():
            shape = (num_points, columns[name])
            # Opened anew, because pages of a mapped file stay in the process.
            given: dict[str, Any] = {"shape": shape} if start == 0 else {}
            mode = "w+" if start == 0 else "r+"
            array = np.lib.format.open_memmap(paths[name], mode, np.float32, **given)
            array[start : start + len(piece)] = piece
    return {name: np.load(path, mmap_mode="r") for name, path in paths.items()}


def measure(model: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    """Times steps on a mesh in a file, as `scale.measure` does.

    Returns:
      The numbers of `scale.measure`; `bytes_per_point` is what is stored of the layers,
      for each point, and `compile_seconds` the time of a step on two chunks.
    """
    import jax

    from opjax import streaming, training

    n, every = sizes["points"], sizes["store_every"]
    narrow = sizes["storage_dtype"] if sizes["storage_dtype"] != "float32" else None
    optimizer = training.adamw(1e-3, weight_decay=1e-5)
    with tempfile.TemporaryDirectory(dir=sizes["scratch"] or None) as name:
        mesh = write_mesh(pathlib.Path(name), n)
        step = streaming.make_step(
            optimizer,
            streaming.Chunks(
                sizes["chunk_size"],
                store_every=every,
                storage=name if every else None,
                storage_dtype=narrow if every else None,
            ),
            loss=streaming.MEAN_SQUARED_ERROR,
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
    kept = math.ceil(layers / every) * channels * (2 if narrow else 4) if every else 0
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
