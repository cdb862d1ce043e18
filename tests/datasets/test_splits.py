"""The samples of benchmarks: the same from `splits` as from `generate` and `load`."""

import functools

import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from opjax import samples
from opjax.datasets import (
    airfoil,
    airfrans,
    burgers,
    darcy,
    darcy_notch,
    elasticity,
    navier_stokes,
    pipe,
    plasticity,
    rna,
)
from opjax.datasets.requests import Request
from tests.refused import value_error

ASKED = Request(3, 1, 2, seed=2)
# As in the tests of the data sets, to share their compilations.
AIRFOIL = {"solver": airfoil.Solver(16, 4, 8, tolerance=0.5)}
FLOWS = {"num_radii": 3, "num_angles": 8}
SEEDED = [
    (darcy, {"num_points": 21, "stride": 4}),
    (burgers, {"stride": 1024}),
    (navier_stokes, {"num_points": 8, "stride": 2}),
    (plasticity, {"num_points": (7, 4)}),
]
DIVIDED = [
    (airfoil, AIRFOIL),
    (pipe, {"num_elements": 2}),
    (elasticity, {"num_around": 4, "num_across": 1}),
    (darcy_notch, {"num_columns": 4}),
]


def needs(module):
    if module in (elasticity, darcy_notch):
        pytest.importorskip("skfem")


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def same(found, expected):
    for part, other in zip(found[:3], expected, strict=True):
        for one, two in zip(part, other, strict=True):
            for name in ("mesh_points", "features", "target"):
                assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize(
    ("module", "options"), [*SEEDED, *DIVIDED[1:], (airfrans, FLOWS)]
)
def test_a_sample_depends_on_its_seed_and_number_only(
    module, options, cache_dir, tmp_path
):
    """And not on the number of samples, the cache or settings of the caller.

    Those of airfoils take long; `test_airfoil` has a part of this.
    """
    needs(module)
    many = module.generate(6, seed=2, cache_dir=cache_dir, **options)
    generate = functools.partial(module.generate, cache_dir=tmp_path, **options)
    with jax.enable_x64(False), jax.threefry_partitionable(False):
        few = generate(2, seed=2)
    (other,) = generate(1, seed=3)
    same([few], [many[:2]])
    assert (other.target != few[0].target).any()
    with value_error("num_samples"):
        generate(0, seed=2)
    with value_error("seed"):
        generate(1, seed=-1)


@pytest.mark.parametrize(("module", "options"), SEEDED)
def test_sets_have_seeds_of_their_own(module, options, cache_dir):
    found = module.splits(ASKED._replace(cache_dir=cache_dir), **options)
    made = [
        module.generate(count, seed=seed, cache_dir=cache_dir, **options)
        for count, seed in ((3, 6), (1, 7), (2, 8))
    ]
    same(found, made)
    assert found.source.startswith("own solver")
    assert found.source.endswith("seed 2")
    samples.check([*found.train, *found.validation, *found.test])


@pytest.mark.parametrize(("module", "options"), [*DIVIDED, (rna, {})])
def test_sets_are_parts_of_one(module, options, cache_dir):
    needs(module)
    kept = {} if module is rna else {"cache_dir": cache_dir}
    made = module.generate(6, seed=2, **kept, **options)
    found = module.splits(ASKED._replace(**kept), **options)
    same(found, (made[:3], made[3:4], made[4:]))
    assert "seed 2" in found.source


def test_flows_for_training_and_tests_have_seeds_of_their_own(tmp_path):
    kept = {"cache_dir": tmp_path}
    found = airfrans.splits(ASKED._replace(**kept), **FLOWS)
    first, last = (
        airfrans.generate(count, seed=seed, **FLOWS, **kept)
        for count, seed in ((4, 4), (2, 5))
    )
    same(found, (first[:3], first[3:], last))
    assert found.train[0].details.speed == first[0].details.speed


def test_airfoils_can_be_told_by_their_deviations(cache_dir):
    asked = ASKED._replace(cache_dir=cache_dir)
    found = airfoil.splits(asked, deviations=True, **AIRFOIL)
    mean = np.mean([s.mesh_points for s in found.train], axis=0)
    for sample in found.test:
        assert_array_equal(sample.features, sample.mesh_points - mean)


def test_files_take_the_place_of_the_solver(tmp_path, rng):
    made = burgers.to_samples(*rng.normal(size=(2, 9, 8192)))
    burgers.save(tmp_path / "burgers_data_R10.npz", made)
    found = burgers.splits(ASKED._replace(data_dir=str(tmp_path)), stride=4096)
    coarse = samples.coarsen(made, 4096)
    same(found, (coarse[:3], coarse[3:4], coarse[-2:]))
    assert found.source == str(tmp_path)
