"""Operators between functions on any mesh, by name, for the benchmark programs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import nn, spectral
from opjax.learn.fields import check_choice

# Names of the papers, and the attentions of `nn.OperatorTransformer`.
ATTENTIONS = {
    "functional": "functional",
    "transolver": "physics",
    "orthogonal": "orthogonal",
    "galerkin": "galerkin",
    "linear": "linear",
    "fourier": "fourier",
    "softmax": "softmax",
}
MODELS = (*ATTENTIONS, "fno")
# Their maps from points to bases may be convolutions on a grid.
_WITH_BASIS = ("functional", "transolver", "orthogonal")


PADDING = 0.1  # zeros before and after each axis, over its points


def check(name: str) -> None:
    """Raises ValueError unless there is such a model."""
    check_choice("models", name, MODELS)


def kept_modes(num_modes: int, grid_shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the frequencies per axis of a spectral kernel, clipped to a grid.

    Args:
      num_modes: wave numbers, as one number given to `nn.SpectralConvolution`.
      grid_shape: points per axis.
    """
    wanted = *(2 * num_modes for _ in grid_shape[1:]), num_modes
    return tuple(map(min, wanted, spectral.largest_modes(grid_shape)))


class GridOperator(nnx.Module):
    """The Fourier neural operator with the call of `nn.OperatorTransformer`."""

    def __init__(
        self, config: Any, *, grid_shape: Sequence[int], rngs: nnx.Rngs, **sizes: Any
    ):
        self.operator = nn.FourierNeuralOperator(
            grid_shape=grid_shape,
            features=config.features,
            num_layers=config.num_layers,
            modes=kept_modes(config.num_modes, grid_shape),
            padding=PADDING,
            rngs=rngs,
            **sizes,
        )

    def __call__(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        *,
        quadrature_weights: jax.Array | None = None,
        time: jax.Array | None = None,
    ) -> jax.Array:
        """Maps values `(n, c)` at the nodes `(n, p)` of the grid to `(n, q)`."""
        if quadrature_weights is not None:
            raise ValueError(
                "model='fno' needs all samples on one grid, without padding or "
                "quadrature weights; take another model."
            )
        return self.operator(mesh_points, features, time=time)


_MIXERS = {
    "functional": nn.FunctionalMap,
    "transolver": nn.SoftmaxMap,
}
_POINTWISE = {
    "galerkin": nn.GalerkinAttention,
    "linear": nn.LinearAttention,
    "fourier": nn.FourierAttention,
    "softmax": nn.SoftmaxAttention,
}


def _position(point_dim: int, given: dict[str, Any]) -> Any:
    count = given.pop("reference_points", None)
    lower, upper = given.pop("reference_box", None) or (None, None)
    if not count:
        return nn.Coordinates(point_dim)
    return nn.ReferenceDistances(
        point_dim,
        count,
        None if lower is None else tuple(lower),
        None if upper is None else tuple(upper),
    )


def attention_operator(
    config: Any,
    name: str,
    *,
    position: Any,
    grid_shape: Sequence[int] | None,
    shared_basis: bool = True,
    temperature: float = 0.5,
    temperature_bounds: tuple[float, float] | None = (0.1, 5.0),
    rngs: nnx.Rngs,
    **options: Any,
) -> nn.OperatorTransformer:
    """Builds an `nn.OperatorTransformer` with the attention of a name."""
    heads = {"num_heads": config.num_heads}
    basis = None
    if name in _POINTWISE:
        attention = partial(_POINTWISE[name], point_dim=position.point_dim, **heads)
    else:
        softmax = {
            "num_basis": config.num_basis,
            "grid_shape": grid_shape if config.convolution else None,
            "temperature": temperature,
            "temperature_bounds": temperature_bounds,
        }
        basis = partial(nn.SoftmaxBasis, **softmax)
        if name == "orthogonal":
            attention = partial(nn.OrthogonalAttention, **heads, **softmax)
            basis = None
        else:
            mixer: Any = _MIXERS[name]
            if name == "functional":
                mixer = partial(mixer, ridge_logit=config.ridge_logit)
            attention = partial(
                nn.BasisAttention,
                mixer=mixer,
                basis=None if shared_basis else basis,
                **heads,
            )
            basis = partial(basis, **heads) if shared_basis else None
    return nn.OperatorTransformer(
        position=position,
        attention=attention,
        basis=basis,
        features=config.features,
        num_layers=config.num_layers,
        mlp_ratio=config.mlp_ratio,
        rematerialize=config.rematerialize,
        rngs=rngs,
        **options,
    )


def build(
    config: Any,
    *,
    point_dim: int,
    feature_dim: int,
    out_features: int,
    grid_shape: Sequence[int] | None = None,
    time_embedding: bool = False,
    options: Mapping[str, Any] | None = None,
    rngs: nnx.Rngs,
) -> nnx.Module:
    """Builds the operator `config.models` names.

    With `config.equal_parameters`, operators get the number of channels that brings
    their number of parameters nearest to that of functional attention.

    Args:
      config: of one model, with the model fields of `benchmark.Config`.
      point_dim: dimension of space.
      feature_dim: channels of the input function; zero if the mesh is the input.
      out_features: channels of the output function.
      grid_shape: points per axis, where all samples are on such a grid.
      time_embedding: whether calls take `time`.
      options: further options of `nn.OperatorTransformer`; fno has none of them.
      rngs: source of the initial parameters.

    Returns:
      An operator, called as `nn.OperatorTransformer`.

    Raises:
      ValueError: if the model needs a grid and there is none.
    """
    name = config.models if isinstance(config.models, str) else config.models[0]
    sizes = {
        "feature_dim": feature_dim,
        "out_features": out_features,
        "time_embedding": time_embedding,
    }
    if name == "fno" and (grid_shape is None or len(grid_shape) > 2):
        raise ValueError(
            f"model='fno' needs samples on one grid of one or two axes, not "
            f"{grid_shape=}; choose from {', '.join(ATTENTIONS)}."
        )

    def construct(name: str, features: int, rngs: nnx.Rngs) -> nnx.Module:
        changed = _Changed(config, features)
        if name == "fno":
            assert grid_shape is not None
            return GridOperator(changed, grid_shape=grid_shape, rngs=rngs, **sizes)
        given = dict(options or {})
        if "reference_points" in given:
            given.setdefault("reference_box", None)
        return attention_operator(
            changed,
            name,
            position=_position(point_dim, given),
            grid_shape=grid_shape,
            rngs=rngs,
            **sizes,
            **given,
        )

    def count(name: str, features: int) -> int:
        def abstract(key: jax.Array) -> nnx.Module:
            return construct(name, features, nnx.Rngs(key))

        shapes = jax.eval_shape(abstract, jax.random.key(0))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    features = config.features
    if config.equal_parameters and name != "functional":
        wanted = count("functional", features)
        heads = config.num_heads
        widths = range(heads, 2 * features + 1, heads)
        features = min(widths, key=lambda width: abs(count(name, width) - wanted))
    return construct(name, features, rngs)


class _Changed:
    """A configuration with another number of channels."""

    def __init__(self, config: Any, features: int):
        self._config, self.features = config, features

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


def call(model: Any, sample: Any, **given: Any) -> jax.Array:
    """Evaluates an operator on a sample of arrays, as from `samples.stack`.

    Args:
      model: called as `nn.OperatorTransformer`.
      sample: `mesh_points`, and `features` and `quadrature_weights` if there are any.
      **given: further arguments of the model.

    Returns:
      Values of the output function, shape `(n, out_features)`.
    """
    weights = sample.get("quadrature_weights")
    if weights is not None:
        given["quadrature_weights"] = jnp.asarray(weights)
    return model(sample["mesh_points"], sample.get("features"), **given)
