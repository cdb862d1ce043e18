"""Gradients of operators beside the solver's, and coefficients found from sensors."""

import dataclasses

import jax
import numpy as np
import pytest

from benchmarks import darcy_gradients
from benchmarks.darcy_gradients import Inverter, Study
from opjax.learn.report import drawing

STUDY = Study(side=8, waves=3, sensors=3, test=2)


@pytest.fixture(scope="module")
def new_cases():
    return darcy_gradients.cases(STUDY, "smooth", STUDY.test, jax.random.key(0))


def test_twice_the_solution_has_errors_of_one(new_cases):
    basis = darcy_gradients.waves(STUDY)
    row, _ = darcy_gradients.compared(
        lambda logs: 2 * darcy_gradients.solved(logs), new_cases, basis
    )
    for name, found in row.items():
        if "map" not in name:  # whose reference is the adjoint formula
            assert found == pytest.approx(1, abs=1e-12), name


def test_the_adjoint_formula_converges_to_the_derivative():
    """Along a wave, as at single cells the scheme has its splines."""

    def both(side):
        study = dataclasses.replace(STUDY, side=side)
        basis = darcy_gradients.waves(study)
        logs = basis @ np.sin(np.arange(basis.shape[-1]))
        exact = jax.grad(
            lambda logs: darcy_gradients.value("mean", darcy_gradients.solved(logs))
        )
        maps = exact(logs), darcy_gradients.adjoint(logs, "mean")
        along = [np.einsum("ij,ijk->k", one, basis) for one in maps]
        return np.linalg.norm(along[1] - along[0]) / np.linalg.norm(along[0])

    coarse, fine = both(12), both(24)
    assert fine < 0.05
    assert fine < 0.4 * coarse  # second order, a quarter


def test_a_linear_function_has_its_posterior(new_cases):
    basis, places = darcy_gradients.waves(STUDY), darcy_gradients.sensors(STUDY)
    noise = np.linspace(0.01, 0.02, len(places))
    data = darcy_gradients.at(np.asarray(new_cases.logs[0]), places)
    found = Inverter(lambda logs: logs, basis, places, noise)(data)
    flat = np.asarray(basis).reshape(-1, basis.shape[-1])
    rows = np.asarray(basis)[places[:, 0], places[:, 1]] / noise[:, None]
    covariance = np.linalg.inv(rows.T @ rows + np.eye(len(rows.T)))
    mean = flat @ (covariance @ rows.T @ (data / noise))
    np.testing.assert_allclose(found.mean.ravel(), mean, atol=1e-5)
    variances = np.sum((flat @ covariance) * flat, axis=1)
    np.testing.assert_allclose(found.std.ravel() ** 2, variances, rtol=1e-5)


def test_rows_become_tables_and_a_figure(tmp_path):
    names = ["error"]
    names += [f"{q}_{n}" for q in ("mean", "middle") for n in darcy_gradients._COLUMNS]
    names += [f"{way}_found" for way in darcy_gradients._WAYS]
    names += ["operator_inside", "solver_inside"]
    rows = [
        {"kind": kind, "model": "fno", "seed": seed} | dict.fromkeys(names, 0.1 * seed)
        for kind in ("smooth", "two_phase")
        for seed in range(3)
    ]
    first, second = darcy_gradients.page(rows).split("\n\n")
    assert first.splitlines()[4].startswith(
        "| two_phase | fno | 3 | 0.1 [0, 0.2] | mean"
    )
    assert len(second.splitlines()) == 3
    image = np.linspace(-1, 1, 9).reshape(3, 3)
    names = ["coefficient", "slope, solver", "slope, operator", "truth"]
    names += ["operator mean", "solver mean", "operator deviation"]
    fields = dict.fromkeys(names, image)
    drawing.save_lines(darcy_gradients.draw(fields, fields), tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size < 60_000
