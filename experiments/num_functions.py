"""How many functions attention needs: trained heads against the best of each rank.

    python -m experiments.num_functions --preset=quick
    python -m experiments.num_functions --models=galerkin --ranks=4,8 --num_points=128

A head whose queries and keys depend on positions only is a linear operator of rank k.
For the inverse Laplacian of 002 the smallest error of any operator of rank k is known
from a singular value decomposition. The program trains heads of rank k on grids of n
points and compares their errors with it. Heads with gates begin with the largest k; a
group penalty on the contributions of the functions chooses how many stay.
"""

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from experiments import num_functions_report
from opjax import learn
from opjax.attention import functional_attention, galerkin_attention, linear_attention
from opjax.basis import softmax_basis
from opjax.learn import FreshTask, Replicas, UpdateOptions, option
from opjax.problems import poisson

MODELS = ("galerkin", "linear", "functional", "functional_softmax")
_RIDGE = 1e-3
_UNIT = 0.1  # of the predictions; solutions are of size 1 / pi^2


@dataclasses.dataclass(frozen=True)
class Training:
    """Right-hand sides and training."""

    num_modes: int = option(
        64, "Number of sine and cosine modes in the right-hand sides", minimum=1
    )
    decay: float = option(1.5, "Exponent with which higher modes are damped", minimum=0)
    num_steps: int = option(4000, "Number of optimizer steps", minimum=1)
    batch_size: int = option(128, "Number of right-hand sides in a step", minimum=2)
    learning_rate: float = option(
        0.0, "Learning rate. 0 takes the default of each attention", minimum=0
    )


@dataclasses.dataclass(frozen=True)
class Config(Training, UpdateOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option(
        "quick", "Named set of values for all flags that are not given"
    )
    models: tuple[str, ...] = option(
        MODELS,
        "Attentions to train: functional has linear bases, functional_softmax those of "
        "the paper",
        choices=MODELS,
        members=True,
    )
    ranks: tuple[int, ...] = option(
        (2, 4, 8, 16, 32, 64), "Numbers of functions k", minimum=1
    )
    penalties: tuple[float, ...] = option(
        (0.04, 0.14, 0.15, 0.2, 0.5),
        "Weights of the group penalty. Gates begin with the largest of --ranks",
        above=0,
    )
    num_points: tuple[int, ...] = option(
        (128, 512, 2048), "Numbers of interior points n", minimum=2
    )
    seeds: tuple[int, ...] = option(
        (0, 1, 2),
        "Seeds of the initial parameters and of the right-hand sides, trained at once",
        minimum=0,
        below=2**31,
    )

    def __post_init__(self):
        """Refuses more modes than the coarsest grid resolves."""
        super().__post_init__()
        if self.num_modes > min(self.num_points):
            raise ValueError(
                f"num_modes={self.num_modes} is more than the {min(self.num_points)} "
                "points of the coarsest grid can tell apart."
            )

    def members(self) -> dict[tuple[str, None], "Member"]:
        """Heads by name; their seeds are trained at once."""
        of_ranks = [(m, k, 0.0) for m in self.models for k in self.ranks]
        gated = [("gates", max(self.ranks), one) for one in self.penalties]
        return {
            (one.name, None): one
            for n in self.num_points
            for model, rank, penalty in (*of_ranks, *gated)
            for one in [self._member(model, rank, penalty, n)]
        }

    def _member(self, model: str, rank: int, penalty: float, n: int) -> "Member":
        shared = {f.name: getattr(self, f.name) for f in dataclasses.fields(Training)}
        return Member(
            model=model,
            rank=rank,
            penalty=penalty,
            num_points=n,
            seeds=self.seeds,
            updates=self.updates,
            **shared,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member(Training):
    """One head on one grid, for all seeds.

    Attributes:
      model: its attention, or gates.
      rank: functions k, with gates those of the start.
      penalty: weight of the group penalty of gates.
      num_points: interior points n.
      seeds: of parameters and right-hand sides.
      updates: what the optimizer has around it.
    """

    model: str
    rank: int
    penalty: float
    num_points: int
    seeds: tuple[int, ...]
    updates: UpdateOptions = UpdateOptions()

    @property
    def name(self) -> str:
        """Of the folder."""
        kind = f"{self.model}_{self.penalty:g}" if self.penalty else self.model
        return f"{kind}_{self.rank}_{self.num_points}"

    @property
    def seed(self) -> int:
        """The first seed."""
        return self.seeds[0]

    @property
    def rate(self) -> float:
        """Learning rate."""
        return self.learning_rate or (3e-3 if "functional" in self.model else 1e-2)


class Setting(NamedTuple):
    """A problem on a grid and what is known of it.

    Attributes:
      single: right-hand sides and solutions in float32.
      double: the same in float64.
      moment: see `poisson.population_moment`.
      singular_values: the error of the best operator of rank k is the norm of those
        after the first k, shape `(2 num_modes,)`.
      features: positions as a head sees them, shape `(n, 2 num_modes + 2)`.
    """

    single: poisson.FourierProblem
    double: poisson.FourierProblem
    moment: np.ndarray
    singular_values: np.ndarray
    features: np.ndarray


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Head:
    """Queries, keys and bases, linear in the features of the positions.

    Attributes:
      maps: of queries, keys and the two bases, each `(c, k)`.
      scale: of the predictions, where averages of right-hand sides are; else None.
      gates: of the functions, `(k,)`; those that are not positive are shut for good.
      kind: its attention, or gates.
    """

    maps: dict[str, jax.Array]
    scale: jax.Array | None
    gates: jax.Array | None
    kind: str = dataclasses.field(metadata={"static": True})

    def __call__(self, features: ArrayLike, right_sides: ArrayLike) -> jax.Array:
        """Returns solutions `(n, b)`, linear in the right-hand sides."""
        x = jnp.asarray(features)
        of_points = {name: x @ one for name, one in self.maps.items()}
        weights = jnp.full(len(x), 1 / len(x), x.dtype)
        query, key = of_points["query"], of_points["key"]
        if self.gates is not None:
            query = query * jax.nn.relu(self.gates)[None]
        if self.kind in ("galerkin", "gates"):
            found = galerkin_attention(query, key, right_sides, key_weights=weights)
        elif self.kind == "linear":
            found = linear_attention(query, key, right_sides, key_weights=weights)
        else:
            bases = of_points["query_basis"], of_points["key_basis"]
            if self.kind == "functional_softmax":
                bases = tuple(softmax_basis(scores) for scores in bases)
            found = functional_attention(
                query,
                key,
                right_sides,
                *bases,
                ridge=_RIDGE,
                query_weights=weights,
                key_weights=weights,
            )
        return _UNIT * (found if self.scale is None else self.scale * found)


def build(member: Member, key: jax.Array) -> Head:
    """A head with random maps."""
    channels = 2 * member.num_modes + 2
    names = ["query", "key"]
    if "functional" in member.model:
        names += ["query_basis", "key_basis"]
    keys = jax.random.split(key, len(names))
    draw = jax.nn.initializers.lecun_normal()
    maps = {
        name: draw(one, (channels, member.rank))
        for name, one in zip(names, keys, strict=True)
    }
    gates = jnp.ones(member.rank) if member.model == "gates" else None
    scale = None if member.model in ("galerkin", "gates") else jnp.ones(())
    return Head(maps, scale, gates, member.model)


@lru_cache(maxsize=1)  # members of one grid follow each other
def setting(num_points: int, num_modes: int, decay: float) -> Setting:
    """Tabulates right-hand sides, solutions and the errors of the best operators."""
    with jax.enable_x64(True):
        double = poisson.fourier_problem(num_points, num_modes=num_modes, decay=decay)
        moment = poisson.population_moment(jax.random.key(4712), double)
        weighted = np.asarray(double.solutions) @ np.linalg.cholesky(moment)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), double)
    x = np.arange(1, num_points + 1) / (num_points + 1)
    return Setting(
        single,
        double,
        moment,
        np.linalg.svd(weighted, compute_uv=False),
        np.concatenate(
            [np.ones((num_points, 1)), x[:, None], poisson.modes_at(x, num_modes)],
            axis=1,
        ),
    )


def make_task(member: Member, cache_dir: str | None = None) -> FreshTask:
    """Heads of all seeds, trained at once."""
    del cache_dir
    known = setting(member.num_points, member.num_modes, member.decay)
    seeds = jnp.asarray(member.seeds)
    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), 0))(seeds)

    def draw(key: jax.Array, step: jax.Array) -> poisson.Samples:
        key = jax.random.fold_in(key, step)
        return poisson.sample(key, known.single, num_samples=member.batch_size)

    return FreshTask(
        draw=draw,
        build=lambda config, rngs: jax.vmap(partial(build, member))(keys),
        loss=partial(loss, features=known.features.astype(np.float32), member=member),
        evaluate=lambda heads, folder: evaluate(heads, known, member),
        optimizer=optimizer,
        replicas=Replicas(member.seeds, np.full(len(seeds), member.rate, np.float32)),
        source="own solver: finite differences, exact discrete inverse",
        over_batch=False,
    )


def optimizer(
    member: Member, total: int, rate: jax.Array
) -> optax.GradientTransformation:
    """Adam with a twentieth of warm-up steps and a cosine to zero."""
    warm_up = max(total // 20, 1)
    shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, warm_up, max(total, 2))
    return member.updates.around(optax.adam(lambda step: rate * shape(step)))


def loss(
    head: Head, batch: poisson.Samples, *, features: np.ndarray, member: Member
) -> jax.Array:
    r"""Weighted mean square error; with gates, plus a penalty on groups.

        mean_b |p_b - u_b|^2 / |u_b|^2 + penalty sum_j s_j,
        s_j^2 = mean_b |q_j|^2 <k_j, f_b>^2 / |u_b|^2,

    where `s_j` is what function j contributes to the predictions. Over operators of
    any rank, the minimum keeps the singular values above half of the penalty.
    """
    error = poisson.weighted_mse(head(features, batch.right_sides), batch.solutions)
    if head.gates is None:
        return error
    return error + member.penalty * jnp.sum(contributions(head, features, batch))


def contributions(
    head: Head, features: np.ndarray, batch: poisson.Samples
) -> jax.Array:
    """Returns `s_j` of every function, shape `(k,)`, zero where its gate is shut."""
    query, key = features @ head.maps["query"], features @ head.maps["key"]
    sizes = jnp.linalg.norm(batch.solutions, axis=0)
    coefficients = key.T @ (batch.right_sides / sizes[None]) / len(features)
    rms = jnp.sqrt(jnp.mean(coefficients**2, axis=1))
    norms = jnp.linalg.norm(query, axis=0)
    gates = jax.nn.relu(head.gates if head.gates is not None else jnp.ones(len(norms)))
    return _UNIT * gates * norms * rms


def evaluate(heads: Head, known: Setting, member: Member) -> dict[str, Any]:
    """Errors of all seeds, beside those of the best operators."""
    with jax.enable_x64(True):
        double = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), heads)

        def error(head: Head) -> jax.Array:
            operator: Callable[[jax.Array], jax.Array] = partial(head, known.features)
            return poisson.population_mse(operator, known.double, known.moment)

        errors = np.sqrt(np.asarray(jax.lax.map(error, double)))
    values = known.singular_values
    kept = np.full(len(errors), member.rank)
    if heads.gates is not None:
        kept = np.sum(np.asarray(heads.gates) > 0, axis=1)
    threshold = member.penalty / 2
    return {
        "relative_l2": float(np.median(errors)),
        "errors": errors.tolist(),
        "functions": kept.tolist(),
        "best": best(values, member.rank),
        "best_functions": int(np.sum(values > threshold)),
        "best_penalized": float(np.linalg.norm(np.minimum(values, threshold))),
        "smallest_rank": [smallest_rank(values, one) for one in errors],
    }


def best(singular_values: np.ndarray, rank: int) -> float:
    """Returns the smallest error of an operator of a rank."""
    return float(np.linalg.norm(singular_values[rank:]))


def smallest_rank(singular_values: np.ndarray, error: float) -> int:
    """Returns the smallest rank at which an operator has at most an error."""
    tails = np.sqrt(np.cumsum(singular_values[::-1] ** 2))[::-1]
    return int(np.sum(tails > error))


PRESETS = {
    "smoke": Config(
        preset="smoke",
        models=("galerkin", "functional_softmax"),
        ranks=(2, 8),
        penalties=(0.2,),
        num_points=(32,),
        num_modes=8,
        num_steps=60,
        batch_size=32,
        seeds=(0, 1),
    ),
    "quick": Config(),
}
_TITLE = "Errors of trained heads and of the best operators of their rank"
PROGRAM = learn.Program(
    "num_functions",
    PRESETS,
    make_task,
    title=_TITLE,
    report=num_functions_report.report,
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
