"""Meshes with explicit axes, as `jax.make_mesh` makes them: the numbers of one device.

One device is enough for all that JAX asks of the types of arrays.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import opjax
from opjax import quantities, uncertainty
from opjax.learn.registry import operators
from tests import explicit
from tests.selection import by_day
from tests.test_variants import PURE

ROOT = pathlib.Path(__file__).parents[1]
# With losses, and what the models of grids call.
FUNCTIONS = [*PURE, "grid_convolution", "interpolate_grid", "scattered_weights"]
FUNCTIONS += ["relative_l2", "relative_gradient_error", "principal_axes"]
# A solve, decompositions, loops, landmarks, subdomains, a map with its bases.
DAY = ["functional_attention", "functional_attention_map", "gcv_ridge", "whiten"]
DAY += ["nystrom_attention", "orthonormalize", "additive", "softmax_attention"]


def check_types(call, batch, points):
    mesh, *axes = explicit.meshes(1)["both"]
    arrays = explicit.split(batch, points, mesh, *axes)
    for context in (contextlib.nullcontext(), jax.set_mesh(mesh)):
        for result in explicit.types(call, arrays, context):
            assert result.sharding.spec[0] == "b"


@pytest.mark.parametrize("name", by_day(FUNCTIONS, DAY))
def test_functions_take_samples_and_points_that_devices_share(name):
    check_types(*explicit.function(name))


def _of_cases(scores, vectors):
    """What sorts cases, counts pairs of them, and sums forces over a wall."""
    return (
        uncertainty.conformal_quantile(scores, coverage=0.6),
        uncertainty.pointwise_quantile(vectors, coverage=0.6),
        uncertainty.calibration_curve(scores, scores, np.array([0.25, 0.5])),
        uncertainty.sparsification_curve(scores, scores),
        uncertainty.area_under_curve(scores, scores),
        uncertainty.shrunk_distances(vectors, ridge=0.1),
        quantities.force(scores, vectors),
        quantities.moment(scores, vectors, vectors, center=np.zeros(2)),
    )


def test_cases_and_walls_may_be_shared_by_devices(rng):
    arrays = np.arange(1.0, 9.0), rng.uniform(size=(8, 2))
    shared = NamedSharding(jax.make_mesh((1,), ("cases",)), P("cases"))
    on_devices = [jax.device_put(array, shared) for array in arrays]
    found, expected = _of_cases(*on_devices), _of_cases(*map(jax.numpy.asarray, arrays))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("name", by_day(operators.REGISTRY, ["functional"]))
def test_models_take_samples_and_points_that_devices_share(name):
    check_types(*explicit.model(name))


def test_points_of_results_are_shared_as_those_of_arguments():
    mesh = jax.make_mesh((1, 1), ("p", "q"))
    rng = np.random.default_rng(0)
    query, key, basis = rng.uniform(size=(3, 6, 4))
    query = jax.device_put(query, NamedSharding(mesh, P("p")))
    key = jax.device_put(key, NamedSharding(mesh, P("q")))
    arguments = query, key, key, basis, basis
    attended = opjax.functional_attention(*arguments, ridge=0.1)
    assert jax.typeof(attended).sharding.spec == P("p", None)
    found = opjax.functional_attention_map(query, key, query, key, ridge=0.1)
    specs = [jax.typeof(array).sharding.spec for array in found]
    assert specs == [P(None, None), P("p", None), P("q", None)]
    columns = jax.device_put(basis, NamedSharding(mesh, P(None, "p")))
    assert jax.typeof(opjax.gram(columns)).sharding.spec == P("p", None)


def distances(folder, kind, names, *, count=4, layouts=explicit.LAYOUTS):
    file = folder / "distances.json"
    env = dict(os.environ, JAX_NUM_CPU_DEVICES=str(count), JAX_PLATFORMS="cpu")
    command = [sys.executable, "-m", "tests.explicit", kind, str(file)]
    command += [",".join(names), ",".join(layouts)]
    subprocess.run(command, env=env, cwd=ROOT, check=True, timeout=1200)
    return json.loads(file.read_text()).items()


# All of them on 1, 2 and 4 devices take half an hour, see `tests.explicit`; by day
# `test_sharding` has two on eight.
@pytest.mark.nightly
def test_two_devices_find_the_numbers_of_one(tmp_path):
    found = distances(tmp_path, "functions", FUNCTIONS, count=2, layouts=["both"])
    for case, distance in found:
        assert distance < 1e-9, case


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["functional", "functional_schwarz", "flare", "fno"])
def test_models_on_four_devices_find_the_numbers_of_one(tmp_path, name):
    for case, distance in distances(tmp_path, "models", [name], layouts=["both"]):
        assert distance < 1e-9, case
