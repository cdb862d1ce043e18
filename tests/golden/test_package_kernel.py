"""The neuraloperator package where it clips, by its formula in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

import opjax
from tests.golden import adapters


def package(x, weight):
    """One field `(c, n_1, n_2)`: the middle of the weights on the first axis."""
    n, last = x.shape[1:]
    m, half = weight.shape[2:]
    k, kept = min(n, m), min(last // 2 + 1, half)
    spectrum, output = np.fft.rfft2(x), np.zeros((weight.shape[1], n, last // 2 + 1))
    output = output.astype(complex)
    for r in range(k):
        f = r - k // 2
        matrices = weight[:, :, (m - k) // 2 + r, :kept]
        output[:, f, :kept] = np.einsum("cf,cof->of", spectrum[:, f, :kept], matrices)
    return np.fft.irfft(np.fft.ifft(output, axis=1), n=last)


@pytest.mark.parametrize(
    ("grid_shape", "modes"),
    [((5, 6), (8, 5)), ((5, 6), (7, 3)), ((6, 5), (8, 2)), ((6, 4), (9, 3))],
)
def test_kernels_are_where_the_package_has_them(rng, grid_shape, modes):
    x = rng.normal(size=(2, *grid_shape))
    parts = rng.normal(size=(2, 3, *modes, 2))
    found = opjax.spectral_convolution(
        x.reshape(2, -1).T,
        adapters.adapters_fno.package_kernel(jnp.asarray(parts), grid_shape),
        grid_shape=grid_shape,
    )
    expected = package(x, parts[..., 0] + 1j * parts[..., 1])
    np.testing.assert_allclose(found.T.reshape(expected.shape), expected, atol=1e-12)
