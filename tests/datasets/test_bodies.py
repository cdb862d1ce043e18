import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import samples
from opjax.datasets import bodies
from opjax.problems import bodies as problem


@pytest.mark.nightly
def test_generated_samples_solve_the_problem(tmp_path):
    (one,) = bodies.generate(1, seed=3, resolution=3, cache_dir=tmp_path)
    samples.check([one])
    assert one.mesh_points.dtype == one.target.dtype == np.float32
    body, mesh = bodies.body_of(3, 0), problem.cubed_sphere(3)
    found = problem.surface(body, mesh.centres)
    velocity = problem.velocity(problem.solve(body), found.points)
    assert_allclose(one.mesh_points, found.points, atol=1e-6)
    assert_allclose(one.features, found.normals, atol=1e-6)
    assert_allclose(one.target[:, 1:], velocity, atol=1e-6)
    assert_allclose(one.target[:, 0], 1 - (velocity**2).sum(1), atol=1e-6)
    areas = found.density * mesh.solid_angles
    assert_allclose(one.quadrature_weights, areas, rtol=1e-6)


@pytest.mark.nightly
def test_a_smaller_data_set_is_the_start_of_a_larger_one(tmp_path):
    few, many = (
        bodies.generate(n, seed=0, resolution=1, cache_dir=tmp_path) for n in (1, 2)
    )
    assert_array_equal(few[0].target, many[0].target)
    assert (many[0].mesh_points != many[1].mesh_points).any()


def test_bad_input_is_refused(tmp_path):
    with pytest.raises(ValueError, match="resolution"):
        bodies.generate(1, seed=0, resolution=0, cache_dir=tmp_path)
