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
# # Surfaces in space
#
# A body in a stream: from nothing but its surface, a closed mesh of triangles as an `.stl` or
# `.vtp` file has it, an operator predicts the pressure on it. Every body has a shape of its
# own, and its own number of triangles.

# %%
import contextlib
import dataclasses
import io
import json
import pathlib
import tempfile
import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import ConvexHull

from opjax import files, learn
from opjax.learn.cli import predict, train
from opjax.problems import bodies

plt.rcParams.update({"figure.dpi": 80, "figure.constrained_layout.use": True})


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
# In place of your simulations: potential flow along $x$ around smooth bodies with bumps and
# dents, by fundamental solutions (`opjax.problems.bodies`). A file has points, triangles and
# the pressure coefficient $c_p = 1 - |u|^2$. Lengths are in radii of the undeformed body; the
# stream has the speed 1, and $c_p$ no unit.


# %%
def sphere(count):
    """Directions and triangles between them, counterclockwise seen from outside."""
    directions = bodies.spread(count)
    cells = ConvexHull(directions).simplices
    a, b, c = np.moveaxis(directions[cells], 1, 0)
    inwards = np.sum(np.cross(b - a, c - a) * a, axis=1) < 0
    cells[inwards] = cells[inwards][:, ::-1]
    return directions, cells


def write_body(path, rng):
    """Writes a random body; returns how much of the stream leaks through it."""
    directions, cells = sphere(int(rng.integers(400, 560)))
    body = bodies.random_body(rng, num_bumps=6)
    points = bodies.surface(body, directions).points
    sources = bodies.solve(body, num_sources=400)
    pressure = bodies.pressure(bodies.velocity(sources, points))
    np.savez(path, mesh_points=points, cells=cells, cp=pressure)
    return sources.leak


NUM_BODIES, NUM_STEPS = 160, 1500
temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
begin, rng, leaks = time.process_time(), np.random.default_rng(0), []
for part, count in (("known", NUM_BODIES), ("new", 20)):
    (folder / part).mkdir()
    leaks += [write_body(folder / part / f"{i:03d}.npz", rng) for i in range(count)]
print(f"{len(leaks)} bodies in {time.process_time() - begin:.0f} s of CPU time;")
print(f"{np.median(leaks):.2%} of the stream leaks through, {max(leaks):.1%} at most")

# %% [markdown]
# ## Training
#
# The same as this command. Surfaces in `.npz` and `.vtu` files are read where they are named,
# here by a pattern; those of `.vtp`, `.stl` and `.ply` files always.
#
#     opjax-train --preset=small --train="known/*.npz" --test="new/*.npz" --target_names=cp \
#       --geometry=normals --quadrature --mirror="y; z" --num_steps=1500 --width=32 \
#       --num_layers=3 --num_basis=16
#
# The normals point out of the body, whatever the order of the corners in a file; the
# quadrature weights are areas. The stream is symmetric about $y = 0$ and $z = 0$, so mirrored bodies are
# training cases, too (`--mirror`).

# %%
config = dataclasses.replace(
    learn.TRAIN_PRESETS["small"],
    train=str(folder / "known/*.npz"),
    test=str(folder / "new/*.npz"),
    target_names="cp",
    geometry="normals",
    quadrature=True,
    mirror="y; z",
    num_steps=NUM_STEPS,
    width=32,
    num_layers=3,
    num_basis=16,
)
begin = time.process_time()
with quiet():
    result = train.run(config, workdir=folder / "run")
print(f"{time.process_time() - begin:.0f} s of CPU time, with compilation")
baselines = {name: row["relative_l2"] for name, row in result["baselines"].items()}
for name, value in {"operator": result["relative_l2"], **baselines}.items():
    print(f"{name:13s} {value:6.1%} relative L2 error on 20 new bodies")

# %% [markdown]
# ## New bodies
#
# The best, the middle and the worst of 20 new bodies, seen from where the stream comes. Truth
# and prediction have the same colours; those of the error end at 0.3.

# %%
with quiet():
    predict.run(
        predict.PredictOptions(
            folder / "run", input=(f"{folder}/new/*.npz",), output=folder / "out"
        )
    )
rows = json.loads((folder / "out/report.json").read_text())
errors = np.array([row["relative_l2"] for row in rows])
best = min(baselines, key=baselines.get)
print(
    f"Result: pressure on {len(errors)} new surfaces with a relative L2 error of "
    f"{errors.mean():.1%}, at most {errors.max():.1%}; best baseline, "
    f"{best.replace('_', ' ')}: {baselines[best]:.0%}"
)

# %%
options = files.ReadOptions(target="cp,prediction_cp")
order = np.argsort(errors)
chosen = {"best": order[0], "middle": order[len(order) // 2], "worst": order[-1]}
figure, axes = plt.subplots(3, 3, figsize=(12, 10), subplot_kw={"projection": "3d"})
for row, (name, number) in zip(axes, chosen.items(), strict=True):
    (case,) = files.read(folder / f"out/{number:03d}.npz", options)
    true, predicted = case.target.T
    fields = {"true": true, "predicted": predicted, "error": predicted - true}
    for ax, (title, values) in zip(row, fields.items(), strict=True):
        limits = (-0.3, 0.3) if title == "error" else (-1.5, 1)
        body = ax.plot_trisurf(
            *case.mesh_points.T,
            triangles=case.cells,
            cmap="RdBu_r" if title == "error" else "viridis",
            linewidth=0,
            antialiased=False,
        )
        body.set_array(values[case.cells].mean(axis=1))
        body.set_clim(*limits)
        ax.set(aspect="equal", title=f"{name}, {errors[number]:.1%}: {title}")
        ax.set(xlabel="x", ylabel="y", zlabel="z")
        ax.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1], zticks=[-1, 0, 1])
        ax.view_init(elev=20, azim=-130)
        label = "error of $c_p$" if title == "error" else "$c_p$"
        figure.colorbar(body, ax=ax, shrink=0.5, pad=0.12, label=label, extend="both")
figure.suptitle("pressure coefficient of new bodies; lengths in radii")
plt.show()

# %% [markdown]
# Look at the worst body, not only at the mean, and at the baselines: all bodies here are
# deformed spheres, so that interpolation between surfaces works, too. One seed is no order.
#
# Potential flow has no wake and no friction: these bodies are a test of geometry, not of
# turbulence. *Bodies in space* in the results has surfaces of 16,224 and of a million points.
