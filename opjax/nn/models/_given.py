"""What a call of a model is given, where not every argument has a meaning."""

from typing import Any


def refuse(model: str, **given: Any) -> None:
    """Raises ValueError if an argument without meaning for a model is given."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} has no meaning for {model}. Leave it out, or take another "
                "model."
            )
