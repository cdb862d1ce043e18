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
# # Train on 2048 points, evaluate on 8192
#
# Burgers' equation carries a smooth random state into one with steep fronts. We learn
# the map from the first to the second on a grid of 2048 points and apply the trained
# network, as it is, to grids from 512 to 8192 points. This works because nothing in it
# belongs to a grid: coefficients are means against a basis that is computed from the
# features at each point, and the decoder acts on wave numbers.

# %%
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from flax import nnx

from opjax import metrics, nn, training
from opjax.problems import burgers

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

# %% [markdown]
# ## Data
#
# Our own dealiased spectral solver makes them, a few milliseconds a sample, on the
# finest grid. Coarser grids are strides of it.

# %%
FINEST = 8192
keys = jax.random.split(jax.random.key(0), 96)
begin = time.process_time()
samples = jax.lax.map(lambda key: burgers.sample(key, num_points=FINEST), keys)
samples = jax.block_until_ready(samples)
print(f"{len(keys)} samples in {time.process_time() - begin:.1f} s of CPU time")


def on_grid(part, num_points):
    """Initial and final states on a coarser grid, each `(samples, n, 1)`."""
    stride = FINEST // num_points
    return tuple(field[part, ::stride, None] for field in samples)


train, test = slice(0, 80), slice(80, 96)
x = np.arange(FINEST) / FINEST
_, axes = plt.subplots(1, 3, figsize=(11, 2.4), sharey=True)
for ax, i in zip(axes, (80, 81, 82), strict=True):
    ax.plot(x, samples.initial[i], color="0.6", label="initial")
    ax.plot(x, samples.solution[i], color="C3", label="at t = 1")
    ax.set(xlabel="x")
axes[0].legend()
plt.show()

# %% [markdown]
# ## Training
#
# Functional attention in the encoder, a spectral decoder behind it. The loss is the sum
# of relative $L^2$ errors, which may be differentiated sample by sample.

# %%
model = nn.SuperResolutionTransformer(
    features=32,
    num_layers=2,
    attention=nn.models.coordinate_attention(num_basis=16),
    hidden_features=64,
    modes=16,
    decoder_features=16,
    rngs=nnx.Rngs(0),
)


def points(num_points):
    """The periodic grid, shape `(n, 1)`."""
    return jnp.arange(num_points, dtype=jnp.float32)[:, None] / num_points


def error(model, sample):
    """Relative error of the final state of one sample."""
    initial, final = sample
    prediction = model(points(initial.shape[0]), initial)
    return metrics.relative_l2(prediction, final)


def loss(model, batch):
    """Sum of the errors of a batch."""
    return jnp.sum(jax.vmap(error, in_axes=(None, 0))(model, batch))


epochs, batch_size = 12, 8
steps = epochs * (train.stop // batch_size)
optimizer = training.adamw_onecycle(4e-3, steps, weight_decay=0.0, clip_norm=1.0)
epoch = training.make_epoch(loss, optimizer, microbatch=1)
state = training.init(model, optimizer)
data = on_grid(train, 2048)
begin = time.process_time()
history = []
for number in range(epochs):
    order = training.sample_order(0, number, train.stop, batch_size)
    state, rows = epoch(state, data, order)
    history.append(float(jnp.mean(rows["loss"])) / batch_size)
print(f"{steps} steps in {time.process_time() - begin:.0f} s of CPU time")

# %% [markdown]
# ## Other grids
#
# The same weights on grids of 512 to 8192 points, on samples never seen. Does the error
# depend on the grid?

# %%
grids = (512, 1024, 2048, 4096, 8192)
errors = [
    np.asarray(
        training.evaluate(error, state.model, on_grid(test, n), batch_size=4)
    ).mean()
    for n in grids
]
for n, value in zip(grids, errors, strict=True):
    print(f"{n:5d} points: {value:.4f}")
print(
    f"Result: relative L2 error {errors[2]:.1%} on the 2048 points of training, "
    f"{errors[-1]:.1%} on 8192, {errors[0]:.1%} on 512"
)

_, axes = plt.subplots(1, 2, figsize=(10, 2.8))
axes[0].semilogy(1 + np.arange(epochs), history)
axes[0].set(xlabel="epoch", title="relative L2 error, training")
axes[1].semilogx(grids, errors, "o-", base=2)
axes[1].axvline(2048, color="0.7", ls=":")
axes[1].set(
    ylim=(0, 1.5 * max(errors)), xlabel="points", title="relative L2 error, test"
)
plt.show()

# %% [markdown]
# The finest grid has points between those of training, where fronts are steep.

# %%
initial, final = (field[0] for field in on_grid(test, FINEST))
fine = state.model(points(FINEST), initial)[:, 0]
coarse = state.model(points(512), initial[:: FINEST // 512])[:, 0]
steepest = int(np.argmax(np.abs(np.diff(np.asarray(final[:, 0])))))
window = slice(max(steepest - 500, 0), steepest + 500)

_, axes = plt.subplots(1, 2, figsize=(10, 2.8))
for ax, part in zip(axes, (slice(None), window), strict=True):
    ax.plot(x[part], final[part, 0], color="black", lw=2, label="truth")
    ax.plot(x[part], fine[part], color="C3", lw=1, label="8192 points")
    ax.set(xlabel="x", ylabel="state at t = 1")
axes[0].plot(np.arange(512) / 512, coarse, "C0:", label="512 points")
axes[0].legend()
axes[1].set_title("the steepest part")
plt.show()
