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
# A trained operator is calibrated on 100 cases that it has not seen. Its predictions
# then have a band that encloses the whole field in the promised share of cases. Cases
# that are unlike the calibration cases are noticed.
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
from opjax.datasets import heat
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
# ## A trained run
#
# Heat spreads from random spots over random shapes. A small operator learns it from 60
# cases, and not very well.

# %%
temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
for seed, (name, count) in enumerate({"train": 60, "calibration": 100}.items()):
    heat.write(folder / name, count, seed=seed)
config = dataclasses.replace(
    train.PRESETS["fast"],
    models=("functional",),
    train=str(folder / "train"),
    width=16,
    num_layers=2,
    num_heads=2,
    num_basis=8,
    num_epochs=12,
    num_buckets=1,
    equal_parameters=False,
)
with (
    contextlib.redirect_stdout(io.StringIO()),
    contextlib.redirect_stderr(io.StringIO()),
):
    result = train.run(config, workdir=folder / "run")
operator = learn.load(folder / "run")
print(f"relative L2 error {result['relative_l2']:.2f}")

# %% [markdown]
# ## Bands for whole fields
#
# The score of a case is its largest error in units of a width. The band has the
# `ceil(101 * 0.9)`-th smallest score of the 100 calibration cases. Nothing is trained.

# %%
cases = operator.read(str(folder / "calibration"))
calibrated = learn.calibrate(operator, cases, coverage=0.9)
print(f"factor of the width: {calibrated.factors['whole_field']:.2f}")
tests = operator.read(heat.write(folder / "test", 100, seed=2))
bands = [calibrated.band(sample) for sample in tests]
inside = [
    float(uncertainty.field_inside(sample.target, *band))
    for sample, band in zip(tests, bands, strict=True)
]
print(f"whole fields inside: {np.mean(inside):.0%} of 100 new cases")

# %% [markdown]
# One case, point by point, in the order of its predicted values.

# %%
sample, band = tests[0], bands[0]
order = np.argsort(operator(sample)[:, 0])
_, ax = plt.subplots(figsize=(6, 2.6))
ax.fill_between(
    np.arange(len(order)),
    band.lower[order, 0],
    band.upper[order, 0],
    alpha=0.25,
    label="band",
)
ax.plot(operator(sample)[order, 0], label="prediction")
ax.plot(sample.target[order, 0], "k.", ms=3, label="truth")
ax.set(xlabel="point", title="a case and its band")
ax.legend()
plt.show()

# %% [markdown]
# A reliability diagram compares the coverage that is asked for with the share that is
# reached on the new cases. It lies near the diagonal, whatever the operator is worth.

# %%
spread = calibrated.width(sample, operator(sample))[0]
scores = [np.abs(operator(s) - s.target).max() / spread[0] for s in tests]
levels = np.linspace(0.05, 0.95, 19).astype(np.float32)
reached = uncertainty.calibration_curve(
    calibrated.scores.astype(np.float32), np.asarray(scores, np.float32), levels
)
_, ax = plt.subplots(figsize=(2.6, 2.6))
ax.plot(levels, reached, "o-", ms=3)
ax.plot([0, 1], [0, 1], "k--", linewidth=1)
ax.set(xlabel="coverage asked for", ylabel="share inside", aspect="equal")
plt.show()

# %% [markdown]
# ## Cases that are unlike the others
#
# The band promises nothing for other kinds of cases. The warning compares means and
# covariances of coordinates, input and prediction with those of the calibration cases.
# At most 5 % of the cases that are like them are called unlike.


# %%
def stretched(sample, factor):
    """The shape drawn out along one axis, and squeezed along the other."""
    scale = np.asarray([factor, 1 / factor], np.float32)
    return sample._replace(mesh_points=scale * sample.mesh_points)


kinds = {
    "as in calibration": tests[:40],
    "stretched by 1.2": [stretched(s, 1.2) for s in tests[:40]],
    "stretched by 1.5": [stretched(s, 1.5) for s in tests[:40]],
    "input times 3": [s._replace(features=3 * s.features) for s in tests[:40]],
    "millimetres": [s._replace(mesh_points=1e3 * s.mesh_points) for s in tests[:40]],
}
for name, several in kinds.items():
    rows = [calibrated.likeness(one) for one in several]
    alarms = np.mean([row["unlike"] for row in rows])
    distance = np.median([row["likeness_distance"] for row in rows])
    print(f"{name:20} unlike: {alarms:4.0%}   median distance {distance:.3g}")

# %% [markdown]
# `opjax-predict --strict` turns such a warning into an error, after all predictions are
# written. What changes no mean and no covariance is not noticed: a load that is no
# input of the operator, or a crack. See the how-to page *Error bars*.
