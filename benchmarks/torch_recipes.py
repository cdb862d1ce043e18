r"""Trains the rivals in PyTorch for a given time, on the data of our programs.

    python -m benchmarks.torch_recipes --program=elasticity --seconds=170
    python -m benchmarks.torch_recipes --program=pipe --models=transolver,fno \
        --seconds=50 --seeds=0,1,2

Measures what users of the authors' codes would reach in the minutes of `--preset=fast`:
the split, normalisation, loss and sizes of the preset, in eager PyTorch, with the
authors' recipes:

- transolver and functional: AdamW, weight decay 1e-5, one cycle up to 1e-3, gradients
  clipped at 0.1, two samples a step unless the preset says otherwise;
- fno, on grids: Adam, weight decay 1e-4, 1e-3 halved after each fifth of the run, 20
  samples a step, 32 channels, 12 wave numbers an axis, four layers;
- galerkin, on grids: Adam, one cycle from 1e-7 to 1e-3 and back, gradients clipped at
  0.999, four samples a step, 128 channels, six layers of four heads, without dropout.

The first steps are timed to choose the length of the schedule. Validation samples are
not used. All samples must have the same size. The last line of output is one JSON
object with the test errors.
"""

import dataclasses
import importlib
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from absl import app, flags, logging
from flax import nnx

from benchmarks import torch_models
from benchmarks.provenance import num_cores, provenance
from benchmarks.torch_fno import FNO
from benchmarks.torch_galerkin import GalerkinTransformer

PROGRAMS = ("elasticity", "darcy", "pipe", "airfoil", "darcy_notch")
MODELS = ("transolver", "functional", "fno", "galerkin")
_PACKAGES = ("torch", "jax", "numpy")
_FNO_BATCH, _GALERKIN_BATCH = 20, 4
_TIMED = 12
Arrays = dict[str, torch.Tensor]


def define_flags() -> None:
    """Defines the flags; not on import, since names are those of other benchmarks."""
    flags.DEFINE_enum(
        "program", "elasticity", PROGRAMS, "Program of experiments whose data are used"
    )
    flags.DEFINE_string("preset", "fast", "Preset that sets the data and sizes")
    flags.DEFINE_list("models", ["transolver"], f"Models to train: {', '.join(MODELS)}")
    flags.register_validator(
        "models",
        lambda given: given and set(given) <= set(MODELS),
        f"must be some of {', '.join(MODELS)}.",
    )
    flags.DEFINE_list(
        "seeds", ["0"], "Seeds of the initial parameters and of the sample order"
    )
    flags.DEFINE_float(
        "seconds", 60.0, "Training time of a run, in seconds", lower_bound=1.0
    )
    text = "Count CPU time of one thread instead of wall time, on a busy machine"
    flags.DEFINE_bool("cpu_seconds", False, text)


def arrays_of(buckets: Sequence[Any]) -> Arrays:
    """The samples of a part of the data, which have to be of one size.

    Raises:
      ValueError: if they are of several sizes.
    """
    if len(buckets) != 1:
        raise ValueError(f"Samples of {len(buckets)} sizes; PyTorch's code has one.")
    return {name: torch.from_numpy(np.array(a)) for name, a in buckets[0].items()}


def grid_of(task: Any, config: Any) -> tuple[int, ...] | None:
    """Points per axis of the grid that the samples are on, if they are on one."""
    model = nnx.eval_shape(lambda: task.build(config, nnx.Rngs(0)))
    found = (getattr(part, "grid_shape", None) for _, part in nnx.iter_modules(model))
    return next(filter(None, found), None)


def make(
    name: str, config: Any, grid: Any, data: Arrays, normalizer: Any
) -> torch.nn.Module:
    """Builds a model of the sizes of a configuration."""
    points, target = data["mesh_points"], data["target"]
    channels = data["features"].shape[-1] if "features" in data else 0
    if name in ("fno", "galerkin"):
        if grid is None:
            raise ValueError(f"{name} needs a grid; these points are scattered.")
        sizes = points.shape[-1] + channels, target.shape[-1], grid
        if name == "fno":
            return FNO(*sizes)
        mean, std = normalizer or (0.0, 1.0)
        zero = (
            np.asarray(-mean / std).item() if flags.FLAGS.program == "darcy" else None
        )
        return GalerkinTransformer(*sizes, boundary=zero)
    return torch_models.OperatorTransformer(
        functional=name == "functional",
        grid_shape=grid,
        feature_dim=channels,
        out_features=target.shape[-1],
        features=config.width,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_basis=config.num_basis,
        mlp_ratio=config.mlp_ratio,
        reference_points=config.reference_points or None,
    )


def recipe(name: str, parameters: Any, batch_size: int, total: int):
    """Returns optimizer, schedule, samples of a step and largest gradient norm."""
    if name == "fno":
        optimizer = torch.optim.Adam(parameters, 1e-3, weight_decay=1e-4)
        fifth = max(total // 5, 1)
        schedule: Any = torch.optim.lr_scheduler.StepLR(optimizer, fifth, gamma=0.5)
        return optimizer, schedule, _FNO_BATCH, None
    if name == "galerkin":
        optimizer = torch.optim.Adam(parameters, 1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 1e-3, total_steps=total, div_factor=1e4, final_div_factor=1e4
        )
        return optimizer, schedule, _GALERKIN_BATCH, 0.999
    optimizer = torch.optim.AdamW(parameters, 1e-3, weight_decay=1e-5, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=total)
    return optimizer, schedule, batch_size, 0.1


def make_loss(normalizer: Any, grid: Any, gradient_weight: float):
    """The relative errors of a batch, and those of its slopes, if wanted."""
    mean, std = (torch.from_numpy(np.array(a)) for a in normalizer or (0.0, 1.0))

    def loss(prediction, target):
        physical = prediction * std + mean
        total = torch_models.relative_l2(physical, target)
        if gradient_weight:
            total = total + gradient_weight * slopes(physical, target, grid)
        return total

    return loss


def slopes(prediction, target, grid):
    """The errors of `opjax.metrics.relative_gradient_error`, summed over a batch."""
    inside = (slice(None), slice(1, -1), slice(1, -1))
    field = torch.zeros(len(target), *grid, target.shape[-1], dtype=target.dtype)
    field[inside] = prediction.reshape(field.shape)[inside]
    expected = target.reshape(field.shape)
    total = torch.zeros((), dtype=target.dtype)
    for axis in (1, 2):
        found, wanted = (_difference(f, axis) for f in (field, expected))
        total = total + torch_models.relative_l2(found, wanted)
    return total


def _difference(field, axis):
    """Central differences along an axis; the field is zero around the grid."""
    padded = torch.nn.functional.pad(field, (0, 0, 1, 1, 1, 1))
    inside = padded.narrow(3 - axis, 1, field.shape[3 - axis])
    size = field.shape[axis]
    return inside.narrow(axis, 2, size) - inside.narrow(axis, 0, size)


def train(
    name: str, model: torch.nn.Module, config: Any, data: Arrays, loss: Any
) -> dict[str, Any]:
    """Trains a model for as many steps as the seconds allow, by the time of the first.

    Returns:
      The steps, epochs and seconds.
    """
    seconds, inputs = flags.FLAGS.seconds, ("mesh_points", "features")
    clock = time.process_time if flags.FLAGS.cpu_seconds else time.perf_counter
    count = len(data["target"])

    def run(total: int, budget: float) -> tuple[int, list[float]]:
        optimizer, schedule, size, clip = recipe(
            name, model.parameters(), config.batch_size, max(total, 2)
        )
        size, times, order = min(size, count), [], []
        for _ in range(total):
            start = clock()
            order = order if len(order) >= size else torch.randperm(count).tolist()
            rows, order = order[:size], order[size:]
            optimizer.zero_grad()
            given = [data[key][rows] for key in inputs if key in data]
            loss(model(*given), data["target"][rows]).backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            schedule.step()
            times.append(clock() - start)
            if sum(times) > budget:
                break
        return size, times

    kept = {key: value.clone() for key, value in model.state_dict().items()}
    size, times = run(_TIMED, float("inf"))
    model.load_state_dict(kept)
    total = max(int(seconds / statistics.median(times[2:])), 2)
    _, times = run(total, 1.2 * seconds)
    if len(times) < total:
        raise RuntimeError(
            f"{name} took 1.2 times {seconds} s: other jobs disturbed it."
        )
    return {
        "steps": total,
        "epochs": round(total * size / count, 2),
        "seconds": round(sum(times), 1),
    }


def errors(model: torch.nn.Module, data: Arrays, loss: Any) -> float:
    """The mean relative error of samples."""
    with torch.inference_mode():
        found = []
        for row in range(len(data["target"])):
            one = slice(row, row + 1)
            given = [data[k][one] for k in ("mesh_points", "features") if k in data]
            found.append(float(loss(model(*given), data["target"][one])))
    return statistics.mean(found)


def run() -> dict[str, Any]:
    """Trains all models with all seeds; returns the result."""
    given = flags.FLAGS
    program = importlib.import_module(f"experiments.{given.program}")
    if given.preset not in program.PRESETS:
        raise ValueError(f"--preset={given.preset} is none of {list(program.PRESETS)}.")
    preset = program.PRESETS[given.preset]
    config = dataclasses.replace(preset, models=("functional",))
    task = program.PROGRAM.make_task(config, None)
    grid = grid_of(task, config)
    data, test = arrays_of(task.train), arrays_of(task.test)
    weight = getattr(config, "gradient_weight", 0.0)
    normalizer = (task.extra or {}).get("target")
    rows = {}
    for name in given.models:
        found = []
        for seed in map(int, given.seeds):
            torch.manual_seed(seed)
            model = make(name, config, grid, data, normalizer)
            done = train(name, model, config, data, make_loss(normalizer, grid, weight))
            done["relative_l2"] = errors(model, test, make_loss(normalizer, grid, 0.0))
            logging.info("%s, seed %d: %s", name, seed, done)
            found.append(done)
        parameters = sum(p.numel() for p in model.parameters())
        rows[name] = {"parameters": parameters, "seeds": found}
    return {"program": given.program, **rows, **provenance(_PACKAGES)}


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    torch.set_num_threads(1 if flags.FLAGS.cpu_seconds else num_cores())
    print(json.dumps(run()), flush=True)


if __name__ == "__main__":
    define_flags()
    app.run(main)
