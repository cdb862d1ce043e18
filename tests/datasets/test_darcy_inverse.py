import jax
import numpy as np
import pytest

from opjax import normalize
from opjax.datasets import darcy, darcy_inverse


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


@pytest.fixture
def data(rng):
    """Returns training and test pairs of 40 and 6 samples at 13 x 13 points."""
    coeff = np.where(rng.normal(size=(46, 13, 13)) > 0, 12.0, 3.0)
    sol = rng.normal(loc=2, size=(46, 13, 13))
    return [{"coeff": coeff[s], "sol": sol[s]} for s in (np.s_[:40], np.s_[40:])]


def prepare(data, seed=0, noise=0.1):
    return darcy_inverse.prepare(
        jax.random.key(seed), *data, stride=2, target_stride=4, noise=noise
    )


@pytest.mark.parametrize("block", [1, 2, 3, 4, 5, 20])
@pytest.mark.parametrize("shape", [(12, 12), (13, 11)])
def test_block_mean_averages_the_values_that_there_are(block, shape, rng):
    fields = rng.normal(size=(2, *shape))
    actual = darcy_inverse.block_mean(fields, block=block)
    expected = [direct_block_mean(field, block) for field in fields]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    single = darcy_inverse.block_mean(fields[0].astype(np.float32), block=block)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected[0], atol=1e-6)


def test_a_constant_is_its_own_block_mean():
    ones = darcy_inverse.block_mean(np.ones((7, 7)), block=3)
    np.testing.assert_allclose(ones, np.ones((3, 3)), rtol=1e-14)


def test_pairs_are_strided_solutions_and_means_of_means(data):
    coeff, sol = data[1]["coeff"], data[1]["sol"]
    pairs = darcy_inverse.pairs(coeff, sol, stride=2, target_stride=6)
    np.testing.assert_array_equal(pairs["measurement"], sol[:, ::2, ::2])
    expected = [direct_block_mean(direct_block_mean(c, 2), 3) for c in coeff]
    np.testing.assert_allclose(pairs["coefficient"], expected, rtol=1e-13)


def test_measurements_without_noise_are_the_normalised_solutions(data):
    result = prepare(data, noise=0.0)
    fields = [d["sol"][:, ::2, ::2] for d in data]
    mean, std = fields[0].mean(0), fields[0].std(0) + 1e-5
    for pairs, field in zip((result.train, result.test), fields, strict=True):
        expected = (field - mean) / std
        np.testing.assert_allclose(pairs["measurement"], expected, rtol=1e-10)
    coefficient = np.asarray(result.train["coefficient"]).reshape(40, -1)
    normalizer = result.coefficient_normalizer
    np.testing.assert_allclose(normalizer.mean, coefficient.mean(0), rtol=1e-12)
    decoded = normalize.decode(
        result.measurement_normalizer, result.test["measurement"].reshape(6, -1)
    )
    np.testing.assert_allclose(decoded, fields[1].reshape(6, -1), rtol=1e-10)


def test_noise_has_its_size_and_is_independent_of_everything_else(data):
    clean, noisy = prepare(data, noise=0.0), prepare(data, noise=0.1)
    train, test = (
        np.asarray(b["measurement"] - a["measurement"]).reshape(
            len(a["measurement"]), -1
        )
        for a, b in ((clean.train, noisy.train), (clean.test, noisy.test))
    )
    bound = 5 * 0.1 / np.sqrt(2 * train.size)
    assert train.std() == pytest.approx(0.1, abs=bound)
    # No sample of either set repeats the noise of another one.
    correlation = np.corrcoef(np.concatenate([train, test])) - np.eye(46)
    assert np.abs(correlation).max() < 0.7
    for a, b in ((clean.train, noisy.train), (clean.test, noisy.test)):
        np.testing.assert_array_equal(a["coefficient"], b["coefficient"])


def test_the_same_key_gives_the_same_noise_and_another_key_other_noise(data):
    first, again, other = (prepare(data, seed) for seed in (0, 0, 1))
    for name in ("train", "test"):
        a, b, c = (getattr(r, name)["measurement"] for r in (first, again, other))
        np.testing.assert_array_equal(a, b)
        assert np.abs(a - c).min() > 0


def test_float32_is_kept(data):
    single = [{k: v.astype(np.float32) for k, v in d.items()} for d in data]
    for leaf in jax.tree.leaves(prepare(single)):
        assert leaf.dtype == np.float32


def test_generated_data_make_pairs_of_the_published_grids(tmp_path):
    sample = darcy.generate(2, seed=0, num_points=29, stride=1, cache_dir=tmp_path)
    pairs = darcy_inverse.pairs(
        sample["coeff"], sample["sol"], stride=2, target_stride=6
    )
    assert pairs["measurement"].shape == (2, 15, 15)
    assert pairs["coefficient"].shape == (2, 5, 5)
    assert 3 <= pairs["coefficient"].min() < pairs["coefficient"].max() <= 12


def test_gradient_is_a_central_difference_with_zeros_outside(rng):
    sol = rng.normal(size=(2, 4, 4))
    expected = np.zeros((2, 4, 4, 2))
    for s, i, j in np.ndindex(2, 4, 4):

        def value(i, j, s=s):
            return sol[s, i, j] if 0 <= min(i, j) <= max(i, j) < 4 else 0.0

        expected[s, i, j, 0] = (value(i + 1, j) - value(i - 1, j)) / (2 / 4)
        expected[s, i, j, 1] = (value(i, j + 1) - value(i, j - 1)) / (2 / 4)
    np.testing.assert_allclose(darcy.gradient(sol), expected, rtol=1e-13)


def test_wrong_arguments_are_named_in_the_error(data):
    coeff, sol = data[1]["coeff"], data[1]["sol"]
    with pytest.raises(ValueError, match="target_stride=5 must be.*stride=2.*try 4"):
        darcy_inverse.pairs(coeff, sol, stride=2, target_stride=5)
    with pytest.raises(ValueError, match=r"\(6, 13, 13\) and sol \(5, 13, 13\)"):
        darcy_inverse.pairs(coeff, sol[1:], stride=1, target_stride=1)
    with pytest.raises(ValueError, match="stride=0"):
        darcy_inverse.pairs(coeff, sol, stride=0, target_stride=1)
    with pytest.raises(TypeError, match="coeff"):
        darcy_inverse.pairs(coeff.astype(int), sol, stride=1, target_stride=1)
    with pytest.raises(ValueError, match="noise"):
        prepare(data, noise=-0.1)
    with pytest.raises(ValueError, match="block"):
        darcy_inverse.block_mean(coeff, block=0)
    with pytest.raises(ValueError, match="n, m"):
        darcy_inverse.block_mean(np.ones(3), block=1)
    with pytest.raises(ValueError, match=r"\(4, 5\)"):
        darcy.gradient(np.ones((4, 5)))
    data[0]["sol"][3, 4, 4] = np.nan
    with pytest.raises(ValueError, match="non-finite.*sample.s. 3"):
        prepare(data)
