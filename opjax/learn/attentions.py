"""What attentions are made of, by name: bases, mixers, and entries of the registry."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import opjax
from opjax import nn


class Entry(NamedTuple):
    """What a name stands for.

    Attributes:
      attention: `attention(config, sizes, basis)`, the constructor of attention layers
        `layer(features, rngs=...)`; `basis` is one of bases, or None if it is passed
        with every call.
      model: `model(config, sizes, rngs)`, a whole model, in place of an attention in an
        `nn.OperatorTransformer`; it may still have an attention for other models.
      basis: `basis(config, sizes)`, the constructor of bases, if the attention has any.
      may_share_basis: whether one basis may serve all blocks, if the options say so.
      options: names of the options it reads, besides those of all models; None for all.
      grid_axes: the numbers of axes that a grid may have, where it needs one.
      fixed_points: whether it belongs to a number of points.
      quadratic: whether its memory grows as the square of the number of points.
      splits_points: whether devices may share the points of a sample, in training.
      min_points: name of the option that says how many points it needs at least.
    """

    attention: Callable[..., Any] | None = None
    model: Callable[..., Any] | None = None
    basis: Callable[..., Any] | None = None
    may_share_basis: bool = False
    options: tuple[str, ...] | None = ()
    grid_axes: tuple[int, ...] = ()
    fixed_points: bool = False
    quadratic: bool = False
    splits_points: bool = False
    min_points: str = ""


def position(config: Any, sizes: Any) -> nn.Coordinates | nn.ReferenceDistances:
    """How a model sees points: distances to reference points, if the options say so."""
    if not config.reference_points:
        return nn.Coordinates(sizes.point_dim)
    lower, upper = sizes.box or (None, None)
    return nn.ReferenceDistances(
        sizes.point_dim, num_reference=config.reference_points, lower=lower, upper=upper
    )


def on_grid(config: Any, sizes: Any) -> tuple[int, ...] | None:
    """The grid of convolutional projections, where the options want them."""
    return sizes.grid_shape if config.convolution else None


def _softmax(config: Any, sizes: Any, cls: Any = nn.SoftmaxBasis) -> Any:
    bounds = config.min_temperature, config.max_temperature
    return partial(
        cls,
        num_basis=config.num_basis,
        num_heads=config.num_heads,
        grid_shape=on_grid(config, sizes),
        temperature=config.temperature,
        temperature_bounds=bounds if config.min_temperature else None,
    )


def _transolver(config: Any, sizes: Any) -> Any:
    """The authors clip temperatures on grids, and nowhere else."""
    basis = _softmax(config, sizes)
    if sizes.grid_shape is None:
        basis = partial(basis, temperature_bounds=None)
    return basis


def _per_axis(count: int, axes: int) -> int:
    """The largest number whose power of so many axes is at most `count`."""
    root = int(count ** (1 / axes))
    return root + 1 if (root + 1) ** axes <= count else root


def _fourier(config: Any, sizes: Any) -> Any:
    """Waves in a box twice as long as the meshes, over which they are not periodic."""
    _, lengths = _box(sizes)
    frequencies = max((_per_axis(config.num_basis, sizes.point_dim) - 1) // 2, 1)
    given: Any = {"num_frequencies": frequencies, "lengths": tuple(2.0 * lengths)}
    functions = partial(opjax.fourier_basis, **given)
    return _fixed(config, sizes, functions, (2 * frequencies + 1) ** sizes.point_dim)


def _hat(config: Any, sizes: Any) -> Any:
    """Hats on a grid of nodes over the box of the meshes."""
    lower, lengths = _box(sizes)
    nodes = max(_per_axis(config.num_basis, sizes.point_dim), 2)
    box: Any = {"lower": tuple(lower), "upper": tuple(lower + lengths)}
    functions = partial(opjax.hat_basis, num_nodes=nodes, **box)
    count = nodes**sizes.point_dim
    return _fixed(config, sizes, functions, count, one_sign=True)


def _box(sizes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Lower corner and lengths of the meshes; axes without extent get the longest."""
    lower, upper = np.asarray(sizes.box)
    lengths = upper - lower
    return lower, np.where(lengths > 0, lengths, max(lengths.max(), 1.0))


def _fixed(
    config: Any, sizes: Any, functions: Any, count: int, *, one_sign: bool = False
) -> Any:
    return partial(
        nn.FixedBasis,
        functions=functions,
        num_basis=count,
        one_sign=one_sign,
        num_heads=config.num_heads,
        grid_shape=on_grid(config, sizes),
    )


def _orthonormal(config: Any, sizes: Any) -> Any:
    inner = _softmax(config, sizes)
    return partial(nn.OrthonormalBasis, inner=inner, num_heads=config.num_heads)


def _adaptive(config: Any, sizes: Any) -> Any:
    """Temperatures of points, whose smallest one is published and no option."""
    del sizes
    return partial(
        nn.AdaptiveBasis,
        num_basis=config.num_basis,
        num_heads=config.num_heads,
        temperature=config.temperature,
    )


_SCORES = ("num_basis", "convolution", "temperature")
_SCORES += ("min_temperature", "max_temperature")
_FIXED = ("num_basis", "convolution")

# Name: `basis(config, sizes)`, and the options it reads.
BASES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "softmax": (_softmax, _SCORES),
    "indicator": (partial(_softmax, cls=nn.IndicatorBasis), _SCORES),
    "adaptive": (_adaptive, ("num_basis", "temperature")),
    "orthonormal": (_orthonormal, _SCORES),
    "fourier": (_fourier, _FIXED),
    "hat": (_hat, _FIXED),
}

# Means are for functions of one sign; others take inner products for them.
_PROJECTIONS = {
    "mean": None,
    "transpose": nn.inner_products,
    "pseudo_inverse": nn.least_squares,
}

# Name: mixer, and the options it takes.
MIXERS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "functional": (nn.FunctionalMap, ("ridge_logit", "ridge_unit")),
    "functional_fixed": (nn.FixedRidgeMap, ("ridge_logit", "ridge_unit")),
    "functional_gcv": (nn.CrossValidatedMap, ()),
    "softmax": (nn.SoftmaxMap, ()),
    "galerkin": (nn.GalerkinMap, ()),
    "modes": (nn.ModeGains, ()),
    "identity": (nn.IdentityMap, ()),
}


def _mixer(name: str, config: Any) -> Any:
    construct, options = MIXERS[name]
    return partial(construct, **{name: getattr(config, name) for name in options})


def _basis_attention(mixer: str, config: Any, sizes: Any, basis: Any) -> Any:
    del sizes
    return partial(
        nn.BasisAttention,
        num_heads=config.num_heads,
        basis=basis,
        mixer=_mixer(mixer, config),
        projection=_PROJECTIONS[config.projection],
    )


def in_basis(basis: str, mixer: str) -> Entry:
    """Attention between coefficients in a basis, on all points."""
    construct, of_basis = BASES[basis]
    return Entry(
        attention=partial(_basis_attention, mixer),
        basis=construct,
        may_share_basis=True,
        options=(*of_basis, *MIXERS[mixer][1], "shared_basis", "projection"),
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


def _orthogonal(config: Any, sizes: Any, basis: None) -> Any:
    del basis
    return partial(nn.OrthogonalAttention, **_softmax(config, sizes).keywords)


ORTHOGONAL = Entry(attention=_orthogonal, options=_SCORES, min_points="num_basis")


def pointwise(
    layer: Any,
    *,
    quadratic: bool = False,
    fixed_points: bool = False,
    min_points: str = "",
    **options: str,
) -> Entry:
    """Attention between points with coordinates; `options` by argument of the layer."""

    def attention(config: Any, sizes: Any, basis: Any) -> Any:
        del basis
        given = {name: getattr(config, option) for name, option in options.items()}
        if fixed_points:
            given["num_points"] = sizes.num_points
        return partial(
            layer, num_heads=config.num_heads, point_dim=sizes.point_dim, **given
        )

    return Entry(
        attention=attention,
        options=tuple(options.values()),
        quadratic=quadratic,
        fixed_points=fixed_points,
        min_points=min_points,
    )


def on_boxes(basis: str, mixer: str) -> Entry:
    """Attention in the boxes of a grid, with a coarse level between them."""
    whole = in_basis(basis, mixer)

    def attention(config: Any, sizes: Any, basis: Any) -> Any:
        assert whole.attention is not None
        boxes = nn.GridSubdomains(
            sizes.grid_shape, config.num_boxes, overlap=config.overlap
        )
        return partial(
            nn.SubdomainAttention,
            attention=whole.attention(config, sizes, basis),
            coarse=_mixer(mixer, config),
            subdomains=boxes,
        )

    options = *(whole.options or ()), "num_boxes", "overlap"
    given: Any = {"attention": attention, "options": options, "splits_points": False}
    return whole._replace(**given, grid_axes=(1, 2, 3))
