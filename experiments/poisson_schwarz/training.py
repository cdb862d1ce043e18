"""Trains models of the inverse Laplacian, all rates and seeds of a study at once."""

import math
import pathlib
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.poisson_schwarz.evaluation import (
    closed_form_errors,
    evaluate,
    problem,
)
from experiments.poisson_schwarz.models import build
from experiments.poisson_schwarz.studies import Study
from opjax import nn, training
from opjax.datasets.samples import Sample
from opjax.learn import Replicas, Task, outcome
from opjax.problems import poisson


def make_task(study: Study, cache_dir: str | None = None) -> Task:
    """Replicas of a model for all rates and seeds; batches depend on seeds only."""
    del cache_dir
    data = problem(study)
    seeds = jnp.asarray(study.seeds)
    start = jax.jit(jax.vmap(partial(_start, study), in_axes=(0, None)))
    model, sizes = start(seeds, data.single)

    def for_every_rate(tree: Any) -> Any:
        repeats = len(study.rates)
        return jax.tree.map(lambda x: jnp.concatenate([x] * repeats), tree)

    rates = np.repeat(np.asarray(study.rates, np.float32), len(seeds))
    return Task(
        # Batch 0 is the one that starts were made from.
        train=lambda key, step: _batch(study, key, step + 1, data.single),
        build=lambda config, rngs: for_every_rate(model),
        loss=loss,
        evaluate=partial(_evaluate, study),
        optimizer=optimizer,
        replicas=Replicas(study.seeds, {"rate": rates, "sizes": for_every_rate(sizes)}),
        source="own solver: finite differences, exact discrete inverse",
    )


def loss(model: Any, samples: poisson.Samples) -> jax.Array:
    """Weighted mean square error of a batch."""
    return poisson.weighted_mse(model(samples.right_sides), samples.solutions)


def optimizer(study: Study, total: int, hyper: Any) -> optax.GradientTransformation:
    """Adam (AdamW without decay), its updates in units of the sizes of the factors."""
    start, schedule = study.start, hyper["rate"]
    if start.cosine:
        warm_up = max(total // 20, 1)
        shape = optax.warmup_cosine_decay_schedule(
            0.0, 1.0, warm_up, max(total, warm_up + 1)
        )

        def schedule(count):
            return hyper["rate"] * shape(count)

    adam = optax.adam(schedule, b1=start.beta1, b2=start.beta2)
    if hyper["sizes"] is not None:
        adam = optax.chain(adam, training.scale_updates(hyper["sizes"]))
    return study.updates.around(adam)


def _start(
    study: Study, seed: jax.Array, data: poisson.FourierProblem
) -> tuple[Any, Any]:
    """A model at its start and the scales of its levels, if calibrated."""
    start, key = study.start, jax.random.key(seed)
    model = build(study.setup, start, jax.random.fold_in(key, 0))
    samples = _batch(study, jax.random.fold_in(key, 1), 0, data)
    if start.principal:
        model = nn.principal_keys(model, *samples, whitening=start.whitening)
    return nn.calibrate(model, *samples) if start.calibrated else (model, None)


def _batch(study: Study, key: jax.Array, step: Any, data: Any) -> poisson.Samples:
    key = jax.random.fold_in(key, step)
    return poisson.sample(key, data, num_samples=study.batch_size)


def _evaluate(study: Study, models: Any, folder: pathlib.Path) -> dict[str, Any]:
    """Errors of all rates and seeds; keeps predictions of the first seed."""
    data, shape = problem(study), (len(study.rates), len(study.seeds))
    stacked = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), models)
    with np.load(folder / "losses.npz") as file:
        losses, finite = file["losses"].reshape(*shape, -1), file["finite"]
    errors = evaluate(stacked, data)
    # What is not finite stays as it last was; its errors are those of no training.
    errors = {k: np.where(finite.reshape(shape), v, np.nan) for k, v in errors.items()}
    errors |= {"initial": losses[..., 0], "final": losses[..., -1]}
    index = study.rates.index(study.rate)
    first = jax.tree.map(lambda x: x[index, 0], stacked)
    right_sides, exact = map(np.asarray, data.shown)
    predicted = np.asarray(first(np.asarray(right_sides, np.float32)))
    points = np.indices(data.shape).reshape(len(data.shape), math.prod(data.shape)).T
    points = (points + 1) / (np.asarray(data.shape) + 1)
    outcome.write(
        folder,
        errors=np.linalg.norm(predicted - exact, axis=0)
        / np.linalg.norm(exact, axis=0),
        rows=range(exact.shape[1]),
        samples=[
            Sample(points, u[:, None], f[:, None], grid_shape=data.shape)
            for f, u in zip(right_sides.T, exact.T, strict=True)
        ],
        predicted=list(predicted.T[..., None]),
        extra={f"leaf_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(first))},
    )
    return {
        "weighted_mse": float(np.median(errors["weighted_mse"][index])),
        "errors": {name: values.tolist() for name, values in errors.items()},
        "closed_form": closed_form_errors(study, data),
    }
