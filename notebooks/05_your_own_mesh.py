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
# # Your own meshes
#
# A folder of files, each with a mesh of its own and fields at its points: look at them,
# train on them, predict on meshes that training never saw, and write the predictions
# back into the files. Every step here is a program, too: `opjax-check`, `opjax-train` and
# `opjax-predict`.

# %%
import contextlib
import dataclasses
import importlib.util
import io
import json
import pathlib
import tempfile
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
import skfem
from scipy.spatial import Delaunay
from skfem.models.poisson import laplace, mass

from opjax import files, learn
from opjax.learn.cli import predict, train
from opjax.samples import Sample

SUFFIX = ".vtu" if importlib.util.find_spec("pyvista") else ".npz"
warnings.filterwarnings("ignore", message="IProgress")  # of PyVista's progress bars

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
# ## Files
#
# In place of your simulations: the temperature $u$ of plates that are heated by $f$ and kept
# at zero along the edge, $-\Delta u = f$, by linear finite elements of scikit-fem. Every
# plate has another shape, other points and another number of them. Lengths are in metres,
# $f$ in W/m², $u$ in kelvin, and conductivity times thickness is 1 W/K.


# %%
def random_shape(rng, h):
    """Points and triangles, of size `h`, of a shape whose radius is a wave."""
    waves = np.arange(2, 5)
    cosines, sines = rng.normal(size=(2, 3)) * 0.12

    def radius(angle):
        phase = angle[:, None] * waves
        return 1 + np.cos(phase) @ cosines + np.sin(phase) @ sines

    def inside(points, margin):
        angle = np.arctan2(points[:, 1], points[:, 0])
        return np.hypot(*points.T) < radius(angle) - margin

    angle = np.linspace(0, 2 * np.pi, int(2 * np.pi / h), endpoint=False)
    boundary = radius(angle)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    x, y = np.meshgrid(np.arange(-2, 2, h), np.arange(-2, 2, 0.87 * h))
    x[1::2] += h / 2
    interior = np.stack([x.ravel(), y.ravel()], axis=1)
    interior += rng.uniform(-0.15, 0.15, interior.shape) * h
    points = np.concatenate([boundary, interior[inside(interior, 0.6 * h)]])
    triangles = Delaunay(points).simplices
    return points, triangles[inside(points[triangles].mean(axis=1), 0)]


def random_source(rng, points):
    """A sum of three waves at the points."""
    frequency, phase = rng.normal(size=(3, 2)), rng.uniform(0, 6, 3)
    return np.sum(np.sin(points @ frequency.T + phase), axis=1)


def solve(points, triangles, source):
    """The finite element solution at the points."""
    mesh = skfem.MeshTri(points.T.copy(), triangles.T.copy())
    basis = skfem.Basis(mesh, skfem.ElementTriP1())
    system = laplace.assemble(basis), mass.assemble(basis) @ source
    return skfem.solve(*skfem.condense(*system, D=mesh.boundary_nodes()))


def write_files(folder, count, *, seed, sizes):
    """Writes so many files with the fields `f` and `u`."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        points, triangles = random_shape(rng, rng.uniform(*sizes))
        source = random_source(rng, points)
        fields = np.stack([source, solve(points, triangles, source)], axis=1)
        mesh = Sample(points, cells=triangles)
        files.write(folder / f"{i:03d}{SUFFIX}", mesh, fields, names=("f", "u"))


NUM_PLATES, NUM_EPOCHS = 480, 26
temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
begin = time.process_time()
write_files(folder / "train", NUM_PLATES, seed=0, sizes=(0.12, 0.17))
write_files(folder / "test", 24, seed=1, sizes=(0.12, 0.17))
write_files(folder / "fine", 8, seed=1, sizes=(0.04, 0.05))
print(f"{NUM_PLATES + 32} files in {time.process_time() - begin:.1f} s of CPU time")

# %% [markdown]
# ## Reading
#
# Fields are asked for by name. A mesh in the plane becomes two-dimensional though files
# have three coordinates, and quadrature weights come from the triangles: means over the
# points become means over the shape, whatever the density of its points. For damaged
# files, missing fields, values that are not finite, and files that do not agree there is an
# error with the name of the file.

# %%
options = files.ReadOptions(features="f", target="u", quadrature=True)
for name in ("train", "test", "fine"):
    points = [sample.num_points for sample in files.read(folder / name, options)]
    print(f"{name:5s} {len(points):3d} files of {min(points)} to {max(points)} points")

figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), sharex=True, sharey=True)
for ax, sample in zip(axes, files.read(folder / "test", options), strict=False):
    ax.triplot(*sample.mesh_points.T, sample.cells, lw=0.4, color="0.3")
    ax.set(aspect="equal", title=f"{sample.num_points} points", xlabel="x (m)")
axes[0].set_ylabel("y (m)")
plt.show()

# %% [markdown]
# ## Training
#
# The same as this command:
#
#     opjax-train --train=train --test=test --feature_names=f --target_names=u --quadrature \
#       --geometry=normals,distance,layers --batch_size=4 --num_epochs=26 \
#       --width=32 --num_basis=16
#
# `--geometry` computes what the edge is for the temperature: how far away it is, in which
# direction, and functions that decay from it. The three baselines of the table need no
# network; they interpolate between meshes, which do not correspond here.

# %%
config = dataclasses.replace(
    learn.TRAIN_PRESETS["fast"],
    train=str(folder / "train"),
    test=str(folder / "test"),
    feature_names="f",
    target_names="u",
    quadrature=True,
    geometry="normals,distance,layers",
    batch_size=4,
    num_epochs=NUM_EPOCHS,
    width=32,
    num_basis=16,
)
begin = time.process_time()
with quiet():
    result = train.run(config, workdir=folder / "run")
print(f"{time.process_time() - begin:.0f} s of CPU time, with compilation")
baselines = {name: row["relative_l2"] for name, row in result["baselines"].items()}
for name, value in {"operator": result["relative_l2"], **baselines}.items():
    print(f"{name:13s} {value:6.1%} relative L2 error on 24 new plates")

# %% [markdown]
# ## Predictions
#
# Of the same operator on finer meshes of new shapes, with eight times as many points.
# `opjax-predict` puts the prediction beside all that a file had: open the copy in ParaView,
# or read it again.

# %%
with quiet():
    predict.run(
        predict.PredictOptions(
            folder / "run", input=folder / "fine", output=folder / "out"
        )
    )
rows = json.loads((folder / "out/report.json").read_text())
errors = np.array([row["relative_l2"] for row in rows])
best = min(baselines, key=baselines.get)
print(
    f"Result: relative L2 error {result['relative_l2']:.1%} on new shapes, "
    f"{errors.mean():.1%} on finer meshes; best baseline, "
    f"{best.replace('_', ' ')}: {baselines[best]:.0%}"
)

# %%
middle = int(np.argsort(errors)[len(errors) // 2])
written = files.ReadOptions(features="f,u", target="prediction_u")
(again,) = files.read(folder / f"out/{middle:03d}{SUFFIX}", written)
source, truth = again.features.T
predicted = again.target[:, 0]
largest = np.abs(truth).max()
ranges = {"f (W/m²)": np.abs(source).max(), "error (K)": 0.1 * largest}
shown = {"f (W/m²)": source, "u, true (K)": truth, "u, predicted (K)": predicted}
shown["error (K)"] = predicted - truth
figure, axes = plt.subplots(1, 4, figsize=(13, 2.9), sharex=True, sharey=True)
for ax, (title, values) in zip(axes, shown.items(), strict=True):
    limit = ranges.get(title, largest)
    limits = {"vmin": -limit, "vmax": limit, "cmap": "RdBu_r", "shading": "gouraud"}
    image = ax.tripcolor(*again.mesh_points.T, again.cells, values, **limits)
    ax.set(aspect="equal", title=title, xlabel="x (m)")
    figure.colorbar(image, ax=ax)
axes[0].set_ylabel("y (m)")
figure.suptitle(f"a plate of middle error, {errors[middle]:.1%}: {len(truth)} points")
plt.show()

# %% [markdown]
# The colours of the error end at a tenth of the largest temperature.
#
# Predictions hold within what training saw: `opjax-predict` reports the share of
# points and values outside the ranges of the training samples. And `opjax.export.save`
# turns a trained operator into one file that runs without opjax, for any number of
# points.
