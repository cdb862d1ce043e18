"""Functions on one cell with a void, transferred to another cell by attention.

    python -m experiments.domain_maps --preset=quick

Attentions with the same descriptors and numbers of parameters are trained on random
pairs of cells. In the setting geometry, descriptors determine the map between the cells
point by point; in the setting probes, a swirl is added, and only a few functions that
are known on both cells show it. Errors are those of unseen pairs, for other numbers of
points on either cell.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments import domain_maps_problem as problem
from experiments import domain_maps_report
from experiments.domain_maps_models import MODELS, Transfer
from experiments.domain_maps_problem import Cell
from experiments.studies import AtOnceOptions, Row, one_of, start_of
from experiments.warm_adam import warm_adam
from opjax import learn
from opjax.learn import FreshTask, Replicas, UpdateOptions, option
from opjax.learn.config.fields import only_with

SETTINGS = ("probes", "geometry")
_TEST_SEED = 4713


@dataclasses.dataclass(frozen=True)
class Config(AtOnceOptions, UpdateOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    models: tuple[str, ...] = option(
        tuple(MODELS), "Attentions to train", choices=tuple(MODELS), members=True
    )
    settings: tuple[str, ...] = option(
        SETTINGS,
        "What shows the map between cells: their geometry, or a few probes",
        choices=SETTINGS,
        members=True,
    )
    probes: int = only_with(
        option(
            6,
            "Number of functions known on both cells, in the setting probes",
            minimum=1,
        ),
        settings=["probes"],
    )
    max_swirl: float = only_with(
        option(
            0.6,
            "Maximum swirl around a void in the setting probes, in radians",
            minimum=0,
        ),
        settings=["probes"],
    )
    num_functions: int = option(8, "Number of functions to transfer", minimum=1)
    num_points: int = option(256, "Number of points of a cell in training", minimum=8)
    test_points: tuple[int, ...] = option(
        (128, 256, 1024, 4096),
        "Numbers of points of one cell in the test; the other one has those of the "
        "training",
        minimum=8,
    )
    num_test: int = option(16, "Number of unseen pairs of cells", minimum=1)
    num_waves: int = option(
        64, "Number of waves of each kind of descriptors", minimum=1
    )
    frequency: float = option(
        4.0, "Initial frequencies of waves of coordinates, their deviation", above=0
    )
    probe_frequency: float = only_with(
        option(1.0, "Initial frequencies of waves of probes, their deviation", above=0),
        settings=["probes"],
    )
    width: int = option(128, "Width of the perceptron", minimum=1)
    num_basis: int = option(
        64, "Number of basis functions, half of the channels of attention", minimum=1
    )
    clip_norm: float = option(
        1.0, "Maximum norm of the gradient. 0 turns clipping off", minimum=0
    )
    num_steps: int = option(1000, "Number of optimizer steps", minimum=2)
    batch_size: int = option(4, "Number of pairs of cells in a step", minimum=1)
    learning_rate: float = option(3e-3, "Maximum learning rate", above=0)

    def __post_init__(self):
        """Refuses tests without the points of the training."""
        super().__post_init__()
        if self.num_points not in self.test_points:
            raise ValueError(
                f"test_points={self.test_points} must contain "
                f"num_points={self.num_points}."
            )

    def members(self) -> dict[tuple[str, None], "Config"]:
        """One model in one setting by name; its seeds are trained at once."""
        return {
            (f"{model}_{setting}", None): dataclasses.replace(
                self, models=(model,), settings=(setting,)
            )
            for setting in self.settings
            for model in self.models
        }

    @property
    def num_probes(self) -> int:
        """Number of known functions of a member."""
        return self.probes if self.settings[0] == "probes" else 0

    @property
    def law(self) -> problem.Law:
        """The law of the pairs of a member."""
        swirl = self.max_swirl if self.num_probes else 0.0
        return problem.Law(self.num_probes, self.num_functions, swirl)

    def unseen(self) -> tuple[Cell, Cell]:
        """Draws the pairs of the test, at the largest number of points."""
        draw = jax.jit(problem.draw, static_argnums=(1, 2, 3))
        key = jax.random.key(_TEST_SEED)
        return draw(key, self.law, self.num_test, max(self.test_points))

    @property
    def meshes(self) -> list[tuple[int, int]]:
        """Numbers of points of sources and targets in the test."""
        same = self.num_points
        pairs = [(n, same) for n in self.test_points]
        pairs += [(same, m) for m in self.test_points]
        return list(dict.fromkeys(pairs))


def make_task(config: Config, cache_dir: str | None = None) -> FreshTask:
    """Models of all seeds, trained at once on fresh pairs."""
    del cache_dir
    seeds = jnp.asarray(config.seeds)

    def sample(key: jax.Array, step: jax.Array) -> tuple[Cell, Cell]:
        key = jax.random.fold_in(key, step)
        return problem.draw(key, config.law, config.batch_size, config.num_points)

    def build(config: Config, rngs: nnx.Rngs | None) -> Transfer:
        del rngs
        model = MODELS[config.models[0]][1]
        return jax.jit(jax.vmap(lambda seed: model(config, start_of(seed))))(seeds)

    return FreshTask(
        draw=sample,
        build=build,
        loss=loss,
        evaluate=lambda models, folder: evaluate(models, config),
        optimizer=warm_adam,
        replicas=Replicas(
            config.seeds, np.full(len(seeds), config.learning_rate, np.float32)
        ),
        source="own sampler: random maps of a cell, random functions",
        over_batch=False,
    )


def loss(model: Transfer, pairs: tuple[Cell, Cell]) -> jax.Array:
    """Mean relative error of the transferred functions."""
    return jnp.mean(jax.vmap(lambda s, t: problem.errors(model(s, t), t))(*pairs))


def best(models: Transfer, cells: Cell) -> np.ndarray:
    """Errors of the best combinations of basis functions, by seed and cell, `(s, p)`.

    Least squares in double precision, means over the functions of a cell. Empty for
    models without a basis.
    """
    bases = jax.jit(jax.vmap(lambda model, cell: model.basis(cell), (0, None)))
    errors: list[list[float]] = []
    for number in range(len(cells.values)):
        cell = one_of(cells, number)
        found = bases(models, cell)
        if found is None:
            return np.zeros((0, 0))
        root = np.sqrt(np.asarray(cell.weights, float))[:, None]
        values = root * np.asarray(cell.values, float)
        errors.append([_least(root * b, values) for b in np.asarray(found, float)])
    return np.transpose(errors)


def _least(basis: np.ndarray, values: np.ndarray) -> float:
    rest = values - basis @ np.linalg.lstsq(basis, values, rcond=None)[0]
    ratios = np.linalg.norm(rest, axis=0) / np.linalg.norm(values, axis=0)
    return float(np.mean(ratios))


@jax.jit
def _means(models: Transfer, pairs: tuple[Cell, Cell]) -> jax.Array:
    def of_pair(pair: tuple[Cell, Cell]) -> jax.Array:
        source, target = pair
        return jax.vmap(
            lambda model: jnp.mean(problem.errors(model(source, target), target))
        )(models)

    return jnp.mean(jax.lax.map(of_pair, pairs), axis=0)


def evaluate(models: Transfer, config: Config) -> dict[str, Any]:
    """Mean errors on unseen pairs: rows of numbers of points and seed."""
    rows: list[Row] = []
    pairs = config.unseen()
    for source, target in config.meshes:
        means = np.asarray(_means(models, problem.coarse(pairs, source, target)))
        where = {"source": source, "target": target}
        rows += [
            where | {"seed": seed, "error": error}
            for seed, error in zip(config.seeds, means.tolist(), strict=True)
        ]
    same = (config.num_points, config.num_points)
    own = [r["error"] for r in rows if (r["source"], r["target"]) == same]
    return {
        "relative_l2": float(np.median(own)),
        "best": [float(np.mean(one)) for one in best(models, pairs[1])],
        "rows": rows,
    }


PRESETS = {
    "smoke": Config(
        preset="smoke",
        models=("functional",),
        settings=("probes",),
        num_functions=2,
        probes=2,
        num_points=32,
        test_points=(32, 48),
        num_test=2,
        num_waves=8,
        width=8,
        num_basis=4,
        num_steps=20,
        batch_size=2,
        seeds=(0, 1),
    ),
    "quick": Config(),
}
PROGRAM = learn.Program(
    "domain_maps",
    PRESETS,
    make_task,
    title="Maps between two domains",
    report=domain_maps_report.report,
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
