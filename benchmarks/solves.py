"""Times the small Tikhonov systems of functional attention: LU against Cholesky.

    python benchmarks/solves.py

For batches of `heads x samples` systems of every shape, solves the dual form (here the
smaller one) with both factorisations, forward and with the gradient. The two alternate
in one process. Prints medians in milliseconds and their ratio.
"""

import functools
import json
import statistics
import time

import jax
import jax.numpy as jnp
from absl import app, flags

_REPEATS = flags.DEFINE_integer("repeats", 51, "Number of timed calls of each variant")

# (systems, d, k): the paper's Darcy at batch 1 and 4, Navier-Stokes at batch 2, larger.
SHAPES = [(8, 16, 64), (32, 16, 64), (16, 32, 32), (256, 32, 64), (64, 64, 128)]


def ridge_solve(matrix, target, *, positive):
    """Returns the dual solution, by Cholesky if `positive`, else by LU."""
    gram = jnp.matmul(matrix.T, matrix, precision=jax.lax.Precision.HIGHEST)
    system = gram + 0.1 * jnp.eye(gram.shape[0])
    rhs = matrix.T @ target
    if positive:
        return jax.scipy.linalg.solve(system, rhs, assume_a="pos")
    return jnp.linalg.solve(system, rhs)


def variants(matrix, target):
    """Returns jitted functions of no arguments by name, forward and with gradient."""
    functions = {}
    for name, positive in (("lu", False), ("cholesky", True)):
        solve = jax.vmap(functools.partial(ridge_solve, positive=positive))

        def loss(matrix, target, solve=solve):
            return jnp.sum(solve(matrix, target) ** 2)

        functions[f"{name}_forward"] = functools.partial(jax.jit(solve), matrix, target)
        gradient = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
        functions[f"{name}_gradient"] = functools.partial(gradient, matrix, target)
    return functions


def measure(functions, repeats):
    """Returns median milliseconds per variant, timed in turn."""
    samples = {name: [] for name in functions}
    for function in functions.values():
        jax.block_until_ready(function())
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            samples[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(times) for name, times in samples.items()}


def main(argv):
    del argv
    print("| systems, d, k | LU forward / gradient | Cholesky | ratio LU/Cholesky |")
    print("|---|---|---|---|")
    table = {}
    for shape in SHAPES:
        systems, d, k = shape
        keys = jax.random.split(jax.random.key(0))
        matrix = jax.random.normal(keys[0], (systems, k, d))
        target = jax.random.normal(keys[1], (systems, k, d))
        ms = measure(variants(matrix, target), _REPEATS.value)
        forward = ms["lu_forward"] / ms["cholesky_forward"]
        gradient = ms["lu_gradient"] / ms["cholesky_gradient"]
        print(
            f"| {systems}, {d}, {k} | {ms['lu_forward']:.2f} / {ms['lu_gradient']:.2f} "
            f"| {ms['cholesky_forward']:.2f} / {ms['cholesky_gradient']:.2f} "
            f"| {forward:.2f} / {gradient:.2f} |"
        )
        table["x".join(map(str, shape))] = [forward, gradient]
    print(json.dumps({"ratio_lu_over_cholesky": table}))


if __name__ == "__main__":
    app.run(main)
