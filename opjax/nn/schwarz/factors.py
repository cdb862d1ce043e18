"""Low-rank and two-level Schwarz attention with free factors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import _checks, schwarz
from opjax.nn.layers import Initializer, trunk_init
from opjax.schwarz import Cover


class LowRankAttention(nnx.Module):
    r"""Attention with free factors and without softmax, `u = Q (K^T f)`.

    It is the global baseline of the Schwarz paper, and the coarsest block of its
    hierarchy.

    Args:
      num_points: number `n` of points.
      rank: number `r` of columns of the factors, at most `num_points`.
      factor_init: initialiser of both factors; the paper uses `N(0, 0.02^2)`.
      rngs: source of the initial factors, query before key.

    Raises:
      ValueError: if a number is not positive.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import schwarz
      >>> model = schwarz.LowRankAttention(8, rank=2, rngs=nnx.Rngs(0))
      >>> model(jnp.ones((8, 3))).shape, model.num_parameters
      ((8, 3), 32)

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      Eq. 7, 8 and 16.
    """

    def __init__(
        self,
        num_points: int,
        *,
        rank: int,
        factor_init: Initializer = trunk_init,
        rngs: nnx.Rngs,
    ):
        _checks.positive(num_points=num_points, rank=rank)
        shape = (num_points, min(rank, num_points))
        self.query = nnx.Param(factor_init(rngs.params(), shape))
        self.key = nnx.Param(factor_init(rngs.params(), shape))

    def __call__(self, f: jax.Array) -> jax.Array:
        """Maps functions `(n, c)`, column by column, to `(n, c)`."""
        return schwarz.low_rank_attention(self.query[...], self.key[...], f)

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return self.query.size + self.key.size


class SchwarzAttention(nnx.Module):
    r"""Two-level overlapping Schwarz attention with free factors.

        u = Phi G_0(Phi^T f) + sum_i R_i^T D_i^{1/2} Q_i K_i^T D_i^{1/2} R_i f.

    It is linear in `f`; columns may be channels or a batch. The coarse block `G_0` is
    any module between coarse coefficients: a `LowRankAttention` for two levels, another
    `SchwarzAttention` for three, none for one level.

    Args:
      cover: subdomains with their partition of unity; part of the module's structure,
        not a parameter.
      rank: number of columns of the local factors, at most the number of points of a
        subdomain.
      coarse_space: functions `Phi`, such as `schwarz.interface_hats`.
      coarse: the coarse block, a module from `(n0, c)` to `(n0, c)`.
      factor_init: initialiser of the local factors.
      rngs: source of the initial factors, queries before keys.

    Raises:
      ValueError: if the rank is not positive, only one of coarse space and coarse block
        is given, the coarse space has other points than the cover, or only one of the
        two is split over devices.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn, schwarz
      >>> rngs = nnx.Rngs(0)
      >>> cover, hats = schwarz.box_cover(8, 2, overlap=1), schwarz.interface_hats(8, 2)
      >>> coarse = nn.schwarz.LowRankAttention(1, rank=1, rngs=rngs)
      >>> levels = {"coarse_space": hats, "coarse": coarse}
      >>> model = nn.SchwarzAttention(cover, rank=2, **levels, rngs=rngs)
      >>> model(jnp.ones((8, 3))).shape
      (8, 3)

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      Eq. 18.
    """

    def __init__(
        self,
        cover: Cover,
        *,
        rank: int,
        coarse_space: Cover | None = None,
        coarse: nnx.Module | None = None,
        factor_init: Initializer = trunk_init,
        rngs: nnx.Rngs,
    ):
        _checks.positive(rank=rank)
        if (coarse_space is None) != (coarse is None):
            raise ValueError("Pass both coarse_space and coarse, or neither.")
        if coarse_space is not None and coarse_space.num_points != cover.num_points:
            raise ValueError(
                f"The coarse space has {coarse_space.num_points} points, but the "
                f"cover has {cover.num_points}; build both for the same points."
            )
        for given in (cover, coarse_space):
            if given is not None and given.axis_name is not None:
                raise ValueError(
                    f"The subdomains are split over {given.axis_name!r}: build the "
                    "module for the whole cover and arrange its factors, see "
                    "schwarz.split_cover."
                )
        self._cover = _Fixed(cover)
        self._coarse_space = None if coarse_space is None else _Fixed(coarse_space)
        self.coarse = coarse
        subdomains, width = jnp.shape(cover.indices)
        shape = (subdomains, width, min(rank, width))
        used = jnp.asarray(self.used_factors(shape[-1]))
        factors = [factor_init(rngs.params(), shape) for _ in range(2)]
        self.query, self.key = (nnx.Param(jnp.where(used, f, 0)) for f in factors)

    def __call__(self, f: jax.Array) -> jax.Array:
        """Maps functions `(n, c)`, column by column, to `(n, c)`."""
        return schwarz.two_level_attention(
            self.query[...],
            self.key[...],
            f,
            self.cover,
            coarse_space=self.coarse_space,
            coarse=self.coarse,  # pyright: ignore[reportArgumentType]
        )

    @property
    def cover(self) -> Cover:
        """The subdomains."""
        return self._cover.value

    @property
    def coarse_space(self) -> Cover | None:
        """The functions of the coarse level."""
        return None if self._coarse_space is None else self._coarse_space.value

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters of all levels, without padding."""
        local = 2 * np.count_nonzero(self.used_factors(self.query.shape[-1]))
        return int(local) + getattr(self.coarse, "num_parameters", 0)

    def used_factors(self, rank: int) -> np.ndarray:
        """Returns which entries `(s, m, r)` of the local factors are not padding."""
        inside = np.asarray(self.cover.weights) > 0
        columns = np.arange(rank) < self.cover.sizes[:, None]
        return inside[:, :, None] & columns[:, None, :]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class _Fixed:
    """A cover as part of a module's structure: compared by content, never traced."""

    value: Cover

    def __hash__(self) -> int:
        return hash((self.value.num_points, np.shape(self.value.indices)))

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, _Fixed):
            return self is other
        mine, theirs = self.value, other.value
        return (
            mine.num_points == theirs.num_points
            and np.array_equal(mine.indices, theirs.indices)
            and np.array_equal(mine.weights, theirs.weights)
        )
