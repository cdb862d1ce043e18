"""Runs one golden file against the implementation that its name selects."""

import dataclasses
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from tests.golden import adapters
from tests.golden.recorded import Recorded, UnsupportedError

TOLERANCE = 1e-10
# Some gradients vanish analytically and are stored as rounding noise.
FLOOR = 1e-12
# Arrays of a file that are no input: results, intermediate values, remarks.
RESULTS = ("output", "out.", "cotangent", "grad", "inter.", "meta.")


@dataclasses.dataclass(frozen=True)
class Report:
    """Largest relative errors of one file; `nan` where nothing was compared.

    Attributes:
      name: the file's.
      value_error: of the outputs.
      gradient_error: of the gradients.
      unsupported: what opjax has not, or "".
      error: what went wrong on the way to numbers, or "".
    """

    name: str
    value_error: float = math.nan
    gradient_error: float = math.nan
    unsupported: str = ""
    error: str = ""

    @property
    def status(self) -> str:
        if self.error:
            return "ERROR"
        if self.unsupported:
            return "UNSUPPORTED"
        errors = [e for e in (self.value_error, self.gradient_error) if e == e]
        return "ok" if errors and max(errors) <= TOLERANCE else "FAIL"

    def __str__(self) -> str:
        reason = self.error or self.unsupported
        return (
            f"{self.name:48s}  {self.value_error:9.2e}  {self.gradient_error:9.2e}"
            f"  {self.status}" + (f": {reason}" if reason else "")
        )


def compare(file: Path) -> Report:
    """Compares a file with its adapter; whatever goes wrong is in the report."""
    adapter = adapters.find(file.stem)
    if adapter is None:
        return Report(file.stem, unsupported="no adapter for this family")
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        return Report(file.stem, *_errors(adapter, arrays))
    except UnsupportedError as reason:
        return Report(file.stem, unsupported=_one_line(reason))
    except Exception as error:  # a crash is this file's, not of the whole run
        return Report(file.stem, error=f"{type(error).__name__}: {_one_line(error)}")


def relative_error(actual, expected) -> float:
    """Returns `max |a - b| / max |b|`; inf for other shapes or non-finite values.

    Small arrays are measured absolutely, so that the floor is just within tolerance.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape or not np.all(np.isfinite(actual)):
        return math.inf
    scale = max(np.max(np.abs(expected)), FLOOR / TOLERANCE)
    return float(np.max(np.abs(actual - expected)) / scale)


def _errors(adapter, arrays):
    """Returns the errors of values and gradients.

    Raises:
      UnsupportedError: if something in the file was not used, or is unknown.
    """
    options = json.loads(str(arrays.get("meta.config", "{}")))
    adapter.require_options(Recorded(options, "option"))
    if adapter.check is not None:
        recorded = Recorded(arrays, "array")
        correct = adapter.check(recorded)
        adapter.require_read(recorded, known=["meta.*"])
        return 0.0 if correct else math.inf, math.nan
    constants = {name: jnp.asarray(arrays[name]) for name in adapter.constants}
    config = Recorded(options | constants, "option")
    inputs = Recorded(_prefixed(arrays, "input."), "input")
    params = Recorded(_prefixed(arrays, "param."), "parameter")
    known = (*RESULTS, "input.", "input2.", "param.")
    _require_none("array", [name for name in arrays if not name.startswith(known)])
    if adapter.outputs is not None:
        errors = _output_errors(adapter, inputs, arrays, config)
    else:
        errors = _model_errors(adapter, params, inputs, arrays, config)
    unused = arrays.get("meta.unused_params", np.array([]))
    adapter.require_read(inputs, params, known=unused.tolist())
    _require_none("option", sorted(set(adapter.reads.split()) & {*config.unread()}))
    return errors


def _model_errors(adapter, params, inputs, arrays, config):
    """Compares the output of a model and its gradients."""

    @jax.jit
    def value_and_gradients(param_values, input_values, cotangent):
        def model(param_values, input_values):
            own = params.holding(param_values), inputs.holding(input_values)
            return adapter.model(*own, config)

        output, pullback = jax.vjp(model, param_values, input_values)
        return output, *pullback(cotangent)

    output, param_gradients, input_gradients = value_and_gradients(
        params.plain(), inputs.plain(), jnp.asarray(arrays["cotangent"])
    )
    gradients = {f"grad.{k}": v for k, v in param_gradients.items()}
    gradients |= {f"grad_input.{k}": v for k, v in input_gradients.items()}
    expected = {k: v for k, v in arrays.items() if k.startswith("grad")}
    _require_none("gradient", sorted(set(expected) - set(gradients)))
    value_error = relative_error(output, arrays["output"])
    if "output2" in arrays:  # the same parameters, another grid; values only
        second_inputs = Recorded(_prefixed(arrays, "input2."), "second input")
        second = jax.jit(lambda: adapter.model(params, second_inputs, config))()
        value_error = max(value_error, relative_error(second, arrays["output2"]))
    errors = [relative_error(gradients[key], expected[key]) for key in expected]
    return value_error, max(errors, default=math.nan)


def _output_errors(adapter, inputs, arrays, config):
    """Compares named outputs and gradients of a family without parameters."""
    actual = adapter.outputs(inputs, config)
    stored = {k for k in arrays if k.startswith(("out.", "output", "grad"))}
    _require_none("result", sorted(stored - set(actual) - adapter.not_offered))
    errors = {key: relative_error(actual[key], arrays[key]) for key in actual}
    gradients = [error for key, error in errors.items() if key.startswith("grad")]
    return (
        max(error for key, error in errors.items() if key.startswith("out")),
        max(gradients, default=math.nan),
    )


def _require_none(kind: str, names: list[str]) -> None:
    if names:
        raise UnsupportedError(f"unknown {kind} {', '.join(names)}")


def _one_line(error: Exception) -> str:
    """Returns the start of a message; `KeyError` would quote it."""
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    return " ".join(str(text).split())[:200]


def _prefixed(arrays, prefix):
    chosen = {k: v for k, v in arrays.items() if k.startswith(prefix)}
    return {k.removeprefix(prefix): jnp.asarray(v) for k, v in chosen.items()}
