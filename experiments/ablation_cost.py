"""Time and memory by number of basis functions, beside Table 11 of the paper."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.studies import Rows, spread
from opjax.learn import Task
from opjax.learn.cli import describe
from opjax.learn.run.sources import make_batches
from opjax.learn.tables import table

_REPEATS = 5
# 001, Table 11: errors in percent, and milliseconds and gigabytes of an inference on
# elasticity, on an A2000, of the model with 128 channels and 8 layers.
_FUNCTIONS = (16, 32, 64, 128, 256, 512)
ERRORS = {
    "elasticity": (0.65, 0.55, 0.50, 0.49, 0.48, 0.56),
    "airfoil": (0.51, 0.52, 0.43, 0.42, 0.47, 0.48),
    "darcy": (0.49, 0.45, 0.42, 0.44, 0.43, 0.41),
}
_MILLISECONDS = (12.52, 13.28, 13.65, 16.35, 34.60, 75.48)
_GIGABYTES = (0.02, 0.02, 0.02, 0.02, 0.04, 0.09)


def measure(task: Task, config: Any) -> dict[str, float]:
    """Times one prediction and one training step, and finds their memory.

    Args:
      task: a `regression` on samples that are arrays.
      config: of a member.

    Returns:
      Medians of a few calls in milliseconds and, of the compiled programs, arguments,
      outputs and temporary arrays in MiB: `predict_ms`, `predict_mib` of one sample,
      `step_ms`, `step_mib` of one batch.
    """
    assert task.build is not None
    assert task.metric is not None
    model = task.build(config, nnx.Rngs(config.seed))
    settings = task.settings(config)
    batches = make_batches(task, settings)
    sample = {name: jnp.asarray(array[0]) for name, array in task.test[0].items()}
    predict = jax.jit(task.metric).lower(model, sample).compile()
    predict_ms = _milliseconds(lambda: predict(model, sample))
    lowered, state, arguments = batches.one_step(model)
    step = lowered.compile()

    def advance() -> Any:
        nonlocal state
        state = step(state, *arguments)[0]
        return state

    return {
        "predict_ms": predict_ms,
        "predict_mib": describe.memory_mib(predict),
        "step_ms": _milliseconds(advance),
        "step_mib": describe.memory_mib(step),
    }


def _milliseconds(call: Callable[[], Any]) -> float:
    jax.block_until_ready(call())  # to warm up
    seconds = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(seconds))


def text(results: Mapping[str, Rows], problem: str) -> str:
    """Returns the table of measurements beside those of the paper.

    Args:
      results: by `k_<number of basis functions>`, one for every seed.
      problem: whose published errors to show.
    """
    places = {f"k_{count}": i for i, count in enumerate(_FUNCTIONS)}
    published = ERRORS[problem], _MILLISECONDS, _GIGABYTES
    lines = []
    for name, rows in results.items():
        kept = [row for row in rows if "step_ms" in row]
        if not kept:
            continue
        error, ms, gb = (
            f"{values[places[name]]:g}" if name in places else ""
            for values in published
        )
        lines.append(
            [name, error, spread(kept, "predict_ms", digits=3)]
            + [ms, _size(kept, "predict_mib"), gb]
            + [spread(kept, "step_ms", digits=3), _size(kept, "step_mib")]
        )
    columns = ["model", "error, x 100: paper", "ms per sample", "paper, A2000"]
    columns += ["MiB per sample", "paper, GB", "ms per training step", "MiB per step"]
    kind = jax.devices()[0].device_kind
    return (
        "Time and memory of one prediction and of one training step with its batch, on "
        f"a {kind} that other jobs may share; in milliseconds the median of "
        f"{_REPEATS} calls, in MiB what the compiled programs hold, arguments and "
        "parameters included. The paper's are of its larger model on elasticity.\n\n"
        + table(columns, lines)
    )


def _size(rows: Rows, key: str) -> str:
    """Of the same program for every seed."""
    return f"{max(row[key] for row in rows):.3g}"
