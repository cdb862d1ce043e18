"""Registry of attention layers: bases, mixers and complete attention layers.

Every function in this module passes arguments to constructors by name.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from flax import nnx

import opjax
from opjax import nn
from opjax.learn.config import ModelOptions
from opjax.learn.registry.entries import Basis, Entry, Layer, Mixer, Sizes


class NamedBasis(NamedTuple):
    """A named basis: its constructor and the options that it reads."""

    construct: Callable[[ModelOptions, Sizes], Basis]
    options: tuple[str, ...]


class NamedMixer(NamedTuple):
    """A named mixer: its constructor and the options that it reads."""

    construct: Callable[[ModelOptions], Mixer]
    options: tuple[str, ...] = ()


class _PointLayer(Protocol):
    """A constructor of attention between points that has no options of its own."""

    def __call__(
        self, features: int, *, num_heads: int, point_dim: int, rngs: nnx.Rngs
    ) -> nnx.Module: ...


def position(
    config: ModelOptions, sizes: Sizes
) -> nn.Coordinates | nn.ReferenceDistances:
    """Encoding of the coordinates: distances to reference points, if requested."""
    if not config.reference_points:
        return nn.Coordinates(sizes.point_dim)
    lower, upper = sizes.box or (None, None)
    return nn.ReferenceDistances(
        sizes.point_dim, num_reference=config.reference_points, lower=lower, upper=upper
    )


def _grid(config: ModelOptions, sizes: Sizes) -> tuple[int, ...] | None:
    """The grid of convolutional projections, if the options want them."""
    return sizes.grid_shape if config.convolution else None


def _bounds(config: ModelOptions) -> tuple[float, float] | None:
    """Smallest and largest temperature, unless temperatures are free."""
    if not config.min_temperature:
        return None
    return config.min_temperature, config.max_temperature


def _softmax(
    config: ModelOptions,
    sizes: Sizes,
    *,
    basis: type[nn.bases.SoftmaxBasis] = nn.bases.SoftmaxBasis,
    bounded: bool = True,
) -> Basis:
    return partial(
        basis,
        num_basis=config.num_basis,
        num_heads=config.num_heads,
        grid_shape=_grid(config, sizes),
        temperature=config.temperature,
        temperature_bounds=_bounds(config) if bounded else None,
    )


def _transolver(config: ModelOptions, sizes: Sizes) -> Basis:
    """The authors clip temperatures on grids, and nowhere else."""
    return _softmax(config, sizes, bounded=sizes.grid_shape is not None)


def _adaptive(config: ModelOptions, sizes: Sizes) -> Basis:
    """Temperatures of points; their smallest value is as published, no option."""
    del sizes
    return partial(
        nn.bases.AdaptiveBasis,
        num_basis=config.num_basis,
        num_heads=config.num_heads,
        temperature=config.temperature,
    )


def _orthonormal(config: ModelOptions, sizes: Sizes) -> Basis:
    return partial(
        nn.bases.OrthonormalBasis,
        inner=_softmax(config, sizes),
        num_heads=config.num_heads,
    )


def _fourier(config: ModelOptions, sizes: Sizes) -> Basis:
    """Waves in a box twice as long as the meshes, over which they are not periodic."""
    _, lengths = _box(sizes)
    frequencies = max((_per_axis(config.num_basis, sizes.point_dim) - 1) // 2, 1)
    functions = partial(
        opjax.fourier_basis,
        num_frequencies=frequencies,
        lengths=tuple(2.0 * lengths),
    )
    return partial(
        nn.bases.FixedBasis,
        functions=functions,
        num_basis=(2 * frequencies + 1) ** sizes.point_dim,
        num_heads=config.num_heads,
        grid_shape=_grid(config, sizes),
    )


def _hat(config: ModelOptions, sizes: Sizes) -> Basis:
    """Hats on a grid of nodes over the box of the meshes."""
    lower, lengths = _box(sizes)
    nodes = max(_per_axis(config.num_basis, sizes.point_dim), 2)
    functions = partial(
        opjax.hat_basis,
        num_nodes=nodes,
        lower=tuple(lower),
        upper=tuple(lower + lengths),
    )
    return partial(
        nn.bases.FixedBasis,
        functions=functions,
        num_basis=nodes**sizes.point_dim,
        one_sign=True,
        num_heads=config.num_heads,
        grid_shape=_grid(config, sizes),
    )


def _per_axis(count: int, axes: int) -> int:
    """The largest integer whose power `axes` is at most `count`."""
    root = int(count ** (1 / axes))
    return root + 1 if (root + 1) ** axes <= count else root


def _box(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Lower corner and lengths of the meshes; axes without extent get the longest."""
    if sizes.box is None:
        raise ValueError("This basis needs the bounding box of the meshes, Sizes.box.")
    lower, upper = np.asarray(sizes.box)
    lengths = upper - lower
    return lower, np.where(lengths > 0, lengths, max(lengths.max(), 1.0))


_FIXED = ("num_basis", "convolution")
_SCORES = (*_FIXED, "temperature", "min_temperature", "max_temperature")

BASES: dict[str, NamedBasis] = {
    "softmax": NamedBasis(_softmax, _SCORES),
    "indicator": NamedBasis(partial(_softmax, basis=nn.bases.IndicatorBasis), _SCORES),
    "adaptive": NamedBasis(_adaptive, ("num_basis", "temperature")),
    "orthonormal": NamedBasis(_orthonormal, _SCORES),
    "fourier": NamedBasis(_fourier, _FIXED),
    "hat": NamedBasis(_hat, _FIXED),
}


def _ridge_map(mixer: type[nn.mixers.FunctionalMap]) -> Callable[[ModelOptions], Mixer]:
    return lambda config: partial(
        mixer, ridge_logit=config.ridge_logit, ridge_unit=config.ridge_unit
    )


_RIDGE = ("ridge_logit", "ridge_unit")

MIXERS: dict[str, NamedMixer] = {
    "functional": NamedMixer(_ridge_map(nn.mixers.FunctionalMap), _RIDGE),
    "functional_fixed": NamedMixer(_ridge_map(nn.mixers.FixedRidgeMap), _RIDGE),
    "functional_gcv": NamedMixer(lambda config: nn.mixers.CrossValidatedMap),
    "softmax": NamedMixer(lambda config: nn.mixers.SoftmaxMap),
    "galerkin": NamedMixer(lambda config: nn.mixers.GalerkinMap),
    "modes": NamedMixer(lambda config: nn.mixers.ModeGains),
    "identity": NamedMixer(lambda config: nn.mixers.IdentityMap),
}

# By default, means for functions of one sign and inner products for others.
_PROJECTIONS = {
    "mean": None,
    "transpose": opjax.InnerProducts(),
    "pseudo_inverse": opjax.LeastSquares(1e-2, relative=True),
}


def in_basis(basis: str, mixer: str) -> Entry:
    """Attention between coefficients in a basis over all points."""
    of_basis, of_mixer = BASES[basis], MIXERS[mixer]

    def attention(config: ModelOptions, sizes: Sizes, basis: Basis | None) -> Layer:
        del sizes
        return partial(
            nn.BasisAttention,
            num_heads=config.num_heads,
            basis=basis,
            mixer=of_mixer.construct(config),
            projection=_PROJECTIONS[config.projection],
        )

    return Entry(
        attention=attention,
        basis=of_basis.construct,
        may_share_basis=True,
        options=(*of_basis.options, *of_mixer.options, "shared_basis", "projection"),
        # Orthonormal functions and noise belong to all points together.
        splits_points=basis not in ("orthonormal", "adaptive"),
        min_points="num_basis" if basis == "orthonormal" else "",
    )


TRANSOLVER = in_basis("softmax", "softmax")._replace(
    basis=_transolver, may_share_basis=False, options=(*_SCORES, "projection")
)
TRANSOLVER_PLUS = in_basis("adaptive", "softmax")._replace(
    may_share_basis=False, options=("num_basis", "temperature", "projection")
)


def on_boxes(basis: str, mixer: str) -> Entry:
    """Attention within the boxes of a grid, with a coarse level that connects them."""
    whole, of_mixer = in_basis(basis, mixer), MIXERS[mixer]
    in_box = whole.attention
    assert in_box is not None

    def attention(config: ModelOptions, sizes: Sizes, basis: Basis | None) -> Layer:
        return partial(
            nn.SubdomainAttention,
            attention=in_box(config, sizes, basis),
            coarse=of_mixer.construct(config),
            subdomains=nn.attention.GridSubdomains(
                sizes.grid,
                config.num_boxes,
                overlap=config.overlap,
                num_levels=config.num_levels,
            ),
        )

    return whole._replace(
        attention=attention,
        options=(*(whole.options or ()), "num_boxes", "overlap", "num_levels"),
        grid_axes=(1, 2, 3),
        splits_points=False,
    )


def _orthogonal(config: ModelOptions, sizes: Sizes, basis: Basis | None) -> Layer:
    del basis
    return partial(
        nn.OrthogonalAttention,
        num_heads=config.num_heads,
        num_basis=config.num_basis,
        grid_shape=_grid(config, sizes),
        temperature=config.temperature,
        temperature_bounds=_bounds(config),
    )


ORTHOGONAL = Entry(attention=_orthogonal, options=_SCORES, min_points="num_basis")


def between_points(layer: _PointLayer, *, quadratic: bool = False) -> Entry:
    """Attention between points with coordinates, without specific options."""

    def attention(config: ModelOptions, sizes: Sizes, basis: Basis | None) -> Layer:
        del basis
        return partial(layer, num_heads=config.num_heads, point_dim=sizes.point_dim)

    sums = isinstance(layer, type) and issubclass(layer, nn.attention.PointSums)
    return Entry(attention=attention, quadratic=quadratic, splits_points=sums)


def _performer(config: ModelOptions, sizes: Sizes, basis: Basis | None) -> Layer:
    del basis
    return partial(
        nn.attention.PerformerAttention,
        num_heads=config.num_heads,
        point_dim=sizes.point_dim,
        num_features=config.num_random,
    )


def _nystrom(config: ModelOptions, sizes: Sizes, basis: Basis | None) -> Layer:
    del basis
    return partial(
        nn.attention.NystromAttention,
        num_heads=config.num_heads,
        point_dim=sizes.point_dim,
        num_landmarks=config.num_landmarks,
    )


def _linformer(config: ModelOptions, sizes: Sizes, basis: Basis | None) -> Layer:
    del basis
    return partial(
        nn.attention.LinformerAttention,
        num_heads=config.num_heads,
        point_dim=sizes.point_dim,
        num_points=sizes.points,
        num_projected=config.num_projected,
    )


def flare(config: ModelOptions, sizes: Sizes, basis: Basis | None) -> Layer:
    """FLARE's attention for other models; its options are heads and latents."""
    del sizes, basis
    return partial(
        nn.FlareAttention, num_heads=config.num_heads, num_latents=config.num_basis
    )


PERFORMER = Entry(attention=_performer, options=("num_random",))
NYSTROM = Entry(
    attention=_nystrom, options=("num_landmarks",), min_points="num_landmarks"
)
LINFORMER = Entry(attention=_linformer, options=("num_projected",), fixed_points=True)
