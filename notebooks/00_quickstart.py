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
# # Quickstart: an operator in two minutes
#
# Two heat sources sit somewhere on a square plate whose edges are kept cold. From the map
# of the heat we learn the map of the temperature: first as arrays on a grid, then we ask
# the same operator on other cases, and look at where it is wrong.

# %%
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from scipy.fft import dstn, idstn

from opjax import learn

plt.rcParams.update({"figure.dpi": 64, "figure.constrained_layout.use": True})

# %% [markdown]
# ## Data
#
# 300 plates of 24 x 24 points. The temperature solves Poisson's equation; in sine waves it
# is a division by the eigenvalues of the Laplacian. Lengths are in sides of the plate, heat
# and temperature without units.

# %%
NUM_PLATES = 300
place = np.random.default_rng(0).uniform(0.2, 0.8, (2, 2, NUM_PLATES, 1, 1))
x, waves = np.linspace(0, 1, 26)[1:-1], np.pi * np.arange(1, 25)
heat = np.exp(-50 * ((x[:, None] - place[0]) ** 2 + (x - place[1]) ** 2)).sum(axis=0)
eigenvalues = waves[:, None] ** 2 + waves**2
temperature = idstn(dstn(heat, axes=(1, 2)) / eigenvalues, axes=(1, 2))
print(heat.shape, temperature.shape)

# %% [markdown]
# ## Training
#
# The last 20 plates are kept for ourselves. `learn.train` divides the others, scales what it
# sees, trains functional attention and keeps the epoch with the smallest validation error.

# %%
NUM_EPOCHS = 8
trained = learn.train(
    {"features": heat[:-20], "target": temperature[:-20]}, num_epochs=NUM_EPOCHS
)

# %% [markdown]
# The log is of a core that other jobs shared; the gallery has the CPU time. Under the test
# error are predictions that need no network. Look at them first: this map is linear and all
# plates share one grid, which is where proper orthogonal decomposition is at its best.
# `05_your_own_mesh` and `08_cases` have shapes and meshes that differ.
#
# ## Prediction
#
# The operator takes arrays in physical units, one plate or many. Beside it stand the mean of
# the known plates and a linear regression.

# %%
predicted = trained(heat[-20:])


def error(values):
    """Relative L2 error of each of the last 20 plates."""
    difference = np.linalg.norm(values - temperature[-20:], axis=(1, 2))
    return difference / np.linalg.norm(temperature[-20:], axis=(1, 2))


errors, of_mean = error(predicted), error(temperature[:-20].mean(axis=0))
rows = heat.reshape(NUM_PLATES, -1), temperature.reshape(NUM_PLATES, -1)
matrix, *_ = np.linalg.lstsq(rows[0][:-20], rows[1][:-20], rcond=1e-6)
of_linear = error((rows[0][-20:] @ matrix).reshape(20, 24, 24))
print(
    f"Result: relative L2 error {np.mean(errors):.1%} on 20 new plates, at most "
    f"{np.max(errors):.1%}; mean temperature {np.mean(of_mean):.0%}, linear regression, "
    f"which suits this linear map, {np.mean(of_linear):.2%}"
)

# %%
middle = np.argsort(errors)[len(errors) // 2] - 20
fields = {
    "heat": heat[middle],
    "temperature": temperature[middle],
    "predicted": predicted[middle],
    "error": predicted[middle] - temperature[middle],
}
highest = temperature[middle].max()
limits = {"heat": (0, None), "error": (-0.05 * highest, 0.05 * highest)}
figure, axes = plt.subplots(1, 4, figsize=(13, 3))
for axis, (name, field) in zip(axes, fields.items(), strict=True):
    low, high = limits.get(name, (0, highest))
    look = "RdBu_r" if name == "error" else "inferno"
    image = axis.imshow(
        field, cmap=look, vmin=low, vmax=high, origin="lower", extent=(0, 1, 0, 1)
    )
    figure.colorbar(image, ax=axis, shrink=0.8)
    axis.set(title=name, xlabel="x (plate)", ylabel="y (plate)")
figure.suptitle(f"a plate of middle error, {errors[middle]:.1%}")

# %% [markdown]
# The colours of the error end at 5 % of the highest temperature.
#
# ## Keep it
#
# The saved folder has the parameters, the normalisers and the ranges of the training.

# %%
folder = f"{tempfile.mkdtemp()}/plate"
trained.save(folder)
again = learn.load(folder)
print(np.array_equal(again(heat[-1]), predicted[-1]))

# %% [markdown]
# Your own arrays take the place of `heat` and `temperature`. For mesh files,
# `opjax-train --train=FOLDER --target_names=NAME` does the same from the command line; see
# *Your own data* in the documentation, and `05_your_own_mesh` for meshes that differ.
