r"""Gradients of trained operators beside those of our solver, and what they invert.

    python -m benchmarks.darcy_gradients --gradients_rows=FILE --gradients_seeds=0,1,2
    python -m benchmarks.darcy_gradients --gradients_rows=FILE --gradients_page=PNG

Darcy flow `-div(a grad u) = 1` with our solver (`opjax.problems.darcy`), which JAX
differentiates exactly. Operators map `log a` to `u` on a grid, for two kinds of
coefficients:

- smooth: `log a = 2.5 sum_k s_k z_k cos(pi k_1 x) cos(pi k_2 y)` with standard normal
  `z_k` and the deviations `s_k` of `random_fields.spectral_deviations` of the first 6 x
  6 - 1 waves, which are its Karhunen-Loeve basis;
- two_phase: 12 or 3 by the sign of a Gaussian field, as published with the FNO.

A row has errors over new cases: of `u`; of the mean of `u` and of `u` in the middle;
of their derivatives along the waves; and of their derivatives by `log a` at every cell,
as a map: relative L2 errors, and cosines of the angle between operator and solver.
Along the waves, the solver's derivative is exact. At a cell it contains the splines of
the scheme, so a map is compared with the adjoint formula `-a grad u . grad v`, where
`v` solves the equation with the weights of the quantity as its source.

For smooth coefficients, a row also has the errors of `log a` found from 36 noisy
sensors of `u`: the largest posterior density of `z`, by gradient through the operator
or through the solver, beside a linear regression of the training cases and the nearest
training case. The mean of the prior has an error of one. `uncertainty.laplace` gives
the deviations; `inside` is the share of cells in intervals of 90 %.
"""

import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from scipy import optimize

from benchmarks.provenance import provenance
from opjax import learn, uncertainty
from opjax.learn.cli import compiled
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table
from opjax.problems import darcy, random_fields
from opjax.samples import grid_points

_ROWS = flags.DEFINE_string("gradients_rows", None, "File of the rows", required=True)
_PAGE = flags.DEFINE_string("gradients_page", None, "File of the figure; prints tables")
_SMOKE = flags.DEFINE_bool("gradients_smoke", False, "Run very few steps on few cases")
_SEEDS = flags.DEFINE_list("gradients_seeds", ["0", "1", "2"], "Seeds, in this order")
_KINDS = flags.DEFINE_list(
    "gradients_kinds", ["smooth", "two_phase"], "Kinds of coefficients"
)
_MODELS = flags.DEFINE_list("gradients_models", ["functional", "fno"], "Models")
_SCALE = 2.5  # of the logarithm, whose standard deviation is then about 0.7
_NOISE = 0.01  # of a sensor, in standard deviations of all values
_QUANTITIES = ("mean", "middle")

Row = dict[str, Any]
Values = jax.Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class Study:
    """How large the study is.

    Attributes:
      side: cells along each side.
      waves: waves along each side, with the constant one.
      sensors: sensors along each side.
      train: number of training cases.
      test: number of new cases.
      inversions: number of them that are also inverted.
      steps: of a training.
    """

    side: int = 20
    waves: int = 6
    sensors: int = 6
    train: int = 500
    test: int = 50
    inversions: int = 5
    steps: int = 1500


SMOKE = Study(12, 3, 3, 12, 2, 1, 2)


class Case(NamedTuple):
    """Cases of one kind, `(b, side, side)`; `z` only if they are smooth, `(b, k)`."""

    logs: jax.Array
    solutions: jax.Array
    z: jax.Array | None


def waves(study: Study) -> jax.Array:
    """Returns the Karhunen-Loeve basis, times deviations, `(side, side, k)`."""
    sizes = random_fields.spectral_deviations(num_points=study.side)
    some = [(i, j) for i in range(study.waves) for j in range(study.waves) if i + j]
    basis = [
        random_fields.cosine_synthesis(jnp.zeros_like(sizes).at[k].set(sizes[k]))
        for k in some
    ]
    return _SCALE * jnp.stack(basis, axis=-1)


def solved(logs: jax.Array) -> jax.Array:
    """Returns the solution of our solver for the logarithm of a coefficient."""
    return darcy.solve(jnp.exp(logs)).solution


def cases(study: Study, kind: str, count: int, key: jax.Array) -> Case:
    """Returns random cases."""
    z = None
    if kind == "smooth":
        basis = waves(study)
        z = jax.random.normal(key, (count, basis.shape[-1]), basis.dtype)
        logs = jnp.einsum("bk,ijk->bij", z, basis)
    else:

        def field(key: jax.Array) -> jax.Array:
            return random_fields.gaussian_random_field(key, num_points=study.side)

        fields = jax.vmap(field)(jax.random.split(key, count))
        logs = jnp.log(darcy.threshold(fields))
    return Case(logs, jax.jit(jax.vmap(solved))(logs), z)


def trained(study: Study, train: Case, model: str, seed: int) -> learn.Trained:
    """Trains an operator from the logarithm of the coefficient to the solution."""
    config = dataclasses.replace(
        learn.TRAIN_PRESETS["fast"],
        models=(model,),
        width=32,
        num_layers=3,
        num_heads=4,
        num_basis=16,
        batch_size=8,
        num_steps=study.steps,
        validation_fraction=0.04,
        test_fraction=0.02,
    )
    arrays = {
        "features": np.asarray(train.logs, np.float32),
        "target": np.asarray(train.solutions, np.float32),
    }
    return learn.train(arrays, config=config, seed=seed)


def as_function(operator: learn.Trained) -> Callable[[jax.Array], jax.Array]:
    """Returns the operator as a function of one field, in double precision."""
    dtype = jnp.float64

    def cast(leaf: jax.Array) -> jax.Array:
        real = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(leaf, dtype if real else leaf.dtype)

    model = jax.tree.map(cast, operator.parameters)

    def predict(logs: jax.Array) -> jax.Array:
        side = logs.shape[0]
        points = jnp.asarray(grid_points((side, side)), dtype)
        values = operator.function(model, points, logs.reshape(-1, 1))
        return values.reshape(side, side)

    return predict


def value(quantity: str, solution: jax.Array) -> jax.Array:
    """Returns the mean of a solution, or its value in the middle."""
    if quantity == "mean":
        return solution.mean()
    half = solution.shape[0] // 2
    return solution[half - 1 : half + 1, half - 1 : half + 1].mean()


def adjoint(logs: jax.Array, quantity: str) -> jax.Array:
    """Returns the derivative of a quantity by `log a` at every cell."""
    side, coefficient = logs.shape[0], jnp.exp(logs)
    weights = jax.grad(lambda u: value(quantity, u))(jnp.zeros_like(logs))
    primal = darcy.solve(coefficient).solution
    dual = darcy.solve(coefficient, source=weights * side**2).solution
    return -coefficient * jnp.sum(_slope(primal) * _slope(dual), axis=0) / side**2


def _slope(u: jax.Array) -> jax.Array:
    """Gradient at the cells of a field that is zero on the boundary, `(2, ...)`."""

    def along(u: jax.Array) -> jax.Array:
        beyond = jnp.concatenate([-u[:1], u, -u[-1:]])
        return (beyond[2:] - beyond[:-2]) / 2

    return u.shape[0] * jnp.stack([along(u), along(u.T).T])


def compared(
    predict: Callable[[jax.Array], jax.Array], test: Case, basis: jax.Array
) -> tuple[Row, dict[str, np.ndarray]]:
    """Returns mean errors over new cases, and derivatives of the mean of the first."""
    row: Row = {}
    fields: dict[str, np.ndarray] = {}
    predicted = np.asarray(jax.jit(jax.vmap(predict))(test.logs))
    row["error"] = float(np.mean(relative(predicted, test.solutions)))

    def both(
        quantity: str, function: Callable[[jax.Array], jax.Array]
    ) -> tuple[np.ndarray, np.ndarray]:
        one = jax.value_and_grad(lambda logs: value(quantity, function(logs)))
        values, slopes = jax.jit(jax.vmap(one))(test.logs)
        return np.asarray(values), np.asarray(slopes)

    for quantity in _QUANTITIES:
        (ours, slopes), (exact, expected) = (
            both(quantity, one) for one in (predict, solved)
        )
        row[f"{quantity}_value"] = float(np.mean(np.abs(ours / exact - 1)))
        along = [np.einsum("bij,ijk->bk", one, basis) for one in (slopes, expected)]
        maps = np.asarray(jax.vmap(partial(adjoint, quantity=quantity))(test.logs))
        for name, pair in (("map", (slopes, maps)), ("waves", along)):
            row[f"{quantity}_{name}"] = float(np.mean(relative(*pair)))
            row[f"{quantity}_{name}_cosine"] = float(np.mean(cosines(*pair)))
        if quantity == "mean":
            fields = {"slope, operator": slopes[0], "slope, solver": maps[0]}
    return row, fields


def relative(actual: Values, expected: Values) -> np.ndarray:
    """Relative L2 error of each case."""
    off, size = (
        np.linalg.norm(np.reshape(one, (len(one), -1)), axis=1)
        for one in (np.asarray(actual) - np.asarray(expected), expected)
    )
    return off / size


def cosines(actual: Values, expected: Values) -> np.ndarray:
    """Cosine of the angle between two arrays, for each case."""
    one, other = (np.reshape(a, (len(a), -1)) for a in (actual, expected))
    sizes = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.sum(one * other, axis=1) / sizes


class Found(NamedTuple):
    """A coefficient that was found from sensors.

    Attributes:
      mean: logarithm of the coefficient, `(side, side)`.
      std: its standard deviation.
    """

    mean: np.ndarray
    std: np.ndarray


class Inverter:
    """Finds a smooth coefficient from sensors, by gradient through a function.

    Args:
      predict: solution for the logarithm of a coefficient.
      basis: see `waves`.
      places: rows and columns of the sensors.
      noise: standard deviation of each sensor, with the error of the function.
    """

    def __init__(
        self,
        predict: Callable[[jax.Array], jax.Array],
        basis: jax.Array,
        places: np.ndarray,
        noise: np.ndarray,
    ):
        def loss(z: jax.Array, data: jax.Array) -> jax.Array:
            misfit = at(predict(basis @ z), places) - data
            return (jnp.sum((misfit / noise) ** 2) + jnp.sum(z**2)) / 2

        self._loss, self._basis = loss, np.asarray(basis)
        self._slope = jax.jit(jax.value_and_grad(loss))
        self._curvature = jax.jit(jax.hessian(loss))

    def __call__(self, data: np.ndarray) -> Found:
        """Returns the posterior of the coefficient for the data of the sensors."""
        z = np.zeros(self._basis.shape[-1])
        found = optimize.minimize(
            self._slope,
            z,
            (data,),
            method="trust-exact",
            jac=True,
            hess=self._curvature,
            options={"gtol": 1e-3},
        )
        posterior = uncertainty.laplace(self._loss, jnp.asarray(found.x), data)
        spread = np.einsum(
            "ijk,kl,ijl->ij", self._basis, posterior.covariance, self._basis
        )
        return Found(self._basis @ np.asarray(posterior.mean), np.sqrt(spread))


def at(solution: Any, places: np.ndarray) -> Any:
    """Values of a field `(side, side)`, or of several, at the sensors."""
    return solution[..., places[:, 0], places[:, 1]]


def sensors(study: Study) -> np.ndarray:
    """Rows and columns of the sensors, evenly spaced in the inside, `(m, 2)`."""
    ends = study.side * (np.arange(study.sensors) + 0.5) / study.sensors
    line = ends.astype(int)
    return np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)


def inverted(
    study: Study,
    predict: Callable[[jax.Array], jax.Array],
    train: Case,
    test: Case,
    seed: int,
) -> tuple[Row, dict[str, np.ndarray]]:
    """Returns errors of coefficients found from sensors, and fields of the first."""
    basis, places = waves(study), sensors(study)
    rng = np.random.default_rng(seed)
    exact, known = (np.asarray(at(one.solutions, places)) for one in (test, train))
    noise = _NOISE * float(np.std(known))
    data = exact + noise * rng.normal(size=exact.shape)
    some = 40  # training cases that tell the error of the operator at the sensors
    off = at(jax.jit(jax.vmap(predict))(train.logs[:some]), places) - known[:some]
    with_error = np.sqrt(noise**2 + np.mean(np.square(off), axis=0))
    ways: dict[str, Callable[[np.ndarray], Found]] = {
        "operator": Inverter(predict, basis, places, with_error),
        "solver": Inverter(solved, basis, places, np.full(len(places), noise)),
    }
    noisy = known + noise * rng.normal(size=known.shape)
    ones = np.ones((len(noisy), 1))
    assert train.z is not None
    linear = np.linalg.lstsq(np.hstack([noisy, ones]), np.asarray(train.z), rcond=None)
    nothing = np.zeros((study.side, study.side))
    ways["linear"] = lambda d: Found(
        np.asarray(basis) @ (np.append(d, 1) @ linear[0]), nothing
    )
    ways["nearest"] = lambda d: Found(
        np.asarray(train.logs[np.argmin(np.linalg.norm(noisy - d, axis=1))]), nothing
    )
    count, row, fields = study.inversions, Row(), {}
    truth = np.asarray(test.logs[:count])
    for way, invert in ways.items():
        begin = time.process_time()
        found = [invert(one) for one in data[:count]]
        row[f"{way}_seconds"] = (time.process_time() - begin) / count
        means = np.stack([one.mean for one in found])
        row[f"{way}_found"] = float(np.mean(relative(means, truth)))
        if found[0].std.any():
            spreads = np.stack([one.std for one in found])
            row[f"{way}_inside"] = float(
                np.mean(np.abs(means - truth) < 1.645 * spreads)
            )
            fields |= {f"{way} mean": means[0], f"{way} deviation": spreads[0]}
    return row, {"truth": truth[0], **fields}


def run(
    study: Study, kind: str, model: str, seed: int
) -> tuple[Row, dict[str, np.ndarray]]:
    """Trains once; returns a row, and fields of the first new case for the figure."""
    keys = jax.random.split(jax.random.key(seed))
    train = cases(study, kind, study.train, keys[0])
    begin = time.process_time()
    operator = trained(study, train, model, seed)
    row: Row = {"kind": kind, "model": model, "seed": seed}
    row["seconds"] = time.process_time() - begin
    with jax.enable_x64(True):
        test = cases(study, kind, study.test, keys[1])
        predict = as_function(operator)
        errors, fields = compared(predict, test, waves(study))
        fields["coefficient"] = np.asarray(test.logs[0])
        if kind == "smooth":
            known = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), train)
            found, more = inverted(study, predict, known, test, seed)
            errors, fields = errors | found, fields | more
    return row | errors, fields


_COLUMNS = {
    "value": "error of the quantity",
    "waves": "of its derivatives along waves",
    "waves_cosine": "cosine",
    "map": "of its map",
    "map_cosine": "cosine of the map",
}
_WAYS = ("operator", "solver", "linear", "nearest")


def page(rows: Sequence[Row]) -> str:
    """Returns the tables: derivatives, and coefficients found from sensors."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["kind"], row["model"]), []).append(row)

    def cell(some: Sequence[Row], name: str) -> str:
        return median_and_range([row[name] for row in some], digits=3)

    first = [
        [kind, model, str(len(some)), cell(some, "error"), quantity]
        + [cell(some, f"{quantity}_{name}") for name in _COLUMNS]
        for (kind, model), some in groups.items()
        for quantity in _QUANTITIES
    ]
    second = [
        [model, *(cell(some, f"{way}_found") for way in _WAYS)]
        + [cell(some, f"{way}_inside") for way in _WAYS[:2]]
        for (kind, model), some in groups.items()
        if kind == "smooth"
    ]
    head = ["coefficients", "model", "seeds", "error of u", "quantity"]
    head += _COLUMNS.values()
    others = ["model", *_WAYS, "inside, operator", "inside, solver"]
    return table(head, first) + "\n" + table(others, second)


def draw(smooth: dict[str, np.ndarray], two_phase: dict[str, np.ndarray]) -> Any:
    """Returns the figure: derivatives of two cases, and one found coefficient."""
    figure = drawing.new_figure(9.0, 5.6)
    axes = figure.subplots(3, 4)
    for fields, kind, line in ((smooth, "smooth", 0), (two_phase, "two phases", 1)):
        exact, ours = (  # per area, not per cell
            fields[f"slope, {by}"] * fields["coefficient"].size
            for by in ("solver", "operator")
        )
        limit = np.abs(exact).max()
        images = {
            f"log a, {kind}": (fields["coefficient"], drawing.OF_VALUES),
            "d mean(u) / d log a": (
                exact,
                drawing.Colours("RdBu_r", -limit, limit),
            ),
            "operator": (ours, drawing.Colours("RdBu_r", -limit, limit)),
            "difference": (ours - exact, drawing.Colours("RdBu_r", -limit, limit)),
        }
        _images(figure, axes[line], images)
    truth = smooth["truth"]
    same = drawing.Colours(None, truth.min(), truth.max())
    images = {
        "log a": (truth, same),
        "found by the operator": (smooth["operator mean"], same),
        "found by the solver": (smooth["solver mean"], same),
        "deviation, operator": (smooth["operator deviation"], drawing.OF_VALUES),
    }
    _images(figure, axes[2], images)
    return figure


def _images(figure: Any, axes: Any, images: dict[str, Any]) -> None:
    for axis, (title, (values, colours)) in zip(axes, images.items(), strict=True):
        drawing.add_colorbar(figure, colours.image(axis, values), axis)
        axis.set_title(title, fontsize=8)
        axis.set_axis_off()


def main(argv: Sequence[str]) -> None:
    """Runs what the file lacks, or draws the figure and prints the tables."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    place = pathlib.Path(_ROWS.value)
    text = place.read_text() if place.exists() else ""
    rows: list[Row] = [json.loads(line) for line in text.splitlines()]

    def pictured(kind: str) -> pathlib.Path:
        return place.with_name(f"{place.stem}_{kind}.npz")

    if _PAGE.value:
        both = [dict(np.load(pictured(kind))) for kind in ("smooth", "two_phase")]
        drawing.save_lines(draw(*both), _PAGE.value, dpi=70)
        print(page(rows))
        return
    origin = {k: provenance(["jax"])[k] for k in ("commit", "hardware", "date")}
    study = SMOKE if _SMOKE.value else Study()
    compiled.keep()  # the same training is compiled once
    done = {(row["kind"], row["model"], row["seed"]) for row in rows}
    for seed in map(int, _SEEDS.value):
        for model in _MODELS.value:
            for kind in _KINDS.value:
                if (kind, model, seed) in done:
                    continue
                row, fields = run(study, kind, model, seed)
                if not pictured(kind).exists():
                    stored: dict[str, Any] = {**fields}
                    np.savez_compressed(pictured(kind), **stored)
                with place.open("a") as file:
                    file.write(json.dumps(row | origin) + "\n")


if __name__ == "__main__":
    app.run(main)
