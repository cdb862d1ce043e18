"""What the benchmark programs share: several models and seeds on one task.

A program gives a `Task`: samples, loss, metric and evaluation. `run` trains every model
with every seed in a folder of its own, continues what was interrupted, and writes
tables and the line of JSON.
"""

import dataclasses
import math
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
from flax import nnx

from opjax import training
from opjax.learn import figures, members, operators, options
from opjax.learn import fit as common
from opjax.learn.folder import write_json, write_text
from opjax.learn.options import option
from opjax.learn.report import provenance

# Names of benchmarks that are not the program's with a capital letter.
TITLES = {
    "airfrans": "AirfRANS",
    "darcy_notch": "Darcy flow in a notched triangle",
    "navier_stokes": "Navier-Stokes",
    "rna": "RNA",
    "train": "Your own data",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """All that the numbers of a run depend on; programs add fields and presets."""

    preset: str = option("quick", "Values of all flags that are not given")
    models: str = option(
        "functional,transolver,galerkin", f"Some of {', '.join(operators.MODELS)}"
    )
    seeds: str = option("0", "Seeds of parameters and sample order")
    # Data.
    data_dir: str = option("", "Folder of the published files; empty: own solver")
    data_seed: int = option(0, "Seed of our own solver's samples", minimum=0)
    num_train: int = option(200, "Training samples", minimum=1)
    num_validation: int = option(20, "Validation samples", minimum=1)
    num_test: int = option(50, "Test samples", minimum=1)
    # Model.
    features: int = option(64, "Channels of functional attention", minimum=1)
    equal_parameters: bool = option(
        True, "Give other models the channels that make parameters about equal"
    )
    num_layers: int = option(4, "Blocks", minimum=1)
    num_heads: int = option(4, "Heads; must divide the features", minimum=1)
    num_basis: int = option(32, "Basis functions per head", minimum=1)
    mlp_ratio: int = option(1, "Hidden width of perceptrons over features", minimum=1)
    convolution: bool = option(True, "3 x 3 projections where samples are on a grid")
    num_modes: int = option(12, "Wave numbers of fno", minimum=1)
    ridge_logit: float = option(0.0, "Initial logit of the learned ridge")
    rematerialize: bool = option(False, "Recompute blocks backward, to save memory")
    # Training.
    num_epochs: int = option(20, "Passes over the training samples", minimum=1)
    batch_size: int = option(2, "Samples in a batch", minimum=1)
    microbatch: int = option(
        0, "Samples differentiated at once; 0: one on CPU, else the batch", minimum=0
    )
    num_buckets: int = option(
        4, "Sizes that meshes of different sizes are padded to", minimum=1
    )
    learning_rate: float = option(1e-3, "Peak of the one-cycle schedule", above=0)
    weight_decay: float = option(1e-5, "Decoupled decay of all parameters", minimum=0)
    clip_norm: float = option(0.1, "Largest gradient norm; 0: no clipping", minimum=0)
    eval_every: int = option(1, "Epochs between validations", minimum=1)
    checkpoint_every: int = option(5, "Epochs between checkpoints", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        options.check(self)
        members.names(self.models, "models", operators.MODELS)
        members.seed_numbers(self.seeds)
        if self.features % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} must divide features={self.features}."
            )
        if self.batch_size > self.num_train:
            raise ValueError(
                f"batch_size={self.batch_size} must be at most "
                f"num_train={self.num_train}."
            )
        if self.microbatch and self.batch_size % self.microbatch:
            raise ValueError(
                f"microbatch={self.microbatch} must divide "
                f"batch_size={self.batch_size}."
            )

    def members(self) -> dict[tuple[str, int], Any]:
        """Configurations of single models and seeds."""
        return {
            (name, seed): dataclasses.replace(self, models=name, seeds=str(seed))
            for name in members.names(self.models, "models", operators.MODELS)
            for seed in members.seed_numbers(self.seeds)
        }


class Task(NamedTuple):
    """What is to be learned.

    Attributes:
      train: pytrees of arrays with samples along axis 0, one for every size of mesh, as
        from `samples.stack`.
      validation: likewise; chooses the model.
      test: likewise; used once.
      build: `build(config, rngs)`, the model of a member's configuration.
      loss: `loss(model, batch)`, a sum over the samples of the batch; takes `key=` if
        `needs_key`.
      metric: `metric(model, sample)`, to be minimised on validation samples.
      evaluate: `evaluate(model, folder)`, numbers of the test samples, the headline
        first; may leave files in the folder of the member.
      extra: pytree saved with the model, such as normalisers.
      source: where the samples come from.
      needs_key: whether the loss draws random numbers.
      draw: `draw(folder, names)`, figures of the finished run, from the folders
        `<name>-<seed>` of its members; None for none.
      notes: sentences for the head of the tables.
    """

    train: tuple[Any, ...]
    validation: tuple[Any, ...]
    test: tuple[Any, ...]
    build: Callable[[Any, nnx.Rngs], Any]
    loss: Callable[..., Any]
    metric: Callable[[Any, Any], Any]
    evaluate: Callable[[Any, pathlib.Path], dict[str, float]]
    extra: Any
    source: str
    needs_key: bool = False
    draw: Callable[[pathlib.Path, list[str]], None] | None = None
    notes: str = ""


_Config = TypeVar("_Config", bound=Config)


def run(
    config: _Config,
    make_task: Callable[[_Config, str | None], Task],
    *,
    program: str,
    workdir: str | os.PathLike | None = None,
    cache_dir: str | None = None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Trains all models and seeds, or continues, or reads a finished run.

    Args:
      config: all that the numbers depend on.
      make_task: `make_task(config, cache_dir)`.
      program: name in `experiments`.
      workdir: folder of the run; `runs/<program>-<preset>` by default.
      cache_dir: folder of generated data.
      tensorboard: write TensorBoard files too.

    Returns:
      What the last line of the program says: the numbers of `Task.evaluate`, of the
      first model by their own names, of every model as `<number>_<model>`, means and
      standard deviations over the seeds; parameters, seconds, and how they came about.

    Raises:
      ImportError: if matplotlib is missing.
      OSError: if data cannot be read or a folder cannot be written.
      RuntimeError: if another process works in the folder.
      ValueError: if the folder holds another configuration or data are damaged.
      opjax.training.NonFiniteError: if a loss diverges.
    """
    figures.require_matplotlib()
    if config.data_dir:
        absolute = os.path.abspath(os.path.expanduser(config.data_dir))
        config = dataclasses.replace(config, data_dir=absolute)

    def work(directory: common.RunDirectory) -> dict[str, Any]:
        begin = time.monotonic()
        task = make_task(config, cache_dir)
        results = members.run_all(
            directory.path,
            config.members(),
            lambda member, folder: train(member, task, folder, tensorboard)[0],
        )
        return _report(
            directory.path, program, config, task, results, time.monotonic() - begin
        )

    return common.run_once(workdir or f"runs/{program}-{config.preset}", config, work)


def train(
    config: Config,
    task: Task,
    directory: common.RunDirectory,
    tensorboard: bool = False,
) -> tuple[dict[str, Any], Any]:
    """Trains one model with one seed and evaluates it on the test samples.

    Args:
      config: of one model and one seed.
      task: what is to be learned.
      directory: open folder of the member.
      tensorboard: write TensorBoard files too.

    Returns:
      The numbers of `Task.evaluate` and `validation`, `parameters`, `best_epoch`,
      `seconds`; and the best model.
    """
    seed = int(config.seeds)
    on_cpu = jax.default_backend() == "cpu"
    settings = common.FitSettings(
        num_epochs=config.num_epochs,
        batch_size=config.batch_size,
        seed=seed,
        eval_every=config.eval_every,
        checkpoint_every=config.checkpoint_every,
        # Long epochs look at the clock, for checkpoints, and at NaN within.
        steps_per_call=256,
        on_device_scan=False,
        microbatch=config.microbatch or (1 if on_cpu else None),
        needs_key=task.needs_key,
        tensorboard=tensorboard,
    )
    sizes = [len(jax.tree.leaves(bucket)[0]) for bucket in task.train]
    total = common.num_steps(sizes, settings)
    fitted = common.fit(
        directory,
        model=task.build(config, nnx.Rngs(seed)),
        loss=task.loss,
        metric=task.metric,
        train=task.train,
        validation=task.validation,
        optimizer=training.adamw_onecycle(
            config.learning_rate,
            total,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm or None,
        ),
        settings=settings,
        extra=task.extra,
    )
    result = {
        **task.evaluate(fitted.best_model, directory.path),
        "validation": fitted.best_metric,
        "best_epoch": fitted.best_step // (total // config.num_epochs),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(fitted.model)),
        "seconds": fitted.seconds,
    }
    return result, fitted.best_model


def _report(
    folder: pathlib.Path,
    program: str,
    config: Config,
    task: Task,
    results: dict[str, list[dict[str, Any]]],
    seconds: float,
) -> dict[str, Any]:
    """Writes `tables.md`, `members.json` and figures; returns the result."""
    first = next(iter(results))
    keys = [key for key in results[first][0] if key not in ("best_epoch", "parameters")]
    plain = [k for k in keys if isinstance(results[first][0][k], (int, float))]
    write_json(folder / "members.json", results)
    headings: dict[str, tuple[str, float]] = {
        k: (k.replace("_", " "), 1.0) for k in plain
    }
    num_train = sum(len(jax.tree.leaves(bucket)[0]) for bucket in task.train)
    num_test = sum(len(jax.tree.leaves(bucket)[0]) for bucket in task.test)
    text = [
        f"# {TITLES.get(program, program.capitalize())}\n",
        f"{num_train} training and {num_test} test samples, {config.num_epochs} "
        f"epochs; mean ± standard deviation over the seeds {config.seeds}. Data: "
        f"{task.source}. {task.notes}".rstrip()
        + "\n",
        provenance(folder, program, seconds=seconds),
        members.comparison(results, headings),
    ]
    write_text(folder / "tables.md", "\n".join(text))
    if task.draw is not None:
        task.draw(folder, list(results))
    device = jax.devices()[0]
    summary = members.summary(results, plain)
    return {
        **{key: summary[f"{key}_{first}"] for key in plain if key != "seconds"},
        **summary,
        **{f"parameters_{n}": rows[0]["parameters"] for n, rows in results.items()},
        "parameters": results[first][0]["parameters"],
        "seconds": math.fsum(
            row["seconds"] for rows in results.values() for row in rows
        ),
        "preset": config.preset,
        "models": list(results),
        "seeds": list(members.seed_numbers(config.seeds)),
        "data": task.source,
        "device": f"{device.platform} ({device.device_kind})",
        "workdir": str(folder),
    }
