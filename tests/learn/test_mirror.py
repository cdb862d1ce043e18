"""Mirrored copies of training cases."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import learn
from opjax.learn.config.scales import mirrors_of, parse_mirrors
from opjax.samples import Sample
from opjax.samples.mirror import Mirror, mirrored
from tests.refused import value_error

NAMES = {
    "target": ("U", "U", "S", "S", "S", "S", "S", "S", "p", "curl"),
    "features": ("boundary_y", "normal_y_wall", "U_y", "k"),
    "scalars": ("alpha", "swirl"),
    "target_scalars": ("lift",),
}
Y = Mirror("y", ("curl", "swirl", "lift"), {"alpha": 180.0})


def flow(points, swirl, alpha):
    """An analytic field that is symmetric together with its scalars."""
    x, y = points.T
    turn = np.radians(alpha)
    u = np.cos(turn) * x**2 + swirl * y
    v = np.sin(turn) * x - 0.5 * swirl * x * y**0 + np.cos(turn) * y * x
    stress = np.stack([x, y * y, 1 + x, u * v, v, u], axis=-1)
    p = x + np.abs(y) + swirl * y
    curl = swirl * (1 + x) + y
    return np.column_stack([u, v, stress, p, curl])


def case(seed, swirl=1.3, alpha=20.0):
    rng = np.random.default_rng(seed)
    half = rng.uniform(-1, 1, (15, 2))
    points = np.concatenate([half, half * [1, -1], [[0, -1.5], [0, 1.5]]])
    features = np.column_stack([points[:, 0], points[:, 1], points[:, 1], points[:, 0]])
    return Sample(
        points,
        target=flow(points, swirl, alpha),
        features=features,
        scalars=np.array([alpha, swirl]),
        target_scalars=np.array([0.4 * (-1) ** seed]),
        numbers={"load": 3.0},
        boundaries={"wall": np.array([30, 31])},
        name=f"case {seed}",
    )


def test_a_mirrored_copy_solves_the_mirrored_problem():
    cases = [case(0), case(1, swirl=-0.5)]
    copies = mirrored(cases, Y, NAMES)
    for one, copy in zip(cases, copies, strict=True):
        alpha, swirl = one.scalars
        assert_allclose(copy.scalars, [-alpha, -swirl])
        assert_allclose(copy.target_scalars, -one.target_scalars)
        assert_allclose(copy.mesh_points, one.mesh_points * [1, -1])
        # xy and yz change their sign, and so does the second component of U.
        sign = [1, -1, 1, 1, 1, -1, -1, 1, 1, -1]
        assert_allclose(copy.target, one.target * sign)
        assert_allclose(copy.features, one.features * [1, -1, -1, 1])
        expected = flow(copy.mesh_points, -swirl, -alpha)
        same = [0, 1, 2, 3, 4, 5, 8, 9]  # of fields that the toy really has
        assert_allclose(copy.target[:, same], expected[:, same], atol=1e-12)
        assert copy.numbers == {"load": 3.0}


def test_mirroring_twice_changes_nothing():
    cases = [case(2), case(3, swirl=-1.0)]
    twice = mirrored(mirrored(cases, Y, NAMES), Y, NAMES)
    for one, copy in zip(cases, twice, strict=True):
        assert_allclose(copy.mesh_points, one.mesh_points, atol=1e-14)
        assert_array_equal(copy.target, one.target)
        assert_allclose(copy.scalars, one.scalars)


@pytest.mark.parametrize(("axis", "turned"), [("x", 160.0), ("y", -20.0), ("z", 20.0)])
def test_an_angle_is_turned_as_a_direction(axis, turned):
    three = case(4)
    points = np.column_stack([three.mesh_points, three.mesh_points[:, 0]])
    three = Sample(points, target=points[:, :1], scalars=np.array([20.0]), name="3d")
    names = {"target": ("p",), "scalars": ("alpha",)}
    (copy,) = mirrored([three], Mirror(axis, (), {"alpha": 180.0}), names)
    assert_allclose(copy.scalars, [turned])


def test_an_angle_stays_within_half_a_turn():
    one = case(4, alpha=-170.0)._replace(boundaries=None)
    (copy,) = mirrored([one], Mirror("x", (), {"alpha": 180.0}), NAMES)
    assert_allclose(copy.scalars[0], -10.0)


def test_a_boundary_that_would_change_places_is_refused():
    lid = case(5)._replace(boundaries={"lid": np.array([31])})
    with value_error("boundary lid lies at y = 1.5 to 1.5 in all"):
        mirrored([lid], Y, NAMES)


def test_a_scalar_of_one_sign_is_told():
    with pytest.warns(
        UserWarning, match="swirl ranges from 1 to 2 in training, but has the opp"
    ):
        mirrored([case(6, swirl=1.0), case(7, swirl=2.0)], Y, NAMES)


@pytest.mark.filterwarnings("ignore:mirror=y")
@pytest.mark.parametrize(
    ("mirror", "changes", "names", "message"),
    [
        (Mirror("z"), {}, NAMES, "not an axis of the points, which have only 2"),
        (Mirror("y", ("load",)), {}, NAMES, "'load' is neither a scalar nor a field"),
        (
            Mirror("y", ("alpha",), {"alpha": 180.0}),
            {},
            NAMES,
            "mirrored as a direction",
        ),
        (Y, {"grid_shape": (4, 8)}, NAMES, "on a structured grid"),
        (
            Mirror("y"),
            {"target": np.zeros((32, 5))},
            {"target": ("Q",) * 5},
            "Q has 5 channels, which do not form a vector",
        ),
    ],
)
def test_what_cannot_be_mirrored_is_refused(mirror, changes, names, message):
    with value_error(message):
        mirrored([case(8)._replace(**changes)], mirror, names)


def test_flags_of_mirrors_are_read():
    assert parse_mirrors("y") == (("y", ()),)
    assert parse_mirrors("x; y: a, b") == (("x", ()), ("y", ("a", "b")))
    assert mirrors_of({"mirror": "y", "angles": "alpha"}) == [
        Mirror("y", (), {"alpha": 180.0})
    ]
    for wrong in ("w", "y; y", ": a"):
        with value_error("mirror: .* write y"):
            parse_mirrors(wrong)


def test_copies_are_made_after_the_division_and_only_of_training_samples(monkeypatch):
    from opjax.learn.cli import train

    seen = {}

    def stop(config, splits, **_):
        seen["splits"] = splits
        raise InterruptedError

    monkeypatch.setattr(train, "regression", stop)
    config = dataclasses.replace(learn.TRAIN_PRESETS["smoke"], train="")
    cases = [case(i)._replace(target_scalars=None) for i in range(10)]
    with pytest.raises(InterruptedError):
        learn.train(
            {
                "mesh_points": np.stack([c.mesh_points for c in cases]),
                "target": {"U": np.stack([c.target[:, :2] for c in cases])},
            },
            config=config,
            mirror="y",
        )
    splits = seen["splits"]
    assert list(map(len, splits[:3])) == [14, 1, 2]
    names = [one.name for one in splits.train]
    assert names[7:] == [f"{name} mirrored in y" for name in names[:7]]


@pytest.mark.parametrize(
    ("axes", "axis", "odd"),
    [
        ((0, 2), "x", ("U_x", "S_xy", "S_xz", "V_x", "normal_x")),
        ((0, 2), "z", ("U_z", "S_yz", "S_xz", "V_z", "normal_z")),
        ((1, 2), "y", ("U_y", "S_xy", "S_yz", "V_y", "normal_y")),
    ],
)
def test_the_axes_of_a_plane_are_those_of_space(axes, axis, odd):
    rng = np.random.default_rng(9)
    parts = [f"U_{a}" for a in "xyz"]
    parts += [f"S_{a}" for a in ("xx", "yy", "zz", "xy", "yz", "xz")]
    parts += [f"V_{'xyz'[a]}" for a in axes]  # two channels: of the plane
    names = ("U",) * 3 + ("S",) * 6 + ("V",) * 2 + (f"normal_{axis}",)
    values = rng.normal(size=(7, len(names)))
    one = Sample(rng.normal(size=(7, 2)), target=values, axes=axes)
    (copy,) = mirrored([one], Mirror(axis), {"target": names})
    signs = [-1 if part in odd else 1 for part in (*parts, f"normal_{axis}")]
    assert_array_equal(copy.target, values * signs)
    place = axes.index("xyz".index(axis))
    assert_array_equal(copy.mesh_points[:, 1 - place], one.mesh_points[:, 1 - place])
    assert not np.array_equal(copy.mesh_points[:, place], one.mesh_points[:, place])
    assert copy.axes == axes
    absent = "xyz"[3 - sum(axes)]
    message = f"mirror={absent} is not an axis .* 2 coordinates, along {'xyz'[axes[0]]}"
    with value_error(message):
        mirrored([one], Mirror(absent), {"target": names})
