import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import normalize, samples
from opjax.datasets import darcy, darcy_inverse, requests
from tests.refused import value_error


def direct_block_mean(field, block):
    """Pads with missing values, the smaller half first, and averages what is there."""
    missing = [-n % block for n in field.shape]
    padded = np.pad(
        field,
        [(m // 2, m - m // 2) for m in missing],
        constant_values=np.nan,
    )
    rows, columns = (n // block for n in padded.shape)
    blocks = padded.reshape(rows, block, columns, block)
    return np.nanmean(blocks, axis=(1, 3))


@pytest.fixture(scope="module")
def data():
    """Returns splits of 40, 3 and 3 samples at 13 x 13 points."""
    rng = np.random.default_rng(0)
    coeff = np.where(rng.normal(size=(46, 13, 13)) > 0, 12.0, 3.0)
    sol = rng.normal(loc=2, size=(46, 13, 13))
    return requests.divide(darcy.to_samples(coeff, sol), (40, 3, 3), "here")


def measure(data, seed=0, noise=0.1):
    return darcy_inverse.measure(
        data, seed=seed, stride=2, target_stride=4, noise=noise
    )


@pytest.fixture(scope="module")
def clean(data):
    return measure(data, noise=0.0)


@pytest.fixture(scope="module")
def noisy(data):
    return measure(data)


def features(part):
    return np.stack([sample.features[:, 0] for sample in part])


def targets(part):
    return np.stack([sample.target[:, 0] for sample in part])


@pytest.mark.parametrize("block", [1, 2, 3, 4, 5, 20])
@pytest.mark.parametrize("shape", [(12, 12), (13, 11)])
def test_block_mean_averages_the_values_that_there_are(block, shape, rng):
    fields = rng.normal(size=(2, *shape))
    actual = darcy_inverse.block_mean(fields, block=block)
    expected = [direct_block_mean(field, block) for field in fields]
    assert_allclose(actual, expected, rtol=1e-12)
    single = darcy_inverse.block_mean(fields[0].astype(np.float32), block=block)
    assert single.dtype == np.float32
    assert_allclose(single, expected[0], atol=1e-6)


def test_a_constant_is_its_own_block_mean():
    ones = darcy_inverse.block_mean(np.ones((7, 7)), block=3)
    assert_allclose(ones, np.ones((3, 3)), rtol=1e-14)


def test_pairs_are_strided_solutions_and_means_of_means(rng):
    coeff, sol = rng.normal(size=(2, 6, 13, 13))
    pairs = darcy_inverse.pairs(coeff, sol, stride=2, target_stride=6)
    assert_array_equal(pairs["measurement"], sol[:, ::2, ::2])
    expected = [direct_block_mean(direct_block_mean(c, 2), 3) for c in coeff]
    assert_allclose(pairs["coefficient"], expected, rtol=1e-13)


def test_measurements_without_noise_are_the_normalised_solutions(data, clean):
    def strided(part):
        fields = targets(part).reshape(len(part), 13, 13)[:, ::2, ::2]
        return fields.reshape(len(part), -1)

    train = strided(data.train).astype(np.float64)
    mean, std = train.mean(0), train.std(0) + 1e-5
    for part, found in zip(data[:3], clean[:3], strict=True):
        samples.check(found)
        expected = (strided(part) - mean) / std
        assert_allclose(features(found), expected, atol=1e-5)
        decoded = normalize.decode(clean.normalizers["features"], found[0].features)
        assert_allclose(decoded[:, 0], strided(part)[0], rtol=1e-5)
    coefficient = targets(clean.train)
    normalizer = clean.normalizers["target"]
    assert_allclose(
        normalizer.mean[:, 0], coefficient.astype(np.float64).mean(0), rtol=1e-6
    )
    sample = clean.test[0]
    assert sample.grid_shape == (7, 7)
    assert sample.target_grid == (4, 4)
    assert sample.mesh_points is clean.test[1].mesh_points
    assert sample.features.dtype == sample.target.dtype == np.float32


def test_noise_has_its_size_and_is_independent_of_everything_else(clean, noisy):
    both = zip(clean[:3], noisy[:3], strict=True)
    drawn = [features(b) - features(a) for a, b in both]
    bound = 5 * 0.1 / np.sqrt(2 * drawn[0].size)
    assert drawn[0].std() == pytest.approx(0.1, abs=bound)
    # No sample of any set repeats the noise of another one.
    correlation = np.corrcoef(np.concatenate(drawn)) - np.eye(46)
    assert np.abs(correlation).max() < 0.7
    for a, b in zip(clean[:3], noisy[:3], strict=True):
        assert_array_equal(targets(a), targets(b))


def test_the_same_seed_gives_the_same_noise_and_another_seed_other_noise(data, noisy):
    again, other = measure(data), measure(data, seed=1)
    for a, b, c in zip(noisy[:3], again[:3], other[:3], strict=True):
        assert_array_equal(features(a), features(b))
        assert np.abs(features(a) - features(c)).min() > 0


def test_test_samples_do_not_depend_on_the_number_of_validation_samples(data, noisy):
    for count in (1, 0):
        fewer = measure(data._replace(validation=data.validation[:count]))
        assert len(fewer.validation) == count
        assert_array_equal(features(fewer.test), features(noisy.test))


@pytest.mark.nightly
def test_generated_data_make_samples_of_the_published_grids(tmp_path):
    asked = requests.Request(2, 1, 1, cache_dir=tmp_path)
    found = darcy_inverse.splits(asked, num_points=29, stride=2, target_stride=6)
    assert found.source == "own solver, 29 points, seed 0"
    (sample,) = found.test
    assert sample.features.shape == (15**2, 1)
    assert sample.target.shape == (5**2, 1)
    assert 3 <= sample.target.min() < sample.target.max() <= 12


def test_wrong_arguments_are_named_in_the_error(data, rng):
    coeff, sol = rng.normal(size=(2, 6, 13, 13))
    with value_error("target_stride=5 must be.*stride=2.*try 4"):
        darcy_inverse.pairs(coeff, sol, stride=2, target_stride=5)
    with value_error(r"\(6, 13, 13\) and sol has shape \(5, 13, 13\)"):
        darcy_inverse.pairs(coeff, sol[1:], stride=1, target_stride=1)
    with value_error("stride=0"):
        darcy_inverse.pairs(coeff, sol, stride=0, target_stride=1)
    with pytest.raises(TypeError, match="coeff"):
        darcy_inverse.pairs(coeff.astype(int), sol, stride=1, target_stride=1)
    with value_error("noise"):
        measure(data, noise=-0.1)
    with value_error("block"):
        darcy_inverse.block_mean(coeff, block=0)
    with value_error("n, m"):
        darcy_inverse.block_mean(np.ones(3), block=1)
    broken = data.train[3]._replace(target=np.full((169, 1), np.nan, np.float32))
    with value_error("non-finite.*sample.s. 3"):
        measure(data._replace(train=[*data.train[:3], broken, *data.train[4:]]))
