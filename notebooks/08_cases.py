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
import dataclasses
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
# In place of your simulations: the potential flow around Joukowski airfoils, which has a
# closed form. A file has the points, the quadrilaterals between them, the pressure
# coefficient, the points of the wall, and the angle as an array of one number. In a
# `.vtu` or `.vtk` file the angle would be field data; it may also be a column of a table
# `cases.csv` beside the files.

# %%
AROUND, OUTWARDS = 40, 8


def write_case(path, angle, centre):
    """Writes an airfoil at an angle in degrees; returns its exact lift coefficient."""
    sizes = {"num_angles": AROUND, "num_radii": OUTWARDS, "extent": 3.0}
    found = joukowski.flow(1.0, np.deg2rad(angle), centre, **sizes)
    i, j = np.arange(OUTWARDS - 1)[:, None] * AROUND, np.arange(AROUND)[None]
    k = (j + 1) % AROUND
    corners = [i + j, i + j + AROUND, i + k + AROUND, i + k]
    np.savez(
        path,
        mesh_points=np.reshape(found.points, (-1, 2)),
        cells=np.stack(corners, axis=-1).reshape(-1, 4),
        boundary_wall=np.arange(AROUND),
        cp=2 * np.ravel(found.pressure),
        angle=angle,
    )
    return float(found.lift)


temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
rng, exact = np.random.default_rng(0), []
for part, count in (("known", 80), ("new", 16)):
    (folder / part).mkdir()
    for number in range(count):
        shape = rng.uniform([-0.15, 0], [-0.05, 0.1])
        path = folder / part / f"{number:03d}.npz"
        exact.append(write_case(path, rng.uniform(-4, 8), shape))
exact = np.array(exact[-16:])

(case,) = files.read(
    folder / "new/000.npz",
    files.ReadOptions(target="cp", boundary_names="wall", scalars="angle"),
)
print(f"{case.num_points} points, angle {case.scalars[0]:.1f} degrees,", end=" ")
print(f"{len(case.boundaries['wall'])} points on the wall")

# %% [markdown]
# ## Training
#
# The same as this command:
#
#     opjax-train --preset=fast --train=known --target_names=cp --scalar_names=angle \
#       --boundary_names=wall --geometry=distance --num_epochs=30 --width=32 \
#       --num_layers=3 --num_basis=16 --quantities=lift:cp@wall:angle_deg=angle
#
# The angle becomes a feature that is the same at all points, the wall and the distance
# to it are features of the shape, and the lift is integrated from the pressure on the
# wall.

# %%
config = dataclasses.replace(
    learn.TRAIN_PRESETS["fast"],
    train=str(folder / "known"),
    target_names="cp",
    scalar_names="angle",
    boundary_names="wall",
    geometry="distance",
    quantities="lift:cp@wall:angle_deg=angle",
    width=32,
    num_layers=3,
    num_basis=16,
    num_epochs=30,
)
begin = time.perf_counter()
result = train.run(config, workdir=folder / "run")
print(f"{time.perf_counter() - begin:.0f} s")
for name, value in result.items():
    if name == "relative_l2" or name.startswith(("r2", "rank")):
        print(f"{name}: {value:.4f}")

# %% [markdown]
# ## New cases
#
# `opjax-predict` writes the predicted pressure beside the fields of every file, and the
# lift into `report.json`, here with that of the true pressure, since the files have it.
# A file without the angle, an angle in radians or a wall without a name is refused or
# warned of by name.

# %%
predict.run(
    predict.PredictOptions(folder / "run", input=folder / "new", output=folder / "out")
)
rows = json.loads((folder / "out/report.json").read_text())
print(json.dumps(rows[0], indent=1))
((name, _),) = rows[0]["quantities"].items()
lift = np.array([row["quantities"][name] for row in rows])
of_pressure = np.array([row["true_quantities"][name] for row in rows])

# %% [markdown]
# Of the lift there is also the closed form, by the theorem of Kutta and Joukowski. The
# integral of the true pressure over forty sides differs from it a little; the rest is
# the error of the operator.

# %%
print(f"forty sides: largest difference {np.abs(of_pressure - exact).max():.3f}")
print(f"operator: largest error {np.abs(lift - of_pressure).max():.3f}")
(shown,) = files.read(folder / "out/000.npz", files.ReadOptions(target="prediction_cp"))

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
x = case.mesh_points[:AROUND, 0]
left.plot(x, -case.target[:AROUND, 0], color="black", label="true")
left.plot(x, -shown.target[:AROUND, 0], "--", color="tab:red", label="predicted")
left.set(xlabel="$x$", ylabel="$-c_p$", title="pressure on the wall of an unseen case")
left.legend()
right.plot(exact, lift, "o", color="tab:red")
right.plot(exact, exact, color="black", lw=1)
right.set(xlabel="exact lift", ylabel="predicted lift", title="16 unseen cases")
plt.show()
