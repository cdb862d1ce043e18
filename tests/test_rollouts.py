"""Rollouts against matrix powers, and the memory of their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

import opjax

MATRIX = np.random.default_rng(0).normal(size=(4, 4)) / 3
START = np.random.default_rng(1).normal(size=4)


def linear(matrix):
    return lambda state: jnp.asarray(matrix) @ state


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("gradient", ["all", "last"])
def test_a_linear_step_is_a_matrix_power(checkpoint, gradient):
    found = opjax.rollout(
        linear(MATRIX), START, 5, checkpoint=checkpoint, gradient=gradient
    )
    expected = [np.linalg.matrix_power(MATRIX, t) @ START for t in range(1, 6)]
    assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_gradients_pass_through_all_steps(checkpoint):
    def total(matrix, start):
        found = opjax.rollout(linear(matrix), start, 4, checkpoint=checkpoint)
        return jnp.sum(found[-1])

    of_matrix, of_start = jax.jit(jax.grad(total, argnums=(0, 1)))(MATRIX, START)
    power = np.linalg.matrix_power
    assert_allclose(of_start, power(MATRIX, 4).T @ np.ones(4), rtol=1e-12)
    # d/dA 1' A^4 u = sum_k (A^k)' 1 (A^(3-k) u)'.
    expected = sum(
        np.outer(power(MATRIX, k).T @ np.ones(4), power(MATRIX, 3 - k) @ START)
        for k in range(4)
    )
    assert_allclose(of_matrix, expected, rtol=1e-12)


@pytest.mark.parametrize("num_steps", [1, 4])
def test_gradients_of_the_last_step_take_the_state_before_it_as_a_constant(num_steps):
    def total(matrix):
        found = opjax.rollout(linear(matrix), START, num_steps, gradient="last")
        return jnp.sum(found)

    before = np.linalg.matrix_power(MATRIX, num_steps - 1) @ START
    expected = np.outer(np.ones(4), before)
    assert_allclose(jax.jit(jax.grad(total))(MATRIX), expected, rtol=1e-12)


def test_inputs_of_steps_and_what_is_observed():
    inputs = {"force": np.arange(3.0), "scale": np.array([1.0, 2.0, 0.5])}

    def step(state, given):
        return {"u": given["scale"] * state["u"] + given["force"], "n": state["n"] + 1}

    start = {"u": np.float64(2.0), "n": np.int32(0)}
    seen = opjax.rollout(step, start, inputs=inputs, observe=lambda s: s["u"])
    assert_allclose(seen, [2.0, 5.0, 4.5])
    assert opjax.rollout(step, start, inputs=inputs)["n"].tolist() == [1, 2, 3]
    last = opjax.rollout(step, start, inputs=inputs, gradient="last")
    assert_allclose(last["u"], [2.0, 5.0, 4.5])


def test_a_batch_is_a_vmap_and_jit_changes_nothing():
    starts = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)
    matrix = MATRIX.astype(np.float32)
    run = jax.jit(jax.vmap(lambda start: opjax.rollout(linear(matrix), start, 3)))
    each = [opjax.rollout(linear(matrix), start, 3) for start in starts]
    assert run(starts).dtype == jnp.float32
    assert_allclose(run(starts), np.stack(each), rtol=1e-5)


def test_a_module_is_a_step_with_gradients_of_its_parameters():
    module = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    def total(module):
        return jnp.sum(opjax.rollout(module, START.astype(np.float32), 3)[-1])

    step = 1e-2
    found = jax.jit(jax.grad(total))(module)
    moved = [
        jax.tree.map(lambda x, s=s: x + np.float32(s * step), module) for s in (1, -1)
    ]
    slope = (total(moved[0]) - total(moved[1])) / (2 * step)
    total_slope = sum(float(leaf.sum()) for leaf in jax.tree.leaves(found))
    assert total_slope == pytest.approx(float(slope), rel=1e-2)


def test_memory_of_a_gradient_hardly_grows_with_checkpointed_steps():
    """Eight steps take at most 1.5 times the memory of one, unlike without."""
    wide = jnp.ones((32, 512), jnp.float32)

    def step(weights, state):
        hidden = state
        for _ in range(2):
            hidden = jnp.tanh(jnp.tanh(hidden @ weights) @ weights.T)
        return state + hidden

    def bytes_of(num_steps, checkpoint):
        def total(weights, start):
            found = opjax.rollout(
                lambda state: step(weights, state),
                start,
                num_steps,
                checkpoint=checkpoint,
            )
            return jnp.sum(found**2)

        start = jax.ShapeDtypeStruct((64, 32), jnp.float32)
        compiled = jax.jit(jax.grad(total)).lower(wide, start).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    one = bytes_of(1, True)
    assert bytes_of(8, True) <= 1.5 * one
    assert bytes_of(8, False) > 2 * one


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({}, ValueError, "give none as number of steps"),
        ({"num_steps": 0}, ValueError, "num_steps=0"),
        ({"num_steps": 3, "inputs": np.ones(2)}, ValueError, r"\[2, 3\]"),
        ({"num_steps": 2, "gradient": "some"}, ValueError, "gradient='some'"),
    ],
)
def test_bad_arguments_are_named(given, error, match):
    def step(state, *_):
        return state

    with pytest.raises(error, match=match):
        opjax.rollout(step, START, **given)


@pytest.mark.parametrize(
    ("step", "error", "match"),
    [
        (lambda u: u[:2], ValueError, r"shape \(4,\) to shape \(2,\)"),
        (lambda u: u.astype(jnp.float32), TypeError, "maps dtype float64 to float32"),
        (lambda u: (u, u), TypeError, "whole next state"),
    ],
)
def test_a_step_that_changes_the_state_is_refused(step, error, match):
    with pytest.raises(error, match=match):
        opjax.rollout(step, START, 2)
