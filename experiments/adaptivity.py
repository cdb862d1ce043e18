"""Points where a trained operator's own estimate asks for them, against uniform ones.

    python -m experiments.adaptivity --preset=quick

Poisson's equation on an L-shaped domain, whose solutions have unbounded gradients at
the corner. Galerkin attention between points maps right-hand sides to solutions of
linear elements. Points are added in the training data, or only in the queries of a
trained operator: by the jumps of its derivatives, at random, or by other rules.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from experiments import adaptivity_mesh as meshes
from experiments import adaptivity_problem as problem
from experiments import adaptivity_report, studies
from experiments.adaptivity_mesh import Indicator, Mesh
from experiments.studies import AtOnceOptions, Row, one_of
from opjax import attention, learn, training
from opjax.learn import UpdateOptions, option
from opjax.learn.config.fields import only_with
from opjax.learn.run.folder import RunDirectory
from opjax.nn import MLP
from opjax.problems import poisson_mesh
from opjax.quadrature import cell_weights

Array = jax.Array | np.ndarray
STRATEGIES = ("uniform", "operator", "random", "graded", "elements")
LABELS = ("elements", "exact")


@dataclasses.dataclass(frozen=True)
class Config(AtOnceOptions, UpdateOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    strategies: tuple[str, ...] = option(
        STRATEGIES, "Rules of the training points", choices=STRATEGIES, members=True
    )
    labels: tuple[str, ...] = option(
        LABELS,
        "Solutions to train on: of linear elements on the points, or of the fine mesh",
        choices=LABELS,
        members=True,
    )
    levels: tuple[int, ...] = option(
        (2, 3, 4),
        "Bisections of the uniform meshes of the training",
        minimum=2,
        members=True,
    )
    query_levels: tuple[int, ...] = only_with(
        option(
            (1, 2, 3, 4, 5, 6), "Bisections of the uniform meshes of queries", minimum=1
        ),
        strategies=["uniform"],
    )
    columns: int = option(8, "Number of columns of the first mesh", minimum=2)
    truth: float = option(
        0.02, "Largest triangles of the fine mesh, at a distance of 1", above=0
    )
    num_modes: int = option(2, "Number of modes of the right-hand sides", minimum=1)
    num_train: int = option(32, "Number of right-hand sides in training", minimum=1)
    num_test: int = option(32, "Number of unseen right-hand sides", minimum=1)
    width: int = option(64, "Width of the perceptron", minimum=1)
    rank: int = option(32, "Channels of queries and keys", minimum=1)
    num_stages: int = option(3, "Parts of a training, with a mesh each", minimum=1)
    num_steps: int = option(800, "Number of optimizer steps in a stage", minimum=2)
    learning_rate: float = option(1e-2, "Maximum learning rate", above=0)

    def __post_init__(self):
        """Refuses meshes without the corner, and fewer query points after more."""
        super().__post_init__()
        if self.columns % 2:
            raise ValueError(f"columns={self.columns} must be even.")
        for name in ("levels", "query_levels"):
            levels = getattr(self, name)
            if list(levels) != sorted(levels):
                raise ValueError(f"{name}={levels} must rise.")


class PointAttention(nnx.Module):
    """Galerkin attention with queries and keys from coordinates: linear in f.

    u(y) = Q(y) sum_i w_i K(x_i)^T f(x_i).
    """

    def __init__(self, config: Config, rngs: nnx.Rngs):
        self.perceptron = MLP(
            2,
            [config.width] * 3,
            2 * config.rank,
            activation="gelu_tanh",
            kernel_init=None,
            rngs=rngs,
        )

    def __call__(self, cloud: "Cloud", query_points: Array) -> jax.Array:
        """Evaluates all functions at the query points, `(m, b)`."""
        return attention.galerkin_attention(
            self._functions(query_points)[0],
            self._functions(cloud.points)[1],
            cloud.right_sides,
            key_weights=cloud.weights,
        )

    def _functions(self, points: Array) -> list[jax.Array]:
        """Queries and keys; computed once where both points are the same."""
        return jnp.split(self.perceptron(4 * jnp.asarray(points) - 2), 2, axis=1)


class Cloud(NamedTuple):
    """Right-hand sides at points with weights; zero weights are padding."""

    points: Array
    weights: Array
    right_sides: Array


@partial(jax.jit, static_argnames=("config",))
def train(
    operators: PointAttention, clouds: Cloud, solutions: Array, *, config: Config
) -> PointAttention:
    """Trains the operators of all seeds for a stage, each on its own cloud."""
    rate = training.onecycle(config.learning_rate, config.num_steps)
    optimizer = config.updates.around(training.muon(rate, weight_decay=0.0))

    def loss(operator: PointAttention, cloud: Cloud, solution: Array) -> jax.Array:
        weights = cloud.weights[:, None]
        error = operator(cloud, cloud.points) - solution
        sizes = jnp.sum(weights * solution**2, axis=0)
        return jnp.mean(jnp.sum(weights * error**2, axis=0) / sizes)

    def one(operator: PointAttention, cloud: Cloud, solution: Array) -> Any:
        def step(carry: tuple[Any, optax.OptState], _: None):
            current, state = carry
            gradient = jax.grad(loss)(current, cloud, solution)
            update, state = optimizer.update(gradient, state, current)
            return (optax.apply_updates(current, update), state), None

        params: Any = operator
        start = params, optimizer.init(params)
        (last, state), _ = jax.lax.scan(step, start, length=config.num_steps)
        return training.average_of(state, last)

    return jax.vmap(one)(operators, clouds, solutions)


_evaluate = jax.jit(PointAttention.__call__)


@dataclasses.dataclass(frozen=True)
class Study:
    """What all trainings share: settings, fine solutions and the first mesh."""

    config: Config
    truth: problem.Truth
    base: Mesh

    @functools.cached_property
    def uniform(self) -> list[Mesh]:
        """The first mesh after 0, 1, ... bisections."""
        most = max(*self.config.levels, *self.config.query_levels)
        return [meshes.uniform(self.base, level) for level in range(most + 1)]

    def size(self, level: int) -> int:
        """Number of points after uniform bisections."""
        return len(self.uniform[level][0])

    def right_sides(self, mesh: Mesh, coefficients: np.ndarray) -> np.ndarray:
        """Right-hand sides at the points of a mesh, `(n, b)`."""
        return problem.modes_at(mesh[0], self.config.num_modes) @ coefficients

    def cloud(self, mesh: Mesh, coefficients: np.ndarray, size: int) -> Cloud:
        """The points of a mesh, padded."""
        arrays = mesh[0], cell_weights(*mesh), self.right_sides(mesh, coefficients)
        return Cloud(*(_padded(array, size) for array in arrays))

    def labels(self, mesh: Mesh, kind: str) -> np.ndarray:
        """Solutions at the points of a mesh for training."""
        truth = self.truth
        if kind == "elements":
            return meshes.solve(mesh, self.right_sides(mesh, truth.train))
        return truth.at(mesh[0]) @ truth.solutions @ truth.train

    def elements(self, mesh: Mesh) -> np.ndarray:
        """Linear elements for the unseen right-hand sides, `(n, b)`."""
        return meshes.solve(mesh, self.right_sides(mesh, self.truth.test))

    def parts(self, mesh: Mesh, one: "Trained") -> dict[str, float]:
        """Errors of an operator at the points of a mesh, see `parts_of_error`."""
        fields = one(mesh[0]), self.elements(mesh)
        return problem.parts_of_error(self.truth, mesh, *fields)

    def indicator(self, strategy: str, seed: int) -> Indicator:
        """The indicator of a rule that needs no operator."""
        if strategy == "graded":
            return meshes.known
        if strategy == "random":
            return partial(meshes.at_random, rng=np.random.default_rng(seed))
        return lambda mesh: meshes.jumps(mesh, self.elements(mesh))

    def mesh(self, strategy: str, level: int, seed: int) -> Mesh:
        """As many points of a rule as after uniform bisections."""
        if strategy == "uniform":
            return self.uniform[level]
        indicator = self.indicator(strategy, seed)
        return meshes.grow(self.base, indicator, self.size(level))


class Trained(NamedTuple):
    """An operator and the unseen right-hand sides at its training points."""

    operator: PointAttention
    cloud: Cloud

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Predictions at any points, `(m, b)`, padded for few compilations."""
        size = 256 * -(-len(points) // 256)
        values = _evaluate(self.operator, self.cloud, _padded(points, size))
        return np.asarray(values, float)[: len(points)]

    def jumps(self, mesh: Mesh) -> np.ndarray:
        """The estimate: jumps of derivatives of its own output, of every triangle."""
        return meshes.jumps(mesh, self(mesh[0]))


def disagreement(trained: Sequence[Trained], mesh: Mesh) -> np.ndarray:
    """Variances of the output over the seeds, integrated over every triangle."""
    variance = np.var([one(mesh[0]) for one in trained], axis=0).mean(axis=1)
    return poisson_mesh.signed_areas(*mesh) * variance[mesh[1]].mean(axis=1)


def _padded(array: np.ndarray, size: int) -> np.ndarray:
    pad = [(0, size - len(array)), *[(0, 0)] * (array.ndim - 1)]
    return np.pad(array, pad).astype(np.float32)


def train_on(
    study: Study, strategy: str, level: int, labels: str
) -> tuple[list[Mesh], list[Trained]]:
    """Trains operators of all seeds in stages, on the points of a rule.

    Estimates are means over the right-hand sides of the test, without their solutions.
    Points by the operator's own estimate begin with those of uniform bisections, half
    as many for each stage that follows, and grow between stages. Other rules have all
    points in every stage.
    """
    config, truth = study.config, study.truth
    operators = jax.vmap(lambda key: PointAttention(config, nnx.Rngs(key)))(
        jax.vmap(jax.random.key)(jnp.asarray(config.seeds))
    )
    size = study.size(level) * 11 // 10
    own, trained = list[Mesh](), list[Trained]()
    for stage in range(config.num_stages):
        now = max(level - (config.num_stages - 1 - stage), 0)
        if trained and strategy == "operator":
            pairs = zip(own, trained, strict=True)
            own = [meshes.grow(m, one.jumps, study.size(now)) for m, one in pairs]
        elif strategy == "operator":
            own = [study.uniform[now]] * len(config.seeds)
        elif not own and strategy != "random":  # the same for all seeds
            own = [study.mesh(strategy, level, config.seed)] * len(config.seeds)
        elif not own:
            own = [study.mesh(strategy, level, seed) for seed in config.seeds]
        clouds = [study.cloud(mesh, truth.train, size) for mesh in own]
        solutions = [_padded(study.labels(mesh, labels), size) for mesh in own]
        together = jax.tree.map(lambda *leaves: np.stack(leaves), *clouds)
        operators = train(operators, together, np.stack(solutions), config=config)
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(operators)):
            raise training.NonFiniteError(
                f"Not finite after stage {stage + 1} with {strategy} points; "
                f"try a smaller learning_rate than {config.learning_rate}."
            )
        trained = [
            Trained(
                one_of(operators, i),
                study.cloud(mesh, truth.test, size),
            )
            for i, mesh in enumerate(own)
        ]
    return own, trained


def rows_of_training(
    study: Study, own: Sequence[Mesh], trained: Sequence[Trained]
) -> list[Row]:
    """Errors of operators at all points (query) and at their own (nodes)."""
    rows: list[Row] = []
    for seed, mesh, one in zip(study.config.seeds, own, trained, strict=True):
        anywhere = study.truth.errors(one(study.truth.mesh[0]))
        queried = {f"query_{norm}": error for norm, error in anywhere.items()}
        rows.append({"seed": seed, **study.parts(mesh, one), **queried})
    return rows


def rows_of_queries(study: Study, trained: Sequence[Trained]) -> list[Row]:
    """Errors of operators at more and more query points of all rules."""
    rows: list[Row] = []
    for one, seed in zip(trained, study.config.seeds, strict=True):
        own: dict[str, Indicator] = {
            "operator": one.jumps,
            "disagreement": partial(disagreement, trained),
        }
        for strategy in (*STRATEGIES, "disagreement"):
            mesh = study.base
            indicator = own.get(strategy) or study.indicator(strategy, seed)
            for level in study.config.query_levels:
                if strategy == "uniform":
                    mesh = study.uniform[level]
                else:
                    mesh = meshes.grow(mesh, indicator, study.size(level))
                where = {"rule": strategy, "at": level, "seed": seed}
                rows.append(where | study.parts(mesh, one))
    return rows


def measure(study: Study, strategy: str, level: int, labels: str) -> Row:
    """Trains operators; those of uniform points also have query points of all rules."""
    own, trained = train_on(study, strategy, level, labels)
    measured: Row = {"rows": rows_of_training(study, own, trained)}
    if (labels, strategy) == (study.config.labels[0], "uniform"):
        measured["queries"] = rows_of_queries(study, trained)
    return measured | {"points": own[0][0].tolist()}


def work(
    config: Config, directory: RunDirectory, cache_dir: str | None
) -> learn.Report:
    """Trains on the points of all rules; keeps every training's rows in a file."""
    del cache_dir
    base = meshes.l_shape(config.columns)
    truth = problem.make_truth(
        base,
        config.truth,
        num_modes=config.num_modes,
        num_train=config.num_train,
        num_test=config.num_test,
    )
    study = Study(config, truth, base)
    rows: list[Row] = []
    queries: list[Row] = []
    for labels, strategy, level in itertools.product(
        config.labels, config.strategies, config.levels
    ):
        path = directory.path / f"{labels}-{strategy}-{level}" / "result.json"
        make = partial(measure, study, strategy, level, labels)
        measured = studies.stored(path, make)
        what = {"labels": labels, "strategy": strategy, "level": level}
        rows += [what | row for row in measured["rows"]]
        queries += [what | row for row in measured.get("queries", [])]
    return adaptivity_report.report(config, directory.path, rows, queries)


def describe(config: Config) -> dict[str, Any]:
    """What a run would train."""
    rules = len(config.labels) * len(config.strategies) * len(config.levels)
    return {
        "operators": rules * len(config.seeds),
        "steps": config.num_stages * config.num_steps,
    }


PRESETS = {
    "smoke": Config(
        preset="smoke",
        strategies=("uniform", "operator"),
        labels=("elements",),
        levels=(2,),
        query_levels=(1, 2),
        columns=4,
        truth=0.1,
        num_modes=1,
        num_train=8,
        num_test=4,
        width=8,
        rank=4,
        num_stages=2,
        num_steps=20,
        seeds=(0, 1),
    ),
    "quick": Config(),
}
PROGRAM = learn.Program(
    "adaptivity",
    PRESETS,
    title="Adaptive points for a trained operator",
    work=work,
    describe_work=describe,
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
