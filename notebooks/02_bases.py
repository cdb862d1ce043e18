# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which basis, and how much ridge?
#
# Functional attention works on coefficients, so two questions come before any network:
# what can a basis of `k` functions represent, and how well conditioned is the small
# system between coefficients? Three experiments on irregular points of a disc answer
# them by numbers:
#
# 1. the softmax basis is a partition of unity whose cold limit is piecewise constant;
# 2. a basis fitted to the data beats Fourier modes where the data are not smooth;
# 3. the ridge trades the error of the map against its conditioning, and without it
#    float32 is lost.

# %%
import functools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import opjax

plt.rcParams.update(
    {
        "figure.dpi": 64,
        "figure.constrained_layout.use": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "image.cmap": "RdBu_r",
        "legend.frameon": False,
    }
)


def disc(key, count):
    """Points of the unit disc, uniformly at random."""
    radius, angle = jax.random.uniform(key, (2, count))
    radius, angle = jnp.sqrt(radius), 2 * jnp.pi * angle
    return jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=1)


points = disc(jax.random.key(0), 2000)
weights = opjax.scattered_weights(points, volume=np.pi)

# %% [markdown]
# ## A partition of unity, and its cold limit
#
# Scores are affine functions here, so the cold limit cuts the disc into convex cells.
# At every point the basis functions are positive and sum to one, whatever the scores.

# %%
normal = functools.partial(jax.random.normal, shape=(12, 3))
slopes = normal(jax.random.key(1)) * jnp.array([3.0, 3.0, 1.0])[None, :]
scores = points @ slopes[:, :2].T + slopes[:, 2][None, :]

temperatures = (2.0, 0.5, 0.05)
bases = [opjax.softmax_basis(scores, temperature=t) for t in temperatures]
bases.append(opjax.indicator_basis(scores))
colors = plt.cm.Paired(np.arange(12))[:, :3]

_, axes = plt.subplots(1, 4, figsize=(12, 3.2), sharex=True, sharey=True)
titles = [rf"$\tau$ = {t}" for t in temperatures] + [r"P0 limit, $\tau \to 0$"]
for ax, basis, title in zip(axes, bases, titles, strict=True):
    ax.scatter(*points.T, c=np.clip(np.asarray(basis) @ colors, 0, 1), s=6)
    ax.set(title=title, aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
plt.show()

print("largest deviation of the sum from one:")
for title, basis in zip(titles, bases, strict=True):
    print(f"  {title:24s} {float(jnp.abs(basis.sum(axis=1) - 1).max()):.1e}")

# %% [markdown]
# In the limit, coefficients by `Means()` are averages over cells, and
# reconstruction is the best piecewise-constant approximation. Warmer bases smear it:
# a mean and a weighted sum do not invert each other. The pseudo-inverse does; there
# the warm basis is the better one, because its functions overlap.


# %%
def relative_error(f, approximation):
    """Relative error in the quadrature's L2 norm."""
    error = jnp.sum(weights[:, None] * (f - approximation) ** 2)
    return float(jnp.sqrt(error / jnp.sum(weights[:, None] * f**2)))


def approximate(f, basis, projection):
    """Projects and reconstructs."""
    coefficients = opjax.project(
        f, basis, projection=projection, quadrature_weights=weights
    )
    return opjax.reconstruct(coefficients, basis)


f = jnp.sin(2 * points[:, :1]) * jnp.cos(3 * points[:, 1:]) + 0.5
taus = np.geomspace(0.02, 4, 14)
kinds = {"mean": opjax.Means(), "pseudo-inverse": opjax.LeastSquares(1e-6)}
found = {name: [] for name in kinds}
for tau in taus:
    basis = opjax.softmax_basis(scores, temperature=tau)
    for name, projection in kinds.items():
        error = relative_error(f, approximate(f, basis, projection))
        found[name].append(error)
limit = relative_error(f, approximate(f, bases[-1], opjax.Means()))

plt.figure(figsize=(4.8, 2.8))
for name, errors in found.items():
    plt.loglog(taus, errors, "o-", label=name)
plt.axhline(limit, color="k", ls=":", label="P0 limit")
plt.xlabel(r"temperature $\tau$")
plt.ylabel("relative $L^2$ error")
plt.legend()
plt.show()

# %% [markdown]
# ## Fourier or learned?
#
# Take functions with a jump across a line somewhere in the disc: a family that no fixed
# smooth basis of moderate size represents. Compare, with the same number `k` of
# functions and the best coefficients, Fourier modes of the surrounding box, a softmax
# basis with random scores, and one whose scores are trained on 64 members of the
# family. Errors are of 64 others.


# %%
def jumps(key, count):
    """Functions `sign(x cos t + y sin t - c)` smoothed over a width of 0.02."""
    keys = jax.random.split(key)
    angle = 0.6 * jax.random.normal(keys[0], (count,))
    offset = jax.random.uniform(keys[1], (count,), minval=-0.3, maxval=0.3)
    normals = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return jnp.tanh((points @ normals - offset[None, :]) / 0.02)


train, test = jumps(jax.random.key(2), 64), jumps(jax.random.key(3), 64)
features = opjax.fourier_basis(points, num_frequencies=3, lengths=(4.0, 4.0))


def learned(kernel):
    """Softmax basis from scores that are linear in smooth features."""
    return opjax.softmax_basis(features @ kernel)


def loss(kernel):
    """Error of the best coefficients, by a stabilised pseudo-inverse."""
    residual = train - approximate(train, learned(kernel), opjax.LeastSquares(1e-4))
    return jnp.sum(weights[:, None] * residual**2) / jnp.sum(
        weights[:, None] * train**2
    )


@functools.partial(jax.jit, static_argnames="steps")
def fit(kernel, steps=300):
    """Trains the scores by Adam."""
    optimizer = optax.adam(0.1)

    def step(state, _):
        value, gradient = jax.value_and_grad(loss)(state[0])
        updates, memory = optimizer.update(gradient, state[1])
        return (optax.apply_updates(state[0], updates), memory), value

    (kernel, _), values = jax.lax.scan(
        step, (kernel, optimizer.init(kernel)), length=steps
    )
    return kernel, values


sizes = (9, 25, 49)
rows = {"Fourier": [], "softmax, random": [], "softmax, learned": []}
for count in sizes:
    frequencies = (int(count**0.5) - 1) // 2
    modes = opjax.fourier_basis(points, num_frequencies=frequencies, lengths=(2.2, 2.2))
    start = jax.random.normal(jax.random.key(4), (features.shape[1], count))
    kernel, history = fit(start)
    candidates = (modes, learned(start), learned(kernel))
    for row, basis in zip(rows.values(), candidates, strict=True):
        best = approximate(test, basis, opjax.LeastSquares(1e-4))
        row.append(relative_error(test, best))

print("k".ljust(18), *(f"{count:7d}" for count in sizes))
for name, row in rows.items():
    print(name.ljust(18), *(f"{error:7.3f}" for error in row))
fixed, trained = rows["Fourier"][1], rows["softmax, learned"][1]
print(
    f"Result: of jumps, {sizes[1]} learned functions leave an error of {trained:.0%}, as "
    f"many Fourier modes {fixed:.0%}"
)

# %% [markdown]
# The learned functions are cells with sharp borders, cut so that they can be combined
# to jumps along all lines of the family.

# %%
_, axes = plt.subplots(1, 5, figsize=(13, 2.9), sharex=True, sharey=True)
axes[0].scatter(*points.T, c=test[:, 0], s=5)
axes[0].set(title="a function of the family", aspect="equal")
largest = np.argsort(-np.asarray(weights @ candidates[-1]))[:4]
for ax, j in zip(axes[1:], largest, strict=True):
    ax.scatter(*points.T, c=candidates[-1][:, j], s=5, cmap="viridis")
    ax.set(title=f"learned function {j}", aspect="equal")
plt.show()

# %% [markdown]
# ## Conditioning and the ridge
#
# The map of functional attention solves a system with the matrix
# $\tilde K \tilde K^\top + \lambda I$. Let the key coefficients have singular values
# that fall over six orders of magnitude, as those of smooth functions do, let the query
# coefficients be a known map of them, and add noise. The condition number falls like
# $1/\lambda$. In float64 the error of the map's images falls with the ridge until it
# meets the noise. In float32 it has a minimum: below $\lambda \approx 10^{-5} |\tilde
# K|^2$ the solve loses all its digits, whatever the noise.


# %%
def problem(dtype, noise):
    """Key coefficients with falling singular values, their images, and the map."""
    random = np.random.default_rng(0)
    left, _ = np.linalg.qr(random.normal(size=(32, 32)))
    right, _ = np.linalg.qr(random.normal(size=(64, 64)))
    key = left @ np.diag(10.0 ** np.linspace(0, -6, 32)) @ right[:32]
    exact = random.normal(size=(32, 32)) @ left.T / 32**0.5
    query = exact @ key + noise * random.normal(size=(32, 64)) / 64
    return jnp.asarray(query, dtype), jnp.asarray(key, dtype), exact


ridges = 10.0 ** np.arange(-14, 1.5)
_, axes = plt.subplots(1, 2, figsize=(10, 3))
for dtype, noise, style in (
    ("float64", 1e-3, "C0o-"),
    ("float32", 1e-3, "C1s--"),
    ("float64", 0.0, "C2^:"),
):
    with jax.enable_x64(True):
        query, key, exact = problem(dtype, noise)
        conditions, errors = [], []
        for ridge in ridges:
            ridge = jnp.asarray(ridge, dtype)
            conditions.append(float(opjax.condition_number(key, ridge=ridge)))
            operator = opjax.functional_map(query, key, ridge=ridge)
            # Measured on what it does to coefficients of the same kind.
            difference = (np.asarray(operator, np.float64) - exact) @ np.asarray(key)
            errors.append(np.linalg.norm(difference) / np.linalg.norm(exact @ key))
    label = f"{dtype}, noise {noise:g}"
    axes[0].loglog(ridges, conditions, style, ms=4, label=label)
    axes[1].loglog(ridges, errors, style, ms=4, label=label)
axes[0].set(xlabel=r"ridge $\lambda$", title="condition number")
axes[1].set(xlabel=r"ridge $\lambda$", title="relative error of the map's images")
axes[0].legend()
plt.show()

# %% [markdown]
# The attention layer learns $a = \mathrm{sigmoid}(\alpha)$ and solves with
# $(1 - a)\tilde K \tilde K^\top + a I$, so that the condition number can never exceed
# $1 + |\tilde K|^2 (1 - a) / a$: it is bounded for every value that training can reach,
# and `experiments.ablation` tracks it along a training run.
