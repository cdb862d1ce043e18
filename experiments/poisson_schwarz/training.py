"""Trains models of the inverse Laplacian and compares them with the exact one.

All rates and seeds of a study are trained at once.
"""

import pathlib
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.poisson_schwarz.domains import Grid, LShape
from experiments.poisson_schwarz.studies import MeshSetup, Study, build
from experiments.studies import TEST_SEED
from opjax import metrics, nn, training
from opjax.learn import FreshTask, Replicas
from opjax.learn.tasks import outcome
from opjax.problems import poisson
from opjax.samples import Sample

_COLUMNS = 256  # right-hand sides at once
NUM_SAMPLES = 4096  # of the test
_Tree = TypeVar("_Tree")
Model = Callable[[jax.Array], jax.Array]  # of right-hand sides `(n, b)`, a pytree


class Problem(NamedTuple):
    """A problem in float32 for training, and in float64 for evaluation.

    On a mesh, values are times the roots of masses, see `LShape`.

    Attributes:
      single: modes and solutions in float32.
      double: the same in float64.
      moment: see `poisson.population_moment`.
      shown: 16 fixed right-hand sides, for the paper's tables and figures.
      test: `NUM_SAMPLES` others.
      unseen: twice as many modes per axis, some of which are never trained on.
      solver: the exact inverse, from values on the grid to values there.
      mass_factor: with it, norms are those of the mass matrix; None on grids.
      shape: of the values, interior points per axis on a grid.
    """

    single: poisson.FourierProblem
    double: poisson.FourierProblem
    moment: np.ndarray
    shown: poisson.Samples
    test: poisson.Samples
    unseen: poisson.FourierProblem
    solver: Callable[[jax.Array], jax.Array]
    mass_factor: np.ndarray | None
    shape: tuple[int, ...]


def problem(study: Study) -> Problem:
    """Tabulates the problem of a study."""
    return _tabulate(study.setup.domain, study.num_modes, study.decay)


@lru_cache(maxsize=1)  # studies of one problem follow each other
def _tabulate(domain: Grid | LShape, num_modes: int, decay: float) -> Problem:
    with jax.enable_x64(True):
        double = domain.problem(num_modes, decay)
        single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), double)
        keys = jax.random.split(jax.random.key(TEST_SEED), 3)
        return Problem(
            single,
            double,
            poisson.population_moment(keys[0], double),
            poisson.sample(keys[1], double, num_samples=16),
            poisson.sample(keys[2], double, num_samples=NUM_SAMPLES),
            domain.problem(2 * num_modes, decay),
            domain.solver(),
            domain.mass_factor,
            domain.grid_shape or (domain.num_points,),
        )


def make_task(study: Study, cache_dir: str | None = None) -> FreshTask:
    """Replicas of a model for all rates and seeds; batches depend on seeds only."""
    del cache_dir
    data = problem(study)
    seeds = jnp.asarray(study.seeds)
    start = jax.jit(jax.vmap(partial(_start, study), in_axes=(0, None)))
    model, sizes = start(seeds, data.single)

    def for_every_rate(tree: _Tree) -> _Tree:
        repeats = len(study.rates)
        return jax.tree.map(lambda x: jnp.concatenate([x] * repeats), tree)

    rates = np.repeat(np.asarray(study.rates, np.float32), len(seeds))
    return FreshTask(
        # Batch 0 is the one that starts were made from.
        draw=lambda key, step: _batch(study, key, step + 1, data.single),
        build=lambda config, rngs: for_every_rate(model),
        loss=loss,
        evaluate=partial(_evaluate, study),
        optimizer=optimizer,
        replicas=Replicas(study.seeds, {"rate": rates, "sizes": for_every_rate(sizes)}),
        source=study.setup.domain.source,
        over_batch=False,
    )


def loss(model: Model, samples: poisson.Samples) -> jax.Array:
    """Weighted mean square error of a batch."""
    return poisson.weighted_mse(model(samples.right_sides), samples.solutions)


def optimizer(
    study: Study, total: int, hyper: Mapping[str, Any]
) -> optax.GradientTransformation:
    """Adam (AdamW without decay), its updates in units of the sizes of the factors."""
    start, schedule = study.start, hyper["rate"]
    if start.cosine:
        warm_up = max(total // 20, 1)
        steps = warm_up, max(total, warm_up + 1)
        shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, *steps)

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
        model = nn.schwarz.principal_keys(model, *samples, whitening=start.whitening)
    if start.calibrated:
        return nn.schwarz.calibrate(model, *samples)
    if start.scaling == "none":
        return model, None
    everywhere = None if start.scaling == "blocks" else study.setup.domain.num_points
    scaled, sizes = nn.schwarz.scale_products(model, num_points=everywhere)
    return scaled, (None if start.scaling == "start" else sizes)


def _batch(
    study: Study,
    key: jax.Array,
    step: jax.Array | int,
    data: poisson.FourierProblem,
) -> poisson.Samples:
    key = jax.random.fold_in(key, step)
    return poisson.sample(key, data, num_samples=study.batch_size)


def _evaluate(study: Study, models: Model, folder: pathlib.Path) -> dict[str, Any]:
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
    size = partial(np.linalg.norm, axis=0)
    relative = size(predicted - exact) / size(exact)
    domain = study.setup.domain
    if domain.root_masses is not None:  # what is shown are plain values
        columns = right_sides, exact, predicted
        right_sides, exact, predicted = (
            x / domain.root_masses[:, None] for x in columns
        )
    points, grid_shape = domain.mesh_points, domain.grid_shape
    outcome.write(
        folder,
        errors=relative,
        rows=range(exact.shape[1]),
        samples=[
            Sample(points, u[:, None], f[:, None], grid_shape=grid_shape)
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


def evaluate(models: Model, data: Problem) -> dict[str, np.ndarray]:
    """Compares models, stacked along axes of rates and seeds, with the exact inverse.

    Args:
      models: stacked models.
      data: from `problem`.

    Returns:
      Arrays of shape `(r, s)`: `weighted_mse` of the population, `relative_l2` (mean
      over 4096 right-hand sides), `mean_16` and `max_16` (over the 16 shown),
      `operator_frobenius` (relative), and `unseen_l2`, the mean relative error on the
      modes beyond those trained on; on a mesh `mass_l2`, as `relative_l2` in the norm
      of the mass matrix that is not lumped.
    """
    # Modes damped more than any of those trained on: higher ones.
    seen = np.asarray(data.double.damping).min()
    higher = np.flatnonzero(np.asarray(data.unseen.damping) < seen * (1 - 1e-9))
    with jax.enable_x64(True):
        models = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), models)
        leading = jax.tree.leaves(models)[0].shape[:2]
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), models)
        unseen = poisson.Samples(*(leaf[:, higher] for leaf in data.unseen[:2]))
        samples = {"shown": data.shown, "test": data.test, "unseen": unseen}
        norms = data.solver, data.mass_factor
        errors = _errors(
            flat, data.double, data.moment, samples, *norms, shape=data.shape
        )
    return {name: np.asarray(value).reshape(leading) for name, value in errors.items()}


@partial(jax.jit, static_argnames="shape")
def _errors(models, problem, moment, samples, solver, mass_factor, *, shape):
    def errors(model):
        by_name = {name: _relative_l2(model, pairs) for name, pairs in samples.items()}
        further = {}
        if mass_factor is not None:
            further["mass_l2"] = jnp.mean(
                _relative_l2(model, samples["test"], mass_factor)
            )
        return {
            "weighted_mse": poisson.population_mse(model, problem, moment),
            "relative_l2": jnp.mean(by_name["test"]),
            "mean_16": jnp.mean(by_name["shown"]),
            "max_16": jnp.max(by_name["shown"]),
            "operator_frobenius": poisson.operator_error(model, shape, solver=solver),
            "unseen_l2": jnp.mean(by_name["unseen"]),
            **further,
        }

    return jax.lax.map(errors, models)


def _relative_l2(
    model: Model, pairs: poisson.Samples, factor: jax.Array | None = None
) -> jax.Array:
    """Relative errors of all samples, some at a time; after a factor, if given."""

    def relative(pair):
        values = model(pair[0][:, None])[:, 0], pair[1]
        if factor is not None:
            values = (factor @ value for value in values)
        return metrics.relative_l2(*values)

    columns = pairs.right_sides.T, pairs.solutions.T
    return jax.lax.map(relative, columns, batch_size=_COLUMNS)


def closed_form_errors(study: Study, data: Problem) -> dict[str, float] | None:
    """Errors of the computed factors for the structure of a study.

    None beyond one dimension, two levels and hats on interfaces that the equation has
    between them, and for global models.
    """
    setup = study.setup
    if isinstance(setup, MeshSetup) or len(setup.grid_shape) > 1 or setup.levels > 2:
        return None
    values = setup.domain.values
    fitting = "interface" if values is None else "harmonic"
    if setup.global_rank or setup.coarse_space != fitting:
        return None
    if setup.coarse_rank < setup.num_boxes - 1:
        return None
    inputs = np.asarray(data.double.modes) @ np.linalg.cholesky(data.moment)
    with jax.enable_x64(True):
        model = build(setup, study.start, jax.random.key(0))
        model = nn.schwarz.laplacian_factors(model, inputs, coefficient=values)
        single = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None, None], model)
    return {name: float(value[0, 0]) for name, value in evaluate(single, data).items()}
