"""Support for splitting points and for 16-bit products in layers and models.

Each part of a model answers for itself and asks its parts: a model asks its blocks, a
block its attention, an attention its basis. The answer is a reason in words why a use
is not supported, or `None`.
"""

from typing import Any, Literal, Protocol, runtime_checkable

Use = Literal["chunks", "devices", "stream", "narrow"]
"""What is asked for.

`"chunks"` computes some points at once, with features of all of them in memory;
`"devices"` gives each device a part of the points; `"stream"` has no more than some
points in memory; `"narrow"` computes products of points in 16 bits.
"""


@runtime_checkable
class Divisible(Protocol):
    """A model or a basis that reports whether it supports a use."""

    def obstacle(self, use: Use) -> str | None:
        """Returns why the use is not supported, or `None`."""
        ...


@runtime_checkable
class PointExchange(Protocol):
    """An attention layer whose devices exchange data of their points.

    Its calls take `axis_name=`, the axis of `jax.shard_map` over whose devices the
    points are split; the rest of a block is computed pointwise.
    """

    def obstacle(self, use: Use, shared: Any = None) -> str | None:
        """Returns why a use is not supported, or `None`."""
        ...

    def exchange(self, axis_name: str, num_points: int) -> Any:
        """Returns the data that a device needs about the others."""
        ...


def obstacle(model: Any, use: Use) -> str | None:
    """Asks a model whether it supports a use; without an answer, it does not."""
    if isinstance(model, Divisible):
        return model.obstacle(use)
    if use == "narrow":
        return no_narrow_products(model)
    return needs_all_points(model)


def no_narrow_products(module: Any) -> str:
    """Returns the reason that a module has no products in 16 bits."""
    return f"a {name(module)} has no products in 16 bits"


def needs_all_points(module: Any) -> str:
    """Returns the reason that a module needs more than sums over points."""
    return f"a {name(module)} needs all points of a sample together"


def redefines(module: Any, *methods: str, known_by: str) -> bool:
    """Whether a subclass overrides methods, but not the one that depends on them.

    Args:
      module: any object.
      *methods: names of the methods.
      known_by: name of the method that is valid only for the definitions of the other
        methods in its own class and its base classes.
    """
    for cls in type(module).__mro__:
        if known_by in vars(cls):
            return False
        if any(method in vars(cls) for method in methods):
            return True
    return False


def name(module: Any) -> str:
    """Returns the name of the class of a module."""
    return type(module).__name__
