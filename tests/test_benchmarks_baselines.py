"""Predictions without an operator: exact where the answer is of their kind."""

import numpy as np
import pytest
from absl import app

from benchmarks import baselines
from opjax.samples import Sample, Splits


def case(shape, target):
    """A case of twelve points that two numbers of the shape move."""
    base = np.linspace(0, 1, 12)[:, None] * [1, 2]
    points = base + (shape[0] * np.sin(9 * base) + shape[1] * np.cos(5 * base)) / 20
    return Sample(points, target=target[:, None])


@pytest.fixture
def splits(rng):
    """Returns cases whose target is linear in the shape, with a constant."""
    weights, constant = rng.normal(size=(2, 12)), 3 + rng.normal(size=12)
    shapes = [rng.uniform(-1, 1, size=(count, 2)) for count in (20, 5, 5)]
    return Splits(
        *([case(s, s @ weights + constant) for s in part] for part in shapes),
        source="",
    )


def test_a_linear_map_of_the_shape_is_exact_and_means_are_not(splits, monkeypatch):
    monkeypatch.setitem(baselines.SPLITS, "pipe", lambda: splits)
    found = {row[1]: float(row[3]) for row in baselines.rows("pipe")}
    assert list(found) == [*baselines.NAMES.values(), "linear regression"]
    assert found["linear regression"] < 1e-10
    assert found["POD with RBF"] < 1e-6
    assert 0 < found["nearest case"] < found["mean field"]


def test_options_are_chosen_by_validation_cases_alone(splits, monkeypatch):
    changed = splits._replace(
        test=[s._replace(target=9 * s.target) for s in splits.test]
    )
    chosen = []
    for each in (splits, changed):
        monkeypatch.setitem(baselines.SPLITS, "pipe", lambda each=each: each)
        chosen.append([row[2] for row in baselines.rows("pipe")])
    assert chosen[0] == chosen[1]


def test_components_of_rounding_are_left_out(rng):
    inputs = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 9))
    for scaled in (False, True):
        first, other = baselines.coefficients([inputs, inputs[:4]], 8, scaled=scaled)
        assert first.shape == (30, 2)
        np.testing.assert_allclose(other, first[:4])
    np.testing.assert_allclose(first.std(axis=0), 1)


def test_flows_of_a_linear_step_are_followed(rng):
    turn = np.linalg.qr(rng.normal(size=(16, 16)))[0]

    def flow():
        frames = [rng.normal(size=16).astype(np.float32)]
        for _ in range(19):
            frames.append(np.float32(frames[-1] @ turn))
        both = np.stack(frames, axis=1)
        parts = {"features": both[:, :10], "target": both[:, 10:]}
        return Sample(np.zeros((16, 2)), **parts, grid_shape=(4, 4))

    splits = Splits(*([flow() for _ in range(n)] for n in (8, 2, 2)), source="")
    rows = {row[0]: [float(x) for x in row[1:]] for row in baselines.flow_rows(splits)}
    assert max(rows["ridge regression, 1e-06"]) < 1e-2
    assert min(rows["nothing changes"]) > 0.5
    assert rows["mean of training"][0] == pytest.approx(1, abs=0.3)


def test_the_constant_of_an_ellipsoid_has_the_known_limits():
    def size(*axes):
        ends = np.diag(np.asarray(axes, float))
        return baselines.slip_of_ellipsoid(Sample(np.concatenate([ends, -ends])))

    assert size(1, 1, 1) == pytest.approx(1.5)  # a ball
    assert size(1, 1, 1e4) == pytest.approx(2, rel=1e-3)  # a cylinder across the stream
    assert size(1e4, 1, 1) == pytest.approx(1, rel=1e-3)  # a needle along it
    assert size(2, 2, 1) == size(4, 4, 2)


def test_bodies_that_are_balls_have_no_error(rng):
    def ball():
        normals = rng.normal(size=(200, 3))
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        velocity = 1.5 * (np.eye(3)[0] - normals[:, :1] * normals)
        pressure = 1 - np.sum(velocity**2, axis=1, keepdims=True)
        target = np.concatenate([pressure, velocity], axis=1)
        ends = np.concatenate([np.eye(3), -np.eye(3)])
        return Sample(
            np.concatenate([normals[:194], ends]),
            features=normals,
            target=target,
            quadrature_weights=rng.uniform(size=200),
        )

    rows = baselines.body_rows(Splits([ball()], [], [ball()], source=""))
    assert rows[0][0].endswith("1.5")
    assert [float(row[1]) for row in rows] == pytest.approx([0, 0], abs=1e-3)


def test_the_width_of_an_average_is_that_of_the_training_cases(rng):
    def smoothed(width):
        points, values = rng.uniform(size=(40, 2)), rng.normal(size=(40, 1))
        squares = np.sum((points[:, None] - points[None]) ** 2, axis=2)
        weights = np.exp(-squares / (2 * width**2))
        target = weights @ values / weights.sum(axis=1, keepdims=True)
        return Sample(points, features=values, target=target)

    scaled, average = baselines.heat_rows([smoothed(0.2)] * 2, [smoothed(0.2)])
    assert average[0].endswith(" 0.2")
    assert float(average[1]) < 1e-6 < 0.5 < float(scaled[1])


def test_an_unknown_problem_is_named(monkeypatch):
    monkeypatch.setattr(baselines, "_NAMES", Flag(["pipes", "navier_stokes"]))
    with pytest.raises(app.UsageError, match="pipes is none of elasticity, airfoil"):
        baselines.main(["baselines"])


class Flag:
    """A flag that has a value."""

    def __init__(self, value):
        self.value = value
