"""Maps between two domains: which attention carries functions from mesh to mesh.

    python -m experiments.two_domains --preset=quick
    python -m experiments.two_domains --models=functional,softmax --seeds=0

A cell is a disc with a void of random shape and place. A map along rays identifies any
two cells, and carries a function on one to a function on the other. One head of
attention learns to do so: queries are at points of the second cell, keys and values at
other, more or fewer points of the first. The program compares heads on unseen pairs of
cells, and refines either mesh without the other.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from experiments import two_domains_cells as cells
from experiments import two_domains_report
from opjax import learn
from opjax.attention import (
    functional_attention,
    galerkin_attention,
    softmax_attention,
)
from opjax.basis import softmax_basis
from opjax.learn import FreshTask, Replicas, UpdateOptions, option
from opjax.metrics import relative_l2
from opjax.nn import MLP
from opjax.point_clouds import nearest_points
from opjax.projection import LeastSquares, Means

BASELINES = (
    "mean of the source",
    "nearest point",
    "nearest point after the true map",
)
MODELS = ("functional", "functional_fit", "galerkin", "softmax")


@dataclasses.dataclass(frozen=True)
class Training:
    """Meshes, heads and training."""

    num_points: int = option(
        256, "Number of points of both meshes in training", minimum=8
    )
    num_basis: int = option(32, "Number of basis functions of a head", minimum=2)
    width: int = option(64, "Width of the perceptron of the points", minimum=1)
    ridge: float = option(1e-3, "Ridge of functional attention", above=0)
    num_steps: int = option(4000, "Number of optimizer steps", minimum=2)
    batch_size: int = option(4, "Number of pairs of cells in a step", minimum=1)
    learning_rate: float = option(3e-3, "Maximum learning rate", above=0)
    num_test: int = option(64, "Number of unseen pairs of cells", minimum=1)
    eval_points: tuple[int, ...] = option(
        (64, 256, 1024, 4096),
        "Numbers of points of one mesh, while the other has --num_points",
        minimum=8,
    )


@dataclasses.dataclass(frozen=True)
class Config(Training, UpdateOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option(
        "quick", "Named set of values for all flags that are not given"
    )
    models: tuple[str, ...] = option(
        MODELS,
        "Attentions to train. functional projects with weighted means, functional_fit "
        "with least squares",
        choices=MODELS,
        members=True,
    )
    seeds: tuple[int, ...] = option(
        (0, 1, 2),
        "Seeds of the initial parameters and of the cells, trained at once",
        minimum=0,
        below=2**31,
    )

    def members(self) -> dict[tuple[str, None], "Member"]:
        """Heads by name; their seeds are trained at once."""
        shared = {f.name: getattr(self, f.name) for f in dataclasses.fields(Training)}
        return {
            (model, None): Member(
                model=model, seeds=self.seeds, updates=self.updates, **shared
            )
            for model in self.models
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member(Training):
    """One head, for all seeds.

    Attributes:
      model: its attention.
      seeds: of parameters and cells.
      updates: what the optimizer has around it.
    """

    model: str
    seeds: tuple[int, ...]
    updates: UpdateOptions = UpdateOptions()

    @property
    def seed(self) -> int:
        """The first seed."""
        return self.seeds[0]


class Head(nnx.Module):
    """One head between two meshes; queries, keys and bases depend on points alone.

    All heads have as many parameters: without a basis, queries and keys are wider.
    """

    def __init__(self, member: Member, rngs: nnx.Rngs):
        hidden = [member.width, member.width]
        out = 3 * member.num_basis
        options: Any = {"activation": "gelu", "rngs": rngs}
        self.points = MLP(cells.CHANNELS, hidden, out, **options)
        self.scale = nnx.Param(jnp.ones(()))
        self.model, self.ridge = member.model, member.ridge

    def __call__(self, source: cells.Mesh, target: cells.Mesh) -> jax.Array:
        """Returns values at the points of the target, `(m, 1)`."""
        parts = 3 if "functional" in self.model else 2
        of_source, of_target = (
            jnp.split(self.points(mesh.features), parts, axis=1)
            for mesh in (source, target)
        )
        query, key, weights = of_target[0], of_source[1], source.weights
        if self.model == "functional":
            projection = Means()
        else:
            projection = LeastSquares(1e-2, relative=True)
        if parts == 3:
            found = functional_attention(
                query,
                key,
                source.values,
                softmax_basis(of_target[2]),
                softmax_basis(of_source[2]),
                ridge=self.ridge,
                projection=projection,
                query_weights=target.weights,
                key_weights=weights,
            )
        else:
            softmax = self.model == "softmax"
            attention = softmax_attention if softmax else galerkin_attention
            found = attention(query, key, source.values, key_weights=weights)
        return self.scale * found


def make_task(member: Member, cache_dir: str | None = None) -> FreshTask:
    """Heads of all seeds, trained at once on fresh pairs of cells."""
    del cache_dir
    seeds = jnp.asarray(member.seeds)

    def sample(key: jax.Array, step: jax.Array) -> cells.Pair:
        keys = jax.random.split(jax.random.fold_in(key, step), member.batch_size)
        n = member.num_points
        return jax.vmap(lambda one: cells.draw(one, n, n))(keys)

    def start(seed: jax.Array) -> Head:
        key = jax.random.fold_in(jax.random.key(seed), 0)
        return Head(member, nnx.Rngs(key))

    return FreshTask(
        draw=sample,
        build=lambda config, rngs: jax.vmap(start)(seeds),
        loss=loss,
        evaluate=lambda heads, folder: evaluate(heads, member),
        optimizer=optimizer,
        replicas=Replicas(
            member.seeds, np.full(len(seeds), member.learning_rate, np.float32)
        ),
        source="own cells: discs with voids, mapped to each other along rays",
        over_batch=False,
    )


def optimizer(
    member: Member, total: int, rate: jax.Array
) -> optax.GradientTransformation:
    """Adam with a twentieth of warm-up steps and a cosine to zero."""
    shape = optax.warmup_cosine_decay_schedule(
        0.0, 1.0, max(total // 20, 1), max(total, 2)
    )
    return member.updates.around(optax.adam(lambda step: rate * shape(step)))


def errors(head: Head, pairs: cells.Pair) -> jax.Array:
    """Relative L2 errors of a batch of pairs."""

    def one(pair: cells.Pair) -> jax.Array:
        predicted = head(pair.source, pair.target)
        target = pair.target
        return relative_l2(predicted, target.values, quadrature_weights=target.weights)

    return jax.vmap(one)(pairs)


def loss(head: Head, pairs: cells.Pair) -> jax.Array:
    """Mean relative L2 error of a batch."""
    return jnp.mean(errors(head, pairs))


def evaluate(heads: Head, member: Member) -> dict[str, Any]:
    """Errors on unseen pairs, with finer and coarser meshes of either cell."""
    base, of_meshes = member.num_points, {}
    for n in member.eval_points:
        for side, sizes in {"source": (n, base), "target": (base, n)}.items():
            of_heads = jax.lax.map(
                partial(unseen_error, member=member, sizes=sizes), heads
            )
            of_meshes[f"{side}_{n}"] = np.asarray(of_heads).tolist()
    at_base = jax.lax.map(
        partial(unseen_error, member=member, sizes=(base, base)), heads
    )
    return {
        "relative_l2": float(np.median(at_base)),
        "errors": of_meshes,
        "baselines": {n: baseline_errors(member, n) for n in member.eval_points},
    }


@partial(jax.jit, static_argnames=("member", "sizes"))
def unseen_error(head: Head, *, member: Member, sizes: tuple[int, int]) -> jax.Array:
    """Mean error on unseen pairs with so many points of source and target."""

    def one(key: jax.Array) -> jax.Array:
        pair = cells.draw(key, *sizes)
        return errors(head, jax.tree.map(lambda leaf: leaf[None], pair))[0]

    return jnp.mean(jax.lax.map(one, _test_keys(member)))


def baseline_errors(member: Member, num_source: int) -> dict[str, float]:
    """Errors without training: see `BASELINES`."""

    def one(key: jax.Array) -> dict[str, jax.Array]:
        source, target = cells.draw(key, num_source, member.num_points)

        def nearest(points: jax.Array, queries: jax.Array) -> jax.Array:
            return source.values[nearest_points(queries, points)]

        mean = source.weights @ source.values / source.weights.sum()
        predictions = (
            jnp.broadcast_to(mean, target.values.shape),
            nearest(source.features[:, :2], target.features[:, :2]),
            nearest(source.reference, target.reference),
        )
        return {
            name: relative_l2(
                predicted, target.values, quadrature_weights=target.weights
            )
            for name, predicted in zip(BASELINES, predictions, strict=True)
        }

    return {k: float(e.mean()) for k, e in jax.lax.map(one, _test_keys(member)).items()}


def _test_keys(member: Member) -> jax.Array:
    """Of unseen pairs."""
    return jax.random.split(jax.random.key(4712), member.num_test)


PRESETS = {
    "smoke": Config(
        preset="smoke",
        models=("functional", "softmax"),
        seeds=(0, 1),
        num_points=32,
        num_basis=8,
        width=8,
        num_steps=20,
        batch_size=2,
        num_test=4,
        eval_points=(16, 32),
    ),
    "quick": Config(),
}
PROGRAM = learn.Program(
    "two_domains",
    PRESETS,
    make_task,
    title="Functions carried between two cells",
    report=two_domains_report.report,
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
