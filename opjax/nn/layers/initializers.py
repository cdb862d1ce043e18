"""Initialisers of the papers.

Initialisers of spectral kernels `(M_1, ..., K, c, o, 2)` are named after their source.
Each is called as `init(key, shape, dtype)` and reads channels and frequencies from the
shape, see `opjax.spectral_convolution`.
"""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from opjax import _checks
from opjax._sequential import one_by_one

Initializer = Callable[..., jax.Array]

# The transformer trunk of the reference code starts from N(0, 0.02^2), zero biases.
trunk_init = jax.nn.initializers.normal(0.02)


def fan_in_uniform(fan_in: int) -> Initializer:
    """Returns the initialiser U(-b, b), `b = fan_in^{-1/2}`, PyTorch's default.

    Examples:
      >>> import jax
      >>> from opjax.nn import layers
      >>> kernel = layers.fan_in_uniform(4)(jax.random.key(0), (4, 8))
      >>> bool(abs(kernel).max() < 0.5)  # 4 ** -0.5
      True
    """
    bound = fan_in**-0.5

    def init(
        key: jax.Array, shape: Sequence[int], dtype: DTypeLike = jnp.float32
    ) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


@functools.partial(jax.jit, static_argnames=("shape", "dtype"))
def orthogonal(
    key: jax.Array, shape: Sequence[int], dtype: DTypeLike = jnp.float32
) -> jax.Array:
    """Returns a matrix with orthonormal columns or rows, like `jax.nn.initializers`.

    On the CPU, its factorisations run one by one when `jax.vmap` builds several models,
    see `opjax._sequential`.
    """
    draw = jax.nn.initializers.orthogonal()
    return one_by_one(lambda key: draw(key, shape, dtype))(key)


def diagonal_xavier(scale: float = 1e-2, diagonal: float = 1e-2) -> Initializer:
    r"""Returns an initialiser of square matrices with a dominant diagonal.

        W = scale U + diagonal I,    U_ij ~ U(-sqrt(3 / d), sqrt(3 / d)).

    Attention without a softmax is then initially close to `x^T x`, scaled by small
    numbers.

    Args:
      scale: weight `eta` of the random part.
      diagonal: weight `delta` of the identity.

    Returns:
      An initialiser of `d x d` matrices; it raises ValueError for other shapes.

    Raises:
      ValueError: if a weight is negative or not finite.

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Eq. 17.
    """
    _checks.non_negative(scale=scale, diagonal=diagonal)
    xavier = jax.nn.initializers.xavier_uniform()

    def init(
        key: jax.Array, shape: Sequence[int], dtype: DTypeLike = jnp.float32
    ) -> jax.Array:
        shape = tuple(shape)
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(
                f"{shape=} must be square, because an identity matrix is added."
            )
        return scale * xavier(key, shape, dtype) + diagonal * jnp.eye(
            *shape, dtype=dtype
        )

    return init


def _normal(
    key: jax.Array, shape: Sequence[int], dtype: DTypeLike, std: float
) -> jax.Array:
    return std * jax.random.normal(key, tuple(shape), dtype)


def spectral_variance(
    key: jax.Array, shape: Sequence[int], dtype: DTypeLike = jnp.float32
) -> jax.Array:
    r"""Complex normal with `E |W|^2 = 2 / (c + o)`, as in neuraloperator."""
    channels, out_channels = shape[-3:-1]
    return _normal(key, shape, dtype, (channels + out_channels) ** -0.5)


def spectral_uniform(
    key: jax.Array, shape: Sequence[int], dtype: DTypeLike = jnp.float32
) -> jax.Array:
    r"""Uniform parts on `[0, 1 / (c o))`, as in the original FNO."""
    channels, out_channels = shape[-3:-1]
    uniform = jax.random.uniform(key, tuple(shape), dtype)
    return uniform / (channels * out_channels)


def spectral_galerkin(
    key: jax.Array, shape: Sequence[int], dtype: DTypeLike = jnp.float32
) -> jax.Array:
    r"""Normal parts with deviation `1 / (c o K)`, as in the Galerkin Transformer."""
    last, channels, out_channels = shape[-4:-1]
    return _normal(key, shape, dtype, 1 / (channels * out_channels * last))


def spectral_burgers(
    key: jax.Array, shape: Sequence[int], dtype: DTypeLike = jnp.float32
) -> jax.Array:
    r"""Normal parts with deviation `(c o)^{-1} (2 / ((c + o) 2 K))^{1/2}`.

    It is used in the Burgers code of functional attention. It is so small (1e-5) that
    the spectral branch initially has no effect.
    """
    last, channels, out_channels = shape[-4:-1]
    gain = 1 / (channels * out_channels)
    xavier = math.sqrt(2 / ((channels + out_channels) * 2 * last))
    return _normal(key, shape, dtype, gain * xavier)
