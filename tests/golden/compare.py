"""Runs one golden file against the implementation that its name selects."""

import dataclasses
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from tests.golden import adapters

TOLERANCE = 1e-10
# Some gradients vanish analytically and are stored as rounding noise.
FLOOR = 1e-12


@dataclasses.dataclass(frozen=True)
class Report:
    """Largest relative errors of one file; `nan` where nothing was compared."""

    name: str
    value_error: float = math.nan
    gradient_error: float = math.nan

    @property
    def status(self) -> str:
        if math.isnan(self.value_error):
            return "UNSUPPORTED"
        errors = [e for e in (self.value_error, self.gradient_error) if e == e]
        return "ok" if max(errors) <= TOLERANCE else "FAIL"

    def __str__(self) -> str:
        return (
            f"{self.name:48s}  {self.value_error:9.2e}  {self.gradient_error:9.2e}"
            f"  {self.status}"
        )


def compare(file: Path) -> Report:
    """Compares values and gradients of a file with its adapter's."""
    adapter = adapters.find(file.stem)
    if adapter is None:
        return Report(file.stem)
    with np.load(file, allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    if adapter.check is not None:
        return Report(file.stem, 0.0 if adapter.check(arrays) else math.inf)
    config = json.loads(str(arrays["meta.config"]))
    config |= {name: jnp.asarray(arrays[name]) for name in adapter.constants}
    inputs = _prefixed(arrays, "input.")
    if adapter.outputs is not None:
        return _compare_outputs(file.stem, adapter, inputs, arrays, config)
    params = _prefixed(arrays, "param.")

    @jax.jit
    def value_and_gradients(params, inputs, cotangent):
        def model(params, inputs):
            return adapter.model(params, inputs, config)

        output, pullback = jax.vjp(model, params, inputs)
        return output, *pullback(cotangent)

    output, param_gradients, input_gradients = value_and_gradients(
        params, inputs, jnp.asarray(arrays["cotangent"])
    )
    gradients = {f"grad.{k}": v for k, v in param_gradients.items()}
    gradients |= {f"grad_input.{k}": v for k, v in input_gradients.items()}
    expected = {k: v for k, v in arrays.items() if k.startswith(("grad.", "grad_inp"))}
    value_error = relative_error(output, arrays["output"])
    if "output2" in arrays:  # the same parameters, another grid; values only
        second = adapter.model(params, _prefixed(arrays, "input2."), config)
        value_error = max(value_error, relative_error(second, arrays["output2"]))
    return Report(
        file.stem,
        value_error,
        max(relative_error(gradients[key], expected[key]) for key in expected),
    )


def relative_error(actual, expected) -> float:
    """Returns `max |a - b| / max |b|`; inf for other shapes or non-finite values.

    Small arrays are measured absolutely, so that the floor is just within tolerance.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape or not np.all(np.isfinite(actual)):
        return math.inf
    scale = max(np.max(np.abs(expected)), FLOOR / TOLERANCE)
    return float(np.max(np.abs(actual - expected)) / scale)


def _compare_outputs(name, adapter, inputs, arrays, config) -> Report:
    """Compares named outputs and gradients of a family without parameters."""
    actual = adapter.outputs(inputs, config)
    stored = {k for k in arrays if k.startswith(("out.", "grad"))}
    missing = stored - set(actual) - adapter.not_offered
    assert not missing, f"{name}: no value for {sorted(missing)}"
    errors = {key: relative_error(actual[key], arrays[key]) for key in actual}
    gradients = [error for key, error in errors.items() if key.startswith("grad")]
    return Report(
        name,
        max(error for key, error in errors.items() if key.startswith("out.")),
        max(gradients, default=math.nan),
    )


def _prefixed(arrays, prefix):
    chosen = {k: v for k, v in arrays.items() if k.startswith(prefix)}
    return {k.removeprefix(prefix): jnp.asarray(v) for k, v in chosen.items()}
