"""A trained Schwarz operator as preconditioner of conjugate gradients.

    python -m experiments.preconditioner --preset=quick
    python -m experiments.preconditioner --preset=mesh

Flow in two phases, -div(a grad u) = f, on grids and unstructured meshes. Two-level
Schwarz attention, symmetric and positive by construction, is trained on random
coefficients: a network turns the matrix in a subdomain into the factor of its
attention. It is compared with classical preconditioners on unseen coefficients, larger
grids and meshes, and other contrasts.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments import preconditioner_mesh as mesh_problem
from experiments import preconditioner_problem as problem
from experiments import preconditioner_report
from experiments import preconditioner_solvers as solvers
from experiments.studies import TEST_SEED, AtOnceOptions, Row, one_of, start_of
from experiments.warm_adam import warm_adam
from opjax import learn, schwarz
from opjax.learn import FreshTask, Replicas, UpdateOptions, option
from opjax.learn.config.fields import only_with
from opjax.nn import MLP, layers

DOMAINS = "grid", "void", "l_shape"
_TRAINING = 1000  # first seed of its meshes


@dataclasses.dataclass(frozen=True)
class Config(AtOnceOptions, UpdateOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    domain: str = option(
        "grid",
        "Domain of the training: grid, or void for meshes around a void",
        choices=("grid", "void"),
    )
    num_meshes: int = only_with(
        option(32, "Number of meshes of the training", minimum=1), domain=["void"]
    )
    factors: str = option(
        "perceptron",
        "Map from the matrix in a subdomain to its factor: perceptron for boxes of "
        "grids, graph for all points",
        choices=("perceptron", "graph"),
    )
    num_layers: int = only_with(
        option(3, "Number of layers with the matrix", minimum=1), factors=["graph"]
    )
    box_width: int = option(
        5,
        "Width of a box without overlap, in points. Parts of meshes have its square",
        minimum=2,
    )
    overlap: int = option(
        2, "Points, or layers of neighbours, that a box takes from others", minimum=0
    )
    rank: int = option(16, "Rank of the attention in a box", minimum=1)
    width: int = option(
        128, "Width of the perceptron, or of the layers with the matrix", minimum=1
    )
    train_boxes: int = option(
        4,
        "Number of boxes along a side of the grids of the training. Meshes have its "
        "square of parts",
        minimum=1,
    )
    max_contrast: float = option(
        1000.0,
        "Largest contrast in training. Logarithms are uniform, those of 1 to this one",
        minimum=1,
    )
    num_steps: int = option(600, "Number of optimizer steps", minimum=2)
    batch_size: int = option(4, "Number of coefficients in a step", minimum=1)
    learning_rate: float = option(1e-3, "Maximum learning rate", above=0)
    test_domains: tuple[str, ...] = option(
        ("grid",), "Domains of the unseen coefficients", choices=DOMAINS
    )
    num_test: int = option(
        3,
        "Number of unseen coefficients, on meshes each with a mesh",
        minimum=1,
        below=_TRAINING + 1,  # meshes of the training are others
    )
    test_boxes: tuple[int, ...] = option(
        (4, 8, 16, 32),
        "Numbers of boxes along a side of the grids. Meshes have their squares of "
        "parts",
        minimum=1,
    )
    contrasts: tuple[float, ...] = option(
        (10.0, 1e3, 1e5), "Contrasts of the unseen coefficients", minimum=1
    )

    def __post_init__(self):
        """Refuses boxes that share points with more than their neighbours."""
        super().__post_init__()
        domains = {self.domain, *self.test_domains}
        if "grid" in domains and self.overlap > self.box_width:
            raise ValueError(
                f"overlap={self.overlap} must be at most box_width={self.box_width} "
                "on grids."
            )
        if self.factors == "perceptron" and domains != {"grid"}:
            raise ValueError("factors=perceptron supports only grids. Use graph.")

    def members(self) -> dict[tuple[str, None], "Config"]:
        """The one operator; its seeds are trained at once."""
        return {("trained", None): self}


class EntryFactors(nnx.Module):
    """A perceptron of the entries in a box of a grid, which has its points in order."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        points = (config.box_width + 2 * config.overlap) ** 2
        hidden = [config.width, config.width]
        self.factors = MLP(
            2 * points, hidden, points * config.rank, activation="gelu", rngs=rngs
        )

    @staticmethod
    def local(system: problem.System) -> jax.Array:
        """The entries for a point and the next of its row and column, `(s, m, 2)`."""
        steps = 1, round(len(system.roots) ** 0.5)
        both = [jnp.pad(system.matrix.diagonal(k), (0, k)) for k in steps]
        return schwarz.restrict(jnp.stack(both, axis=1), system.cover)

    def query(self, local: jax.Array) -> jax.Array:
        """Returns `Q_i`, shape `(s, m, r)`."""
        factors = self.factors(local.reshape(len(local), -1))
        return factors.reshape(*local.shape[:2], -1)


class GraphFactors(nnx.Module):
    """Layers `X + gelu(A_i X W_1 + X W_2 + b)`, for points in any order."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        width = config.width
        self.first = MLP(5, width, width, kernel_init=None, rngs=rngs)
        self.layers = nnx.List(
            layers.FanInLinear(2 * width, width, rngs=rngs)
            for _ in range(config.num_layers)
        )
        self.out = layers.FanInLinear(width, config.rank, rngs=rngs)

    @staticmethod
    def local(system: problem.System) -> tuple[jax.Array, jax.Array]:
        """Blocks `A_i`, `(s, m, m)`; weights, roots of the diagonal, points."""
        matrix, roots, points, _, cover = system
        if isinstance(matrix, jax.Array):
            inside = jnp.asarray(cover.weights) > 0
            indices = jnp.asarray(cover.indices)
            found = matrix[indices[:, :, None], indices[:, None]]
            found = jnp.where(inside[:, :, None] & inside[:, None], found, 0)
        else:
            found = solvers.blocks(matrix, cover)
        values = jnp.concatenate([roots[:, None], points], axis=1)
        values = schwarz.restrict(values, cover)
        weights = cover.weights_as(values.dtype)[..., None]
        return jnp.asarray(found, values.dtype), jnp.concatenate([weights, values], 2)

    def query(self, local: tuple[jax.Array, jax.Array]) -> jax.Array:
        """Returns `Q_i`, shape `(s, m, r)`."""
        blocks, values = local
        weights, roots, points = jnp.split(values, (1, 2), axis=2)
        inside = (weights > 0).astype(values.dtype)
        count = jnp.sum(inside, 1, keepdims=True)

        def centred(x: jax.Array) -> jax.Array:
            return x - jnp.sum(inside * x, 1, keepdims=True) / count

        points = centred(points) * inside
        extent = jnp.sqrt(jnp.sum(points**2, (1, 2), keepdims=True) / count)
        roots = jnp.where(inside > 0, roots, 1)
        flux = blocks @ (roots * inside) / roots  # zero inside: constants have none
        level = centred(jnp.log(roots) * inside) * inside
        x = self.first(jnp.concatenate([weights, flux, level, points / extent], 2))
        for layer in self.layers:
            x = x + jax.nn.gelu(layer(jnp.concatenate([blocks @ x, x], axis=2)))
        return self.out(x)


_FACTORS = {"perceptron": EntryFactors, "graph": GraphFactors}


class Operator(nnx.Module):
    """Two-level Schwarz attention that is made of a matrix.

        M = s I + sum_i R_i^T D_i^{1/2} Q_i Q_i^T D_i^{1/2} R_i
            + Phi (Phi^T A Phi)^{-1} Phi^T,

    where `Q_i` depends on the entries of A in subdomain i.
    """

    def __init__(self, config: Config, rngs: nnx.Rngs):
        self.factors = _FACTORS[config.factors](config, rngs)
        self.smoother = nnx.Param(jnp.zeros(()))

    def query(self, local: Any, cover: schwarz.Cover) -> jax.Array:
        """Returns `D_i^{1/2} Q_i`, shape `(s, m, r)`."""
        query = self.factors.query(local)
        return jnp.sqrt(cover.weights_as(query.dtype))[..., None] * query

    @property
    def shift(self) -> jax.Array:
        """The positive weight `s` of the identity."""
        return jax.nn.softplus(self.smoother[...])


def make_task(config: Config, cache_dir: str | None = None) -> FreshTask:
    """Operators of all seeds, trained at once on fresh coefficients."""
    del cache_dir
    seeds, drawn = jnp.asarray(config.seeds), _drawing(config)

    def one(key: jax.Array) -> problem.System:
        of_field, of_contrast = jax.random.split(key)
        contrast = config.max_contrast ** jax.random.uniform(of_contrast)
        return drawn(key, of_field, contrast)

    def sample(key: jax.Array, step: jax.Array) -> problem.System:
        keys = jax.random.split(jax.random.fold_in(key, step), config.batch_size)
        return jax.vmap(one)(keys)

    def start(seed: jax.Array) -> Operator:
        return Operator(config, start_of(seed))

    return FreshTask(
        draw=sample,
        build=lambda config, rngs: jax.vmap(start)(seeds),
        loss=loss,
        evaluate=lambda operators, folder: evaluate(operators, config),
        optimizer=warm_adam,
        replicas=Replicas(
            config.seeds, np.full(len(seeds), config.learning_rate, np.float32)
        ),
        source="own solver: finite elements",
        over_batch=False,
    )


def _drawing(
    config: Config,
) -> Callable[[jax.Array, jax.Array, jax.Array], problem.System]:
    """Returns the function from keys of a mesh and a field, and a contrast."""
    boxes, size = config.train_boxes, config.train_boxes * config.box_width
    if config.domain == "grid":
        cover = problem.windows(boxes, config.box_width, config.overlap)

        def grid(
            key: jax.Array, of_field: jax.Array, contrast: jax.Array
        ) -> problem.System:
            flow = problem.draw(of_field, size, contrast)
            return problem.system(flow, problem.apply(flow, jnp.eye(size**2)), cover)

        return grid
    numbers = range(_TRAINING, _TRAINING + config.num_meshes)
    made = [_mesh(config.domain, number, boxes, config) for number in numbers]
    meshes = jax.tree.map(jnp.asarray, mesh_problem.stack(made))

    def mesh(
        key: jax.Array, of_field: jax.Array, contrast: jax.Array
    ) -> problem.System:
        of_mesh = jax.random.fold_in(key, 2)
        number = jax.random.randint(of_mesh, (), 0, config.num_meshes)
        one = jax.tree.map(lambda leaf: leaf[number], meshes)
        values = mesh_problem.entries(of_field, one, size + 1, contrast)
        return mesh_problem.dense_system(one, values)

    return mesh


def _mesh(domain: str, seed: int, boxes: int, config: Config) -> mesh_problem.Mesh:
    return mesh_problem.make(
        domain,
        seed,
        num_points=(boxes * config.box_width) ** 2,
        num_parts=boxes**2,
        overlap=config.overlap,
    )


def loss(operator: Operator, systems: problem.System) -> jax.Array:
    r"""Returns the mean divergence of the operators from the inverses.

        tr(M A) / n - 1 - log det(M) / n.

    Less `log det(A) / n` it is zero where `M A = I`, else positive, and bounds the
    number of iterations (Kaporin, 1994).
    """

    def one(system: problem.System) -> jax.Array:
        matrix, roots, _, labels, cover = system
        query = operator.query(operator.factors.local(system), cover)
        parts, rank = len(query), query.shape[2]
        columns = jnp.zeros((len(roots), parts, rank))
        columns = columns.at[cover.indices, jnp.arange(parts)[:, None]].add(query)
        of_parts = jax.nn.one_hot(labels, parts)
        functions = problem.smoothed(matrix.__matmul__, roots[:, None] * of_parts)
        inner = jnp.linalg.cholesky(functions.T @ matrix @ functions)
        half = jax.scipy.linalg.solve_triangular(inner, functions.T, lower=True)
        # M = s I + C C^T, and det(M) = s^n det(I + C^T C / s).
        columns = jnp.concatenate([columns.reshape(len(roots), -1), half.T], axis=1)
        count, shift = jnp.sum(roots > 0, dtype=roots.dtype), operator.shift
        trace = shift * count + jnp.sum(columns * (matrix @ columns))
        gram = jnp.eye(columns.shape[1]) + columns.T @ columns / shift
        logs = jnp.log(jnp.diag(jnp.linalg.cholesky(gram)))
        return (trace - 2 * jnp.sum(logs)) / count - 1 - jnp.log(shift)

    return jnp.mean(jax.vmap(one)(systems))


def evaluate(operators: Operator, config: Config) -> dict[str, Any]:
    """Solves with unseen coefficients: rows of domain, size, contrast, method, seed."""
    rows: list[Row] = []
    for domain in config.test_domains:
        for boxes in config.test_boxes:
            for number in range(config.num_test):
                make = _systems(domain, boxes, number, config)
                for contrast in config.contrasts:
                    system = make(contrast)
                    where = {"domain": domain, "boxes": boxes, "contrast": contrast}
                    where |= {"number": number, "unknowns": len(system.roots)}
                    rows += [where | row for row in _solves(operators, config, system)]
    mine = [row["iterations"] for row in rows if row["method"] == "trained"]
    return {"iterations": float(np.median(mine)), "rows": rows}


def _systems(
    domain: str, boxes: int, number: int, config: Config
) -> Callable[[float], problem.System]:
    """Returns the function from contrasts to systems of an unseen coefficient."""
    key = jax.random.fold_in(jax.random.key(TEST_SEED), number)
    size = boxes * config.box_width
    # With single precision, matrices of large contrast are not positive.
    if domain == "grid":
        cover = problem.windows(boxes, config.box_width, config.overlap)

        def on_grid(contrast: float) -> problem.System:
            with jax.enable_x64(True):
                flow = jax.device_get(problem.draw(key, size, contrast))
                return problem.system(flow, solvers.matrix_of(flow), cover)

        return on_grid
    mesh = _mesh(domain, number, boxes, config)

    def on_mesh(contrast: float) -> problem.System:
        with jax.enable_x64(True):
            values = mesh_problem.entries(key, mesh, size + 1, contrast)
            return mesh_problem.sparse_system(mesh, np.asarray(values))

    return on_mesh


def _solves(operators: Operator, config: Config, system: problem.System) -> list[Row]:
    """Solves with all preconditioners and the same random right-hand side."""
    methods = [(-1, *one) for one in solvers.classical(system)]
    for place, seed in enumerate(config.seeds):
        make = partial(trained, one_of(operators, place), system)
        methods.append((seed, "trained", make))
    right = np.random.default_rng(0).normal(size=len(system.roots))
    return [
        {"method": name, "seed": seed}
        | solvers.solve(system.matrix, right, make)._asdict()
        for seed, name, make in methods
    ]


@jax.jit
def _query(operator: Operator, local: Any, cover: schwarz.Cover) -> jax.Array:
    return operator.query(local, cover)


def trained(operator: Operator, system: problem.System) -> solvers.Apply:
    """The trained operator, applied in double precision."""
    local = operator.factors.local(system)
    query = np.asarray(_query(operator, local, system.cover), float)
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
    "mesh": Config(
        preset="mesh",
        domain="void",
        factors="graph",
        width=64,
        num_steps=400,
        learning_rate=3e-3,
        test_domains=DOMAINS[::-1],
    ),
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
