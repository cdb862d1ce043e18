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
# # From functional maps to attention, on an interval
#
# Attention compares every query point with every key point: an `m x n` matrix of
# affinities that belongs to the two meshes rather than to the functions sampled on
# them. *Functional attention* (Xiao et al., 2026) replaces it by a small matrix between
# coefficients. Three steps, each one function of `opjax`:
#
# 1. expand queries, keys and values in bases, `project`: $\tilde K = \Psi^T W K$;
# 2. fit the linear map that carries key to query coefficients, `functional_map`:
#    $C = \arg\min_C \|C \tilde K - \tilde Q\|_F^2 + \lambda \|C\|_F^2$;
# 3. apply it to the values and evaluate at the query points, `reconstruct`:
#    $\Phi\, C\, \tilde V$.
#
# We look at each step on $[0, 1]$, where everything can be drawn, and then train a
# layer to find bases and map by itself.

# %%
import functools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from flax import nnx

import opjax
from opjax import metrics, nn, training

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
relative_l2 = jax.vmap(metrics.relative_l2, in_axes=-1)  # one error per function

# %% [markdown]
# ## Bases
#
# A basis is an array: `k` functions evaluated at `n` points. Hats are local and sum to
# one; Fourier modes are global and orthonormal.

# %%
x = jnp.linspace(0, 1, 401)[:, None]
w = opjax.grid_weights((401,))  # trapezoid rule

_, axes = plt.subplots(1, 2, figsize=(10, 2.6), sharex=True)
axes[0].plot(x, opjax.hat_basis(x, num_nodes=8))
axes[0].set_title("hat basis, k = 8")
axes[1].plot(x, opjax.fourier_basis(x, num_frequencies=2))
axes[1].set_title("Fourier basis, k = 5")
plt.show()

# %% [markdown]
# A network does not know the right basis beforehand, so it learns scores $s_j(x)$ and
# normalises them by a softmax. Whatever the scores, the functions are positive and sum
# to one: a partition of unity, drawn below as a stack of height one. The temperature
# decides how soft the partition is. As it tends to zero each point belongs to the
# function of largest score, and what remains are piecewise-constant (P0) elements on
# cells that the scores have cut out (Prop. 4.3). Here the scores are random
# trigonometric polynomials, standing in for a network at initialisation.


# %%
@jax.jit
def score(points):
    """Six smooth score functions."""
    mixing = jax.random.normal(jax.random.key(3), (7, 6))
    return opjax.fourier_basis(points, num_frequencies=3) @ mixing


temperatures = (2.0, 0.5, 0.1)
stacks = [opjax.softmax_basis(score(x), temperature=t) for t in temperatures]
stacks.append(opjax.indicator_basis(score(x)))

_, axes = plt.subplots(1, 4, figsize=(12, 2.4), sharey=True)
titles = [rf"$\tau$ = {t}" for t in temperatures] + [r"P0 limit, $\tau \to 0$"]
for ax, stack, title in zip(axes, stacks, titles, strict=True):
    ax.stackplot(x[:, 0], stack.T, colors=plt.cm.Set2.colors, lw=0.3, ec="white")
    ax.set(title=title, xlim=(0, 1), ylim=(0, 1))
plt.show()

# %% [markdown]
# How fast is the limit reached? Two functions share a point only in a layer around
# their interface whose width is proportional to $\tau$, so the $L^1$ distance to the
# limit should fall linearly, with slope one.

# %%
taus = np.geomspace(0.02, 4, 12)
fine = jnp.linspace(0, 1, 4001)[:, None]
distances = [
    opjax.grid_weights((4001,))
    @ jnp.abs(
        opjax.softmax_basis(score(fine), temperature=t)
        - opjax.indicator_basis(score(fine))
    ).sum(axis=1)
    for t in taus
]
plt.figure(figsize=(4.6, 2.8))
plt.loglog(taus, distances, "o-", label=r"$\sum_j \|\phi_j(\tau) - 1_j\|_{L^1}$")
plt.loglog(taus, taus, "k:", label=r"slope 1")
plt.xlabel(r"temperature $\tau$")
plt.legend()
plt.show()
slope = np.polyfit(np.log(taus[:6]), np.log(np.asarray(distances[:6])), 1)[0]
print(f"slope over the six smallest temperatures {slope:.2f}")

# %% [markdown]
# ## Projection and reconstruction
#
# Three projections are in use. `InnerProducts` takes inner products, `Means` divides
# them by the mass of each basis function, and `LeastSquares` solves for the best
# approximation. Only the last reconstructs a function, unless the basis is
# orthonormal, when inner products and least squares coincide. For attention that is no
# flaw: inner products are as good a representation to compare functions by, cheaper
# and without a solve (Remark 4.1).

# %%
f = jnp.sin(2 * jnp.pi * x) + 0.5 * jnp.cos(6 * jnp.pi * x) + (x > 0.6)
hats = opjax.hat_basis(x, num_nodes=16)
orthonormal = opjax.orthonormalize(hats, quadrature_weights=w)

_, axes = plt.subplots(1, 2, figsize=(10, 2.8), sharey=True)
for ax, basis, title in zip(
    axes, (hats, orthonormal), ("16 hats", "the same span, orthonormal"), strict=True
):
    ax.plot(x, f, color="0.7", lw=4, label="function")
    kinds = [opjax.LeastSquares(), opjax.InnerProducts()]
    kinds += [opjax.Means()] * (basis is hats)
    for projection, style in zip(kinds, ("-", "--", "-."), strict=False):
        c = opjax.project(f, basis, quadrature_weights=w, projection=projection)
        label = type(projection).__name__
        ax.plot(x, opjax.reconstruct(c, basis), style, label=label)
    ax.set_title(title)
axes[0].legend(ncols=2, fontsize=8, loc="lower left")
plt.show()

# %% [markdown]
# ## The functional map
#
# Let $g(y) = f(T(y))$, a function pulled back along a change of coordinates $T$.
# Whatever $T$, the operator $f \mapsto g$ is linear, and in a basis it is a matrix. We
# need not know $T$: the matrix can be fitted to a few pairs of functions, the *keys*
# $K$ and the *queries* $Q = K \circ T$. Then it transports functions it has not seen.
#
# We take two changes of coordinates, a periodic shift and a warp, and 40 random smooth
# functions as keys.


# %%
def shift(y):
    """Moves functions to the right by 0.2."""
    return y - 0.2


def warp(y):
    """Keeps both ends, stretches the middle left."""
    return y + 0.12 * jnp.sin(2 * jnp.pi * y)


@functools.partial(jax.jit, static_argnames="num")
def smooth_functions(points, seed, num):
    """Random trigonometric polynomials of degree 12, decaying like 1 / frequency^2."""
    frequency = jnp.repeat(jnp.arange(13.0), 2)[1:]
    decay = 1 / (1 + frequency**2)
    xi = decay[:, None] * jax.random.normal(jax.random.key(seed), (25, num))
    return 4 * opjax.fourier_basis(points, num_frequencies=12) @ xi


bases = {
    "Fourier": opjax.fourier_basis(x, num_frequencies=12),
    "hat": opjax.hat_basis(x, num_nodes=21),
}
cases = {"shift, Fourier": shift, "warp, Fourier": warp, "warp, hat": warp}
project = functools.partial(
    opjax.project, quadrature_weights=w, projection=opjax.LeastSquares()
)
maps = {}
for name, move in cases.items():
    basis = bases[name.split(", ")[1]]
    keys = smooth_functions(x, 0, 40)
    queries = smooth_functions(move(x), 0, 40)
    maps[name] = opjax.functional_map(
        project(queries, basis), project(keys, basis), ridge=1e-5
    )

_, axes = plt.subplots(1, 3, figsize=(11, 3.4))
for ax, (name, matrix) in zip(axes, maps.items(), strict=True):
    image = ax.imshow(matrix, vmin=-1, vmax=1)
    ax.set(title=name, xlabel="key basis function", ylabel="query basis function")
axes[2].plot(20 * warp(x), 20 * x, "k", lw=0.8, label="graph of T")
axes[2].legend(loc="lower left")
plt.colorbar(image, ax=axes, shrink=0.8)
plt.show()

# %% [markdown]
# A shift only turns sine into cosine of the same frequency, so in the Fourier basis its
# map is block-diagonal, one rotation per frequency. The warp mixes frequencies; in the
# local hat basis its map is a picture of the graph of $T$ (black). The operator is the
# same, only the basis differs; a learned basis is free to choose either view.
#
# Now transport: a pair of key and query, and a function that was in none of the pairs.

# %%
basis, move = bases["Fourier"], warp
unseen, exact = smooth_functions(x, 1, 64), smooth_functions(move(x), 1, 64)
moved = opjax.reconstruct(maps["warp, Fourier"] @ project(unseen, basis), basis)
best = opjax.reconstruct(project(exact, basis), basis)

_, axes = plt.subplots(1, 2, figsize=(10, 2.8))
axes[0].plot(x, keys[:, :3])
axes[0].set_prop_cycle(None)
axes[0].plot(x, queries[:, :3], "--")
axes[0].set_title("three of the keys, and queries (dashed)")
axes[1].plot(x, unseen[:, 0], color="0.7", label="unseen function")
axes[1].plot(x, exact[:, 0], color="0.2", lw=4, alpha=0.4, label="warped, exact")
axes[1].plot(x, moved[:, 0], "C3", label="transported by the map")
axes[1].set_title("transport")
axes[1].legend(fontsize=8)
print(f"relative L2 error of transport   {relative_l2(moved, exact).mean():.1e}")
print(f"best approximation in the basis  {relative_l2(best, exact).mean():.1e}")
plt.show()

# %% [markdown]
# Where both numbers agree, the map is as good as the basis lets it be.
#
# ### How much ridge?
#
# The ridge $\lambda$ keeps the solve well posed. Too little and the map fits the noise
# of the pairs; too much and it shrinks to zero, an error of one. Clean pairs are content
# with any small ridge; noise gives the error a minimum and moves it to the right. The
# condition number of the system $\tilde K \tilde K^T + \lambda I$ falls like
# $1/\lambda$ once the ridge exceeds the smallest eigenvalue;
# with 12 pairs for 25 coefficients there is no solving at all without a ridge.

# %%
ridges = jnp.geomspace(1e-7, 1e4, 34)
k, q = project(keys, basis), project(smooth_functions(warp(x), 0, 40), basis)
noise = jax.random.normal(jax.random.key(2), (2, *k.shape))


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None))
def transport_error(ridge, level):
    c = opjax.functional_map(q + level * noise[0], k + level * noise[1], ridge=ridge)
    return relative_l2(basis @ c @ project(unseen, basis), exact).mean()


_, axes = plt.subplots(1, 2, figsize=(10, 2.9), sharex=True)
for level in (0.0, 0.01, 0.1):
    axes[0].loglog(ridges, transport_error(ridges, level), label=f"noise {level}")
axes[0].axhline(relative_l2(best, exact).mean(), color="k", ls=":", label="basis")
axes[0].set(title="error of transport", xlabel=r"ridge $\lambda$")
for num in (40, 12):
    numbers = [opjax.condition_number(k[:, :num], ridge=r) for r in ridges]
    axes[1].loglog(ridges, numbers, label=f"{num} pairs")
axes[1].axhline(1 / jnp.finfo(jnp.float32).eps, color="k", ls=":", label="1 / eps")
axes[1].set(title="condition number", xlabel=r"ridge $\lambda$")
for ax in axes:
    ax.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Functional attention
#
# `functional_attention` is the three steps in one call. Queries and keys may live on
# different points. As a first use we reconstruct a signal, given at 60 scattered
# points, on a fine grid. Keys and queries are the same position features at the two
# sets of points, so the map should be the identity; the values are the data. Two
# relatives serve as comparison: softmax attention, a weighted average of the data, and
# Intention, a ridge regression of values on keys, which functional attention becomes
# in an orthonormal basis of all functions on the mesh (Prop. A.4).


# %%
def signal(points):
    """Smooth, but in the span of no basis used here."""
    return jnp.exp(jnp.sin(2 * jnp.pi * points)) * jnp.cos(6 * jnp.pi * points)


scattered = jnp.sort(jax.random.uniform(jax.random.key(4), (60, 1)), axis=0)
data, truth = signal(scattered), signal(x)
waves = functools.partial(opjax.fourier_basis, num_frequencies=8)

answers = {}
given = {
    "query_weights": w,
    "key_weights": opjax.scattered_weights(scattered, num_neighbors=2),
    "projection": opjax.LeastSquares(),
    "ridge": 1e-4,
}
bases = waves(x), waves(scattered)
answers["functional attention"] = opjax.functional_attention(
    waves(x), waves(scattered), data, *bases, **given
)
transported = opjax.functional_attention_map(
    waves(x), waves(scattered), *bases, **given
)
answers["Intention"] = opjax.intention(waves(x), waves(scattered), data, ridge=1e-4)
answers["softmax attention"] = opjax.softmax_attention(waves(x), waves(scattered), data)

plt.figure(figsize=(10, 2.9))
plt.plot(x, truth, color="0.7", lw=4, label="truth")
for (name, answer), style in zip(answers.items(), ("-", "--", "-."), strict=True):
    plt.plot(x, answer, style, label=name)
    print(f"{name:21s} relative L2 error {metrics.relative_l2(answer, truth):.1e}")
plt.plot(scattered, data, "k.", label="data")
plt.legend(fontsize=8, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.2))
distance = jnp.abs(transported.functional_map - jnp.eye(17)).max()
print(f"distance of the map to the identity {distance:.1e}")
plt.show()

# %% [markdown]
# An average of data cannot leave their range and flattens every extremum. The other two
# solve a least-squares problem and recover the signal; functional attention does so
# with a system whose size is that of the basis, not of the mesh.
#
# ### The mesh should not matter
#
# Refine the mesh of the keys: does the output converge? And to the same function for
# every family of meshes? Only if sums approximate integrals, that is, with quadrature
# weights. Below, the same functions are sampled on uniform meshes, on meshes graded
# towards zero ($x = s^2$), and on random points with weights estimated from distances
# to neighbours. The bases are the softmax functions of above.


# %%
@jax.jit
def attend(points, weights):
    """One head whose queries, keys and values are fixed functions."""
    return opjax.functional_attention(
        smooth_functions(x, 6, 4),
        smooth_functions(points, 7, 4),
        smooth_functions(points, 8, 1),
        opjax.softmax_basis(score(x)),
        opjax.softmax_basis(score(points)),
        query_weights=w,
        key_weights=weights,
        projection=opjax.Means(),
        ridge=1e-2,
    )


def midpoints(n):
    """Centres of n cells."""
    return (jnp.arange(n)[:, None] + 0.5) / n


sizes = [16, 64, 256, 1024]
limit = attend(midpoints(4096), opjax.grid_weights((4096,), rule="midpoint"))
errors = {"uniform": [], "graded": [], "graded, equal weights": [], "random": []}
for n in sizes:
    s, even = midpoints(n), opjax.grid_weights((n,), rule="midpoint")
    random = jax.random.uniform(jax.random.key(n), (n, 1))
    outputs = (
        attend(s, even),
        attend(s**2, 2 * s[:, 0] * even),
        attend(s**2, even),
        attend(random, opjax.scattered_weights(random)),
    )
    for row, output in zip(errors.values(), outputs, strict=True):
        row.append(metrics.relative_l2(output, limit))

plt.figure(figsize=(5.6, 3.4))
for (name, row), style in zip(errors.items(), "osx^", strict=True):
    plt.loglog(sizes, row, style + "-", label=name)
plt.loglog(sizes, 30.0 / np.square(sizes), "k:", label="slope -2")
plt.xticks(sizes, sizes)
plt.minorticks_off()
plt.xlabel("number of key points n")
plt.ylabel("distance to the limit")
plt.legend(fontsize=8)
plt.show()

# %% [markdown]
# Uniform midpoints are spectrally accurate for periodic functions, down to the rounding
# of float32; graded ones show the order two of the midpoint rule; random points
# converge slowly and erratically, as Monte Carlo does. All three tend to the same limit. With equal weights, or
# none, the graded mesh converges too, but to another function, since it counts points
# and not lengths: an answer that depends on the mesh.
#
# ## A layer that learns
#
# Now nothing is given but examples. The operator is the shift $u(x) \mapsto u(x - 0.2)$
# of periodic functions. The layer is one head of `nn.FunctionalAttention`, which learns
# the basis, the features and the ridge; its input are position features and the
# values of $u$, and we read its last channel. In principle it can be exact: a shift
# rotates the Fourier features, and the query weights can learn that rotation.
#
# One setting needs care. The coefficients start small, so a ridge that is large beside
# them makes the map, the output and the gradient nearly zero, and training waits long
# on a plateau. We start at $\lambda \approx e^{-8}$.

# %%
num_train, num_points, num_steps = 1024, 64, 512
grid = jnp.arange(num_points)[:, None] / num_points
modes = jax.random.normal(jax.random.key(1), (num_train + 64, 8, 1))


def pair(points):
    """Inputs and outputs of all samples: degree 4, mean zero."""
    at = functools.partial(opjax.fourier_basis, num_frequencies=4)
    return at(points)[:, 1:] @ modes, at(shift(points))[:, 1:] @ modes


def predict(layer, points, u, weights=None):
    """Shifts one function."""
    z = jnp.concatenate([waves(points), u], axis=1)
    return layer(z, quadrature_weights=weights)[:, -1:]


def loss(layer, batch):
    """Mean relative error of a batch."""
    v = jax.vmap(lambda u: predict(layer, grid, u))(batch[0])
    return jnp.mean(jax.vmap(metrics.relative_l2)(v, batch[1]))


layer = nn.FunctionalAttention(
    18,
    num_heads=1,
    num_basis=24,
    ridge_logit=-8.0,
    temperature_bounds=None,
    rngs=nnx.Rngs(0),
)
optimizer = training.adamw_onecycle(1e-2, num_steps, weight_decay=0.0, clip_norm=1.0)
state = training.init(layer, optimizer)
epoch = training.make_epoch(loss, optimizer, on_device_scan=True)
train_data = jax.tree.map(lambda a: a[:num_train], pair(grid))
order = jnp.concatenate(
    [training.sample_order(0, e, num_train, batch_size=16) for e in range(8)]
)
state, history = epoch(state, train_data, order)

plt.figure(figsize=(5.6, 2.8))
plt.semilogy(history["loss"], lw=0.8)
plt.xlabel("step")
plt.ylabel("relative L2 error of the batch")
print(f"{sum(a.size for a in jax.tree.leaves(layer))} parameters")
plt.show()

# %% [markdown]
# The layer has seen one mesh, 64 uniform points. We ask it for functions it has not
# seen on that mesh, on a finer one, and on a graded one with its quadrature weights
# (and without them).

# %%
meshes = {
    "64 uniform points (training)": (grid, None),
    "256 uniform points": (midpoints(256), None),
    "256 graded points, weights": (midpoints(256) ** 2, midpoints(256)[:, 0] / 128),
    "256 graded points, no weights": (midpoints(256) ** 2, None),
}
apply = jax.jit(jax.vmap(predict, in_axes=(None, None, 0, None)))
errors = {}
for name, (points, weights) in meshes.items():
    u, v = (a[num_train:] for a in pair(points))
    error = jax.vmap(metrics.relative_l2)(apply(state.model, points, u, weights), v)
    errors[name] = float(error.mean())
    print(f"{name:30s} mean relative L2 error {errors[name]:.1e}")
of_training, _, weighted, unweighted = errors.values()
print(
    f"Result: a learned layer shifts unseen functions with a relative L2 error of "
    f"{of_training:.1%} on the mesh of training, {weighted:.1%} on a graded mesh with "
    f"weights, {unweighted:.0%} without"
)

points, weights = meshes["256 graded points, weights"]
u, v = (a[-1] for a in pair(points))
plt.figure(figsize=(8, 2.6))
plt.plot(points, u, color="0.7", label="input")
plt.plot(points, v, color="0.2", lw=4, alpha=0.4, label="shifted, exact")
predicted = apply(state.model, points, u[None], weights)[0]
plt.plot(points, predicted, "C3", label="predicted")
plt.title("unseen function, graded mesh with weights")
plt.legend(fontsize=8)
plt.show()

# %% [markdown]
# `inspect` returns what the layer has learned: the functional map and the basis. Each
# basis function is placed by the centre of its mass. On the right is the derivative of
# the output at $y$ by the input at $x$, the kernel of the operator: a band at
# $x = y - 0.2$, as narrow as functions of degree 4 can tell.

# %%
points = midpoints(128)
u = pair(points)[0][-1]
seen = state.model.inspect(jnp.concatenate([waves(points), u], axis=1))
learned, matrix = seen.key_basis[0], seen.functional_map[0]
centre = jnp.angle(jnp.exp(2j * jnp.pi * points[:, 0]) @ learned) % (2 * jnp.pi)
by_place = jnp.argsort(centre)
kernel = jax.jit(jax.jacfwd(predict, argnums=2))(state.model, points, u)[:, 0, :, 0]

_, axes = plt.subplots(1, 3, figsize=(12, 3.4))
colors = plt.cm.twilight(np.linspace(0, 1, 24))
axes[0].stackplot(points[:, 0], learned.T[by_place], colors=colors)
axes[0].set(title="learned basis", xlim=(0, 1), ylim=(0, 1))
spread = jnp.abs(matrix).max()
axes[1].imshow(matrix[by_place][:, by_place], vmin=-spread, vmax=spread)
axes[1].set(title="functional map", xlabel="key basis", ylabel="query basis")
spread = jnp.abs(kernel).max()
axes[2].imshow(kernel, vmin=-spread, vmax=spread, extent=(0, 1, 1, 0))
axes[2].set(title="kernel", xlabel="input at x", ylabel="output at y")
plt.show()

# %% [markdown]
# What to take along: functional attention is a least-squares fit between coefficients.
# Its cost follows the number of basis functions; its conditioning follows the ridge;
# and its answer follows the functions, not the mesh, provided that sums are weighted as
# integrals.
