"""The Nystromformer layer as in its published package."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

import opjax
from opjax import _checks
from opjax.attention.nystrom import row_and_column
from opjax.nn.attention.heads import merge_heads
from opjax.nn.attention.points import HeadwiseAttention
from opjax.nn.layers import Linear
from opjax.nn.layers.initializers import fan_in_uniform, trunk_init
from opjax.quadrature import active, select


class NystromformerAttention(HeadwiseAttention):
    r"""Softmax attention through landmarks, plus a convolution along the points.

        softmax(Q K~^T) softmax(Q~ K~^T)^+ softmax(Q~ K^T) V + f * V,

    with landmarks `Q~`, `K~`, means over segments with equal numbers of points. Zeros
    are prepended to complete the first segment. One filter `f` per head convolves every
    channel of its values. Only the last projection has a bias. The order of the points
    matters more than in `NystromAttention`, which has neither zeros nor a filter.

    The iteration for the pseudo-inverse is initialised with one number for all heads.
    In the published code it is also shared by all samples of a batch; here only by the
    samples along `batch_axis`.

    Args:
      features: channels `c`.
      num_heads: heads, dividing `features`.
      num_landmarks: number of segments; any number of points is supported.
      num_iterations: number of iterations for the pseudo-inverse.
      filter_size: width of the convolution in points, odd.
      batch_axis: name of the `jax.vmap` axis of the samples of a batch, if they share
        the initialisation of the pseudo-inverse.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features, a number is not positive, or
        the filter size is even.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> kind = attention.NystromformerAttention
      >>> build = partial(kind, num_heads=2, num_landmarks=3)
      >>> build(8, rngs=nnx.Rngs(0))(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Xiong et al., "Nystromformer: a Nystrom-based algorithm for approximating
      self-attention", AAAI 2021.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_landmarks: int = 256,
        num_iterations: int = 6,
        filter_size: int = 33,
        batch_axis: str | None = None,
        rngs: nnx.Rngs,
    ):
        super().__init__(
            features,
            num_heads=num_heads,
            normalization=None,
            kernel_init=trunk_init,
            use_bias=False,
            out=Linear,
            rngs=rngs,
        )
        _checks.positive(num_landmarks=num_landmarks)
        _checks.non_negative(num_iterations=num_iterations)
        if filter_size < 1 or filter_size % 2 == 0:
            raise ValueError(f"{filter_size=} must be odd and positive.")
        self.num_landmarks, self.num_iterations = num_landmarks, num_iterations
        self.batch_axis = batch_axis
        init = fan_in_uniform(filter_size)
        shape = (num_heads, filter_size)
        self.filters = nnx.Param(init(rngs.params(), shape, jnp.float32))

    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
        start_norm: jax.Array | None = None,
    ) -> jax.Array:
        """Returns `opjax.nystrom_attention` of one head, without the convolution."""
        return opjax.nystrom_attention(
            query,
            key,
            value,
            num_landmarks=self.num_landmarks,
            num_iterations=self.num_iterations,
            start_norm=start_norm,
            zero_fill=True,
            query_weights=weights,
            key_weights=weights,
        )

    def evaluate(
        self,
        x: jax.Array,
        mesh_points: jax.Array | None,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Maps the checked arguments of a call to features `(n, c)`."""
        heads = self.head_inputs(x, mesh_points=mesh_points, quadrature_weights=weights)
        start_norm = self._start_norm(*heads[:2], weights)

        def attend(query: jax.Array, key: jax.Array, value: jax.Array):
            return self.attend(query, key, value, weights, start_norm)

        attended = jax.vmap(attend)(*heads)
        return self.out(merge_heads(attended + self._convolve(heads[2], weights)))

    def _start_norm(self, query: jax.Array, key: jax.Array, weights: jax.Array | None):
        """The largest row sum times the largest column sum of all heads."""
        sums = partial(
            row_and_column,
            num_landmarks=self.num_landmarks,
            zero_fill=True,
            weights=weights,
        )
        rows, columns = jax.vmap(sums)(query, key)
        if self.batch_axis is not None:  # `lax.pmax` has no derivative
            rows, columns = (
                lax.all_gather(a, self.batch_axis) for a in (rows, columns)
            )
        return jnp.max(rows) * jnp.max(columns)

    def _convolve(self, value: jax.Array, weights: jax.Array | None) -> jax.Array:
        """Correlates heads `(h, n, d)` with their filters, zeros beyond the ends."""
        if weights is None:
            return _correlate(value, self.filters[...])
        # Masked points are no neighbours: move them behind the others, and back.
        masked = ~active(weights)
        order = jnp.argsort(masked, stable=True)
        value = jax.vmap(select, in_axes=(0, None))(value, weights)
        moved = _correlate(jnp.take(value, order, axis=1), self.filters[...])
        return jnp.take(moved, jnp.argsort(order), axis=1)


def _correlate(value: jax.Array, filters: jax.Array) -> jax.Array:
    half = filters.shape[1] // 2
    correlated = lax.conv_general_dilated(
        value.transpose(2, 0, 1),
        filters[:, None, :],
        window_strides=(1,),
        padding=[(half, half)],
        feature_group_count=value.shape[0],
    )
    return correlated.transpose(1, 2, 0)
