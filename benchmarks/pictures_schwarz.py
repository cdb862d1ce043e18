"""The picture of Schwarz's operator: its levels beside the true inverse."""

import pathlib
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import pictures_style as style
from experiments.poisson_schwarz import training
from experiments.poisson_schwarz.studies import STARTS, Setup, Study
from opjax import schwarz
from opjax.learn.report import drawing

NUM_STEPS = 2000
_SEED = 0


def trained(num_steps: int = NUM_STEPS) -> Any:
    """Schwarz attention for -u'' = f on 256 points, from our initialisation."""
    start = STARTS["whitened"]
    rate = start.learning_rate
    study = Study(
        name="picture",
        setup=Setup(),
        start=start,
        rates=(rate,),
        seeds=(_SEED,),
        rate=rate,
        num_steps=num_steps,
    )
    task = training.make_task(study)
    assert task.build
    assert task.optimizer
    assert task.replicas

    def alone(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[0], tree)

    model = alone(task.build(study, None))
    optimizer = task.optimizer(study, num_steps, alone(task.replicas.hyper))
    key = jax.random.key(_SEED)

    def step(carry: Any, number: Any) -> tuple[Any, None]:
        model, state = carry
        slope = jax.grad(task.loss)(model, task.draw(key, number))
        updates, state = optimizer.update(slope, state, model)
        return (optax.apply_updates(model, updates), state), None

    carry = model, optimizer.init(model)
    (model, _), _ = jax.jit(partial(jax.lax.scan, step))(carry, jnp.arange(num_steps))
    return model


def operator(run: pathlib.Path | None = None) -> Any:
    """Partition of unity and coarse functions, levels, the true inverse, the error."""
    del run
    model = trained()
    size = Setup().domain.num_points
    query, key, cover = model.query[...], model.key[...], model.cover
    one_level = partial(schwarz.two_level_attention, query, key, cover=cover)
    local, full = (np.asarray(schwarz.matrix_of(f, size)) for f in (one_level, model))
    exact = np.asarray(jax.vmap(Setup().domain.solver(), 1, 1)(jnp.eye(size)))
    drawn = style.figure(5.6)
    above, below = drawn.subfigures(2, 1, height_ratios=(1.5, 4.1))
    _functions(above, cover, model.coarse_space, size)
    names = "local blocks", "coarse block", "both: the operator", "true inverse"
    images = np.stack([local, full - local, full, exact]) * size
    axes = below.subplots(2, 3)
    places = [axes[0, 0], axes[0, 1], axes[1, 0], axes[1, 1]]
    colours: Any = {"vmin": min(images.min(), 0.0), "vmax": images.max()}
    for axis, name, values in zip(places, names, images, strict=True):
        image = axis.imshow(values, interpolation="nearest", **colours)
        axis.set(title=name, xticks=[], yticks=[])
    axes[0, 0].set(ylabel="point of u")
    axes[1, 0].set(xlabel="point of f", ylabel="point of u")
    gap = 1e3 * size * (full - exact)
    error = axes[1, 2].imshow(gap, interpolation="nearest", **style.around_zero(gap))
    frobenius = np.linalg.norm(full - exact) / np.linalg.norm(exact)
    axes[1, 2].set(title=f"error, {100 * frobenius:.1g} %", xticks=[], yticks=[])
    block = 3
    one = (query[block] @ key[block].T)[: cover.sizes[block], : cover.sizes[block]]
    axes[0, 2].imshow(one, interpolation="nearest")
    axes[0, 2].set(title="one block, own scale", xticks=[], yticks=[])
    style.colour_bar(image, axes[:, :2].ravel(), "Green's function, one scale")
    style.colour_bar(error, axes[:, 2], "thousandths", aspect=11)
    return drawn


def _functions(figure: Any, cover: Any, coarse: Any, size: int) -> None:
    """Draws weights of the subdomains and functions of the coarse space."""
    x = np.arange(1, size + 1) / (size + 1)
    titles = ("partition of unity", "coarse functions")
    axes = figure.subplots(1, 2, sharey=True)
    colours = [style.COLOURS[name] for name in ("blue", "vermilion", "green", "purple")]
    for axis, title, parts in zip(axes, titles, (cover, coarse), strict=True):
        groups = zip(parts.indices, parts.weights, parts.sizes, strict=True)
        for number, (indices, weights, count) in enumerate(groups):
            values = np.zeros(size)
            values[np.asarray(indices[:count])] = np.asarray(weights[:count])
            inside = np.flatnonzero(values)
            shown = slice(max(inside[0] - 1, 0), inside[-1] + 2)
            axis.plot(x[shown], values[shown], color=colours[number % 4], linewidth=1.2)
        axis.set(title=title, xlabel="x", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        drawing.plain(axis)
