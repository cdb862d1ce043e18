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
# # Error bars, and a warning where they do not hold
#
# A trained operator is calibrated on 200 cases that it has not seen. Its predictions
# then have a band that encloses the whole field in the promised share of cases. Cases
# that differ from the calibration cases raise a warning.
# `opjax-calibrate` and `opjax-predict --strict` do the same from the command line.

# %%
import contextlib
import dataclasses
import io
import pathlib
import tempfile

import matplotlib.pyplot as plt
import numpy as np

from opjax import learn, uncertainty
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
# ## Data
#
# Plates of random shapes with insulated edges, each with three hot spots: from the
# temperature at the start the operator learns the temperature 0.03 s later. Our own finite
# elements (`opjax.problems.advection`, here without a flow) solve it on meshes of about 140
# points; the diffusivity is 1 m²/s, lengths are in metres, temperatures in kelvin.


# %%
def write_cases(folder, count, seed):
    """Writes files with mesh, weights, and the temperatures `start` and `later`."""
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
        (later,) = advection.solve(
            points,
            cells,
            start,
            np.zeros(len(points)),  # no flow
            diffusivity=1.0,
            interval=0.03,
            num_frames=1,
        )
        _, mass = assemble(points, cells)
        np.savez(
            folder / f"{number:03d}",
            mesh_points=points.astype(np.float32),
            cells=cells,
            quadrature_weights=np.asarray(mass.sum(axis=1), np.float32).ravel(),
            start=start.astype(np.float32),
            later=later.astype(np.float32),
        )


NUM_TRAIN, NUM_EPOCHS = 400, 20
temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
sets = {"train": NUM_TRAIN, "calibration": 200, "test": 200}
for seed, (name, count) in enumerate(sets.items()):
    write_cases(folder / name, count, seed)

# %% [markdown]
# ## A trained run
#
# The test set of `train.run` is what this notebook calls the test cases: nothing is chosen by
# them.

# %%
config = dataclasses.replace(
    train.PRESETS["fast"],
    train=str(folder / "train"),
    test=str(folder / "test"),
    feature_names="start",
    target_names="later",
    geometry="normals,distance",
    batch_size=4,
    width=32,
    num_layers=3,
    num_basis=16,
    num_epochs=NUM_EPOCHS,
    num_buckets=1,
)
with quiet():
    result = train.run(config, workdir=folder / "run")
baselines = {name: row["relative_l2"] for name, row in result["baselines"].items()}
for name, value in {"operator": result["relative_l2"], **baselines}.items():
    print(f"{name:13s} {value:6.1%} relative L2 error on 200 new cases")

# %% [markdown]
# ## Bands for whole fields
#
# The score of a case is its largest error in units of a width. The band has the
# `ceil(201 * 0.9)`-th smallest score of the 200 calibration cases. With a constant width,
# nothing is trained; `residual` learns from a third of the calibration cases where errors are
# large, and calibrates with the others. The promise of both is 90 %. With so few cases, the share of
# new cases inside varies by several percent around it.

# %%
operator = learn.load(folder / "run")
cases = operator.read(str(folder / "calibration"))
tests = operator.read(str(folder / "test"))
span = np.mean([np.ptp(sample.target) for sample in tests])
found = {}
for width in ("constant", "residual"):
    calibrated = learn.calibrate(operator, cases, coverage=0.9, width=width)
    bands = [calibrated.band(sample) for sample in tests]
    inside = [
        float(uncertainty.field_inside(sample.target, *band))
        for sample, band in zip(tests, bands, strict=True)
    ]
    share = np.mean([np.mean(band.upper - band.lower) for band in bands]) / span
    found[width] = calibrated, bands, np.mean(inside), share
    print(f"{width}: {np.mean(inside):.0%} of 200 new fields inside,", end=" ")
    print(f"from end to end {share:.1%} of the range of a field")

narrow = min(found, key=lambda width: found[width][3])
calibrated, bands, inside, share = found[narrow]
print(
    f"Result: bands of {share:.0%} of the field, from end to end, hold {inside:.0%} of 200 "
    f"whole new fields (promised: 90%); relative L2 error {result['relative_l2']:.1%}"
)

# %% [markdown]
# A reliability diagram compares the coverage that is asked for with the share that is
# reached on the new cases, here of the constant width. It lies near the diagonal, whatever
# the operator is worth.

# %%
constant = found["constant"][0]
spread = constant.width(tests[0], operator(tests[0]))[0]
scores = [np.abs(operator(s) - s.target).max() / spread[0] for s in tests]
levels = np.linspace(0.05, 0.95, 19).astype(np.float32)
reached = uncertainty.calibration_curve(
    constant.scores.astype(np.float32), np.asarray(scores, np.float32), levels
)
_, ax = plt.subplots(figsize=(3, 3))
ax.plot(levels, reached, "o-", ms=3)
ax.plot([0, 1], [0, 1], "k--", linewidth=1)
ax.set(xlabel="coverage asked for", ylabel="share of cases inside", aspect="equal")
plt.show()
print(f"largest distance from the diagonal {np.abs(reached - levels).max():.2f}")

# %% [markdown]
# ## Cases that are unlike the others
#
# The band promises nothing for other kinds of cases. The warning compares means and
# covariances of coordinates, input and prediction with those of the calibration cases.
# Of cases that are like them, 5 % raise it on average: of 40, up to five are no surprise.


# %%
def stretched(sample, factor):
    """The shape drawn out along one axis, and squeezed along the other."""
    scale = np.asarray([factor, 1 / factor], np.float32)
    return sample._replace(mesh_points=scale * sample.mesh_points)


def hotter(sample, factor):
    """The first feature, the temperature, times a factor; the others are geometry."""
    features = sample.features.copy()
    features[:, 0] *= factor
    return sample._replace(features=features)


few = tests[:40]
kinds = {
    "as in calibration": few,
    "stretched by 1.2": [stretched(s, 1.2) for s in few],
    "stretched by 1.5": [stretched(s, 1.5) for s in few],
    "hotter, times 3": [hotter(s, 3) for s in few],
    "millimetres": [s._replace(mesh_points=1e3 * s.mesh_points) for s in few],
}
for name, several in kinds.items():
    rows = [calibrated.likeness(one) for one in several]
    alarms = np.mean([row["unlike"] for row in rows])
    distance = np.median([row["likeness_distance"] for row in rows])
    print(f"{name:20} warnings: {alarms:4.0%}   median distance {distance:.3g}")

# %% [markdown]
# `opjax-predict --strict` turns such a warning into an error, after all predictions are
# written. What changes no mean and no covariance stays unseen: a load that is no
# input of the operator, or a crack. See the how-to page *Error bars*.
#
# ## One case, point by point
#
# The case of middle error: truth and prediction in the same colours, and in a third scale
# half the width of the band and the size of the error. At the right its points in the order
# of the predicted temperature.

# %%
sizes = [np.abs(operator(sample) - sample.target).max() for sample in tests]
middle = int(np.argsort(sizes)[len(sizes) // 2])
sample, band, predicted = tests[middle], bands[middle], operator(tests[middle])[:, 0]
true, lower, upper = sample.target[:, 0], band.lower[:, 0], band.upper[:, 0]
half = (upper - lower) / 2
figure, axes = plt.subplots(1, 5, figsize=(17, 3), width_ratios=(1, 1, 1, 1, 1.4))
fields = {"true (K)": true, "predicted (K)": predicted, "half of the band (K)": half}
fields["size of the error (K)"] = np.abs(predicted - true)
for number, (ax, (title, values)) in enumerate(zip(axes, fields.items(), strict=False)):
    top, colours = (true.max(), "inferno") if number < 2 else (half.max(), "viridis")
    image = ax.tripcolor(
        *sample.mesh_points.T,
        sample.cells,
        values,
        shading="gouraud",
        cmap=colours,
        vmin=0,
        vmax=top,
    )
    figure.colorbar(image, ax=ax, shrink=0.8)
    ax.set(aspect="equal", title=title, xlabel="x (m)")
axes[0].set_ylabel("y (m)")
order = np.argsort(predicted)
place = np.arange(len(order))
axes[4].fill_between(place, lower[order], upper[order], alpha=0.3, label="band")
axes[4].plot(predicted[order], lw=1, label="prediction")
axes[4].plot(true[order], "k.", ms=3, label="truth")
axes[4].set(xlabel="point", ylabel="temperature (K)")
axes[4].legend()
plt.show()
