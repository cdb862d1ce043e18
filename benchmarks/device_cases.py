"""What `benchmarks.device` measures: names, and functions that return numbers.

The most informative cases come first. Those of one group share a process; nothing here
touches a device before a case is measured.
"""

import dataclasses
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from benchmarks import speed

Numbers = dict[str, Any]
STEPS = ("darcy_b4", "points_972", "points_16384", "darcy_b1")
_SCANNED = 10  # steps of one program


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large the cases are."""

    points: tuple[int, ...] = (1024, 16384)
    pairs: tuple[int, ...] = (4096, 16384)
    tiles: tuple[int, ...] = (64, 256, 1024)
    million: int = 10**6
    chunk_size: int = 32768
    batch: int = 4
    heads: int = 8
    channels: int = 32
    window: float = 0.05  # seconds of calls that are queued
    repeats: int = 7
    small: bool = False

    def step(self, name: str) -> speed.Case:
        """Returns a case of `benchmarks.speed`."""
        case = speed.CASES[name]
        if not self.small:
            return case
        grid = case.model["grid_shape"] and (9, 9)
        model = {**case.model, "grid_shape": grid, "features": 16, "num_layers": 2}
        model |= {"num_heads": 2, "num_basis": 4}
        return dataclasses.replace(case, num_points=81, model=model)

    def milliseconds(self, call: Callable[[], Any], wait: Callable[[Any], Any]):
        """Times calls, see `milliseconds`."""
        return milliseconds(call, wait, self.window, self.repeats)


SMALL = Sizes(
    points=(128,),
    pairs=(192,),
    tiles=(64,),
    million=1000,
    chunk_size=256,
    batch=2,
    heads=2,
    channels=8,
    window=0.0,
    repeats=1,
    small=True,
)


class Case(NamedTuple):
    """One line of output.

    Attributes:
      name: kind and parts, with slashes.
      group: cases of one group share a process.
      measure: returns numbers that JSON can hold.
      seconds: after which it is given up.
    """

    name: str
    group: str
    measure: Callable[[], Numbers]
    seconds: int = 60


def cases(sizes: Sizes) -> list[Case]:
    """Returns all cases, the most informative first."""
    return [
        *_steps(sizes),
        *_functions(sizes),
        *_precisions(sizes),
        *_points(sizes, few=True),
        *_tiles(sizes),
        *_values(),
        *_paper(sizes, "paper"),
        *_compiled(sizes),
        *_other_steps(sizes),
        *_kernels(sizes),
        *_points(sizes, few=False),
        *_tests(sizes),
    ]


def _steps(sizes: Sizes) -> Iterator[Case]:
    for name in STEPS:
        measure = partial(opjax_step, sizes, name)
        yield Case(f"step/{name}/opjax", "steps", measure, 90)
    scanned = partial(opjax_step, sizes, "points_972", scanned=True)
    yield Case("step/points_972/opjax scanned", "steps", scanned, 90)
    for precision in ("high", "highest"):
        for name in STEPS:
            measure = partial(torch_step, sizes, name, precision=precision)
            yield Case(f"step/{name}/torch {precision}", "torch", measure)


def _compiled(sizes: Sizes) -> Iterator[Case]:
    for name in STEPS:
        measure = partial(torch_step, sizes, name, precision="high", compiled=True)
        yield Case(f"step/{name}/torch compiled", "compiled", measure, 100)


def _other_steps(sizes: Sizes) -> Iterator[Case]:
    scanned = partial(opjax_step, sizes, "darcy_b1", scanned=True)
    yield Case("step/darcy_b1/opjax scanned", "other steps", scanned, 90)
    for name in ("darcy_b4", "points_972", "darcy_b1"):
        highest = partial(opjax_step, sizes, name, precision="highest")
        yield Case(f"step/{name}/opjax highest", "other steps", highest, 90)
    in_turn = partial(opjax_step, sizes, "darcy_b4", microbatch=1)
    yield Case("step/darcy_b4/opjax microbatch 1", "other steps", in_turn, 90)


def _functions(sizes: Sizes) -> Iterator[Case]:
    from benchmarks import device_functions

    for n in sizes.points:
        for name in device_functions.LINEAR:
            measure = partial(device_functions.compare, sizes, name, n)
            yield Case(f"function/{name}/{n}", "functions", measure)


def _tiles(sizes: Sizes) -> Iterator[Case]:
    from benchmarks import device_functions

    for n in sizes.pairs:
        for tile in (*sizes.tiles, n, "plain", "cudnn"):
            measure = partial(device_functions.pairwise, sizes, n, tile)
            yield Case(f"pairwise/{n}/{tile}", "pairwise", measure, 45)


def _precisions(sizes: Sizes) -> Iterator[Case]:
    from benchmarks import device_precision

    for ridge in (1e-1, 1e-3):
        measure = partial(device_precision.attention_errors, sizes, ridge)
        yield Case(f"precision/attention/{ridge:g}", "precision", measure)
    for name in ("points_972", "darcy_b1"):
        measure = partial(device_precision.step_errors, sizes, name)
        yield Case(f"precision/step/{name}", "precision", measure, 120)


def _points(sizes: Sizes, *, few: bool) -> Iterator[Case]:
    ten = 10 * sizes.million
    first = [(sizes.million, "chunked", {}), (ten, "chunked", {"storage": "bfloat16"})]
    first.append((sizes.million, "dense", {}))
    others = [
        (sizes.million, "streamed", {"store_every": 0}),
        (sizes.million, "streamed", {"store_every": 1}),
        (ten, "chunked", {"compute": "bfloat16", "storage": "bfloat16"}),
        (ten, "chunked", {}),
        (ten, "streamed", {"store_every": 0}),
    ]
    for n, mode, options in first if few else others:
        text = " ".join([mode, *(f"{key}={value}" for key, value in options.items())])
        measure = partial(many_points, sizes, n, mode, **options)
        yield Case(f"points/{n}/{text}", f"{n} {text}", measure, 90)


def _paper(sizes: Sizes, *presets: str) -> Iterator[Case]:
    for preset in presets:
        measure = partial(paper_hours, sizes, preset)
        yield Case(f"paper/darcy/{preset}", preset, measure, 120)


def _values() -> Iterator[Case]:
    from benchmarks import device_values

    for name in device_values.FUNCTIONS:
        measure = partial(device_values.against_cpu, name)
        yield Case(f"value/{name}", "values", measure, 45)


def _kernels(sizes: Sizes) -> Iterator[Case]:
    from benchmarks import device_kernels

    for name, function in device_kernels.KERNELS.items():
        yield Case(f"kernel/{name}", "kernels", partial(function, sizes), 45)


def _tests(sizes: Sizes) -> Iterator[Case]:
    for name in ("test_linalg", "attention/test_pairwise"):
        measure = partial(unit_tests, sizes, name)
        yield Case(f"tests/{name}", f"tests {name}", measure, 90)


# --- Time.


def milliseconds(
    call: Callable[[], Any],
    wait: Callable[[Any], Any],
    window: float,
    repeats: int,
) -> Numbers:
    """Times calls that are queued one after the other, and calls that are waited for.

    Returns:
      `ms`, the median over windows of many calls, `ms_low`, `ms_high` of the windows,
      and `ms_waited`, the median of single calls with the wait for the result.
    """
    alone: list[float] = []
    for _ in range(2 + repeats):
        begin = time.perf_counter()
        wait(call())
        alone.append(1e3 * (time.perf_counter() - begin))
    waited = statistics.median(alone[2:])
    count = min(max(int(1e3 * window / waited), 1), 50)
    queued: list[float] = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(count - 1):
            call()
        wait(call())
        queued.append(1e3 * (time.perf_counter() - begin) / count)
    low, high = min(queued), max(queued)
    middle = statistics.median(queued)
    return {"ms": middle, "ms_low": low, "ms_high": high, "ms_waited": waited}


# --- Training steps.


def opjax_step(
    sizes: Sizes,
    name: str,
    *,
    precision: str = "default",
    scanned: bool = False,
    microbatch: int | None = None,
) -> Numbers:
    """Times steps of our model, of all samples of a batch at once."""
    import jax
    import jax.numpy as jnp

    from opjax import training

    case = sizes.step(name)
    batch = jax.tree.map(jnp.asarray, speed.named_arrays(case))
    model, optimizer = speed.build(case.model, chunk_size=None), speed.make_optimizer()
    state = training.init(model, optimizer)
    update = training.make_step(speed.summed_errors, optimizer, microbatch=microbatch)

    def steps(state, batch):
        body = lambda state, _: update(state, batch)  # noqa: E731
        return jax.lax.scan(body, state, length=_SCANNED)

    with jax.default_matmul_precision(precision):
        lowered = jax.jit(steps if scanned else update, donate_argnums=0)
        begin = time.perf_counter()
        compiled = lowered.lower(state, batch).compile()
        seconds = time.perf_counter() - begin

    def call():
        nonlocal state  # donated
        state, logs = compiled(state, batch)
        return logs["loss"]

    first = jnp.ravel(call())[0]
    numbers = sizes.milliseconds(call, jax.block_until_ready)
    if scanned:
        numbers = {key: value / _SCANNED for key, value in numbers.items()}
    memory = compiled.memory_analysis()
    return {
        **numbers,
        "compile_s": seconds,
        "temporary_mib": memory and memory.temp_size_in_bytes / 2**20,
        "first_loss": float(first),
    }


def torch_step(
    sizes: Sizes, name: str, *, precision: str, compiled: bool = False
) -> Numbers:
    """Times steps of PyTorch's model."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision != "highest"
    compile = partial(torch.compile, backend="eager" if sizes.small else "inductor")
    if compiled:
        torch.compiler.reset()
    _, _, step = speed.torch_calls(
        sizes.step(name), compile if compiled else lambda model: model, device
    )

    def wait(loss):
        loss.item()

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    first = step().item()
    seconds = time.perf_counter() - begin
    numbers = sizes.milliseconds(step, wait)
    if device == "cuda":
        numbers["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return {**numbers, "compile_s": seconds, "first_loss": first}


# --- Many points.


def many_points(
    sizes: Sizes,
    num_points: int,
    mode: str,
    *,
    store_every: int = 1,
    storage: str = "float32",
    compute: str = "float32",
) -> Numbers:
    """Times exact gradients and updates of a mesh, see `benchmarks.scale`."""
    import jax

    from benchmarks import scale

    small = sizes.small
    options = {
        "points": num_points,
        "steps": 2,
        "layers": 2 if small else 8,
        "features": 16 if small else 128,
        "heads": sizes.heads,
        "bases": 4 if small else 64,
        "chunk_size": sizes.chunk_size,
        "devices": 1,
        "store_every": store_every,
        "scratch": "",
        "storage_dtype": storage,
        "compute_dtype": compute,
    }
    numbers = scale.measure(mode, options)
    numbers["host_peak_mib"] = numbers.pop("peak_mib")
    if memory := jax.local_devices()[0].memory_stats():
        numbers["device_peak_gib"] = memory["peak_bytes_in_use"] / 2**30
    return {**numbers, "chunk_size": sizes.chunk_size}


def paper_hours(sizes: Sizes, preset: str) -> Numbers:
    """Times a step of a preset of `experiments.darcy`, and counts its steps."""
    import jax

    from experiments import darcy, published_hours
    from opjax.learn.cli import describe, study
    from opjax.learn.run.sources import make_batches

    config = darcy.PRESETS["smoke" if sizes.small else preset]
    member, *_ = config.members().values()
    few = describe.fewest(member)
    task = darcy.PROGRAM.make_task(few, None)
    settings = dataclasses.replace(task.settings(few), steps_per_call=1)
    lowered, state, given = make_batches(task, settings).one_step(
        study.build(few, task)
    )
    begin = time.perf_counter()
    compiled = lowered.compile()
    seconds = time.perf_counter() - begin

    def call():
        nonlocal state  # donated
        state, logs = compiled(state, *given)
        return logs

    numbers = sizes.milliseconds(call, jax.block_until_ready)
    steps = published_hours.num_steps(member)
    hours = numbers["ms"] * steps / 3.6e6
    return {**numbers, "compile_s": seconds, "steps": steps, "hours": hours}


def unit_tests(sizes: Sizes, name: str) -> Numbers:
    """Runs a file of tests on the device, products in full precision.

    Those that have not begun after 70 seconds are left out.
    """
    keys = ["-k", "test_values"] if sizes.small else []
    command = ["timeout", "-s", "INT", "70", sys.executable, "-m", "pytest", "-n", "0"]
    command += ["-q", "-p", "no:cacheprovider", "-m", "not slow and not nightly", *keys]
    done = subprocess.run(
        [*command, "--maxfail=20", "--tb=line", f"tests/{name}.py"],
        env=os.environ | {"JAX_DEFAULT_MATMUL_PRECISION": "highest"},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.strip().splitlines()
    failed = [line[:300] for line in lines if line.startswith(("FAILED", "ERROR"))]
    summary = lines[-1] if lines else done.stderr[-500:]
    return {"returncode": done.returncode, "summary": summary, "failed": failed}
