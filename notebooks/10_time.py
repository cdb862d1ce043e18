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
# Heat spreads over plates of random shapes, each with points of its own. An operator learns
# one step from true frames; a second one goes on from it and learns four steps from its
# own frames. Then both are applied to their own predictions, fifty times, and the error of
# every step is measured. `opjax-train --time=unrolled` and `opjax-predict --steps=50` do
# the same from the command line.

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
from opjax.files.series import read_series
from opjax.learn.cli import train
from opjax.problems import advection
from opjax.problems.poisson_mesh import assemble

plt.rcParams.update(
    {
        "figure.dpi": 80,
        "figure.constrained_layout.use": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)


@contextlib.contextmanager
def quiet():
    """Keeps what programs print to themselves."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield


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
ax.set(aspect="equal", title="powers of a matrix", xlabel="$u_1$", ylabel="$u_2$")
plt.show()

# %% [markdown]
# ## Series
#
# A case is a file with `mesh_points (n, 2)`, `times (t,)` and frames `(t, n)`. The plates have
# insulated edges and three hot spots; our own finite elements (`opjax.problems.advection`,
# here without a flow) solve for 51 frames. The diffusivity is 1 m²/s, lengths are in metres,
# times in seconds, temperatures in kelvin.

# %%
NUM_STEPS, INTERVAL = 50, 0.006


def write_series(folder, count, seed):
    """Writes files with mesh, weights, times and the temperatures."""
    folder.mkdir()
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        wave = rng.integers(2, 5), rng.uniform(0, 0.15), rng.uniform(0, 6)
        points, cells = advection.mesh(
            advection.Shape(*wave), spacing=0.17, seed=number
        )
        angle, reach = rng.uniform(0, 6.3, 3), 0.8 * np.sqrt(rng.uniform(0, 1, 3))
        spots = reach[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        squares = np.sum((points[:, None] - spots) ** 2, axis=2)
        widths, heights = rng.uniform(0.2, 0.4, 3), rng.uniform(0.5, 1.5, 3)
        start = np.exp(-squares / (2 * widths**2)) @ heights
        later = advection.solve(
            points,
            cells,
            start,
            np.zeros(len(points)),  # no flow
            diffusivity=1.0,
            interval=INTERVAL,
            num_frames=NUM_STEPS,
        )
        _, mass = assemble(points, cells)
        np.savez(
            folder / f"{number:03d}",
            mesh_points=points.astype(np.float32),
            cells=cells,
            quadrature_weights=np.asarray(mass.sum(axis=1), np.float32).ravel(),
            times=INTERVAL * np.arange(NUM_STEPS + 1),
            temperature=np.concatenate([start[None], later]).astype(np.float32),
        )


NUM_TRAIN = 40
temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
begin = time.process_time()
write_series(folder / "train", NUM_TRAIN, seed=0)
write_series(folder / "test", 12, seed=1)
seconds = (time.process_time() - begin) / (NUM_TRAIN + 12)
print(f"{1e3 * seconds:.0f} ms of CPU time for a series of the solver")

# %% [markdown]
# ## Two ways to train
#
# Windows of frames are cut from the series when they are needed. What is learned is the
# change from frame to frame (`--time_target=increment`), so that a model that knows nothing
# predicts that nothing changes.

# %%
STAGES = {
    "one_step": {"num_epochs": 8},
    "unrolled": {"num_epochs": 1, "learning_rate": 1e-3},
}
base = dataclasses.replace(
    train.PRESETS["fast"],
    train=str(folder / "train"),
    test=str(folder / "test"),
    target_names="temperature",
    time_target="increment",
    geometry="normals,distance",
    batch_size=8,
    width=32,
    num_layers=2,
    num_basis=16,
    num_buckets=1,
)
operators, results = {}, {}
for mode, changes in STAGES.items():
    begin = time.process_time()
    if operators:
        changes = changes | {"init_from": str(folder / "one_step")}
    config = dataclasses.replace(base, time=mode, **changes)
    with quiet():
        results[mode] = train.run(config, workdir=folder / mode)
    operators[mode] = learn.load(folder / mode)
    seconds = time.process_time() - begin
    print(f"{mode}: validation error {results[mode]['validation']:.3f}", end=" ")
    print(f"after {seconds:.0f} s of CPU time, with compilation")
chosen = min(results, key=lambda mode: results[mode]["validation"])
print(f"Validation chooses {chosen}.")

# %% [markdown]
# ## Rollouts
#
# Every frame is predicted from the one before it, so memory does not grow with the
# number of steps. Two predictions need no training: persistence, that nothing changes, and
# the mean of the first frame, which is conserved and is where all plates end.

# %%
options = operators[chosen].read_options()
tests, _ = read_series(folder / "test", dataclasses.replace(options, need_target=True))


def mean_errors(predict):
    """Relative L2 error of every step, the mean over the test series."""
    rows = [
        metrics_time.errors_of_frames(
            predict(series),
            series.values[1:],
            quadrature_weights=series.quadrature_weights,
        )
        for series in tests
    ]
    return np.mean(rows, axis=0)


def rolled(operator, series):
    """Frames after the first one, `(t, n, c)`."""
    return np.stack(list(operator.rollout(series, NUM_STEPS)))


def conserved(series):
    """The mean of the first frame over the plate, at all steps."""
    weights = series.quadrature_weights / series.quadrature_weights.sum()
    return np.full_like(series.values[1:], weights @ series.values[0])


errors = {
    mode: mean_errors(lambda series, one=operator: rolled(one, series))
    for mode, operator in operators.items()
}
still = mean_errors(lambda s: metrics_time.persistence(s.values[0], NUM_STEPS))
mean = mean_errors(conserved)
for name, row in {**errors, "persistence": still, "conserved mean": mean}.items():
    steps = ", ".join(f"{row[k - 1]:.3f} at step {k}" for k in (1, 10, 50))
    print(f"{name:15s} {steps}; all steps {row.mean():.3f}")

best = errors[chosen]
ahead = int(np.sum(best < np.minimum(still, mean)))
print(
    f"Result: {chosen.replace('_', ' ')} rollout of 50 steps with a relative L2 error of "
    f"{best.mean():.1%} over all steps, {best[-1]:.1%} at the last; persistence "
    f"{still.mean():.0%}, {still[-1]:.0%}"
)
print(f"ahead of persistence at {np.sum(best < still)} of 50 steps,", end=" ")
print(f"of persistence and the conserved mean at {ahead}")

# %%
_, ax = plt.subplots(figsize=(5.5, 3.2))
steps = np.arange(1, NUM_STEPS + 1)
for mode, row in errors.items():
    ax.plot(steps, row, "o-", ms=2.5, label=mode.replace("_", " "))
ax.plot(steps, still, "k--", label="persistence")
ax.plot(steps, mean, "k:", label="conserved mean")
ax.set(xlabel="step", ylabel="relative L2 error, test", yscale="log")
ax.legend(bbox_to_anchor=(1, 1), loc="upper left")
plt.show()

# %% [markdown]
# The test series of middle error, as it is and as it is predicted by the chosen operator from
# its first frame alone. Truth and prediction have the same colours at each time; those of the
# error end at a tenth of them.

# %%
of_series = []
for series in tests:
    difference = rolled(operators[chosen], series) - series.values[1:]
    of_series.append(np.linalg.norm(difference) / np.linalg.norm(series.values[1:]))
middle = int(np.argsort(of_series)[len(tests) // 2])
series = tests[middle]
predicted = np.concatenate([series.values[:1], rolled(operators[chosen], series)])
figure, axes = plt.subplots(3, 4, figsize=(12, 7.5), sharex=True, sharey=True)
for column, frame in zip(axes.T, (0, 5, 20, 50), strict=True):
    true, guess = series.values[frame, :, 0], predicted[frame, :, 0]
    low, high = true.min(), true.max()
    rows = {"true": true, "predicted": guess, "error": guess - true}
    for ax, (name, values) in zip(column, rows.items(), strict=True):
        shown = {"vmin": low, "vmax": high, "cmap": "inferno"}
        if name == "error":
            limit = 0.1 * high
            shown = {"vmin": -limit, "vmax": limit, "cmap": "RdBu_r"}
        image = ax.tripcolor(
            *series.mesh_points.T, series.cells, values, shading="gouraud", **shown
        )
        figure.colorbar(image, ax=ax, shrink=0.8, label="K")
        ax.set(aspect="equal", title=f"{name}, {1e3 * series.times[frame]:.0f} ms")
    column[-1].set_xlabel("x (m)")
for row in axes:
    row[0].set_ylabel("y (m)")
plt.show()

# %% [markdown]
# Where there is a solver on the same points, it is the better tool for a problem as small as
# this one. *Rollouts in time* in the results compares ways to train with three seeds, on
# flows too, beside solvers.
