"""Times training steps in opjax and in PyTorch, eager and compiled, on the CPU.

A step is forward, backward, gradient clipping and an AdamW update on a one-cycle
schedule, in float32, with the relative L2 error summed over the batch as loss. Every
measurement runs in a fresh process, so that peak memory belongs to one side. The sides
alternate, so that a busy machine disturbs all of them. The PyTorch models are in
`torch_models.py`; all sides see the same numbers.

    python -m benchmarks.speed --cases=darcy_b1 --sides=torch,opjax --rounds=1

The sides are `torch` and `torch_compile`; `opjax`, one sample at a time with XLA's
threads; `opjax_chunked`, in chunks of points; and `opjax_devices`, with the cores as
devices that share the samples or the points, in chunks where possible. The last line of
output is one JSON object. The Markdown report goes to `--output`.
"""

import dataclasses
import functools
import json
import math
import os
import pathlib
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags, logging

from benchmarks.provenance import num_cores, provenance

# This process imports neither numpy, torch nor jax: on Linux a child's ru_maxrss
# starts from the resident size of the process that started it.


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and a batch; the arguments both implementations understand."""

    batch: int
    num_points: int
    model: dict[str, Any]

    def steps(self, steps: int) -> int:
        """Returns how many steps to time: fewer of large ones, at least three."""
        return max(3, steps // max(self.batch, self.num_points // 4096))


def _cases() -> dict[str, Case]:
    paper = {"features": 128, "num_layers": 8, "num_heads": 8, "num_basis": 64}
    small = {"features": 64, "num_layers": 4, "num_heads": 8, "num_basis": 32}
    grid = {"grid_shape": (85, 85), "reference_points": 8, "feature_dim": 1}
    cloud = {"grid_shape": None, "reference_points": None, "feature_dim": 0}
    found = {
        "darcy_b1": Case(1, 85 * 85, {**grid, **paper, "mlp_ratio": 1}),
        "darcy_b4": Case(4, 85 * 85, {**grid, **paper, "mlp_ratio": 1}),
        "points_972": Case(1, 972, {**cloud, **paper, "mlp_ratio": 2}),
        "points_1352_b2": Case(2, 1352, {**cloud, **small, "mlp_ratio": 1}),
        "points_16384": Case(1, 16384, {**cloud, **paper, "mlp_ratio": 1}),
    }
    for name, case in list(found.items()):
        model = {**case.model, "functional": False}
        found[f"transolver_{name}"] = dataclasses.replace(case, model=model)
        case.model["functional"] = True
    return found


CASES = _cases()
SIDES = ("torch", "torch_compile", "opjax", "opjax_chunked", "opjax_devices")
_CHUNK = 512
_OPTIMIZER = {"weight_decay": 1e-5, "clip_norm": 0.1}
_PEAK_LEARNING_RATE = 1e-3
_PACKAGES = ("torch", "jax", "jaxlib", "flax", "optax", "numpy")
_TOTAL_STEPS = 1000
_WARM_UP = 2
_ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Config:
    """What to measure, and where to write it."""

    cases: tuple[str, ...] = tuple(CASES)
    sides: tuple[str, ...] = SIDES
    steps: int = 10
    rounds: int = 5
    output: str = "results/speed.md"


def define_flags() -> None:
    """Defines the flags; not on import, since names are those of other benchmarks."""
    flags.DEFINE_list("cases", list(CASES), f"Cases to measure: {', '.join(CASES)}")
    flags.DEFINE_list("sides", list(SIDES), "Implementations to compare, in turns")
    for name, known in (("cases", tuple(CASES)), ("sides", SIDES)):
        flags.register_validator(
            name,
            lambda given, known=known: 0 < len(given) == len(set(given) & set(known)),
            f"must be a list of different names out of {', '.join(known)}.",
        )
    text = "Number of timed steps at batch size 1, after the warm-up"
    flags.DEFINE_integer("steps", Config.steps, text, lower_bound=1)
    text = "Number of processes per implementation and case"
    flags.DEFINE_integer("rounds", Config.rounds, text, lower_bound=1)
    flags.DEFINE_string(
        "output", Config.output, "Markdown report to write. None if empty"
    )
    flags.DEFINE_bool("worker", False, "Measure one implementation (internal)")


# --- The measuring side: one process, one case, one framework.


def batch_arrays(case: Case):
    """Returns mesh points (b, n, 2), features (b, n, c) or None, targets (b, n, 1)."""
    import numpy as np

    rng = np.random.default_rng(0)
    shape = (case.batch, case.num_points)
    if case.model["grid_shape"] is None:
        points = rng.uniform(size=(*shape, 2)).astype(np.float32)
    else:
        shape_of_grid = case.model["grid_shape"]
        axes = [np.linspace(0, 1, m, dtype=np.float32) for m in shape_of_grid]
        nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(1, -1, 2)
        points = np.repeat(nodes, case.batch, axis=0)
    target = rng.normal(size=(*shape, 1)).astype(np.float32)
    features = rng.normal(size=(*shape, 1)).astype(np.float32)
    return points, features if case.model["feature_dim"] else None, target


def named_arrays(case: Case) -> dict[str, Any]:
    """Returns `batch_arrays` by the names of opjax."""
    names = "mesh_points", "features", "target"
    pairs = zip(names, batch_arrays(case), strict=True)
    return {name: array for name, array in pairs if array is not None}


def make_optimizer():
    """Returns AdamW with clipped gradients on a one-cycle schedule."""
    from opjax import training

    return training.adamw_onecycle(_PEAK_LEARNING_RATE, _TOTAL_STEPS, **_OPTIMIZER)


def torch_calls(case: Case, compile: Callable[[Any], Any], device: str = "cpu"):
    """Returns the PyTorch model, and calls that evaluate and train it.

    Args:
      case: of a model and a batch.
      compile: makes of the model what is called, such as `torch.compile`.
      device: of the model and the batch.
    """
    import torch

    from benchmarks import torch_models

    torch.manual_seed(0)
    points, features, target = (
        None if array is None else torch.from_numpy(array).to(device)
        for array in batch_arrays(case)
    )
    model = torch_models.OperatorTransformer(**case.model).to(device)
    run_model = compile(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), weight_decay=_OPTIMIZER["weight_decay"], fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, _PEAK_LEARNING_RATE, total_steps=_TOTAL_STEPS
    )

    def forward():
        with torch.inference_mode():
            return run_model(points, features)

    def step():
        optimizer.zero_grad()
        loss = torch_models.relative_l2(run_model(points, features), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _OPTIMIZER["clip_norm"])
        optimizer.step()
        schedule.step()
        return loss

    return model, forward, step


def measure_torch(case: Case, steps: int, *, compiled: bool) -> dict[str, Any]:
    """Times the PyTorch model, eager or compiled."""
    import torch

    from benchmarks import torch_models  # noqa: F401, in the baseline

    torch.set_num_threads(num_cores())
    baseline = _peak_mib()
    compile = torch.compile if compiled else lambda model: model
    model, forward, step = torch_calls(case, compile)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "forward_ms": _time_ms(forward, steps),
        "step_ms": _time_ms(lambda: step().item(), steps),
        "loss": step().item(),
        **_memory(baseline),
    }


def build(options: dict[str, Any], *, chunk_size: int | None):
    """Returns the opjax model of a case."""
    from flax import nnx

    from opjax import nn

    heads, references = options["num_heads"], options["reference_points"]
    basis = functools.partial(
        nn.bases.SoftmaxBasis,
        num_basis=options["num_basis"],
        grid_shape=options["grid_shape"],
    )
    functional = options["functional"]
    return nn.OperatorTransformer(
        position=nn.ReferenceDistances(2, references)
        if references
        else nn.Coordinates(2),
        feature_dim=options["feature_dim"],
        out_features=1,
        features=options["features"],
        num_layers=options["num_layers"],
        mlp_ratio=options["mlp_ratio"],
        attention=functools.partial(
            nn.BasisAttention,
            num_heads=heads,
            basis=None if functional else basis,
            mixer=nn.mixers.FunctionalMap if functional else nn.mixers.SoftmaxMap,
        ),
        basis=functools.partial(basis, num_heads=heads) if functional else None,
        chunk_size=chunk_size,
        rngs=nnx.Rngs(0),
    )


def predict(model, batch, *, axis_name=None):
    """Values of a batch; `axis_name` is that of the devices with the other points."""
    from opjax import training

    def evaluate(sample):
        return model(
            sample["mesh_points"],
            sample.get("features"),
            quadrature_weights=sample.get("quadrature_weights"),
            axis_name=axis_name,
        )

    return training.over_samples(evaluate)(batch)


def summed_errors(model, batch, *, axis_name=None):
    """Sum of the relative errors of a batch."""
    from opjax import metrics, training

    def error(prediction, sample):
        return metrics.relative_l2(
            prediction,
            sample["target"],
            quadrature_weights=sample.get("quadrature_weights"),
            axis_name=axis_name,
        )

    errors = training.over_samples(error)
    return errors(predict(model, batch, axis_name=axis_name), batch).sum()


def measure_opjax(case: Case, steps: int, *, side: str) -> dict[str, Any]:
    """Times the opjax model; compilation is timed apart."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from opjax import training
    from opjax.learn.run import devices
    from opjax.training import sharding

    mesh, grid = None, case.model["grid_shape"]
    if side == "opjax_devices":
        axis = "batch" if case.batch > 1 else "points"
        mesh = devices.start(f"{axis}:{num_cores()}", None)
    batch = jax.block_until_ready(jax.tree.map(jnp.asarray, named_arrays(case)))
    baseline = _peak_mib()
    model = build(case.model, chunk_size=None if side == "opjax" else _CHUNK)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))

    forward_ms = None  # of several devices not measured
    if mesh is None:
        forward = jax.jit(predict).lower(model, batch).compile()
        forward_ms = _time_ms(
            lambda: jax.block_until_ready(forward(model, batch)), steps
        )
    optimizer = make_optimizer()
    state = training.init(model, optimizer)
    if mesh is not None:
        row = math.prod(grid[1:]) if grid else 1
        state = sharding.replicate(state, mesh)
        batch = sharding.place(batch, mesh, row=row)
    # One sample at a time, as the experiments do on a CPU.
    update = training.make_step(summed_errors, optimizer, microbatch=1, mesh=mesh)
    step_function = jax.jit(update, donate_argnums=0)
    start = time.perf_counter()
    step_compiled = step_function.lower(state, batch).compile()
    compile_s = time.perf_counter() - start

    def step():
        nonlocal state  # donated
        state, logs = jax.block_until_ready(step_compiled(state, batch))
        return float(logs["loss"])

    return {
        "parameters": parameters,
        "forward_ms": forward_ms,
        "step_ms": _time_ms(step, steps),
        "loss": step(),
        "compile_s": compile_s,
        **_memory(baseline),
    }


def _time_ms(function: Callable[[], Any], repeats: int) -> list[float]:
    """Returns the milliseconds of each call after the warm-up."""
    for _ in range(_WARM_UP):
        function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def _peak_mib() -> float:
    """Returns the peak resident size of this process so far (Linux reports KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _memory(baseline: float) -> dict[str, float]:
    peak = _peak_mib()
    return {"peak_mib": peak, "increment_mib": peak - baseline}


# --- The comparing side: starts the workers, summarises, reports.


def start_worker(side: str, name: str, steps: int) -> dict[str, Any]:
    """Measures one side of one case in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.speed", "--worker"]
    command += [f"--sides={side}", f"--cases={name}", f"--steps={steps}"]
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads stall a busy machine
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # compile times are reported
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def summarise(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Reduces the rounds of one side: medians of times, the largest peak."""
    summary: dict[str, Any] = {
        name: statistics.median(sum((run[name] for run in runs), []))
        for name in ("forward_ms", "step_ms")
        if runs[0][name] is not None
    }
    for name in ("peak_mib", "increment_mib"):
        summary[name] = max(run[name] for run in runs)
    if "compile_s" in runs[0]:
        summary["compile_s"] = statistics.median(run["compile_s"] for run in runs)
    return summary | {"parameters": runs[0]["parameters"], "loss": runs[0]["loss"]}


def ratio(theirs: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]):
    """Returns their median step time over ours, and the same round by round."""
    pairs = [
        [statistics.median(run["step_ms"]) for run in both]
        for both in zip(theirs, ours, strict=True)
    ]
    medians = [statistics.median(times) for times in zip(*pairs, strict=True)]
    return {"median": medians[0] / medians[1], "rounds": [a / b for a, b in pairs]}


def run(config: Config) -> dict[str, Any]:
    """Measures every case; returns the summaries by case and side."""
    results: dict[str, Any] = {}
    for name in config.cases:
        sides = config.sides
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for index in range(config.rounds):
            for side in sides:
                runs[side].append(start_worker(side, name, config.steps))
                step = statistics.median(runs[side][-1]["step_ms"])
                logging.info("%s, round %d: %s %.0f ms", name, index, side, step)
        results[name] = {side: summarise(runs[side]) for side in sides}
        for side in sides:
            for other in ("torch", "torch_compile"):
                if side.startswith("opjax") and other in sides:
                    results[name][side][other] = ratio(runs[other], runs[side])
    return results


def report(config: Config, results: dict[str, Any], origin: dict[str, str]) -> str:
    """Returns the Markdown report."""
    lines = ["# One training step: opjax and PyTorch", ""]
    lines += [f"- {key}: `{value}`" for key, value in origin.items()]
    lines += [
        f"- {config.rounds} fresh processes per side, alternating; medians of "
        + ", ".join(f"{CASES[c].steps(config.steps)} ({c})" for c in config.cases)
        + f" steps each after {_WARM_UP} warm-up steps",
        "- memory: largest ru_maxrss, compilation included; above what it is after "
        "imports and data, before the model",
        "- `torch /`: PyTorch's time over this side's, eager and compiled, of a step, "
        "with the range over the rounds",
        "",
        "| case | side | parameters | forward ms | step ms | torch / | compiled / "
        "| peak MiB | above baseline | compile s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in config.cases:
        for side, row in results[name].items():
            compile_s = f"{row['compile_s']:.1f}" if "compile_s" in row else "–"
            forward = f"{row['forward_ms']:.0f}" if "forward_ms" in row else "–"
            against = [_ratio_text(row.get(other)) for other in SIDES[:2]]
            lines.append(
                f"| {name} | {side} | {row['parameters']:,} | {forward} "
                f"| {row['step_ms']:.0f} | {against[0]} | {against[1]} "
                f"| {row['peak_mib']:.0f} | {row['increment_mib']:.0f} | {compile_s} |"
            )
    return "\n".join(lines) + "\n"


def _ratio_text(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    low, high = min(found["rounds"]), max(found["rounds"])
    return f"{found['median']:.2f} ({low:.2f}–{high:.2f})"


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    given = flags.FLAGS
    config = Config(
        cases=tuple(given.cases),
        sides=tuple(given.sides),
        steps=given.steps,
        rounds=given.rounds,
        output=given.output,
    )
    if given.worker:
        case, side = CASES[config.cases[0]], config.sides[0]
        steps = case.steps(config.steps)
        if side.startswith("torch"):
            found = measure_torch(case, steps, compiled=side == "torch_compile")
        else:
            found = measure_opjax(case, steps, side=side)
        print(json.dumps(found))
        return
    origin = provenance(_PACKAGES)
    results = run(config)
    text = report(config, results, origin)
    print(text)
    if config.output:
        path = pathlib.Path(config.output)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(json.dumps({"results": results, "provenance": origin}))


if __name__ == "__main__":
    define_flags()
    app.run(main)
