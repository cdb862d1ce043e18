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
# # A case, from its file to its lift
#
# An engineer's case is more than a mesh with fields: it has numbers such as an angle of
# attack, walls with names, and one number that is asked for in the end. Here airfoils of
# random shape at random angles are written to files, an operator learns the pressure
# around them, and out comes the lift.

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

from opjax import files, learn
from opjax.learn.cli import predict, train
from opjax.problems import joukowski

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
# In place of your simulations: the potential flow around Joukowski airfoils, which has a
# closed form. A file has the points, the quadrilaterals between them, the pressure
# coefficient $c_p$, the points of the wall, and the angle as an array of one number. Every
# airfoil has another number of points. In a `.vtu` or `.vtk` file the angle would be field
# data; it may also be a column of a table `cases.csv` beside the files. Lengths are in
# chords; $c_p$ has no unit.


# %%
def write_case(path, rng):
    """Writes a random airfoil at a random angle; returns its exact lift coefficient."""
    around, outwards = rng.integers(32, 57), rng.integers(7, 11)
    angle, centre = rng.uniform(-4, 8), rng.uniform([-0.15, 0], [-0.05, 0.1])
    sizes = {"num_angles": int(around), "num_radii": int(outwards), "extent": 3.0}
    found = joukowski.flow(1.0, np.deg2rad(angle), centre, **sizes)
    i, j = np.arange(outwards - 1)[:, None] * around, np.arange(around)[None]
    k = (j + 1) % around
    corners = [i + j, i + j + around, i + k + around, i + k]
    np.savez(
        path,
        mesh_points=np.reshape(found.points, (-1, 2)),
        cells=np.stack(corners, axis=-1).reshape(-1, 4),
        boundary_wall=np.arange(around),
        cp=2 * np.ravel(found.pressure),
        angle=angle,
    )
    return float(found.lift)


NUM_AIRFOILS, NUM_STEPS = 160, 1500
temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
rng, exact = np.random.default_rng(0), {}
for part, count in (("known", NUM_AIRFOILS), ("new", 24)):
    (folder / part).mkdir()
    paths = [folder / part / f"{number:03d}.npz" for number in range(count)]
    exact[part] = np.array([write_case(path, rng) for path in paths])

options = files.ReadOptions(target="cp", boundary_names="wall", scalars="angle")
for case in files.read(folder / "new", options)[:3]:
    print(
        f"{case.num_points} points, {len(case.boundaries['wall'])} of them on the wall,"
    )
    print(f"    angle {case.scalars[0]:.1f} degrees")

# %% [markdown]
# ## Training
#
# The same as this command:
#
#     opjax-train --preset=small --train=known --test=new --target_names=cp \
#       --scalar_names=angle --angles=angle --boundary_names=wall \
#       --geometry=normals,distance,layers --num_steps=1500 --width=32 --num_layers=3 \
#       --num_basis=16 --quantities=lift:cp@wall:angle_deg=angle
#
# The angle enters by its cosine and sine. Where the wall is, how far away, and in which
# direction its normal points, are features that are computed from the mesh. The lift is
# integrated from the pressure on the wall.

# %%
config = dataclasses.replace(
    learn.TRAIN_PRESETS["small"],
    train=str(folder / "known"),
    test=str(folder / "new"),
    target_names="cp",
    scalar_names="angle",
    angles="angle",
    boundary_names="wall",
    geometry="normals,distance,layers",
    quantities="lift:cp@wall:angle_deg=angle",
    num_steps=NUM_STEPS,
    width=32,
    num_layers=3,
    num_basis=16,
)
begin = time.process_time()
with quiet():
    result = train.run(config, workdir=folder / "run")
print(f"{time.process_time() - begin:.0f} s of CPU time, with compilation")

# %% [markdown]
# Beside the operator are three predictions that need no network. The meshes have different
# numbers of points, so the baselines interpolate between them.

# %%
found = {"operator": result, **result["baselines"]}
(quantity,) = [
    name for name in result["baselines"]["pod_rbf"] if name.startswith("r2_")
]
for name, row in found.items():
    pressure, lift = row["relative_l2"], row[quantity]
    print(
        f"{name:13s} error of the pressure {pressure:6.1%}, R² of the lift {lift:7.4f}"
    )

# %% [markdown]
# ## New cases
#
# `opjax-predict` writes the predicted pressure beside the fields of every file, and the
# lift into `report.json`, here with that of the true pressure, since the files have it.
# A file without the angle or a wall without a name is an error that names it; an angle in
# other units than in training gets a warning.

# %%
with quiet():
    predict.run(
        predict.PredictOptions(
            folder / "run", input=folder / "new", output=folder / "out"
        )
    )
rows = json.loads((folder / "out/report.json").read_text())
((name, _),) = rows[0]["quantities"].items()
print(rows[0]["name"], rows[0]["quantities"], "true", rows[0]["true_quantities"])
lift = np.array([row["quantities"][name] for row in rows])
of_pressure = np.array([row["true_quantities"][name] for row in rows])

# %% [markdown]
# Of the lift there is also the closed form, by the theorem of Kutta and Joukowski. The
# integral of the true pressure over the sides of the mesh differs from it a little; the
# rest is the error of the operator.

# %%
spread = np.std(exact["new"])
print(f"sides: largest difference {np.abs(of_pressure - exact['new']).max():.3f}")
print(f"operator: largest difference {np.abs(lift - of_pressure).max():.3f}")
print(f"lift of the 24 cases: standard deviation {spread:.3f}")
best = max(result["baselines"], key=lambda name: result["baselines"][name][quantity])
print(
    f"Result: lift of 24 new airfoils with R² {result[quantity]:.4f}, "
    f"pressure error {result['relative_l2']:.1%}; best baseline, "
    f"{best.replace('_', ' ')}: R² {result['baselines'][best][quantity]:.3f}, "
    f"{result['baselines'][best]['relative_l2']:.0%}"
)

# %%
errors = np.array([row["relative_l2"] for row in rows])
middle = int(np.argsort(errors)[len(errors) // 2])
written = dataclasses.replace(options, target="cp,prediction_cp")
(case,) = files.read(folder / f"out/{middle:03d}.npz", written)
true, predicted = case.target.T
wall = case.boundaries["wall"]

figure, ax = plt.subplots(figsize=(5, 3))
x = case.mesh_points[wall, 0]
ax.plot(x, -true[wall], color="black", label="true")
ax.plot(x, -predicted[wall], "--", color="tab:red", label="predicted")
ax.set(xlabel="x (chords)", ylabel="$-c_p$", title="the wall of this case")
ax.legend()
plt.show()

# %%
figure, axes = plt.subplots(1, 4, figsize=(15, 3.2), width_ratios=(1, 1, 1, 0.9))
fields = {"$c_p$, true": true, "$c_p$, predicted": predicted, "error": predicted - true}
largest = np.quantile(np.abs(true), 0.98)  # the suction peak is higher
triangles = np.concatenate([case.cells[:, [0, 1, 2]], case.cells[:, [0, 2, 3]]])
for ax, (title, values) in zip(axes, fields.items(), strict=False):
    limit = 0.1 * largest if title == "error" else largest
    limits = {"vmin": -limit, "vmax": limit, "cmap": "RdBu_r", "shading": "gouraud"}
    image = ax.tripcolor(*case.mesh_points.T, triangles, values, **limits)
    figure.colorbar(image, ax=ax, shrink=0.8, extend="both")
    ax.set(xlim=(-0.4, 1.4), ylim=(-0.7, 0.7), aspect="equal", title=title)
    ax.set(xlabel="x (chords)")
axes[0].set_ylabel("y (chords)")
axes[3].plot(exact["new"], exact["new"], color="black", lw=1)
axes[3].plot(exact["new"], lift, "o", color="tab:red", ms=4)
axes[3].set(xlabel="exact lift coefficient", ylabel="predicted", title="24 new cases")
figure.suptitle(f"a case of middle error, {errors[middle]:.1%}", x=0.38)
plt.show()

# %% [markdown]
# The colours of the error end at a tenth of those of the pressure. Where meshes correspond and
# few parameters change the field smoothly, proper orthogonal decomposition is often the
# better tool: look at the baselines of your own data, and take `--start_from=baseline` where
# one of them wins.
