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
# # A case of a real solver: stress in plates with a hole
#
# 144 plates, each with a hole of its own, meshed by gmsh and solved by CalculiX: second-order
# tetrahedra, clamped at the left end, pulled at the right end. From 120 of them an operator
# learns the stress on the surface of the others, and with it the number that an engineer asks
# for, the largest stress.

# %%
import contextlib
import dataclasses
import io
import json
import pathlib
import shutil
import tempfile
import time

import matplotlib.pyplot as plt
import numpy as np

from opjax import files, learn
from opjax.learn.cli import predict, train

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
# `data/plates.zip` has the corners of the elements on one face of each plate, and the von
# Mises stress there; `cases.csv` has a row for each file: load in N and its angle in
# degrees, thickness, place and radius of the hole in mm. `data/make_plates.py` makes such files. The
# `.vtu` files that `ccx2paraview` writes from CalculiX's results are read in the same way; see
# *From CalculiX or Abaqus* in the documentation.

# %%
NUM_STEPS = 1500
temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
shutil.unpack_archive("data/plates.zip", folder / "cases")
known, new = (sorted((folder / "cases").glob(p)) for p in ("plate_*", "new_*"))
print((folder / "cases/cases.csv").read_text()[:150])

options = files.ReadOptions(target="S_Mises", scalars="load,angle,t")
figure, axes = plt.subplots(1, 3, figsize=(13, 2.3), sharex=True, sharey=True)
for ax, path in zip(axes, known, strict=False):
    (case,) = files.read(path, options)
    load, angle, thickness = case.scalars
    ax.triplot(*case.mesh_points.T, case.cells, lw=0.4, color="0.3")
    ax.set(title=f"{load:.0f} N at {angle:.0f} degrees, {thickness:.1f} mm thick")
    ax.set(aspect="equal", xlabel="x (mm)")
axes[0].set_ylabel("y (mm)")
plt.show()

# %% [markdown]
# ## Training
#
# What is known is not learned: the plates are linear, so the stress is proportional to the
# load over the thickness (`--scales`). What happens near a boundary is in the geometry:
# `--boundary` names parts of the edge by conditions, `--geometry` computes normals,
# distances and functions that decay for each. A mirrored plate is a plate, too (`--mirror`).
#
#     opjax-train --preset=small --train="cases/plate_*" --test="cases/new_*" \
#       --target_names=S_Mises --scalar_names=angle --angles=angle \
#       --scales="S_Mises: load/t" --mirror=y --geometry=normals,distance,layers \
#       --boundary="clamp: x < 1e-3; end: x > 99.99; hole: (x-hx)^2 + (y-hy)^2 < (1.003*r)^2" \
#       --quantities=max:S_Mises --num_steps=1500 --width=48 --num_basis=16

# %%
config = dataclasses.replace(
    learn.TRAIN_PRESETS["small"],
    train=str(folder / "cases/plate_*"),
    test=str(folder / "cases/new_*"),
    target_names="S_Mises",
    scalar_names="angle",
    angles="angle",
    scales="S_Mises: load/t",
    mirror="y",
    geometry="normals,distance,layers",
    boundary="clamp: x < 1e-3; end: x > 99.99; hole: (x-hx)^2 + (y-hy)^2 < (1.003*r)^2",
    quantities="max:S_Mises",
    num_steps=NUM_STEPS,
    width=48,
    num_basis=16,
)
begin = time.process_time()
with quiet():
    result = train.run(config, workdir=folder / "run")
print(f"{time.process_time() - begin:.0f} s of CPU time, with compilation")
found = {"operator": result, **result["baselines"]}
(quantity,) = [
    name for name in result["baselines"]["pod_rbf"] if name.startswith("r2_")
]
for name, row in found.items():
    stress, largest = row["relative_l2"], row[quantity]
    print(
        f"{name:13s} error of the stress {stress:6.1%}, R² of the largest {largest:6.3f}"
    )

# %% [markdown]
# ## New plates
#
# `opjax-predict` writes the stress beside what each file has, and its largest value into
# `report.json`.

# %%
with quiet():
    predict.run(
        predict.PredictOptions(
            folder / "run", input=tuple(map(str, new)), output=folder / "out"
        )
    )
rows = json.loads((folder / "out/report.json").read_text())
((name, _),) = rows[0]["quantities"].items()
largest = np.array([row["quantities"][name] for row in rows])
true_largest = np.array([row["true_quantities"][name] for row in rows])
off = np.abs(largest / true_largest - 1)
best = min(result["baselines"], key=lambda n: result["baselines"][n]["relative_l2"])
print(
    f"largest stress: off by {np.median(off):.1%} in the median, {off.max():.1%} at most"
)
print(
    f"Result: stress of {len(new)} new plates of CalculiX with an error of "
    f"{result['relative_l2']:.1%}, largest stress with R² {result[quantity]:.3f}; best "
    f"baseline, {best.replace('_', ' ')}: {result['baselines'][best]['relative_l2']:.0%}, "
    f"{result['baselines'][best][quantity]:.2f}"
)

# %%
errors = np.array([row["relative_l2"] for row in rows])
middle = int(np.argsort(errors)[len(errors) // 2])
written = files.ReadOptions(target="S_Mises,prediction_S_Mises")
(case,) = files.read(folder / "out" / new[middle].name, written)
true, predicted = case.target.T
figure, axes = plt.subplots(1, 4, figsize=(16, 2.8), width_ratios=(1.4, 1.4, 1.4, 1))
fields = {"true": true, "predicted": predicted, "error": predicted - true}
top = true.max()
for ax, (title, values) in zip(axes, fields.items(), strict=False):
    shown = {"vmin": 0, "vmax": top, "cmap": "inferno"}
    if title == "error":
        shown = {"vmin": -0.1 * top, "vmax": 0.1 * top, "cmap": "RdBu_r"}
    image = ax.tripcolor(
        *case.mesh_points.T, case.cells, values, shading="gouraud", **shown
    )
    figure.colorbar(image, ax=ax, shrink=0.7, label="MPa")
    ax.set(aspect="equal", title=title, xlabel="x (mm)")
axes[0].set_ylabel("y (mm)")
axes[3].plot(true_largest, true_largest, color="black", lw=1)
axes[3].plot(true_largest, largest, "o", color="tab:red", ms=4)
axes[3].set(xlabel="largest stress, true (MPa)", ylabel="predicted (MPa)")
figure.suptitle(f"von Mises stress of a plate of middle error, {errors[middle]:.1%}")
plt.show()

# %% [markdown]
# The colours of the error end at a tenth of the largest stress. The largest stress of one
# plate can be far off though the median is good: look at the worst case of your own test set
# before you trust a maximum. This is one seed and one split; *Scalars of a case* in the
# documentation has finer meshes, three seeds and displacements.
