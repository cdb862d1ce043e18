"""--model_options: values of model-specific options, such as gnot.num_experts=4."""

from collections.abc import Mapping
from typing import NamedTuple

from opjax.learn.config.fields import Value

FLAG = "model_options"


class Choice(NamedTuple):
    """The value of one model-specific option.

    Attributes:
      model: name of the model; empty for all models that have the option.
      option: name of the option.
      value: value, of the type of the option.
    """

    model: str
    option: str
    value: Value


def parse(text: str, defaults: Mapping[str, Value]) -> list[Choice]:
    """Parses the value of the flag.

    Args:
      text: `model.option=value` or `option=value`, separated by commas.
      defaults: default values of all options, by name.

    Raises:
      ValueError: if a part does not have this form, an option is unknown or set twice,
        or a value has the wrong type.
    """
    choices = [_choice(part.strip(), defaults) for part in text.split(",") if part]
    names = [choice[:2] for choice in choices]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{FLAG} sets {'.'.join(filter(None, name))} twice.")
    return choices


def values(choices: list[Choice], model: str) -> dict[str, Value]:
    """Returns the values for a model by option; model-specific ones take precedence."""
    ordered = sorted(choices, key=lambda choice: bool(choice.model))
    return {
        choice.option: choice.value for choice in ordered if choice.model in ("", model)
    }


def _choice(part: str, defaults: Mapping[str, Value]) -> Choice:
    name, equals, text = part.partition("=")
    model, _, option = name.rpartition(".")  # models may have dots in their names
    if not equals or not text or not option:
        raise ValueError(
            f"{FLAG}={part!r} must have the form gnot.num_experts=4 or num_experts=4."
        )
    if option not in defaults:
        raise ValueError(
            f"{FLAG}: {option!r} is unknown; choose from {', '.join(sorted(defaults))}."
        )
    return Choice(model, option, _converted(option, text, defaults[option]))


def _converted(option: str, text: str, default: Value) -> Value:
    """A value of the type of the default."""
    if isinstance(default, bool):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise ValueError(f"{FLAG}: {option}={text} must be true or false.")
    try:
        return type(default)(text)
    except ValueError:
        kind = "an integer" if isinstance(default, int) else "a number"
        raise ValueError(f"{FLAG}: {option}={text} must be {kind}.") from None
