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
# # Two-level Schwarz attention, by hand
#
# Attention without softmax is a low-rank operator, $f \mapsto Q (K^T f)$. Solution
# operators of elliptic equations are not of low rank: what happens nearby matters most,
# and in detail, but every point also feels all others a little. Domain decomposition
# has known what to do about this since the 1980s. Köhler and Rheinbach (2026) put it
# into attention: many small blocks on overlapping subdomains, and one on a coarse space
# that lets them talk,
#
# $$u = \Phi\, Q_0 K_0^T \Phi^T f + \sum_i R_i^T D_i^{1/2} Q_i K_i^T D_i^{1/2} R_i f .$$
#
# We build this operator from the functions of `opjax.schwarz`, train it on
# $-u'' = f$ in a few seconds, and take it apart.

# %%
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx

from opjax import nn, schwarz, training
from opjax.problems import poisson

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

n, num_subdomains = 256, 8
x = np.arange(1, n + 1) / (n + 1)

# %% [markdown]
# ## The problem
#
# Right-hand sides are single sines and cosines, or random sums of 16 of each. The exact
# discrete solution comes with them, one sample a column.

# %%
problem = poisson.fourier_problem(n)
samples = poisson.sample(jax.random.key(0), problem, num_samples=4)

_, axes = plt.subplots(1, 2, figsize=(10, 2.6), sharex=True)
axes[0].plot(x, samples.right_sides)
axes[0].set_title("right-hand sides $f$")
axes[1].plot(x, samples.solutions)
axes[1].set_title("solutions $u$ of $-u'' = f$")
plt.show()

# %% [markdown]
# ## Subdomains
#
# A `Cover` lists the points of each subdomain, padded to one size, with weights $D_i$
# that add up to one at every point. `restrict` takes the values on every subdomain,
# `prolong`, its adjoint, sums them up again: weighted, nothing is lost.

# %%
cover = schwarz.box_cover(n, num_subdomains, overlap=2)
print("points of the subdomains:", cover.sizes)

f = samples.right_sides
local = schwarz.restrict(f, cover)
weighted = jnp.asarray(cover.weights, f.dtype)[..., None] * local
print("restricted:", local.shape)
print("lost:", jnp.abs(schwarz.prolong(weighted, cover) - f).max())

# %% [markdown]
# The coarse space has one hat function for every border between two subdomains. It is
# stored just like a cover: a support and the values on it.

# %%
hats = schwarz.interface_hats(n, num_subdomains)

_, axes = plt.subplots(2, 1, figsize=(10, 3.6), sharex=True)
for indices, weights, size in zip(
    cover.indices, cover.weights, cover.sizes, strict=True
):
    axes[0].plot(x[indices[:size]], weights[:size], "o-", markersize=2)
axes[0].set_title("partition of unity $D_i$")
for indices, weights, size in zip(hats.indices, hats.weights, hats.sizes, strict=True):
    axes[1].plot(x[indices[:size]], weights[:size])
axes[1].set_title("coarse functions $\\Phi$")
plt.show()

# %% [markdown]
# ## The operator
#
# Factors are plain arrays, the operator is one function of them. Three dozen points to
# a subdomain, four columns to a local factor: 2370 numbers, where the inverse matrix
# has 65 536.


# %%
def operator(factors, f):
    coarse = partial(schwarz.low_rank_attention, factors["Q0"], factors["K0"])
    return schwarz.two_level_attention(
        factors["Q"], factors["K"], f, cover, coarse_space=hats, coarse=coarse
    )


def random_factors(key, scale, rank=4):
    s, m, n0 = *cover.indices.shape, hats.num_subdomains
    shapes = {"Q": (s, m, rank), "K": (s, m, rank), "Q0": (n0, n0), "K0": (n0, n0)}
    keys = jax.random.split(key, len(shapes))
    return {
        name: scale * jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


# %% [markdown]
# Training is a scan over steps, each on 256 fresh right-hand sides, with the squared
# relative error as loss.


# %%
@partial(jax.jit, static_argnames=("apply", "optimizer", "num_steps"))
def train(model, problem, apply, optimizer, num_steps=1000):
    def loss(model, batch):
        return poisson.weighted_mse(apply(model, batch.right_sides), batch.solutions)

    def step(carry, key):
        model, state = carry
        batch = poisson.sample(key, problem, num_samples=256)
        value, gradient = jax.value_and_grad(loss)(model, batch)
        updates, state = optimizer.update(gradient, state, model)
        return (optax.apply_updates(model, updates), state), value

    keys = jax.random.split(jax.random.key(1), num_steps)
    (model, _), losses = jax.lax.scan(step, (model, optimizer.init(model)), keys)
    return model, losses


curves = {}
for label, scale, rate in (("paper, 0.02", 0.02, 1e-2), ("0.002", 0.002, 2e-3)):
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, 100, 1000)
    factors, curves[label] = train(
        random_factors(jax.random.key(2), scale),
        problem,
        apply=operator,
        optimizer=optax.adam(schedule),
    )
    print(f"{label}: loss {curves[label][0]:.2g} at first, {curves[label][-1]:.1e} now")

# %% [markdown]
# The size of the random start matters more than anything else, and the right size
# depends on the number of points. `opjax.nn` owns the same factors in a module and
# finds their start from one batch, whatever the problem: keys from the principal
# components of what each block sees, queries zero, every level scaled to its share of
# the solutions.


# %%
def default_start(n, num_subdomains, problem):
    hats = schwarz.interface_hats(n, num_subdomains)
    rngs = nnx.Rngs(0)
    model = nn.SchwarzAttention(
        schwarz.box_cover(n, num_subdomains, overlap=2),
        rank=4,
        coarse_space=hats,
        coarse=nn.schwarz.LowRankAttention(
            hats.num_subdomains, rank=num_subdomains, rngs=rngs
        ),
        rngs=rngs,
    )
    batch = poisson.sample(jax.random.key(3), problem, num_samples=256)
    model = nn.schwarz.principal_keys(model, *batch)
    model, sizes = nn.schwarz.calibrate(model, *batch)
    # Rates in units of the sizes of the factors.
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 100, 1000)
    optimizer = optax.chain(
        optax.adam(schedule, b1=0.95, b2=0.98),
        training.scale_updates(sizes),
    )
    return model, optimizer


def call(model, f):
    return model(f)


model, optimizer = default_start(n, num_subdomains, problem)
model, curves["our default"] = train(model, problem, apply=call, optimizer=optimizer)
print(model.num_parameters, "parameters")

# %%
_, axis = plt.subplots(figsize=(10, 3))
for label, losses in curves.items():
    axis.semilogy(losses, label=label, linewidth=0.8)
axis.set(xlabel="step", ylabel="loss", title="three ways to start")
axis.legend(ncols=3)
plt.show()

# %% [markdown]
# ## Taken apart
#
# `matrix_of` turns an operator into a matrix to look at. The local blocks carry the
# detail near the diagonal, the coarse block the rest, and neither makes sense alone.

# %%
full = schwarz.matrix_of(model, n)
local_factors = model.query[...], model.key[...]
local = schwarz.matrix_of(
    lambda f: schwarz.two_level_attention(*local_factors, f, cover), n
)
exact = jax.vmap(poisson.solve, in_axes=1, out_axes=1)(jnp.eye(n))

images = {
    "local": local,
    "coarse": full - local,
    "both": full,
    "$A^{-1}$": exact,
    "error": full - exact,
}
_, axes = plt.subplots(1, 5, figsize=(13, 2.8))
for axis, (title, image) in zip(axes, images.items(), strict=True):
    limit = jnp.abs(image if title == "error" else exact).max()
    axis.imshow(image, vmin=-limit, vmax=limit)
    axis.set(title=f"{title}, colours to {limit:.1e}", xticks=[], yticks=[])
plt.show()
error = jnp.linalg.norm(full - exact) / jnp.linalg.norm(exact)
print(f"Result: two-level attention of {n} points is the inverse up to {error:.2%}")

# %% [markdown]
# One local block is a small Green's function. Its columns in the keys are what the
# block measures of $f$, those in the queries what it answers.

# %%
query, key = (np.asarray(factor)[3] for factor in local_factors)
inside = x[cover.indices[3]]
_, axes = plt.subplots(1, 3, figsize=(12, 2.8))
axes[0].imshow(query @ key.T)
axes[0].set(title="$Q_3 K_3^T$", xticks=[], yticks=[])
axes[1].plot(inside, key)
axes[1].set_title("columns of $K_3$")
axes[2].plot(inside, query)
axes[2].set_title("columns of $Q_3$")
plt.show()

# %% [markdown]
# ## More points
#
# Four times as many points and subdomains, the same code, the same rate and the same start.

# %%
larger = poisson.fourier_problem(1024)
model, optimizer = default_start(1024, 32, larger)
model, losses = train(model, larger, apply=call, optimizer=optimizer)
print(f"n = 1024: loss {losses[0]:.2g} at first, {losses[-1]:.1e} now")

test = poisson.sample(jax.random.key(4), larger, num_samples=3)
_, axis = plt.subplots(figsize=(10, 2.6))
axis.plot(test.solutions, color="0.7", linewidth=4)
axis.plot(model(test.right_sides), "k--", linewidth=1)
axis.set(title="solutions (grey) and predictions (dashed)", xlabel="point")
plt.show()

# %% [markdown]
# The coarse block can itself be a two-level operator: give `SchwarzAttention` another
# one as `coarse`. And the blocks need not be linear. `nn.SubdomainAttention` carries
# attention in any basis in every subdomain, see `experiments.darcy
# --model=functional_schwarz`.
