"""Layers and models that `scaling` measures."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from experiments import scaling_torch
from opjax import nn
from opjax.learn import BenchmarkOptions
from opjax.learn.registry import models, operators
from opjax.learn.registry.entries import Entry, Layer, Operator
from opjax.nn.models import EncoderLayer, Points

if TYPE_CHECKING:
    from experiments.scaling import Config

_BOX = ((0.0,), (1.0,))  # of the points, on a line

# Besides the attentions of the registry.
FOURIER_BLOCK = "fourier_neural_operator"
# Whole models are called model:NAME; those of one or no grid axis.
WHOLE = "model:"


def _entry(name: str) -> Entry:
    return operators.entry(name.removeprefix(WHOLE))


def names() -> tuple[str, ...]:
    """Returns the attentions of the registry and the block of the Fourier operator."""
    layers = [
        name for name, registered in operators.REGISTRY.items() if registered.attention
    ]
    return *layers, FOURIER_BLOCK


def whole_names() -> tuple[str, ...]:
    """Returns whole models on a line: functional attention's, and those without one."""
    wholes = [
        name
        for name, entry in operators.REGISTRY.items()
        if entry.model and (not entry.grid_axes or 1 in entry.grid_axes)
    ]
    return tuple(WHOLE + name for name in ("functional", *wholes))


def check(name: str) -> None:
    """Raises ValueError for what cannot be measured."""
    if name in (FOURIER_BLOCK, scaling_torch.NAME):
        return
    registered = _entry(name)
    if name.startswith(WHOLE) or registered.attention is not None:
        return
    raise ValueError(
        f"models={name!r} is no attention; choose from {', '.join(names())}, or "
        f"measure the whole model, {WHOLE}{name}."
    )


def is_quadratic(name: str) -> bool:
    """Whether the cost grows as the square of the number of points."""
    if name in (FOURIER_BLOCK, scaling_torch.NAME):
        return name == scaling_torch.NAME
    return _entry(name).quadratic


def has_heads(name: str) -> bool:
    """Whether the number of heads means anything."""
    if name in (FOURIER_BLOCK, scaling_torch.NAME):
        return name == scaling_torch.NAME
    options = operators.options_of(name.removeprefix(WHOLE))
    return not name.startswith(WHOLE) or "num_heads" in options


class _FourierBlock(nn.models.FourierBlock):
    """The block of the Fourier neural operator, called as an attention."""

    def __call__(self, x: jax.Array, **unused: Any) -> jax.Array:
        return super().__call__(x)


class Stack(nnx.Module):
    """Encoder layers of attention and a perceptron of twice its channels.

    Args:
      features: channels.
      attention: constructor of the attention.
      num_layers: number of layers.
      rngs: source of the initial parameters.
    """

    def __init__(
        self, features: int, *, attention: Layer, num_layers: int, rngs: nnx.Rngs
    ):
        def layer(key: jax.Array) -> EncoderLayer:
            return EncoderLayer(
                features,
                hidden_features=2 * features,
                attention=attention,
                rngs=nnx.Rngs(key),
            )

        self.layers = jax.vmap(layer)(jax.random.split(rngs.params(), num_layers))

    def __call__(self, x: jax.Array, *, mesh_points: jax.Array) -> jax.Array:
        """Maps features `(n, c)` to such, one layer after the other."""

        def step(x, layer):
            return layer(x, Points(mesh_points)), None

        return jax.lax.scan(step, x, self.layers)[0]


def build(
    config: "Config", name: str, num_heads: int, num_points: int
) -> nnx.Module | Operator:
    """Builds what is measured, for points on a line."""
    rngs, count = nnx.Rngs(config.seed), config.num_basis
    grid = (num_points,)
    if name == FOURIER_BLOCK:
        modes = models.kept_modes(config.num_basis, grid)
        attention = partial(_FourierBlock, grid_shape=grid, modes=modes)
    else:
        options = BenchmarkOptions(
            models=(name.removeprefix(WHOLE),),
            equal_parameters=False,
            width=config.width,
            num_layers=1,
            num_heads=num_heads,
            convolution=False,
            num_basis=count,
            num_landmarks=count,
            num_random=count,
            num_projected=count,
            num_modes=count,
        )
        on_grid = grid if _entry(name).grid_axes else None
        sizes = operators.Sizes(1, 1, 1, on_grid, num_points, _BOX)
        if name.startswith(WHOLE):
            return operators.build(options, sizes, rngs=rngs)
        attention = operators.attention(name, sizes, options)
    if not config.num_layers:
        return attention(config.width, rngs=rngs)
    layers = config.num_layers
    return Stack(config.width, attention=attention, num_layers=layers, rngs=rngs)


def inputs(config: "Config", name: str, num_points: int) -> tuple[jax.Array, jax.Array]:
    """Returns random features of a batch, and the points: what `forward` is given."""
    channels = 1 if name.startswith(WHOLE) else config.width
    shape = config.batch_size, num_points, channels
    x = jax.random.normal(jax.random.key(config.seed), shape, jnp.float32)
    points = (jnp.arange(num_points, dtype=jnp.float32)[:, None] + 0.5) / num_points
    return x, points


def forward(
    name: str, layer: Callable[..., jax.Array], x: jax.Array, points: jax.Array
) -> jax.Array:
    """Evaluates a layer or model on a batch `(b, n, c)`."""
    if name.startswith(WHOLE):
        return jax.vmap(lambda features: layer(points, features))(x)
    return jax.vmap(lambda features: layer(features, mesh_points=points))(x)


def loss(name: str, *given: Any) -> jax.Array:
    """Returns a number whose gradient needs all of the output."""
    return jnp.mean(forward(name, *given) ** 2)
