"""Time and memory of one training step by number of points.

    python -m benchmarks.scale --modes=dense,chunked --points=16384 --steps=3

Trains the operator transformer with functional attention on a random cloud in space.
Each mode runs in its own process, so that the peak memory is that of the mode:

    dense     all points at once,
    chunked   `chunk_size` points at a time, with the same loss and gradients,
    sharded   chunked and split over `devices`; on a CPU, over its cores,
    streamed  chunked, from a mesh in a file. The inputs of every `store_every`-th layer
              are stored in a file in `--scratch`, or nothing is stored.

The last line is JSON. `modes` has the numbers of every mode; those of the last mode are
repeated beside it. `bytes_per_point` counts temporary arrays of the compiled step on
all devices. `bytes_exchanged` is what one device receives in a step.
`bandwidth_fraction` is the time that memory needs to write and read the inputs of the
layers once, divided by the time of the step.
"""

import json
import resource
import subprocess
import sys
import time
from functools import partial
from typing import Any

from absl import app, flags

from benchmarks import streamed
from benchmarks.provenance import provenance

_MODES = ("dense", "chunked", "sharded", "streamed")
_GIVEN = flags.DEFINE_list(
    "modes", ["dense", "chunked"], "Modes to measure: dense, chunked, sharded, streamed"
)
_EVERY = flags.DEFINE_integer(
    "store_every",
    1,
    "Number of layers between stored ones in the mode streamed. 0 stores none",
    lower_bound=0,
)
_STORAGE = flags.DEFINE_enum(
    "storage_dtype",
    "float32",
    ("float32", "bfloat16", "float16"),
    "Data type of stored activations in all modes but dense",
)
_COMPUTE = flags.DEFINE_enum(
    "compute_dtype",
    "float32",
    ("float32", "bfloat16"),
    "Data type of the factors in matrix products over points",
)
_SCRATCH = flags.DEFINE_string(
    "scratch", "", "Folder for files. A temporary folder if empty"
)
_SIZES = {
    "points": (16384, "Points of the mesh"),
    "steps": (3, "Steps that are timed, after one that is not"),
    "layers": (8, "Number of blocks"),
    "features": (128, "Number of channels. Must be a multiple of --heads"),
    "heads": (8, "Number of attention heads"),
    "bases": (64, "Number of basis functions per head"),
    "chunk_size": (512, "Number of points computed at a time in all modes but dense"),
    "devices": (2, "Number of devices in the mode sharded"),
}
for _name, (_default, _text) in _SIZES.items():
    flags.DEFINE_integer(_name, _default, _text, lower_bound=1)
_PACKAGES = ("jax", "jaxlib", "flax", "optax")


def build(sizes: dict[str, Any], *, chunk_size: int | None) -> Any:
    """Returns the operator transformer that is measured."""
    from flax import nnx

    from opjax import nn

    attention = partial(
        nn.FunctionalAttention, num_heads=sizes["heads"], num_basis=sizes["bases"]
    )
    model = nn.OperatorTransformer(
        position=nn.Coordinates(3),
        feature_dim=0,
        out_features=1,
        features=sizes["features"],
        num_layers=sizes["layers"],
        attention=attention,
        chunk_size=chunk_size,
        rngs=nnx.Rngs(0),
    )
    keeps = chunk_size is not None
    return nn.with_precision(
        model,
        nn.Precision(
            features=_narrow(sizes.get("compute_dtype")),
            storage=_narrow(sizes.get("storage_dtype")) if keeps else None,
        ),
    )


def _narrow(dtype: str | None) -> str | None:
    return None if dtype == "float32" else dtype


def measure(mode: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """Times a training step in this process.

    Returns:
      `step_seconds`, the median, `microseconds_per_point`, `loss` of the first step,
      `bytes_per_point`, `compile_seconds` and `peak_mib` of the whole process.
    """
    import jax
    import jax.numpy as jnp

    from benchmarks.communication import exchanged
    from opjax import training
    from opjax.learn.run import devices
    from opjax.training import sharding

    n, mesh = sizes["points"], None
    if mode == "sharded":
        mesh = devices.start(f"points:{sizes['devices']}", None)
    model = build(sizes, chunk_size=None if mode == "dense" else sizes["chunk_size"])
    if mode == "streamed":
        return streamed.measure(model, sizes)
    points = jax.random.uniform(jax.random.key(0), (n, 3), jnp.float32)
    batch = {"mesh_points": points[None], "target": jnp.sin(5 * points[None, :, :1])}

    def loss(model: Any, batch: Any, *, axis_name: str | None = None) -> jax.Array:
        points, target = batch["mesh_points"][0], batch["target"][0]
        square = jnp.sum((model(points, axis_name=axis_name) - target) ** 2)
        return (jax.lax.psum(square, axis_name) if axis_name else square) / n

    optimizer = training.adamw(1e-3, weight_decay=1e-5)
    state = training.init(model, optimizer)
    if mesh is not None:
        state, batch = sharding.replicate(state, mesh), sharding.place(batch, mesh)
    step = jax.jit(training.make_step(loss, optimizer, mesh=mesh), donate_argnums=0)
    begin = time.perf_counter()
    compiled = step.lower(state, batch).compile()
    compile_seconds = time.perf_counter() - begin
    analysis = compiled.memory_analysis()
    seconds, first = [], None
    for _ in range(sizes["steps"] + 1):
        begin = time.perf_counter()
        state, metrics = jax.block_until_ready(compiled(state, batch))
        seconds.append(time.perf_counter() - begin)
        first = float(metrics["loss"]) if first is None else first
    median = sorted(seconds[1:])[sizes["steps"] // 2]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "step_seconds": median,
        "microseconds_per_point": 1e6 * median / n,
        "loss": first,
        "bytes_per_point": None
        if analysis is None
        else analysis.temp_size_in_bytes * (mesh.size if mesh else 1) / n,
        "compile_seconds": compile_seconds,
        **exchanged(compiled),
        "peak_mib": peak / (2**20 if sys.platform == "darwin" else 2**10),
    }


def inputs_of_layers(sizes: dict[str, Any]) -> int:
    """Bytes of the inputs of all layers and of the decoder, written and read once."""
    width = 4 if sizes.get("storage_dtype", "float32") == "float32" else 2
    return 2 * sizes["points"] * (sizes["layers"] + 1) * sizes["features"] * width


def copy_bandwidth(size: int = 2**25) -> float:
    """Bytes a second that one thread reads and writes when it copies an array.

    Args:
      size: its float64 values; many more than caches hold.
    """
    import numpy as np

    source, target = np.ones(size), np.empty(size)
    seconds = []
    for _ in range(4):
        begin = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - begin)
    return 2 * source.nbytes / min(seconds)


def main(argv: list[str]) -> None:
    """Measures every mode in turn."""
    sizes: dict[str, Any] = {name: getattr(flags.FLAGS, name) for name in _SIZES}
    sizes |= {"store_every": _EVERY.value, "scratch": _SCRATCH.value}
    sizes["storage_dtype"] = _STORAGE.value
    sizes["compute_dtype"] = _COMPUTE.value
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    if unknown := [mode for mode in _GIVEN.value if mode not in _MODES]:
        raise app.UsageError(
            f"modes={','.join(unknown)} is unknown; choose from {', '.join(_MODES)}."
        )
    if not _GIVEN.value or sizes["features"] % sizes["heads"]:
        raise app.UsageError("Name a mode, and heads that divide the features.")
    keeps = [m for m in _GIVEN.value if m != "dense"]
    if _STORAGE.value != "float32" and keeps in ([], ["streamed"] * (not _EVERY.value)):
        raise app.UsageError("Nothing is kept; leave storage_dtype out.")
    if "sharded" in _GIVEN.value and sizes["points"] % sizes["devices"]:
        raise app.UsageError("Give as many points to every one of the devices.")
    modes = {}
    for mode in _GIVEN.value:
        own = "import json; from benchmarks.scale import measure; print(json.dumps("
        own += f"measure({mode!r}, {sizes})))"
        found = subprocess.run(
            [sys.executable, "-c", own], check=True, stdout=subprocess.PIPE, text=True
        )
        modes[mode] = json.loads(found.stdout.splitlines()[-1])
        print(f"{mode}: {modes[mode]}", file=sys.stderr, flush=True)
    floor = inputs_of_layers(sizes) / copy_bandwidth()
    for row in modes.values():
        row["bandwidth_fraction"] = floor / row["step_seconds"]
    last = modes[_GIVEN.value[-1]]
    made = provenance(_PACKAGES)
    print(json.dumps({**last, "modes": modes, **sizes, "provenance": made}))


if __name__ == "__main__":
    app.run(main)
