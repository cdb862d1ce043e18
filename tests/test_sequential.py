"""Functions whose samples run in turn on the CPU: the same results, one program."""

import functools
import os
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from numpy.testing import assert_allclose, assert_array_equal

from opjax import linalg
from opjax._sequential import one_by_one, over_heads
from opjax.nn.layers.initializers import orthogonal


def solve(system, rhs):
    return {"solution": jnp.sin(jnp.linalg.solve(system["matrix"], rhs))}


def nested(function):
    """Batches the systems twice and the right-hand sides once."""
    return jax.vmap(jax.vmap(function, ({"matrix": 0}, None)), ({"matrix": 0}, 0))


def total(function):
    return lambda *arguments: sum(
        jnp.sum(leaf) for leaf in jax.tree.leaves(function(*arguments))
    )


TRANSFORMS = {
    "plain": lambda f: lambda a, b: f(jax.tree.map(lambda x: x[0, 0], a), b[0]),
    "vmap": nested,
    "grad of vmap": lambda f: jax.grad(total(nested(f)), argnums=(0, 1)),
    "vmap of grad": lambda f: nested(jax.grad(total(f))),
    "forward": lambda f: jax.jacfwd(total(nested(f)), argnums=(0, 1)),
    "hessian": lambda f: jax.hessian(total(nested(f)), argnums=1),
    "checkpoint": lambda f: jax.grad(total(jax.checkpoint(nested(f)))),
}


@pytest.fixture
def systems(rng):
    matrix = rng.normal(size=(2, 3, 4, 4)) + 3 * np.eye(4)
    return {"matrix": jnp.asarray(matrix)}, rng.normal(size=(2, 4, 1))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_one_by_one_is_the_function(systems, transform):
    transform = TRANSFORMS[transform]
    actual = jax.jit(transform(one_by_one(solve)))(*systems)
    expected = jax.jit(transform(solve))(*systems)
    chex.assert_trees_all_close(actual, expected, rtol=1e-12, atol=1e-14)


def test_one_by_one_in_a_scan_closing_over_an_argument(systems):
    def loss(matrix, wrap):
        def step(rhs, _):
            return jax.vmap(wrap(lambda b: jnp.linalg.solve(matrix, b)))(rhs), None

        return jnp.sum(jax.lax.scan(jax.checkpoint(step), systems[1], length=2)[0])

    matrix = systems[0]["matrix"][0, 0]
    actual = jax.grad(loss)(matrix, one_by_one)
    assert_allclose(actual, jax.grad(loss)(matrix, lambda f: f), rtol=1e-12)


def test_integer_results_have_no_derivative(systems):
    def function(x):
        return jnp.argsort(x), x**2

    x = systems[1][..., 0]
    actual = jax.jvp(jax.vmap(one_by_one(function)), (x,), (x,))[1][1]
    assert_allclose(actual, 2 * x**2)


def test_a_solve_never_meets_another_on_the_cpu(systems):
    def loss(system, rhs):
        solve = jax.vmap(jax.vmap(linalg.solve, (0, None)))
        return jnp.sum(solve(system["matrix"], rhs) ** 2)

    program = jax.jit(jax.grad(loss)).lower(*systems).as_text()
    calls = [line for line in program.splitlines() if "@lapack" in line]
    assert len(calls) == 5  # a factorisation, two substitutions forward and backward
    assert all('num_batch_dims = "0"' in call for call in calls)


def test_orthogonal_starts_are_jaxs_and_never_meet_on_the_cpu():
    keys = jax.random.split(jax.random.key(0), 3)
    ours = jax.vmap(lambda key: orthogonal(key, (5, 3), jnp.float32))
    theirs = jax.nn.initializers.orthogonal()
    expected = [theirs(key, (5, 3), jnp.float32) for key in keys]
    assert_array_equal(ours(keys), expected)
    program = jax.jit(ours).lower(keys).as_text()
    calls = [line for line in program.splitlines() if "@lapack" in line]
    assert calls
    assert all('num_batch_dims = "0"' in call for call in calls)


def test_right_hand_sides_in_a_batch_share_the_factors(rng):
    system, rhs = jnp.eye(3), jnp.ones((5, 3, 1))
    program = jax.jit(jax.vmap(linalg.solve, (None, 0))).lower(system, rhs).as_text()
    assert program.count("getrf_ffi") == 1
    before, _ = program.split("getrf_ffi")
    assert "while" not in before.split("@main")[-1]
    systems, rhs = rng.normal(size=(2, 3, 3)), rng.normal(size=(5, 3, 2))

    def loss(systems, rhs, solve):
        every = jax.vmap(jax.vmap(solve, (None, 2), 1), (0, None))
        found = every(systems, jnp.moveaxis(rhs, 0, 2))
        return jnp.sum(found**3), found

    actual, expected = (
        jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True), static_argnums=2)(
            systems, rhs, solve
        )
        for solve in (linalg.solve, jnp.linalg.solve)
    )
    chex.assert_trees_all_close(actual, expected, rtol=1e-9)


@pytest.mark.parametrize("function", ["solve", "heads"])
def test_one_export_serves_every_platform(systems, function):
    systems = jax.tree.map(lambda a: a.astype(jnp.float32), systems)

    def loss(system, rhs):
        if function == "solve":
            mapped = jax.vmap(jax.vmap(linalg.solve, (0, None)))
            return jnp.sum(mapped(system["matrix"], rhs) ** 2)
        product = functools.partial(jnp.einsum, "sij,jc->sic")
        return jnp.sum(over_heads(product, system["matrix"], rhs, sequential=True) ** 2)

    gradient = jax.jit(jax.grad(loss))
    exported = export.export(gradient, platforms=("cpu", "cuda", "tpu"))(*systems)
    actual = exported.call(*systems)["matrix"]
    assert_allclose(actual, gradient(*systems)["matrix"], rtol=1e-5)


@pytest.mark.parametrize("sequential", [True, False])
def test_over_heads_maps_a_function(systems, sequential):
    matrix, rhs = systems[0]["matrix"], systems[1]

    def loss(matrix, rhs, over):
        step = jax.checkpoint(lambda a, b: jnp.tanh(jnp.einsum("sij,jc->sic", a, b)))

        def body(total, scale):
            batch = jax.vmap(lambda b: over(step, scale * matrix, b))
            return total + jnp.sum(batch(jnp.stack([rhs, rhs + 1]))), None

        return jax.lax.scan(body, 0.0, jnp.arange(3.0))[0]

    over = functools.partial(over_heads, sequential=sequential)
    actual = jax.jit(jax.grad(lambda *args: loss(*args, over), (0, 1)))(matrix, rhs)
    plain = jax.grad(lambda *args: loss(*args, lambda f, *a: jax.vmap(f)(*a)), (0, 1))
    chex.assert_trees_all_close(actual, plain(matrix, rhs), rtol=1e-12)


def test_over_heads_lowers_one_branch_for_one_platform(systems):
    arguments = systems[0]["matrix"], systems[1]
    product = functools.partial(jnp.einsum, "sij,jc->sic")

    def program(platform):
        over = functools.partial(over_heads, product, sequential=True)
        gradient = jax.grad(lambda a, b: jnp.sum(over(a, b) ** 2))
        traced = jax.jit(gradient).trace(*arguments)
        return traced.lower(lowering_platforms=(platform,)).as_text()

    assert "stablehlo.while" in program("cpu")
    assert "stablehlo.while" not in program("cuda")


# With `jnp.linalg.solve` instead it waits for ever on two cores (jaxlib 0.10.2).
BATCHES = """
import jax, jax.numpy as jnp
from opjax import linalg

systems = jax.random.normal(jax.random.key(0), (256, 16, 16)) + 8 * jnp.eye(16)
rhs = jax.random.normal(jax.random.key(1), (256, 16, 4))

def loss(systems, rhs):
    batches = (jax.vmap(linalg.solve)(systems + i, rhs) for i in range(4))
    return sum(jnp.sum(x**2) for x in batches)

gradient = jax.jit(jax.grad(loss, (0, 1)))
for _ in range(40):
    jax.block_until_ready(gradient(systems, rhs))
"""


@pytest.mark.nightly
def test_batches_of_solves_at_once_come_to_an_end():
    environment = dict(os.environ)
    environment.pop("NPROC", None)  # one thread has nobody to wait for
    command = [sys.executable, "-c", BATCHES]
    subprocess.run(command, env=environment, check=True, timeout=60)
