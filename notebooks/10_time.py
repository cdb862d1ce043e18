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
# # Fields that evolve in time
#
# Heat spreads over random shapes, each with points of its own. Models learn one step
# from true frames, or four steps from their own frames. Then both are applied to their
# own predictions, again and again, and the error of every step is measured.
# `opjax-train --time=unrolled` and `opjax-predict --steps=12` do the same from the
# command line.

# %%
import contextlib
import dataclasses
import io
import pathlib
import tempfile
import time

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import opjax
from opjax import learn, metrics_time
from opjax.datasets import heat
from opjax.files.series import read_series
from opjax.learn.cli import train

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
# ## A rollout is a pure function
#
# `opjax.rollout` applies any step by one `jax.lax.scan`. Here the step is a matrix, so
# the states are its powers.

# %%
matrix = jnp.array([[0.9, 0.2], [-0.2, 0.9]])
states = opjax.rollout(lambda u: matrix @ u, jnp.array([1.0, 0.0]), 30)
_, ax = plt.subplots(figsize=(2.6, 2.6))
ax.plot(*states.T, "o-", ms=3)
ax.set(aspect="equal", title="powers of a matrix")
plt.show()

# %% [markdown]
# ## Series
#
# A case is a file with `mesh_points (n, 2)`, `times (t,)` and frames `(t, n)`. Cases
# have other points, and other numbers of frames.

# %%
temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
heat.write_series(folder / "train", 24, seed=0)
heat.write_series(folder / "test", 8, seed=1, num_frames=(13, 13))
tests, _ = read_series(folder / "test")
series = tests[0]
print(series.num_points, "points,", series.num_frames, "frames")

shown = (0, 4, 8, 12)
_, axes = plt.subplots(1, 4, figsize=(11, 2.6), sharex=True, sharey=True)
for ax, frame in zip(axes, shown, strict=True):
    ax.scatter(*series.mesh_points.T, c=series.values[frame, :, 0], s=12)
    ax.set(aspect="equal", title=f"time {series.times[frame]:.3f}")
plt.show()

# %% [markdown]
# ## Two ways to train
#
# Windows of frames are cut from the series when they are needed. Four unrolled steps
# cost about five times as much as one, so that training has fewer epochs.

# %%
EPOCHS = {"one_step": 12, "unrolled": 3}
base = dataclasses.replace(
    train.PRESETS["fast"],
    models=("functional",),
    train=str(folder / "train"),
    test=str(folder / "test"),
    width=16,
    num_layers=2,
    num_heads=2,
    num_basis=8,
    num_buckets=1,
    equal_parameters=False,
)
operators = {}
for mode, epochs in EPOCHS.items():
    begin = time.perf_counter()
    config = dataclasses.replace(base, time=mode, num_epochs=epochs)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        result = train.run(config, workdir=folder / mode)
    operators[mode] = learn.load(folder / mode)
    seconds = time.perf_counter() - begin
    print(f"{mode}: error {result['relative_l2']:.3f} after {seconds:.0f} s")

# %% [markdown]
# ## Rollouts
#
# Every frame is predicted from the one before it, so memory does not grow with the
# number of steps. Persistence is the prediction that nothing changes.


# %%
def rolled(operator, series):
    """Frames after the first one, `(t, n, c)`."""
    return np.stack(list(operator.rollout(series, series.num_frames - 1)))


_, ax = plt.subplots(figsize=(4.5, 2.6))
steps = np.arange(1, series.num_frames)
for mode, operator in operators.items():
    errors = [
        metrics_time.errors_of_frames(rolled(operator, s), s.values[1:]) for s in tests
    ]
    ax.plot(steps, np.mean(errors, axis=0), "o-", ms=3, label=mode)
still = [
    metrics_time.errors_of_frames(
        metrics_time.persistence(s.values[0], len(steps)), s.values[1:]
    )
    for s in tests
]
ax.plot(steps, np.mean(still, axis=0), "k--", label="persistence")
ax.set(xlabel="step", title="relative error of the test set", ylim=(0, None))
ax.legend()
plt.show()

# %% [markdown]
# The last frame of a test series, as it is and as it is predicted after twelve steps.

# %%
truth = series.values[-1, :, 0]
predicted = rolled(operators["unrolled"], series)[-1, :, 0]
fields = {"truth": truth, "prediction": predicted, "error": predicted - truth}
_, axes = plt.subplots(1, 3, figsize=(10, 2.8), sharex=True, sharey=True)
for ax, (title, values) in zip(axes, fields.items(), strict=True):
    image = ax.scatter(*series.mesh_points.T, c=values, s=14)
    ax.set(aspect="equal", title=title)
    plt.colorbar(image, ax=ax)
plt.show()
