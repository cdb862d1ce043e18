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
# # Where is the heat source? Inversion and sensitivity
#
# Eight sensors measure the temperature of a plate. Where is the source of the heat, how strong is
# it, and how well do the sensors determine it? A trained operator is a differentiable function, so
# a minimiser finds the source, and the Hessian gives its uncertainty. The same function gives
# sensitivities and Sobol indices. The last section finds a whole field instead of four scalars.

# %%
import contextlib
import dataclasses
import io
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy import optimize, stats
from scipy.sparse.linalg import splu

from opjax import geometry, learn, uncertainty
from opjax.problems import advection, darcy, random_fields
from opjax.problems.poisson_mesh import assemble
from opjax.samples import Sample, Splits, grid_points

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
# ## Data
#
# A thin plate with insulated edges loses heat to the air. Its temperature $T$ above the air, in
# kelvin, solves
#
# $$-\Delta T + c\,T = q\,g(x - s),$$
#
# with a source of power $q$ (W), a Gaussian $g$ of width 0.2 m around $s$, and the cooling $c$
# (1/m²); conductivity times thickness is 1 W/K. The four scalars of a case are both coordinates
# of $s$, $q$ and $c$. Our own finite elements solve it.

# %%
NAMES = ("x", "y", "power", "cooling")
LOW, HIGH = np.array([[-0.6, -0.6, 0.5, 1.0], [0.6, 0.6, 2.0, 6.0]])
points, cells = advection.mesh(advection.Shape(3, 0.12, 0.5), spacing=0.13)
stiffness, mass = assemble(points, cells)
weights = np.asarray(mass.sum(axis=1)).ravel()


def spot(x, y):
    """The source of power one, at the points."""
    squares = np.sum((points - [x, y]) ** 2, axis=1)
    return np.exp(-squares / (2 * 0.2**2)) / (2 * np.pi * 0.2**2)


def solve(scalars):
    """The temperature at the points."""
    x, y, power, cooling = scalars
    factors = splu((stiffness + cooling * mass).tocsc())
    return power * factors.solve(mass @ spot(x, y))


def make_cases(count, seed):
    """Cases with random scalars."""
    rows = np.random.default_rng(seed).uniform(LOW, HIGH, (count, 4))
    arrays = {"cells": cells, "quadrature_weights": weights.astype(np.float32)}
    return [
        Sample(
            points.astype(np.float32),
            target=solve(row)[:, None].astype(np.float32),
            scalars=row.astype(np.float32),
            name=f"case {number}",
            **arrays,
        )
        for number, row in enumerate(rows)
    ]


NUM_STEPS = 1000
channels = {"features": (), "target": ("temperature",), "scalars": NAMES}
splits = Splits(
    *(make_cases(count, seed) for seed, count in enumerate((300, 20, 100))),
    "own finite elements",
    channels=channels,
)
print(f"{len(points)} points")

# %% [markdown]
# ## Training
#
# The temperature is proportional to the power, so the operator learns their ratio (`scales`).

# %%
config = dataclasses.replace(
    learn.TRAIN_PRESETS["small"],
    width=32,
    num_layers=2,
    num_heads=4,
    num_basis=16,
    batch_size=8,
    num_steps=NUM_STEPS,
    scales="temperature: power",
)
begin = time.process_time()
with quiet():
    operator = learn.train(splits, config=config)
predicted = np.stack([operator(case)[:, 0] for case in splits.test])
true = np.stack([case.target[:, 0] for case in splits.test])
errors = np.linalg.norm(predicted - true, axis=1) / np.linalg.norm(true, axis=1)
print(f"{time.process_time() - begin:.0f} s of CPU time, with compilation")
print(f"relative L2 error {errors.mean():.1%} on {len(errors)} new cases")

# %% [markdown]
# ## The operator as a function
#
# From here on everything is in double precision, and functions of $z$ between -1 and 1, the
# scalars over the middle and half of their ranges. `geometry.sensors` interpolates in the mesh.
# A sensor outside the mesh is an error.

# %%
jax.config.update("jax_enable_x64", True)
parameters = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), operator.parameters)
mesh, masses = jnp.asarray(points), jnp.asarray(weights)
middle, half = (LOW + HIGH) / 2, (HIGH - LOW) / 2
angles = 2 * np.pi * np.arange(8) / 8
places = 0.75 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
at_sensors = geometry.sensors(places, points, cells)
try:
    geometry.sensors(np.array([[1.2, 0.3]]), points, cells)
except ValueError as error:
    print(error)


def temperature(z):
    """The predicted temperature at the points, `(n, 1)`."""
    scalars = middle + half * z
    return operator.function(parameters, mesh, None, scalars, masses)


# %% [markdown]
# ## Inversion
#
# The sensors have an error of 0.005 K. The operator has an error at the sensors, too; it is
# measured on the validation cases and added. With normal prior distributions of $z$ the loss is
# the negative logarithm of the posterior. SciPy minimises it with its gradient, from the best of
# 64 random starts, and `uncertainty.laplace` returns the normal distribution around the minimum,
# from the Hessian.

# %%
MEASURED, PRIOR = 0.005, 0.6
known = splits.validation
off = [at_sensors(operator(case) - case.target)[:, 0] for case in known]
noise = np.sqrt(MEASURED**2 + np.mean(np.square(off)))
print(
    f"noise {noise:.4f} K, of which the operator {np.sqrt(np.mean(np.square(off))):.4f} K"
)


def loss(z, data):
    """Negative logarithm of the posterior, up to a constant."""
    misfit = at_sensors(temperature(z))[:, 0] - data
    return jnp.sum((misfit / noise) ** 2) / 2 + jnp.sum((z / PRIOR) ** 2) / 2


slope = jax.jit(jax.value_and_grad(loss))
at_starts = jax.jit(jax.vmap(loss, (0, None)))
starts = np.random.default_rng(0).uniform(-1, 1, (64, 4))


def invert(data):
    """The posterior of z."""
    start = starts[np.argmin(at_starts(starts, data))]
    found = optimize.minimize(slope, start, (data,), method="BFGS", jac=True)
    return uncertainty.laplace(loss, found.x, data)


def measure(scalars, rng):
    """What the sensors measure: the solver's temperature, and noise."""
    exact = at_sensors(solve(scalars)[:, None])[:, 0]
    return exact + MEASURED * rng.normal(size=len(exact))


rng = np.random.default_rng(5)
secret = np.array([0.35, -0.25, 1.4, 3.0])
data = measure(secret, rng)
posterior = invert(data)
for name, value, std, truth in zip(
    NAMES, middle + half * posterior.mean, half * posterior.std, secret, strict=True
):
    print(f"{name:8s} {value:6.3f} ± {std:.3f}, true {truth:.3f}")

# %% [markdown]
# ## Is the posterior right?
#
# The solver's own posterior of the position, for comparison: with the same data, noise of the
# sensors alone and prior, summed over power and cooling. A linear solver allows this by
# reciprocity (one solve for each sensor and cooling). The operator needs no such trick.

# %%
xs, ys = secret[:2, None] + np.linspace(-0.25, 0.25, 81)
spots = np.stack([spot(x, y) for x in xs for y in ys])
probes = np.zeros((len(places), len(points)))
np.put_along_axis(probes, at_sensors.corners, at_sensors.weights, axis=1)


def standard(values, number):
    """A scalar over the middle and half of its range."""
    return (values - middle[number]) / half[number]


powers, coolings = np.linspace(0.3, 2.6, 120), np.linspace(0.7, 8, 40)
density = np.zeros(len(spots))
for cooling in coolings:
    inverse = splu((stiffness + cooling * mass).tocsc()).solve(probes.T)  # symmetric
    unit = spots @ (mass @ inverse)
    misfits = powers[:, None, None] * unit[None] - data
    logs = -np.sum((misfits / MEASURED) ** 2, axis=2) / 2
    logs -= ((standard(powers, 2) / PRIOR) ** 2)[:, None] / 2
    logs -= (standard(cooling, 3) / PRIOR) ** 2 / 2
    density += np.exp(logs).sum(axis=0)
squares = sum(standard(grid, i) ** 2 for i, grid in enumerate(np.meshgrid(xs, ys)))
density = density.reshape(81, 81) * np.exp(-squares.T / (2 * PRIOR**2))
density /= density.sum()
exact_mean = np.array([density.sum(axis=1) @ xs, density.sum(axis=0) @ ys])
print(f"mean by the solver   ({exact_mean[0]:.3f}, {exact_mean[1]:.3f}) m")
mean = (middle + half * posterior.mean)[:2]
print(f"mean by the operator ({mean[0]:.3f}, {mean[1]:.3f}) m")

# %% [markdown]
# And 40 other sources. If the posteriors are right, nine of ten true positions lie inside the
# ellipses of 90 %.

# %%
COUNT = 40
secrets = rng.uniform(LOW, HIGH, (COUNT, 4))
found = [invert(measure(row, rng)) for row in secrets]
level = stats.chi2(2).ppf(0.9)
means = np.array([(middle + half * one.mean)[:2] for one in found])
spreads = np.array(
    [half[:2, None] * one.covariance[:2, :2] * half[:2] for one in found]
)
missed = means - secrets[:, :2]
distances = np.einsum("ni,nij,nj->n", missed, np.linalg.inv(spreads), missed)
inside, miss = np.mean(distances < level), np.linalg.norm(missed, axis=1)
print(
    f"Result: 40 heat sources found from eight sensors with a median miss of "
    f"{1000 * np.median(miss):.0f} mm on a plate of two metres; {inside:.0%} of them inside "
    "of their ellipses of 90%"
)


# %%
def ellipse(center, covariance):
    """Points of the ellipse of 90 %."""
    turns = np.linspace(0, 2 * np.pi, 100)
    root = np.linalg.cholesky(covariance)
    return (
        center + np.sqrt(level) * np.stack([np.cos(turns), np.sin(turns)], 1) @ root.T
    )


figure, axes = plt.subplots(1, 3, figsize=(14, 4))
image = axes[0].tripcolor(
    *points.T, cells, solve(secret), shading="gouraud", cmap="inferno"
)
figure.colorbar(image, ax=axes[0], label="K", shrink=0.8)
axes[0].plot(*places.T, "o", mfc="white", mec="black", label="sensors")
axes[0].plot(*secret[:2], "+", color="tab:cyan", ms=12, mew=2, label="source")
axes[0].set(title="true temperature", aspect="equal", xlabel="x (m)", ylabel="y (m)")
axes[0].legend(loc="lower left", fontsize=8)
ordered = np.sort(density.ravel())[::-1]
ninety = ordered[np.searchsorted(np.cumsum(ordered), 0.9)]
axes[1].contour(xs, ys, density.T, [ninety], colors="black")
axes[1].plot([], [], color="black", label="90 %, solver")
covariance = half[:2, None] * posterior.covariance[:2, :2] * half[:2]
axes[1].plot(*ellipse(mean, covariance).T, color="tab:red", label="90 %, operator")
axes[1].plot(*secret[:2], "+", color="tab:blue", ms=12, mew=2, label="truth")
axes[1].set(
    title="where the source is",
    xlabel="x (m)",
    xlim=secret[0] + np.array([-0.14, 0.14]),
    ylim=secret[1] + np.array([-0.14, 0.14]),
    aspect="equal",
)
axes[1].legend(fontsize=8)
for center, spread, row in zip(means, spreads, secrets, strict=True):
    axes[2].plot(*ellipse(center, spread).T, color="tab:red", lw=1)
    axes[2].plot(*row[:2], "+", color="tab:blue")
axes[2].set(title=f"{COUNT} other sources", aspect="equal", xlabel="x (m)")
plt.show()

# %% [markdown]
# The noise contains the mean error of the operator. In cases with a larger error, the ellipse is too
# small. A larger noise, more training cases or a check of the result by the solver helps. A posterior with several maxima needs a sampler, see *Gradients* in
# the documentation.

# %% [markdown]
# ## Sensitivity
#
# The derivative of the temperature at the first sensor by each scalar, against central
# differences of the solver:

# %%
at_secret = (secret - middle) / half
first = jax.jit(jax.jacfwd(lambda z: at_sensors(temperature(z))[0, 0]))
slopes = first(at_secret) / half
for number, name in enumerate(NAMES):
    step = np.zeros(4)
    step[number] = 0.01 * half[number]
    change = at_sensors((solve(secret + step) - solve(secret - step))[:, None])[0, 0]
    difference = change / (2 * step[number])
    print(f"by {name:8s} {float(slopes[number]):7.3f}, solver {difference:7.3f}")

# %% [markdown]
# Sobol indices say which share of the variance of a quantity each scalar explains, over the whole
# ranges; here of the largest temperature, `trained.quantity`. They need thousands of evaluations,
# which `jax.vmap` makes one call. This small linear problem is faster by the solver.

# %%
peak = operator.quantity("max:temperature", splits.test[0])
evaluate = jax.jit(jax.vmap(lambda row: peak(parameters, mesh, None, row, masses)))
ranges = [stats.uniform(low, high - low) for low, high in zip(LOW, HIGH, strict=True)]
indices = {}
for name, function in {
    "operator": lambda rows: np.array(evaluate(rows.T)),
    "solver": lambda rows: np.array([solve(row).max() for row in rows.T]),
}.items():
    begin = time.process_time()
    indices[name] = stats.sobol_indices(func=function, n=256, dists=ranges, rng=0)
    print(f"{name}: {256 * 6} evaluations in {time.process_time() - begin:.1f} s")
off = np.abs(indices["operator"].total_order - indices["solver"].total_order).max()
print(
    f"Result: total Sobol indices of the largest temperature within {off:.3f} of the solver's"
)

# %%
_, ax = plt.subplots(figsize=(6, 2.6))
for number, (name, found) in enumerate(indices.items()):
    where = np.arange(4) + 0.4 * number - 0.2
    color = ("tab:red", "black")[number]
    ax.bar(
        where, found.total_order, 0.36, color=color, alpha=0.4, label=f"{name}, total"
    )
    ax.bar(where, found.first_order, 0.36, color=color, label=f"{name}, alone")
ax.set_xticks(range(4), NAMES)
ax.set(ylabel="Sobol index")
ax.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## A field from sensors
#
# 36 sensors measure the pressure $u$ of Darcy flow, $-\nabla \cdot (a \nabla u) = 1$ with $u = 0$ on
# the edges of a square. What is the coefficient $a$ everywhere? Its logarithm is a sum of 15 cosine
# waves with amplitudes $z$. The prior is a Gaussian random field. A second operator learns $u$ from
# $\log a$, with cases of our own solver (`problems.darcy`).

# %%
SIDE, CASES, NUM_UPDATES, FIELDS = 12, 500, 800, 10
sizes = 2.5 * random_fields.spectral_deviations(num_points=SIDE)
waves = jnp.stack(
    [
        random_fields.cosine_synthesis(jnp.zeros_like(sizes).at[wave].set(sizes[wave]))
        for wave in np.ndindex(4, 4)
        if any(wave)
    ],
    axis=-1,
)  # (side, side, 15)


def flow(z):
    """The pressure of the solver, `(side, side)`."""
    return darcy.solve(jnp.exp(waves @ z)).solution


amplitudes = rng.normal(size=(CASES + 40 + FIELDS, 15))
training, held_out, unknown = np.split(amplitudes, [CASES, CASES + 40])
solver = jax.jit(flow)
arrays = {
    "features": np.stack([waves @ z for z in training]).astype(np.float32),
    "target": np.stack([solver(z) for z in training]).astype(np.float32),
}
config = dataclasses.replace(config, scales="", num_steps=NUM_UPDATES)
begin = time.process_time()
with quiet(), jax.enable_x64(False):
    second = learn.train(arrays, config=config)
print(f"{time.process_time() - begin:.0f} s of CPU time, with compilation")

# %% [markdown]
# The sensors have noise of 1 % of the standard deviation of the pressure. The error of the
# operator is added, from 40 held-out cases. Residuals of data and prior are one vector, whose sum of
# squares is twice the loss: `least_squares` minimises it.

# %%
line = SIDE * (2 * np.arange(6) + 1) // 12
rows, columns = (grid.ravel() for grid in np.meshgrid(line, line, indexing="ij"))
model = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), second.parameters)
grid = jnp.asarray(grid_points((SIDE, SIDE)), jnp.float64)


def by_solver(z):
    """The pressure at the sensors."""
    return flow(z)[rows, columns]


def by_operator(z):
    """The predicted pressure at the sensors."""
    u = second.function(model, grid, (waves @ z).reshape(-1, 1))
    return u.reshape(SIDE, SIDE)[rows, columns]


def residuals(z, data, sensors, noise):
    """Of the data, and of the prior."""
    return jnp.concatenate([(sensors(z) - data) / noise, z])


def fit(sensors, noise):
    """The amplitudes with the largest posterior density, for each row of data."""

    def values(z, data):
        return residuals(z, data, sensors, noise)

    both = jax.jit(values), jax.jit(jax.jacfwd(values))
    start = np.zeros(15)
    return np.stack(
        [
            optimize.least_squares(both[0], start, both[1], args=(data,), xtol=1e-10).x
            for data in measured
        ]
    )


at_solver, at_operator = jax.jit(by_solver), jax.jit(by_operator)
known = arrays["target"][:, rows, columns]
spread = 0.01 * known.std()
off = np.array([at_operator(z) - at_solver(z) for z in held_out])
total = np.sqrt(spread**2 + np.mean(off**2))
print(f"error of a sensor {spread:.5f}, with the operator {total:.5f}")
measured = np.array([at_solver(z) for z in unknown])
measured += spread * rng.normal(size=measured.shape)
truth = np.array([waves @ z for z in unknown])

# %% [markdown]
# Ten new coefficients, by gradients of the operator and of the solver. Baseline: the linear
# regression of the amplitudes on the sensors, from the same training cases. Errors are relative L2
# errors of $\log a$; its prior mean, zero, has an error of 100 %. Measurements and the solver's
# inversion use the same grid, so the error by the solver is optimistic.

# %%
noisy = np.column_stack([known + spread * rng.normal(size=known.shape), np.ones(CASES)])
linear = np.linalg.lstsq(noisy, training, rcond=None)[0]
amplitudes = {
    "operator": fit(by_operator, total),
    "solver": fit(by_solver, spread),
    "regression": np.column_stack([measured, np.ones(FIELDS)]) @ linear,
}
fields = {
    name: np.einsum("ijk,bk->bij", waves, some) for name, some in amplitudes.items()
}


def posterior_loss(z, data):
    """Negative logarithm of the posterior, up to a constant."""
    return jnp.sum(residuals(z, data, by_operator, total) ** 2) / 2


covariances = [
    uncertainty.laplace(posterior_loss, *pair).covariance
    for pair in zip(amplitudes["operator"], measured, strict=True)
]
stds = np.sqrt([np.einsum("ijk,kl,ijl->ij", waves, one, waves) for one in covariances])


def norms(fields):
    """The norm of each field."""
    return np.linalg.norm(fields.reshape(FIELDS, -1), axis=1)


errors = {
    name: np.mean(norms(one - truth) / norms(truth)) for name, one in fields.items()
}
inside = np.mean(np.abs(fields["operator"] - truth) < stats.norm.ppf(0.95) * stds)
print(
    f"Result: log a found from 36 sensors with an error of {errors['operator']:.0%} "
    f"(linear regression: {errors['regression']:.0%}, gradients of the solver: "
    f"{errors['solver']:.0%}); {inside:.0%} of the cells inside of their intervals of 90%"
)

# %%
figure, axes = plt.subplots(1, 4, figsize=(14, 3.2), sharey=True)
limits = {"vmin": truth[0].min(), "vmax": truth[0].max(), "cmap": "viridis"}
pictures = {
    "true log a": (truth[0], limits),
    "found by the operator": (fields["operator"][0], limits),
    "found by linear regression": (fields["regression"][0], limits),
    "standard deviation, operator": (stds[0], {"cmap": "magma"}),
}
for axis, (title, (values, colours)) in zip(axes, pictures.items(), strict=True):
    image = axis.imshow(values.T, origin="lower", extent=(0, 1, 0, 1), **colours)
    figure.colorbar(image, ax=axis, shrink=0.8)
    axis.set(title=title, xlabel="x")
spots = (np.stack([rows, columns]) + 0.5) / SIDE
axes[0].plot(*spots, "o", mfc="white", mec="black", ms=4)
axes[0].set_ylabel("y")
plt.show()

# %% [markdown]
# The derivatives of an operator along smooth waves are good enough for this; those by single cells, or
# by a coefficient of two values, are not.
# [Sensitivities](../results/sensitivity.md#a-coefficient-from-sensors) has the measurements, with 35 waves and
# three seeds.
