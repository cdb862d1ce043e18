"""How many devices --devices=auto takes."""

from types import SimpleNamespace

import jax
import pytest

from opjax.learn.registry import operators
from opjax.learn.run import devices


@pytest.mark.parametrize(
    ("available", "batch_size", "microbatch", "expected"),
    [
        *[(2, 4, 1, 2), (2, 4, 0, 2), (8, 4, 1, 4), (3, 4, 1, 2), (8, 1, 1, 1)],
        *[(4, 4, 2, 2), (4, 4, 4, 1), (2, 5, 1, 1), (4, 6, 1, 3)],
    ],
)
def test_auto_takes_as_many_as_divide_a_batch(
    available, batch_size, microbatch, expected
):
    config = SimpleNamespace(batch_size=batch_size, microbatch=microbatch)
    assert devices._fitting(available, config) == expected


def test_auto_is_what_there_is_when_the_backend_has_started():
    jax.devices()
    config = SimpleNamespace(batch_size=4 * jax.device_count(), microbatch=1)
    mesh = devices.start("auto", config)
    assert (1 if mesh is None else mesh.size) == jax.device_count()
    assert devices.start("auto", SimpleNamespace()) is None
    assert devices.start("", config) is None
    alone = SimpleNamespace(batch_size=1, microbatch=1)
    mesh = devices.start("auto", alone, points=True)
    assert (1 if mesh is None else mesh.shape["points"]) == jax.device_count()
    assert devices.start("auto", alone) is None


@pytest.mark.parametrize(
    ("models", "options", "expected"),
    [
        *[(("functional", "transolver", "hat:galerkin"), {}, True)],
        *[((name,), {}, True) for name in ("galerkin", "linear", "flare")],
        *[((name,), {}, False) for name in ("fourier", "nystrom", "fno")],
        *[(("functional", "transolver_plus"), {}, False)],
        *[(("functional_schwarz",), {}, False), (("orthonormal:modes",), {}, False)],
        *[(("functional",), {"rematerialize": True}, False)],
    ],
)
def test_auto_splits_points_for_operators_that_can(models, options, expected):
    config = SimpleNamespace(models=models, **options)
    assert operators.splits_points(config) == expected


def test_auto_asks_for_points_once_and_only_where_batches_cannot_be_shared():
    count, asked = jax.device_count(), []

    def points():
        asked.append(0)
        return True

    alone = SimpleNamespace(batch_size=1, microbatch=1)
    shared = devices.Devices("auto", alone, points=True)
    mesh = shared.mesh(points)
    assert (1 if mesh is None else mesh.shape["points"]) == count
    assert shared.mesh(points) is mesh
    assert len(asked) == (count > 1)

    asked.clear()
    several = SimpleNamespace(batch_size=count, microbatch=1)
    for config, known in ((several, True), (alone, False)):
        devices.Devices("auto", config, points=known).mesh(points)
    assert not asked
    assert devices.Devices("auto", alone, points=True).mesh(lambda: False) is None
