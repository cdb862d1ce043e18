"""Times two-level Schwarz attention: training against PyTorch, and large operators.

`train`: 2000 steps on 1-D Poisson as in the paper (256 points, 8 subdomains), samples
generated on the fly, in one process. The sides alternate: opjax as one compiled scan, a
plain PyTorch loop over subdomains and batched PyTorch (`torch_schwarz.py`). Before,
all three must give the same loss for the same factors and right-hand sides.

`apply`: one matrix-free application of operators on up to 2^20 points; needs no torch.

    python -m benchmarks.schwarz --parts=apply --repeats=3 --output=
"""

import dataclasses
import functools
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags, logging

from benchmarks.provenance import num_cores, provenance
from opjax import schwarz
from opjax.problems import poisson

_PACKAGES = ("torch", "jax", "jaxlib", "optax", "numpy")
_PARTS = ("train", "apply")
_SIDES = {"opjax": "opjax", "plain": "PyTorch, loop", "batched": "PyTorch, batched"}
_POINTS, _SUBDOMAINS, _MODES, _RATE, _SCALE = 256, 8, 16, 1e-3, 0.02
# Subdomains of 32 points; the coarse level has 64 hats in each of its own.
_APPLY_CASES = ((2**16, 2), (2**18, 3), (2**19, 3), (2**20, 3))
_COARSEST_RANK = 32
_CALLS = 10

_Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Config:
    """What to measure, and where to write it."""

    parts: tuple[str, ...] = _PARTS
    repeats: int = 5
    steps: int = 2000
    batch: int = 256
    threads: int = 0
    output: str = "results/benchmark_schwarz.md"


_PARTS_FLAG = flags.DEFINE_list("parts", list(_PARTS), "Parts to run: train, apply")
flags.register_validator(
    _PARTS_FLAG,
    lambda parts: 0 < len(parts) == len(set(parts) & set(_PARTS)),
    f"must be a list of different names out of {', '.join(_PARTS)}.",
)
_REPEATS = flags.DEFINE_integer(
    "repeats",
    Config.repeats,
    "Number of alternating repeats after the warm-up",
    lower_bound=1,
)
_STEPS = flags.DEFINE_integer(
    "steps", Config.steps, "Number of training steps in a run", lower_bound=1
)
_THREADS = flags.DEFINE_integer(
    "threads",
    Config.threads,
    "Number of threads of both sides. 0 uses all cores",
    lower_bound=0,
)
_OUTPUT = flags.DEFINE_string(
    "output", Config.output, "Markdown report to write. None if empty"
)


# --- Training.


def initial_factors(cover: schwarz.Cover, rank: int, coarse_size: int) -> _Arrays:
    """Returns normal factors of the paper's scale, zero on padding."""
    normal = np.random.default_rng(0).normal
    local = (*np.shape(cover.indices), rank)
    inside = np.asarray(cover.weights)[..., None] > 0
    factors = {
        "query": inside * normal(size=local),
        "key": inside * normal(size=local),
        "coarse_query": normal(size=(coarse_size, coarse_size)),
        "coarse_key": normal(size=(coarse_size, coarse_size)),
    }
    return {name: (_SCALE * f).astype(np.float32) for name, f in factors.items()}


def opjax_side(
    config: Config,
    factors: _Arrays,
    cover: schwarz.Cover,
    hats: schwarz.Cover,
    problem: poisson.FourierProblem,
) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
    """Returns the loss of factors on samples, and training as one function of a key."""
    optimizer = optax.adam(_RATE)

    def loss(factors, samples):
        coarse = functools.partial(
            schwarz.low_rank_attention, factors["coarse_query"], factors["coarse_key"]
        )
        prediction = schwarz.two_level_attention(
            factors["query"],
            factors["key"],
            samples.right_sides,
            cover,
            coarse_space=hats,
            coarse=coarse,
        )
        error = jnp.sum((prediction - samples.solutions) ** 2, axis=0)
        return jnp.mean(error / jnp.sum(samples.solutions**2, axis=0))

    def step(state, key):
        factors, optimizer_state = state
        samples = poisson.sample(key, problem, num_samples=config.batch)
        value, gradient = jax.value_and_grad(loss)(factors, samples)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, factors)
        return (optax.apply_updates(factors, updates), optimizer_state), value

    def train(key):
        start = jax.tree.map(jnp.asarray, factors)
        keys = jax.random.split(key, config.steps)
        return jax.lax.scan(step, (start, optimizer.init(start)), keys)[1][-1]

    return jax.jit(loss), train


def torch_sides(
    config: Config,
    factors: _Arrays,
    cover: schwarz.Cover,
    hats: schwarz.Cover,
    problem: poisson.FourierProblem,
) -> tuple[dict[str, Callable[..., float]], dict[str, Callable[[], float]]]:
    """Returns loss and training of both PyTorch versions, by name."""
    # Read when torch is loaded: threads that spin stall each other on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    from benchmarks import torch_schwarz

    torch.manual_seed(0)
    torch.set_num_threads(config.threads or num_cores())

    def tensor(array) -> "torch.Tensor":
        return torch.tensor(np.asarray(array, np.float32))

    dense_hats = tensor(schwarz.coarse_prolong(jnp.eye(hats.num_subdomains), hats))
    coarse = [factors["coarse_query"], factors["coarse_key"]]
    indices, weights = np.asarray(cover.indices), np.asarray(cover.weights)
    sizes = cover.sizes

    def plain():
        unpadded = zip(indices[:, 0], sizes, strict=True)
        return torch_schwarz.PlainSchwarz(
            [(int(start), int(start + size)) for start, size in unpadded],
            [tensor(w[:m]) for w, m in zip(weights, sizes, strict=True)],
            dense_hats,
            *(
                [tensor(f[:m]) for f, m in zip(factors[name], sizes, strict=True)]
                for name in ("query", "key")
            ),
            *map(tensor, coarse),
        )

    def batched():
        return torch_schwarz.BatchedSchwarz(
            torch.tensor(indices, dtype=torch.int64),
            tensor(weights),
            dense_hats,
            *map(tensor, (factors["query"], factors["key"], *coarse)),
        )

    n = _POINTS
    laplacian = (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)) * (n + 1) ** 2
    inverse = tensor(np.linalg.inv(laplacian))
    rows = np.asarray(problem.modes).T
    rows = tensor(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    pairs = tensor(np.concatenate([problem.modes, problem.solutions]))
    damping = tensor(problem.damping)

    def plain_sample():
        return torch_schwarz.plain_batch(config.batch, rows, damping, inverse)

    def batched_sample():
        return torch_schwarz.batched_batch(config.batch, pairs, damping[:, None])

    def plain_loss(samples):
        f = tensor(samples.right_sides).T
        prediction = plain()(f)
        return torch_schwarz.weighted_mse(prediction, f @ inverse.T, 1).item()

    def batched_loss(samples):
        f, u = map(tensor, samples)
        return torch_schwarz.weighted_mse(batched()(f), u, 0).item()

    right_sides, solutions = batched_sample()
    np.testing.assert_allclose(
        solutions, inverse @ right_sides, atol=1e-4 * float(solutions.abs().max())
    )
    options = {"steps": config.steps, "rate": _RATE}
    train = torch_schwarz.train
    return {"plain": plain_loss, "batched": batched_loss}, {
        "plain": lambda: train(plain(), plain_sample, dim=1, fused=False, **options),
        "batched": lambda: train(
            batched(), batched_sample, dim=0, fused=True, **options
        ),
    }


def measure_train(config: Config) -> dict[str, Any]:
    """Times the three sides in turn; raises if their losses differ."""
    cover = schwarz.box_cover(_POINTS, _SUBDOMAINS, overlap=2)
    hats = schwarz.interface_hats(_POINTS, _SUBDOMAINS)
    problem = poisson.fourier_problem(_POINTS, num_modes=_MODES, dtype=jnp.float32)
    factors = initial_factors(cover, rank=4, coarse_size=hats.num_subdomains)
    given = (config, factors, cover, hats, problem)
    loss, train = opjax_side(*given)
    torch_losses, runs = torch_sides(*given)

    samples = poisson.sample(jax.random.key(1), problem, num_samples=config.batch)
    losses = {"opjax": float(loss(factors, samples))}
    losses |= {name: f(samples) for name, f in torch_losses.items()}
    np.testing.assert_allclose(
        list(losses.values()), losses["opjax"], rtol=2e-5, err_msg=str(losses)
    )

    key = jax.random.key(0)
    start = time.perf_counter()
    compiled = jax.jit(train).lower(key).compile()
    compile_s = time.perf_counter() - start
    runs = {"opjax": lambda: float(compiled(key)), **runs}
    final = {name: run() for name, run in runs.items()}  # warm-up
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(config.repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
            logging.info("train %d: %s %.2f s", repeat, name, seconds[name][-1])
    return {
        "seconds": seconds,
        "compile_s": compile_s,
        "initial": losses,
        "final": final,
    }


# --- Application to one right-hand side.


def build_operator(num_points: int, levels: int) -> tuple[Any, ...]:
    """Returns factors, covers and hats of every level, the finest first."""
    normal = np.random.default_rng(0).normal
    hierarchy, size, width = [], num_points, 32
    for _ in range(levels - 1):
        boxes = size // width
        cover = schwarz.box_cover(size, boxes, overlap=2)
        factors = [normal(size=(*np.shape(cover.indices), 4)) for _ in range(2)]
        hierarchy.append((*factors, cover, schwarz.interface_hats(size, boxes)))
        size, width = boxes - 1, 64
    coarsest = [normal(size=(size, min(size, _COARSEST_RANK))) for _ in range(2)]
    return jax.tree.map(_on_device, (*hierarchy, tuple(coarsest)))


def _on_device(array: np.ndarray) -> jax.Array:
    floating = np.issubdtype(array.dtype, np.floating)
    return jnp.asarray(array, jnp.float32 if floating else None)


def apply_operator(levels: tuple[Any, ...], value: jax.Array) -> jax.Array:
    """Applies the operator of `build_operator`, one level inside the other."""
    if len(levels) == 1:
        query, key = levels[0]
        return schwarz.low_rank_attention(query, key, value)
    query, key, cover, hats = levels[0]
    coarse = functools.partial(apply_operator, levels[1:])
    return schwarz.two_level_attention(
        query, key, value, cover, coarse_space=hats, coarse=coarse
    )


def measure_apply(config: Config) -> list[dict[str, Any]]:
    """Times compiled applications; sizes alternate within a repeat."""
    rows, calls = [], []
    for num_points, levels in _APPLY_CASES:
        operator = build_operator(num_points, levels)
        value = jax.random.normal(jax.random.key(0), (num_points, 1))
        start = time.perf_counter()
        compiled = jax.jit(apply_operator).lower(operator, value).compile()
        rows.append(
            {
                "points": num_points,
                "levels": levels,
                "compile_s": time.perf_counter() - start,
                "temporary_mib": _temporary_bytes(compiled) / 2**20,
                "operator_mib": sum(a.nbytes for a in jax.tree.leaves(operator))
                / 2**20,
                "dense_gib": 4 * num_points**2 / 2**30,
                "ms": [],
            }
        )
        calls.append(functools.partial(compiled, operator, value))
        image = jax.block_until_ready(calls[-1]())  # warm-up
        if not bool(jnp.isfinite(image).all()):
            raise FloatingPointError(f"The image on {num_points} points is not finite.")
    for _ in range(config.repeats):
        for row, call in zip(rows, calls, strict=True):
            for _ in range(_CALLS):
                start = time.perf_counter()
                jax.block_until_ready(call())
                row["ms"].append(1e3 * (time.perf_counter() - start))
    return rows


def _temporary_bytes(compiled: jax.stages.Compiled) -> int:
    analysis = compiled.memory_analysis()
    return 0 if analysis is None else analysis.temp_size_in_bytes


def memory_slopes(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Log-log slopes of memory and time in the number of points, three levels."""
    rows = [row for row in rows if row["levels"] == 3]
    logs = np.log([row["points"] for row in rows])
    columns = {
        "operator": [row["operator_mib"] for row in rows],
        "temporary": [row["temporary_mib"] for row in rows],
        "time": [statistics.median(row["ms"]) for row in rows],
    }
    return {name: np.polyfit(logs, np.log(c), 1)[0] for name, c in columns.items()}


# --- The report.


def _spread(values: Sequence[float], digits: int = 2) -> str:
    return (
        f"{statistics.median(values):.{digits}f} "
        f"({min(values):.{digits}f}–{max(values):.{digits}f})"
    )


def report(
    config: Config, results: dict[str, Any], origin: dict[str, str], wall_s: float
) -> str:
    """Returns the Markdown report."""
    lines = ["# Two-level Schwarz attention: training and large operators", ""]
    lines += [f"- {key}: `{value}`" for key, value in origin.items()]
    lines += [
        f"- wall time: {wall_s:.0f} s",
        "- noise: other jobs ran on the machine. The sides alternate in one process, "
        "so other jobs may slow down only one of them. Trust a ratio only if its whole "
        "range agrees, and repeat the measurement on an idle machine if it matters.",
    ]
    if "train" in results:
        train = results["train"]
        seconds = train["seconds"]
        lines += [
            "",
            f"## Training, {config.steps} steps",
            "",
            f"1-D Poisson, {_POINTS} points, {_SUBDOMAINS} subdomains, batch "
            f"{config.batch}, float32, Adam {_RATE:g}. Median (range) of "
            f"{config.repeats} alternating runs after one; ratios are of paired runs. "
            f"opjax compiles in {train['compile_s']:.1f} s, not included. With the "
            "same factors and samples the initial losses agree to 2e-5; afterwards "
            "each side draws its own samples. Either framework has "
            f"{config.threads or num_cores()} thread(s); those of PyTorch wait without "
            "spinning unless OMP_WAIT_POLICY says otherwise.",
            "",
            "| side | seconds | time over opjax | initial loss | last loss |",
            "|---|---|---|---|---|",
        ]
        for name, label in _SIDES.items():
            pairs = zip(seconds[name], seconds["opjax"], strict=True)
            lines.append(
                f"| {label} | {_spread(seconds[name])} "
                f"| {_spread([other / ours for other, ours in pairs])} "
                f"| {train['initial'][name]:.6g} | {train['final'][name]:.2e} |"
            )
    if "apply" in results:
        rows = results["apply"]
        lines += [
            "",
            "## Matrix-free application to one right-hand side",
            "",
            "Subdomains of 32 points, overlap 2, rank 4; the second of three levels "
            f"has 64 hats a subdomain; coarsest rank {_COARSEST_RANK}. Median (range) "
            f"of {_CALLS * config.repeats} calls; covers and factors are arguments.",
            "",
            "| points | levels | ms | operator MiB | temporary MiB | dense GiB "
            "| compile s |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            lines.append(
                f"| {row['points']:,} | {row['levels']} | {_spread(row['ms'])} "
                f"| {row['operator_mib']:.1f} | {row['temporary_mib']:.1f} "
                f"| {row['dense_gib']:,.0f} | {row['compile_s']:.1f} |"
            )
        slopes = memory_slopes(rows)
        lines += [
            "",
            "Log-log slopes in the number of points, three levels: "
            + ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
            + " (operator and temporary memory, median time).",
        ]
    return "\n".join(lines) + "\n"


def run(config: Config) -> dict[str, Any]:
    """Measures the chosen parts."""
    measure = {"train": measure_train, "apply": measure_apply}
    return {part: measure[part](config) for part in config.parts}


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    config = Config(
        parts=tuple(_PARTS_FLAG.value),
        repeats=_REPEATS.value,
        steps=_STEPS.value,
        threads=_THREADS.value,
        output=_OUTPUT.value,
    )
    if config.threads:
        os.environ["NPROC"] = str(config.threads)  # read when XLA starts
    origin = provenance(_PACKAGES)
    start = time.perf_counter()
    results = run(config)
    text = report(config, results, origin, time.perf_counter() - start)
    print(text)
    if config.output:
        path = pathlib.Path(config.output)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    app.run(main)
