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
# # Which attention for which problem
#
# The registry has more than twenty operators under one call. What a problem rules out
# (no grid, meshes of different sizes, too many points for pairs) shortens the list. What
# is left has to be tried: we train eight on one small problem, with the same channels,
# layers, steps and seeds, and look at errors, seconds and parameters.

# %%
import time
import types
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from flax import nnx

from opjax import metrics, training
from opjax.learn.registry import operators
from opjax.problems import burgers

plt.rcParams.update(
    {
        "figure.dpi": 64,
        "figure.constrained_layout.use": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)

# %% [markdown]
# ## What there is
#
# An entry is an attention, for `nn.OperatorTransformer`, or a whole model. Some need a
# grid, some belong to a number of points, and some compare all pairs of points.

# %%
print(f"{'name':19s}{'kind':11s}{'needs':15s}cost")
for name, entry in operators.REGISTRY.items():
    kind = "attention" if entry.attention else "model"
    axes = " or ".join(map(str, entry.grid_axes))
    needs = f"grid, {axes} D" if axes else "fixed points" if entry.fixed_points else ""
    print(f"{name:19s}{kind:11s}{needs:15s}{'pairs' if entry.quadratic else ''}")
print("and any of", ", ".join(operators.BASES))
print("with any of", ", ".join(operators.MIXERS))

# %% [markdown]
# ## One problem
#
# Burgers' equation, from the state at time 0 to the state at time 1, by our own solver:
# 32 points of a periodic line, 96 samples to train on and 32 to test.

# %%
NUM_POINTS, NUM_TRAIN, NUM_TEST = 32, 96, 32
keys = jax.random.split(jax.random.key(0), NUM_TRAIN + NUM_TEST)
made = jax.vmap(partial(burgers.sample, num_points=1024, stride=32))(keys)
points = jnp.linspace(0, 1, NUM_POINTS, endpoint=False)
data = {
    "mesh_points": jnp.broadcast_to(points, made.initial.shape)[..., None],
    "features": made.initial[..., None],
    "target": made.solution[..., None],
}
train = {name: array[:NUM_TRAIN] for name, array in data.items()}
test = {name: array[NUM_TRAIN:] for name, array in data.items()}

_, axes = plt.subplots(1, 3, figsize=(11, 2.4), sharey=True)
for axis, given, asked in zip(axes, made.initial, made.solution, strict=False):
    axis.plot(points, given, color="0.6", label="given, time 0")
    axis.plot(points, asked, color="#0072B2", label="asked for, time 1")
    axis.set_xlabel("x")
axes[0].legend()
plt.show()

# %% [markdown]
# ## The same training for all
#
# Two layers of 32 channels with four heads of 16 functions; 480 steps of four samples,
# AdamW with one peak of the learning rate for all; points are seen through their
# distances to eight reference points, by the models that look at points that way. The three seeds are an axis of one
# `vmap`: other parameters, the same samples.

# %%
SEEDS = (0, 1, 2)
STEPS, ROUNDS, BATCH = 480, 6, 4
SIZES = operators.Sizes(1, 1, 1, num_points=NUM_POINTS, box=((0.0,), (1.0,)))
OPTIONS = {"width": 32, "num_layers": 2, "num_heads": 4, "num_basis": 16}
OPTIONS |= {"convolution": False, "equal_parameters": False, "ridge_unit": "mean"}
OPTIONS |= {"initial_kernels": "unit_variance", "reference_points": 8}


def build(name, key):
    needs_grid = bool(operators.entry(name).grid_axes)
    sizes = SIZES._replace(grid_shape=(NUM_POINTS,) if needs_grid else None)
    config = types.SimpleNamespace(models=(name,), **OPTIONS)
    return operators.build(config, sizes, rngs=nnx.Rngs(key))


def error(model, sample):
    return metrics.relative_l2(operators.call(model, sample), sample["target"])


def loss(model, batch):
    return jnp.sum(jax.vmap(error, in_axes=(None, 0))(model, batch))


optimizer = training.adamw_onecycle(8e-3, STEPS, weight_decay=1e-5, clip_norm=1.0)
update = training.make_step(loss, optimizer)


def advance(state, order):
    """Trains on the batches of an order; returns the state and the test error."""

    def step(state, rows):
        return update(state, {k: v[rows] for k, v in train.items()})[0], None

    state, _ = jax.lax.scan(step, state, order)
    return state, loss(state.model, test) / NUM_TEST


def compare(name):
    """Test errors `(rounds, seeds)`, CPU seconds of training a seed, parameters."""
    keys = jnp.stack([jax.random.key(seed) for seed in SEEDS])
    state = jax.vmap(lambda key: training.init(build(name, key), optimizer))(keys)
    orders = jax.random.randint(jax.random.key(1), (STEPS, BATCH), 0, NUM_TRAIN)
    orders = orders.reshape(ROUNDS, -1, BATCH)
    all_seeds = jax.jit(jax.vmap(advance, in_axes=(0, None)))
    compiled = all_seeds.lower(state, orders[0]).compile()
    errors, begin = [], time.process_time()
    for order in orders:
        state, found = jax.block_until_ready(compiled(state, order))
        errors.append(found)
    seconds = (time.process_time() - begin) / len(SEEDS)
    parameters = sum(leaf[0].size for leaf in jax.tree.leaves(state.model))
    return np.stack(errors), seconds, parameters


# %% [markdown]
# One of each kind, and `hat:functional`, put together from a basis and a mixer. CPU
# seconds are those of training one seed, without compiling.

# %%
NAMES = ("functional", "hat:functional", "functional_schwarz", "transolver")
NAMES += ("galerkin", "softmax", "deeponet", "fno")
found = {name: compare(name) for name in NAMES}

print(f"{'':19s}{'test error':26s}{'seconds':>9s}{'parameters':>12s}")
for name, (errors, seconds, parameters) in found.items():
    low, middle, high = np.sort(errors[-1])
    error_range = f"{middle:.3f} [{low:.3f}, {high:.3f}]"
    print(f"{name:19s}{error_range:26s}{seconds:9.2f}{parameters:12,d}")

# %% [markdown]
# Median over the seeds, and their range. **Where two ranges overlap, this says nothing
# about which is better**; where they do not, it says so of this problem at this size.


# %%
def overlaps(one, other):
    one, other = (found[name][0][-1] for name in (one, other))
    return one.min() <= other.max() and other.min() <= one.max()


for name in NAMES:
    others = [other for other in NAMES if other != name and overlaps(name, other)]
    print(f"{name:19s}no order with: {', '.join(others) or 'none, ranges are apart'}")

# %% [markdown]
# ## Error against time, error against parameters
#
# Lines join the medians after each sixth of the training; bars are the ranges at its
# end. The errors on the way are of a learning rate that is still high, so a line that
# stops early is no shorter training. Down and to the left is better.

# %%
COLOURS = ("#0072B2", "#56B4E9", "#332288", "#D55E00")
COLOURS += ("#009E73", "#000000", "#999999", "#CC79A7")
_, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
for colour, marker, (name, result) in zip(
    COLOURS, "os^v<>pX", found.items(), strict=True
):
    errors, seconds, parameters = result
    low, middle, high = np.sort(errors[-1])
    bar = {"yerr": [[middle - low], [high - middle]], "color": colour, "fmt": marker}
    times = seconds * np.arange(1, ROUNDS + 1) / ROUNDS
    left.plot(times, np.median(errors, axis=1), color=colour, linewidth=1.2)
    left.errorbar(seconds, middle, **bar)
    right.errorbar(parameters, middle, **bar, label=name)
left.set(xscale="log", xlabel="CPU seconds of training a seed")
left.set(yscale="log", ylabel="relative L2 error, test")
left.set_yticks([0.05, 0.1, 0.2, 0.4], ["0.05", "0.1", "0.2", "0.4"])
right.set(xscale="log", xlabel="parameters")
right.set_xticks([5e3, 1e4, 2e4, 5e4], ["5,000", "10,000", "20,000", "50,000"])
for axis in (left, right):
    axis.tick_params(which="minor", labelleft=False, labelbottom=False)
    axis.grid(alpha=0.25)
right.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# ## What to take from it
#
# Each question of the choice, answered by this run.


# %%
def verdict(one, other):
    """Which of two is ahead, and by how much, or that there is no order."""
    first, second = sorted((one, other), key=lambda name: np.median(found[name][0][-1]))
    if overlaps(one, other):
        return f"no order of {first} and {second}, their ranges overlap"
    factor = np.median(found[second][0][-1]) / np.median(found[first][0][-1])
    return f"{first} is ahead, {second} has {factor:.1f} times its error"


ranked = sorted(NAMES, key=lambda name: np.median(found[name][0][-1]))
without_grid = [name for name in ranked if not operators.entry(name).grid_axes]
questions = {
    "Waves of a grid, or the best that needs none": ("fno", without_grid[0]),
    "All pairs of points, or sums": ("softmax", "functional"),
    "Learned functions, or as many fixed ones": ("functional", "hat:functional"),
    "One level, or overlapping boxes and a coarse one": (
        "functional",
        "functional_schwarz",
    ),
    "A least-squares map, or a mean of products": ("functional", "galerkin"),
    "A least-squares map, or attention of slices": ("functional", "transolver"),
}
for question, pair in questions.items():
    print(f"{question}:\n    {verdict(*pair)}")
cheapest = min(NAMES, key=lambda name: found[name][1])
print(f"Least CPU time:\n    {cheapest}, {found[cheapest][1]:.2f} s a seed")

pairs = [(a, b) for i, a in enumerate(NAMES) for b in NAMES[i + 1 :]]
open_pairs = sum(overlaps(*pair) for pair in pairs)
print(
    f"Result: smallest error {np.median(found[ranked[0]][0][-1]):.1%} ({ranked[0]}), "
    f"without a grid {np.median(found[without_grid[0]][0][-1]):.1%} ({without_grid[0]}); "
    f"{open_pairs} of {len(pairs)} pairs have no order"
)

# %% [markdown]
# Some differences need no run. The FNO needs a grid; the cost of softmax attention grows as
# the square of the number of points; DeepONet belongs to its points; hats are the same on
# every mesh.
#
# **What this cannot say**: nobody tuned a rate, 480 steps are few, three seeds are three, and
# the order of one problem is not that of another: *Recipes* in the results has eight problems
# and *Which model?* in the documentation draws the conclusions.
#
# So: strike out what the problem excludes, train two or three of the rest with three seeds
# at the budget you have, and look at ranges. On files of your own that is one command,
# `opjax-train --train=data --models=functional,galerkin,softmax --seeds=0,1,2`.
