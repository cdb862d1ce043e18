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
# # A million points and many devices
#
# Points communicate through sums only: every point adds its part to the coefficients
# of a layer, and given the coefficients, points are independent. So a mesh can be taken
# in chunks, split over devices, or read from a file, with the loss and the gradients of
# the whole mesh, not of a random part of it.

# %%
import functools
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from flax import nnx

from opjax import nn, streaming, training
from opjax.training import sharding

jax.config.update("jax_num_cpu_devices", 2)  # before the first array

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
# A small model of three layers, and a cloud of points in space with a function on it.


# %%
def build(chunk_size=None):
    return nn.OperatorTransformer(
        position=nn.Coordinates(3),
        feature_dim=0,
        out_features=1,
        features=64,
        num_layers=3,
        attention=functools.partial(nn.FunctionalAttention, num_heads=4, num_basis=32),
        chunk_size=chunk_size,
        rngs=nnx.Rngs(0),
    )


def cloud(num_points):
    points = jax.random.uniform(jax.random.key(0), (num_points, 3))
    return points, jnp.sin(5 * points[:, :1])


def loss(model, points, target):
    return jnp.mean((model(points) - target) ** 2)


# %% [markdown]
# ## In chunks: the same numbers
#
# The only difference is `chunk_size`. Loss and gradients are those of all points at once,
# up to rounding.

# %%
points, target = cloud(8192)
value_and_grad = jax.jit(jax.value_and_grad(loss))
dense, dense_slope = value_and_grad(build(), points, target)
chunked, chunked_slope = value_and_grad(build(chunk_size=512), points, target)


def distance(one, other):
    one, other = (
        np.concatenate([x.ravel() for x in jax.tree.leaves(tree)])
        for tree in (one, other)
    )
    return np.linalg.norm(one - other) / np.linalg.norm(other)


print(f"loss {dense:.7f} at once, {chunked:.7f} in chunks")
print(f"gradients differ by {distance(chunked_slope, dense_slope):.0e}")

# %% [markdown]
# ## What that saves
#
# XLA says what memory a compiled program needs before it runs. Chunks keep the inputs of
# the layers, `channels x layers` numbers a point, and nothing of the size of basis
# functions.


# %%
def bytes_a_point(model, num_points):
    shapes = [jax.ShapeDtypeStruct((num_points, c), jnp.float32) for c in (3, 1)]
    analysis = jax.jit(jax.grad(loss)).lower(model, *shapes).compile().memory_analysis()
    return analysis.temp_size_in_bytes / num_points


sizes, memory = [2**k for k in (12, 16, 20)], {}
for name, model in {"all points": build(), "chunks": build(chunk_size=512)}.items():
    needed = [bytes_a_point(model, n) for n in sizes]
    memory[name] = needed[-1] * sizes[-1] / 2**30
    plt.loglog(
        sizes,
        [n * b / 2**30 for n, b in zip(sizes, needed, strict=True)],
        "o-",
        label=f"{name}: {needed[-1]:,.0f} bytes a point",
    )
plt.xlabel("points")
plt.ylabel("memory of a gradient, GiB")
plt.legend()
plt.show()

# %% [markdown]
# ## On devices that share the points
#
# A mesh of devices, one `psum` of the coefficients a layer, and a loss that adds up:
# what devices exchange does not depend on the number of points. Here two cores are two
# devices; `--devices=points:2` says the same to a program, and several computers are
# started with `--coordinator`.


# %%
def split_loss(model, batch, *, axis_name=None):
    points, target = batch["mesh_points"][0], batch["target"][0]
    square = jnp.sum((model(points, axis_name=axis_name) - target) ** 2)
    return (jax.lax.psum(square, axis_name) if axis_name else square) / 8192


mesh = sharding.device_mesh(points=2)
optimizer = training.adamw(1e-4, weight_decay=0.0)
batch = {"mesh_points": points[None], "target": target[None]}
losses = {}
for name, devices in {"one device": None, "two devices": mesh}.items():
    state, given = training.init(build(chunk_size=512), optimizer), batch
    if devices is not None:
        state, given = sharding.replicate(state, mesh), sharding.place(batch, mesh)
    step = jax.jit(training.make_step(split_loss, optimizer, mesh=devices))
    losses[name] = []
    for _ in range(5):
        state, logs = step(state, given)
        losses[name].append(float(logs["loss"]))
for name, found in losses.items():
    print(name, *(f"{x:.6f}" for x in found))

# %% [markdown]
# ## From a file
#
# `opjax.streaming` reads a mesh in as many passes as the exact gradient needs. What is in
# memory is sums and one chunk; the inputs of layers are in a file, of every layer, of
# every other, or of none, which costs more passes. A million points have the gradients of a
# million points, in less memory than the mesh takes.

# %%
with tempfile.TemporaryDirectory() as folder:
    for name, array in {"mesh_points": points, "target": target}.items():
        np.save(pathlib.Path(folder, name), array)
    files = {
        name: np.load(pathlib.Path(folder, f"{name}.npy"), mmap_mode="r")
        for name in ("mesh_points", "target")
    }
    streamed, streamed_slope = streaming.value_and_grad(
        build(),
        files,
        streaming.Chunks(2048, storage=folder),
        loss=streaming.MEAN_SQUARED_ERROR,
    )
print(f"loss {streamed:.7f} from the file")
print(
    f"Result: gradients in chunks differ by {distance(chunked_slope, dense_slope):.0e}, "
    f"from a file by {distance(streamed_slope, dense_slope):.0e}; a million points need "
    f"{memory['chunks']:.1f} GiB instead of {memory['all points']:.1f}"
)

# %% [markdown]
# ## How far that goes
#
# The model of the papers, eight layers of 128 channels, on two cores of a small machine:
# `results/scale.md` has the times and the peaks of memory of a step on a million points
# in chunks, on devices and from files, and ten million from files; the command is
# `python -m benchmarks.scale`.
