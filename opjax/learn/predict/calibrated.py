"""Bands and out-of-distribution test of a calibrated operator as pure functions.

They take the arguments of `Trained.function` and go through the same transformations.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax.learn.config.quantities import EXTREMES, SUM
from opjax.learn.predict import functions
from opjax.learn.predict.functions import Arguments, Function, Parameters
from opjax.learn.predict.likeness import Reference
from opjax.learn.predict.quantities import Measured
from opjax.learn.predict.trained import Trained
from opjax.learn.predict.widths import Call, WidthFunction
from opjax.samples import Sample
from opjax.uncertainty import Band


def band(trained: Trained, width: WidthFunction, factors: np.ndarray) -> Function:
    """Returns `Calibration.band_function`.

    Args:
      trained: the operator.
      width: function that returns the width of a call.
      factors: factor of the width of each channel, `(q,)`.
    """
    return _of_call(trained, lambda call: _band(call, width, factors))


def quantity(
    trained: Trained,
    width: WidthFunction,
    factors: np.ndarray,
    text: str,
    sample: Sample,
) -> Function:
    """Returns `Calibration.quantity`.

    Args:
      trained: the operator.
      width: function that returns the width of a call.
      factors: factor of the width of each channel in a band for whole fields, `(q,)`.
      text: one quantity.
      sample: the mesh.

    Raises:
      ValueError: if the quantity is undefined on the mesh, or has no such interval.
    """
    requested = functions.one(text)
    measured = Measured(requested, sample, trained.channel_names)
    if requested.kind == SUM and measured.num_channels > 1:
        raise ValueError(
            f"{text} is the length of a vector, which has no interval from a band; "
            "name one of its components."
        )

    def interval(call: Call) -> Band:
        functions.check_same_mesh(text, call.case.sample, sample)
        ends = _band(call, width, factors)

        def value(field: Any) -> jax.Array:
            return measured(call.case.sample, field)

        if requested.kind in EXTREMES:
            return Band(value(ends.lower), value(ends.upper))
        middle, slope = jax.value_and_grad(value)(call.values)
        half = jnp.sum(jnp.abs(slope) * (ends.upper - ends.lower)) / 2
        return Band(middle - half, middle + half)

    return _of_call(trained, interval)


def unlikeness(trained: Trained, reference: Reference) -> Function:
    """Returns `Calibration.unlikeness`."""
    return _of_call(trained, lambda call: reference.margin(trained, call))


def _band(call: Call, width: WidthFunction, factors: np.ndarray) -> Band:
    half = width(call) * jnp.asarray(factors, call.values.dtype)[None]
    return Band(call.values - half, call.values + half)


def _of_call(trained: Trained, use: Callable[[Call], Any]) -> Function:
    """Returns a function with the operator's arguments that applies `use` to a call."""
    predict = trained.function

    def call(parameters: Parameters, given: Arguments, time: ArrayLike | None) -> Any:
        values = functions.field(predict(parameters, *given, time))
        case = functions.case(trained, given)
        return use(Call(parameters.normalizers, (*given, time), case, values))

    return functions.of_arguments(call)
