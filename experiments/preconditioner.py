"""A trained Schwarz operator as preconditioner of conjugate gradients.

    python -m experiments.preconditioner --preset=quick

Flow in two phases, -div(a grad u) = f, on grids. Two-level Schwarz attention, symmetric
and positive by construction, is trained on random coefficients: a perceptron turns the
matrix in a box into the factor of its attention. It is compared with classical
preconditioners on unseen coefficients, larger grids and other contrasts.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments import preconditioner_problem as problem
from experiments import preconditioner_report
from experiments import preconditioner_solvers as solvers
from experiments.warm_adam import warm_adam
from opjax import learn, schwarz
from opjax.learn import FreshTask, Replicas, UpdateOptions, option
from opjax.nn import MLP


@dataclasses.dataclass(frozen=True)
class Config(UpdateOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option(
        "quick", "Named set of values for all flags that are not given"
    )
    box_width: int = option(5, "Width of a box without overlap, in points", minimum=2)
    overlap: int = option(2, "Points that a box takes from its neighbours", minimum=0)
    rank: int = option(16, "Rank of the attention in a box", minimum=1)
    width: int = option(128, "Width of the perceptron", minimum=1)
    train_boxes: int = option(
        4, "Number of boxes along a side of the grids of the training", minimum=1
    )
    max_contrast: float = option(
        1000.0,
        "Largest contrast in training. Logarithms are uniform, those of 1 to this one",
        minimum=1,
    )
    num_steps: int = option(600, "Number of optimizer steps", minimum=2)
    batch_size: int = option(4, "Number of coefficients in a step", minimum=1)
    learning_rate: float = option(1e-3, "Maximum learning rate", above=0)
    num_test: int = option(3, "Number of unseen coefficients", minimum=1)
    test_boxes: tuple[int, ...] = option(
        (4, 8, 16, 32), "Numbers of boxes along a side of the grids", minimum=1
    )
    contrasts: tuple[float, ...] = option(
        (10.0, 1e3, 1e5), "Contrasts of the unseen coefficients", minimum=1
    )
    seeds: tuple[int, ...] = option(
        (0, 1, 2),
        "Seeds of the initial parameters and of the coefficients, trained at once",
        minimum=0,
        below=2**31,
    )

    def __post_init__(self):
        """Refuses boxes that share points with more than their neighbours."""
        super().__post_init__()
        if self.overlap > self.box_width:
            raise ValueError(
                f"overlap={self.overlap} must be at most box_width={self.box_width}."
            )

    def members(self) -> dict[tuple[str, None], "Config"]:
        """The one operator; its seeds are trained at once."""
        return {("trained", None): self}

    @property
    def seed(self) -> int:
        """The first seed."""
        return self.seeds[0]


class SchwarzFactors(nnx.Module):
    """Makes two-level Schwarz attention of a matrix.

        M = s I + sum_i R_i^T D_i^{1/2} Q_i Q_i^T D_i^{1/2} R_i
            + Phi (Phi^T A Phi)^{-1} Phi^T,

    where `Q_i` depends on the entries of A in box i.
    """

    def __init__(self, config: Config, rngs: nnx.Rngs):
        points = (config.box_width + 2 * config.overlap) ** 2
        hidden = [config.width, config.width]
        self.factors = MLP(
            2 * points, hidden, points * config.rank, activation="gelu", rngs=rngs
        )
        self.smoother = nnx.Param(jnp.zeros(()))

    def query(self, flow: problem.Flow, cover: schwarz.Cover) -> jax.Array:
        """Returns `Q_i`, shape `(s, m, r)`."""
        entries = jnp.stack([flow.east.ravel(), flow.south.ravel()], axis=1)
        local = schwarz.restrict(entries, cover)
        factors = self.factors(local.reshape(len(local), -1))
        return factors.reshape(*local.shape[:2], -1)

    @property
    def shift(self) -> jax.Array:
        """The positive weight `s` of the identity."""
        return jax.nn.softplus(self.smoother[...])


def make_task(config: Config, cache_dir: str | None = None) -> FreshTask:
    """Operators of all seeds, trained at once on fresh coefficients."""
    del cache_dir
    seeds = jnp.asarray(config.seeds)
    size = config.train_boxes * config.box_width

    def sample(key: jax.Array, step: jax.Array) -> problem.Flow:
        keys = jax.random.split(jax.random.fold_in(key, step), config.batch_size)

        def one(key: jax.Array) -> problem.Flow:
            of_field, of_contrast = jax.random.split(key)
            power = jax.random.uniform(of_contrast)
            return problem.draw(of_field, size, config.max_contrast**power)

        return jax.vmap(one)(keys)

    def start(seed: jax.Array) -> SchwarzFactors:
        key = jax.random.fold_in(jax.random.key(seed), 0)
        return SchwarzFactors(config, nnx.Rngs(key))

    return FreshTask(
        draw=sample,
        build=lambda config, rngs: jax.vmap(start)(seeds),
        loss=partial(loss, config=config),
        evaluate=lambda operators, folder: evaluate(operators, config),
        optimizer=warm_adam,
        replicas=Replicas(
            config.seeds, np.full(len(seeds), config.learning_rate, np.float32)
        ),
        source="own solver: finite elements on a grid",
        over_batch=False,
    )


def loss(operator: SchwarzFactors, flows: problem.Flow, *, config: Config) -> jax.Array:
    r"""Returns the mean divergence of the operators from the inverses.

        tr(M A) / n - 1 - log det(M) / n.

    Less `log det(A) / n` it is zero where `M A = I`, else positive, and bounds the
    number of iterations (Kaporin, 1994).
    """
    cover = problem.windows(config.train_boxes, config.box_width, config.overlap)
    labels = problem.parts(config.train_boxes, config.box_width)
    identity = jnp.eye(len(labels))
    of_parts = jax.nn.one_hot(labels, config.train_boxes**2)

    def one(flow: problem.Flow) -> jax.Array:
        matrix = partial(problem.apply, flow)
        query = operator.query(flow, cover)
        inverse = schwarz.two_level_attention(query, query, identity, cover)
        inverse = inverse + operator.shift * identity
        functions = problem.smoothed(matrix, flow.roots.reshape(-1, 1) * of_parts)
        inner = jnp.linalg.cholesky(functions.T @ matrix(functions))
        half = jax.scipy.linalg.solve_triangular(inner, functions.T, lower=True)
        inverse = inverse + half.T @ half
        diagonal = jnp.diag(jnp.linalg.cholesky(inverse))
        trace = jnp.sum(inverse * matrix(identity))
        return trace / len(labels) - 1 - 2 * jnp.mean(jnp.log(diagonal))

    return jnp.mean(jax.vmap(one)(flows))


def evaluate(operators: SchwarzFactors, config: Config) -> dict[str, Any]:
    """Solves with unseen coefficients: rows of grid, contrast, method and seed."""
    rows: list[dict[str, Any]] = []
    for boxes in config.test_boxes:
        cover = problem.windows(boxes, config.box_width, config.overlap)
        for contrast in config.contrasts:
            for number in range(config.num_test):
                key = jax.random.fold_in(jax.random.key(4712), number)
                with jax.enable_x64(True):  # else not positive with large contrast
                    size = boxes * config.box_width
                    flow = jax.device_get(problem.draw(key, size, contrast))
                system = solvers.System(flow, solvers.matrix_of(flow), boxes, cover)
                where = {"boxes": boxes, "contrast": contrast, "number": number}
                rows += [where | row for row in _solves(operators, config, system)]
    mine = [row["iterations"] for row in rows if row["method"] == "trained"]
    return {"iterations": float(np.median(mine)), "rows": rows}


def _solves(
    operators: SchwarzFactors, config: Config, system: solvers.System
) -> list[dict[str, Any]]:
    """Solves with all preconditioners and the same random right-hand side."""
    methods = [(-1, *one) for one in solvers.classical(system)]
    for place, seed in enumerate(config.seeds):
        operator = jax.tree.map(lambda leaf, i=place: leaf[i], operators)
        methods.append((seed, "trained", partial(trained, operator, system)))
    right = np.random.default_rng(0).normal(size=len(system.roots))
    return [
        {"method": name, "seed": seed}
        | solvers.solve(system.matrix, right, make)._asdict()
        for seed, name, make in methods
    ]


@jax.jit
def _query(
    operator: SchwarzFactors, flow: problem.Flow, cover: schwarz.Cover
) -> jax.Array:
    query = operator.query(flow, cover)
    return jnp.sqrt(cover.weights_as(query.dtype))[..., None] * query


def trained(operator: SchwarzFactors, system: solvers.System) -> solvers.Apply:
    """The trained operator, applied in double precision."""
    query = np.asarray(_query(operator, system.flow, system.cover), float)
    adjoint = query.swapaxes(1, 2).copy()
    return solvers.two_level(
        system, lambda values: query @ (adjoint @ values), float(operator.shift)
    )


PRESETS = {
    "smoke": Config(
        preset="smoke",
        box_width=3,
        overlap=1,
        rank=2,
        width=8,
        train_boxes=2,
        num_steps=20,
        batch_size=2,
        num_test=1,
        test_boxes=(2, 3),
        contrasts=(10.0,),
        seeds=(0, 1),
    ),
    "quick": Config(),
}
PROGRAM = learn.Program(
    "preconditioner",
    PRESETS,
    make_task,
    title="A trained preconditioner",
    report=preconditioner_report.report,
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
