"""Exports the operator of the page "Try it", with its band and its test of likeness.

    python docs/scripts/try_operator.py RUN FOLDER

RUN is the run folder of the training and FOLDER its data, see `try_data`. It writes
docs/try/operator.onnx and operator.json, which says how the operator does on test
cases, and what it predicts for one drawing. The outputs of the file are

    values (n, 2)       pressure, and half-width of a band for 9 of 10 whole fields
    mean, maximum       of the pressure, with mean_half_width and maximum_half_width
    p_value, score      of the drawing among the cases of calibration
"""

import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import try_data

from opjax import export, learn, normalize, onnx_files, uncertainty
from opjax.datasets import darcy
from opjax.samples import Sample
from opjax.samples.digests import digest

COVERAGE, NUM_TEST = 0.9, 200


def quantities(pressure: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and maximum of a field."""
    return jnp.mean(pressure), jnp.max(pressure)


def edges(permeability: jax.Array) -> jax.Array:
    """Mean difference between neighbours along both axes of the grid, `(2,)`."""
    side = try_data.CELLS // try_data.BLOCK
    field = permeability.reshape(side, side) / try_data.HIGH
    differences = field[1:] - field[:-1], field[:, 1:] - field[:, :-1]
    return jnp.concatenate([jnp.mean(jnp.abs(d)).reshape(1) for d in differences])


def likeness(
    references: Sequence[np.ndarray],
) -> Callable[[Sequence[jax.Array]], tuple[jax.Array, jax.Array]]:
    """p-value and score of a case, as `uncertainty.likeness_of_groups`.

    Unlike there, means and covariances leave out the new case, also for the p-value:
    with hundreds of reference cases that changes little, and the file needs no solve.

    Args:
      references: features of each group, one row per reference case.
    """

    def score_of(reference: np.ndarray) -> Callable[..., Any]:
        mean = reference.mean(0)
        scale = (reference.var(0) + 0.01**2) ** 0.5
        z = (reference - mean) / scale
        system = z.T @ z / len(z) + 0.1 * np.eye(z.shape[1])
        white = np.linalg.inv(np.linalg.cholesky(system)).T / scale[:, None]

        def size(features: Any) -> Any:
            squares = jnp.sum(jnp.square((features - mean) @ white), axis=-1)
            return jnp.log(jnp.sqrt(squares) + 0.1)

        known = np.asarray(size(reference))
        return lambda features: (size(features) - np.median(known)) / known.std()

    scores = [score_of(reference) for reference in references]

    def score(groups: Sequence[Any]) -> Any:
        each = [score(group) for score, group in zip(scores, groups, strict=True)]
        return functools.reduce(jnp.maximum, each)

    known = np.asarray(score(references))

    def test(groups: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
        own = score(groups)
        above = jnp.sum(jnp.where(known >= own, 1.0, 0.0))
        return (1 + above) / (1 + len(known)), own

    return test


def exported(run: str, cases: Sequence[Sample]) -> Callable[..., dict[str, jax.Array]]:
    """The function of the file, calibrated with cases."""
    trained = learn.load(run)
    cases = sorted(cases, key=digest)  # the order of the reference
    found = learn.calibrate(trained, cases, coverage=COVERAGE, width="residual")
    assert found.reference is not None
    errors = []
    for case in cases:
        assert case.target is not None
        pair = trained(case), case.target
        errors.append(np.abs(np.subtract(*[quantities(jnp.asarray(p)) for p in pair])))
    halves = [
        float(uncertainty.conformal_quantile(each, coverage=COVERAGE))
        for each in np.stack(errors, axis=1)
    ]
    band = found.band_function(cases[0])
    lengths = np.stack([edges(jnp.asarray(case.features)) for case in cases])
    test = likeness([found.reference.features, lengths])

    def function(points: jax.Array, permeability: jax.Array) -> dict[str, jax.Array]:
        lower, upper = band(trained.parameters, points, permeability)
        pressure, half = (lower + upper) / 2, (upper - lower) / 2
        arrays = {"mesh_points": points, "features": permeability, "target": pressure}
        fields = [
            normalize.encode(trained.normalizers[name], array)
            if name in trained.normalizers
            else array
            for name, array in arrays.items()
        ]
        moments = uncertainty.field_moments(jnp.concatenate(fields, axis=1))
        numbers = [
            *quantities(pressure),
            *halves,
            *test([moments, edges(permeability)]),
        ]
        names = ("mean", "maximum", "mean_half_width", "maximum_half_width")
        named = zip((*names, "p_value", "score"), numbers, strict=True)
        return {
            "values": jnp.concatenate([pressure, half], axis=1),
            **{name: jnp.asarray(number, jnp.float32) for name, number in named},
        }

    return function


def channel() -> np.ndarray:
    """The drawing "Channel" of the page, `(n, 1)`."""
    x = (np.arange(try_data.CELLS) + 0.5) / try_data.CELLS
    inside = np.abs(x[:, None] - 0.5 - 0.22 * np.sin(2 * np.pi * x)) < 0.11
    cells = np.where(inside, try_data.HIGH, try_data.LOW)
    return try_data.coarse(cells).reshape(-1, 1).astype(np.float32)


def main(run: str, folder: str) -> None:
    """Writes the files."""
    side = try_data.CELLS // try_data.BLOCK
    sizes = {"num_points": side, "stride": 1, "num_train": 1}
    _, found = darcy.load(folder, **sizes, num_test=try_data.SIZES["smooth2"])
    function = exported(run, found[NUM_TEST:])
    compiled = jax.jit(function)
    rows = []
    for case in found[:NUM_TEST]:
        assert case.target is not None
        predicted = compiled(case.mesh_points, case.features)
        pressure, half = np.asarray(predicted["values"]).T
        error = np.abs(pressure - case.target[:, 0])
        relative = np.linalg.norm(error) / np.linalg.norm(case.target)
        rows.append([relative, np.all(error <= half), predicted["p_value"] <= 0.05])
    start = dict(compiled(found[0].mesh_points, channel()))
    start["values"] = start["values"][::side]  # the column on the left
    card = {
        **dict(
            zip(
                ("relative_l2", "inside", "unlike"),
                np.mean(rows, 0).tolist(),
                strict=True,
            )
        ),
        "channel": {name: np.asarray(a).ravel().tolist() for name, a in start.items()},
    }
    path = Path(__file__).parents[1] / "try" / "operator.onnx"
    inputs = export.Inputs(point_dim=2, feature_dim=1, num_points=side**2)
    about = {"values": "pressure, half-width of the band"}
    print(onnx_files.save(path, function, inputs, about=about))
    path.with_suffix(".json").write_text(json.dumps(card) + "\n")
    del card["channel"]
    print(card, f"{path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
