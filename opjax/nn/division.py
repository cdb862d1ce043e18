"""Which layers and models may have their points divided, or their products narrowed.

The parts of a model answer for themselves and ask their own parts: a model its blocks,
a block its attention, an attention its basis. The answer is what is in the way, in
words, or `None`.
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
    """A model or a basis that says what stands in the way of a use."""

    def obstacle(self, use: Use) -> str | None:
        """Returns what is in the way, or `None`."""
        ...


@runtime_checkable
class PointExchange(Protocol):
    """An attention whose devices send each other what they need of their points.

    Its calls take `axis_name=`, the axis of `jax.shard_map` over whose devices the
    points are split; all else of a block is computed at every point alone.
    """

    def obstacle(self, use: Use, shared: Any = None) -> str | None:
        """Returns what is in the way of a use, or `None`."""
        ...

    def exchange(self, axis_name: str, num_points: int) -> Any:
        """Returns what a device has to know of the others."""
        ...


def obstacle(model: Any, use: Use) -> str | None:
    """Asks any model what is in the way; one that says nothing is not divided."""
    if isinstance(model, Divisible):
        return model.obstacle(use)
    if use == "narrow":
        return no_narrow_products(model)
    return needs_all_points(model)


def no_narrow_products(module: Any) -> str:
    """Says that a module computes nothing in 16 bits."""
    return f"a {name(module)} has no products in 16 bits"


def needs_all_points(module: Any) -> str:
    """Says that a module knows more of the points than sums over them."""
    return f"a {name(module)} needs all points of a sample together"


def redefines(module: Any, *methods: str, known_by: str) -> bool:
    """Whether a subclass changes methods without the one that goes with them.

    Args:
      module: any object.
      *methods: names of the methods.
      known_by: name of the method that only knows how its own class and the bases of
        that define the others.
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
