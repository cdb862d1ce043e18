"""Series of advection and diffusion: what is in their files, and that they are true."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.datasets import advection
from opjax.problems import poisson_mesh
from tests.datasets.reading import read_series

NAMES = {"target": "u", "features": "velocity", "scalars": "diffusivity"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("advection")
    return advection.write_series(path, 2, spacing=0.2, num_frames=6)


def test_series_are_read_with_their_velocity_and_diffusivity(folder):
    found, channels = read_series(folder, **NAMES)
    assert channels["target"] == ("u",)
    for one in found:
        assert one.values.shape == (6, one.num_points, 1)
        assert_allclose(one.times, 0.1 * np.arange(6))
        assert one.features.shape == (one.num_points, 2)
        low, high = advection.DIFFUSIVITIES
        assert low <= one.scalars["diffusivity"] <= high
        sizes = poisson_mesh.signed_areas(one.mesh_points, one.cells)
        assert sizes.min() > 0
        total = one.quadrature_weights.sum()
        assert_allclose(total, sizes.sum(), rtol=1e-5)
    first, second = found
    assert first.scalars != second.scalars
    assert not np.array_equal(first.mesh_points[:20], second.mesh_points[:20])


def test_integrals_are_conserved_and_no_flow_leaves(folder):
    for one in read_series(folder, **NAMES).series:
        integrals = one.values[:, :, 0] @ one.quadrature_weights
        # Conserved on the refined mesh; here up to the quadrature of the coarse one.
        assert_allclose(integrals, integrals[0], rtol=0.03)
        assert one.values.min() > -1e-3


def test_frames_satisfy_the_equation_in_the_mean(folder):
    # d/dt of the mean of x_i u is the mean of a_i u, but for diffusion at the boundary.
    one = read_series(folder, **NAMES).series[0]
    weights, values = one.quadrature_weights, one.values[:, :, 0].astype(float)
    centres = np.einsum("n,tn,nc->tc", weights, values, one.mesh_points)
    flows = np.einsum("n,tn,nc->tc", weights, values, one.features)
    moved = np.diff(centres, axis=0)
    carried = 0.1 * (flows[1:] + flows[:-1]) / 2
    scale = np.abs(carried).max()
    assert_allclose(moved, carried, atol=0.15 * scale)


def test_a_smaller_data_set_is_the_start_of_a_larger_one(folder, tmp_path):
    (again,), _ = read_series(
        advection.write_series(tmp_path, 1, spacing=0.2, num_frames=6), **NAMES
    )
    first = read_series(folder, **NAMES).series[0]
    assert_array_equal(again.values, first.values)
    assert_array_equal(again.features, first.features)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"num_series": 0}, "num_series"),
        ({"num_frames": 1}, "num_frames=1 must be at least 2"),
        ({"spacing": 2.0}, r"spacing=2.0 must be positive"),
        ({"interval": 0.0}, "interval"),
    ],
)
def test_bad_numbers_are_refused(given, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        advection.write_series(tmp_path, **{"num_series": 1} | given)
