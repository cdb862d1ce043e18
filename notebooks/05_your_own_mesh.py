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
# A folder of files, each with a mesh of its own and fields at its points: read them,
# train on them, predict on meshes that training never saw, and write the predictions
# back into the files. `opjax-train` and `opjax-predict`
# do the same from the command line.

# %%
import functools
import importlib.util
import pathlib
import tempfile
import time
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import skfem
from flax import nnx
from scipy.spatial import Delaunay, KDTree
from skfem.models.poisson import laplace, mass

from opjax import files, metrics, nn, normalize, training
from opjax.samples import Sample, stack

SUFFIX = ".vtu" if importlib.util.find_spec("pyvista") else ".npz"
warnings.filterwarnings("ignore", message="IProgress")  # of PyVista's progress bars

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
# ## Files
#
# In place of your simulations: Poisson's equation $-\Delta u = f$, $u = 0$ on the
# boundary, by linear finite elements of scikit-fem on random shapes. Every mesh has
# other points and another number of them.


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
    """The finite element solution at the points, and their distance to the boundary."""
    mesh = skfem.MeshTri(points.T.copy(), triangles.T.copy())
    basis = skfem.Basis(mesh, skfem.ElementTriP1())
    system = laplace.assemble(basis), mass.assemble(basis) @ source
    boundary = mesh.boundary_nodes()
    distance, _ = KDTree(points[boundary]).query(points)
    return skfem.solve(*skfem.condense(*system, D=boundary)), distance


def write_files(folder, count, *, seed, sizes):
    """Writes so many files with the fields `f`, `distance` and `u`."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        points, triangles = random_shape(rng, rng.uniform(*sizes))
        source = random_source(rng, points)
        solution, distance = solve(points, triangles, source)
        fields = np.stack([source, distance, solution], axis=1)
        mesh = Sample(points, cells=triangles)
        files.write(
            folder / f"{i:03d}{SUFFIX}", mesh, fields, names=("f", "distance", "u")
        )
    return folder


temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
begin = time.perf_counter()
write_files(folder / "train", 96, seed=0, sizes=(0.12, 0.17))
write_files(folder / "test", 16, seed=1, sizes=(0.12, 0.17))
write_files(folder / "fine", 4, seed=1, sizes=(0.04, 0.05))
print(f"116 files in {time.perf_counter() - begin:.1f} s")

# %% [markdown]
# ## Reading
#
# Fields are asked for by name: the input is the source and the distance of the points
# to the boundary. A mesh in the plane becomes two-dimensional though files
# have three coordinates, and quadrature weights come from the triangles: means over the
# points become means over the shape, whatever the density of its points. Damaged
# files, fields that are missing or not finite, and files that do not agree are refused
# by name.

# %%
options = files.ReadOptions(features="f,distance", target="u", quadrature=True)
train, test, fine = (
    files.read(folder / name, options) for name in ("train", "test", "fine")
)
counts = [[sample.num_points for sample in part] for part in (train, test, fine)]
for name, points in zip(("train", "test", "fine"), counts, strict=True):
    print(
        f"{name:5s} {len(points):3d} samples of {min(points)} to {max(points)} points"
    )

_, axes = plt.subplots(1, 4, figsize=(11, 2.6), sharex=True, sharey=True)
for ax, sample in zip(axes, train, strict=False):
    ax.triplot(*sample.mesh_points.T, sample.cells, lw=0.4, color="0.3")
    ax.set(aspect="equal", title=f"{sample.num_points} points")
plt.show()

# %% [markdown]
# ## Training
#
# Samples are padded to one size and stacked; padding has zero weight, which removes it
# from attention, loss and metric. (`stack` makes several sizes where meshes differ
# much.) Functional attention sees points in any order and number.

# %%
scale = {
    name: normalize.fit(np.concatenate([getattr(s, name) for s in train])[None])
    for name in ("features", "target")
}
(data,) = stack(train, num_buckets=1)
print({name: array.shape for name, array in data.items()})

model = nn.OperatorTransformer(
    position=nn.Coordinates(2),
    feature_dim=2,
    out_features=1,
    features=32,
    num_layers=3,
    attention=functools.partial(nn.BasisAttention, num_heads=4, basis=None),
    basis=functools.partial(nn.bases.SoftmaxBasis, num_heads=4, num_basis=16),
    rngs=nnx.Rngs(0),
)


def predict(model, sample):
    """Solution of one sample, in the units of the files."""
    values = model(
        sample["mesh_points"],
        normalize.encode(scale["features"], sample["features"]),
        quadrature_weights=sample["quadrature_weights"],
    )
    return normalize.decode(scale["target"], values)


def error(model, sample):
    """Relative L2 error over the shape of one sample."""
    weights = sample["quadrature_weights"]
    return metrics.relative_l2(
        predict(model, sample), sample["target"], quadrature_weights=weights
    )


def loss(model, batch):
    """Sum of the errors of a batch."""
    return jnp.sum(jax.vmap(error, in_axes=(None, 0))(model, batch))


epochs, batch_size = 24, 8
steps = epochs * (len(train) // batch_size)
optimizer = training.adamw_onecycle(8e-3, steps, weight_decay=1e-5, clip_norm=1.0)
epoch = training.make_epoch(loss, optimizer)
state = training.init(model, optimizer)
begin = time.perf_counter()
history = []
for number in range(epochs):
    order = training.sample_order(0, number, len(train), batch_size)
    state, rows = epoch(state, data, order)
    history.append(float(jnp.mean(rows["loss"])) / batch_size)
print(f"{steps} steps in {time.perf_counter() - begin:.0f} s: error {history[-1]:.3f}")

# %% [markdown]
# ## Predictions
#
# On new shapes, and on finer meshes of new shapes with ten times as many points.


# %%
def errors_of(part):
    """Error of every sample."""
    (stacked,) = stack(part, num_buckets=1)
    return training.evaluate(error, state.model, stacked, batch_size=4)


errors = {"test": np.asarray(errors_of(test)), "fine": np.asarray(errors_of(fine))}
for name, values in errors.items():
    print(f"{name}: mean relative error {values.mean():.3f}, worst {values.max():.3f}")

_, ax = plt.subplots(figsize=(4.5, 2.6))
ax.semilogy(1 + np.arange(epochs), history, label="training")
ax.axhline(errors["test"].mean(), color="C3", ls=":", label="test")
ax.set(xlabel="epoch", title="relative error")
ax.legend()
plt.show()

# %% [markdown]
# `files.write` puts the prediction beside all that the file had: open the `.vtu` in
# ParaView, or read it again.

# %%
sample = fine[0]
(stacked,) = stack([sample])
prediction = np.asarray(jax.jit(jax.vmap(predict, (None, 0)))(state.model, stacked)[0])
out = folder / "predicted" / f"000{SUFFIX}"
files.write(out, sample, prediction, names=("prediction_u",))
(again,) = files.read(out, files.ReadOptions(features="f,u", target="prediction_u"))

truth, predicted = again.features[:, 1], again.target[:, 0]
shown = {"truth": truth, "prediction": predicted, "error": predicted - truth}
_, axes = plt.subplots(1, 3, figsize=(11, 2.8), sharex=True, sharey=True)
for ax, (title, values) in zip(axes, shown.items(), strict=True):
    image = ax.tripcolor(*again.mesh_points.T, again.cells, values, shading="gouraud")
    ax.set(aspect="equal", title=title)
    plt.colorbar(image, ax=ax)
plt.show()

# %% [markdown]
# Predictions hold within what training saw: `opjax-predict` reports the share of
# points and values outside the ranges of the training samples. And `opjax.export.save`
# turns a trained operator into one file that runs without opjax, for any number of
# points.
