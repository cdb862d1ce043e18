"""Errors of products in the precision of the device, against double on the CPU."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import opjax
from benchmarks import speed
from benchmarks.device_cases import Numbers, Sizes
from benchmarks.device_functions import features, relative

PRECISIONS = ("default", "highest")


def attention_errors(sizes: Sizes, ridge: float) -> Numbers:
    """Time and error of values and gradients of functional attention in its layer."""

    def attend(query, key, value, basis):
        return opjax.functional_attention(
            *(query, key, value, basis, basis),
            ridge=opjax.Convex(ridge),
            projection=opjax.Means(),
        )

    heads = jax.vmap(jax.vmap(attend))

    def energy(*arrays):
        values = heads(*arrays)
        return jnp.sum(values**2), values

    function = jax.value_and_grad(energy, argnums=(0, 1, 2, 3), has_aux=True)
    arrays = features(sizes, sizes.points[-1], (sizes.batch, sizes.heads))
    return _errors(lambda arrays: function(*arrays), arrays, sizes)


def step_errors(sizes: Sizes, name: str) -> Numbers:
    """Time and error of the loss and the gradients of a model at its start."""
    case = sizes.step(name)
    case = dataclasses.replace(case, batch=1)
    model = speed.build(case.model, chunk_size=None)

    def function(given):
        loss = jax.value_and_grad(speed.summed_errors, allow_int=True)
        value, gradients = loss(*given)
        return (value, value), _floats(gradients)

    return _errors(function, (model, speed.named_arrays(case)), sizes)


def _errors(function: Any, given: Any, sizes: Sizes) -> Numbers:
    with jax.enable_x64(True):
        double = jax.device_put(jax.tree.map(_double, given), jax.devices("cpu")[0])
        (_, value), gradients = jax.device_get(jax.jit(function)(double))
    numbers: Numbers = {}
    given = jax.device_put(given, jax.devices()[0])
    for precision in PRECISIONS:
        with jax.default_matmul_precision(precision):
            call = jax.jit(function).lower(given).compile()
        (_, found), slopes = jax.device_get(call(given))
        times = sizes.milliseconds(lambda c=call: c(given), jax.block_until_ready)
        numbers[f"{precision}_ms"] = times["ms"]
        numbers[f"{precision}_value_error"] = relative(found, value)
        numbers[f"{precision}_gradient_error"] = relative(slopes, gradients)
    return numbers


def _double(leaf: Any) -> Any:
    array = np.asarray(leaf)
    return array.astype(np.float64) if array.dtype == np.float32 else leaf


def _floats(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
