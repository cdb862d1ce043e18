"""What `test_explicit.py` compares, found on virtual devices of a CPU.

A process of its own: the number of devices is settled before JAX starts.

    JAX_NUM_CPU_DEVICES=4 python -m tests.explicit functions FILE NAME,NAME both
"""

import contextlib
import dataclasses
import inspect
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import tests.strict  # noqa: F401 - the strict session of all tests
from opjax import schwarz
from opjax.learn.registry import operators
from tests.nn.parameters import enlarged
from tests.numerics.test_models import TINY
from tests.test_annotations import FUNCTIONS, OPTIONS, arguments, shaped

SAMPLES, POINTS = 4, 8  # of arrays; four devices divide both
COVER = schwarz.box_cover(POINTS, 2, overlap=1)
SPACE = schwarz.partition_hats(POINTS, 3)
OF_SUBDOMAINS = ("prolong", "two_level_attention")  # whose points are no `m`
OTHERS = {"cover": COVER, "coarse_space": SPACE, "grid_shape": (POINTS,)}
GRID = (8, 8)
SIZES = operators.Sizes(
    2, 1, 2, grid_shape=GRID, num_points=64, box=((0.0, 0.0), (1.0, 1.0))
)


LAYOUTS = ("samples", "points", "both")


def meshes(count, layouts=LAYOUTS):
    """Meshes of so many devices, and the axes that split samples and points."""
    shapes = {"samples": (count, 1), "points": (1, count), "both": (count // 2 or 1, 2)}
    if count == 1:
        shapes["both"] = (1, 1)
    axes = {"samples": ("b", None), "points": (None, "p"), "both": ("b", "p")}
    return {k: (jax.make_mesh(shapes[k], ("b", "p")), *axes[k]) for k in layouts}


def function(name):
    """A public function, samples of its arrays and which of their axes are points."""
    given = OPTIONS.get(name, {})
    others = {k: v for k, v in OTHERS.items() if k in given} | {"n": POINTS, "m": 4}
    if name in OF_SUBDOMAINS:
        others["m"] = COVER.indices.shape[1]
    given = arguments(name, **others)
    arrays = {k: v for k, v in given.items() if isinstance(v, np.ndarray)}
    others = {k: v for k, v in given.items() if k not in arrays}
    letters = "n" if name in OF_SUBDOMAINS else "nm"
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    points = {
        k: [
            axis in letters for axis in shaped(parameters[k].annotation).dim_str.split()
        ]
        for k in arrays
    }

    def call(arrays):
        return FUNCTIONS[name](**arrays, **others)

    scales = np.linspace(1, 1.3, SAMPLES)
    batch = {k: np.stack([s * v for s in scales]) for k, v in arrays.items()}
    return call, batch, points


def model(name):
    """A model of the registry as a function of itself and its inputs, likewise."""
    config = dataclasses.replace(TINY, models=(name,), equal_parameters=False)
    built = enlarged(operators.build(config, SIZES, rngs=nnx.Rngs(0)))
    axes = [np.linspace(0, 1, n) for n in GRID]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    rng = np.random.default_rng(0)
    batch = {
        "points": np.stack(SAMPLES * [grid]),
        "features": rng.normal(size=(SAMPLES, len(grid), 1)),
    }
    points = {"points": [True, False], "features": [True, False]}

    def call(arrays, built=built):
        return built(arrays["points"], arrays["features"])

    return call, batch, points


def split(batch, points, mesh, of_samples, of_points):
    """The arrays on devices, and the axes that split them."""

    def put(name, array):
        axes = [of_points if here else None for here in points[name]]
        spec = P(of_samples, *axes)
        return jax.device_put(array, NamedSharding(mesh, spec))

    return {name: put(name, array) for name, array in batch.items()}


def gradient(call):
    """The program of values and gradients of samples."""

    def loss(batch):
        results = jax.vmap(call)(batch)
        return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(results)), results

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def types(call, batch, context):
    """The types of results; everything is lowered for accelerators on the way."""
    with context:
        traced = gradient(call).trace(batch)
        traced.lower(lowering_platforms=("cuda", "tpu"))
    (_, results), _ = traced.out_info
    return jax.tree.leaves(results)


def distances(kind, names, layouts):
    """The largest distance of a number from that of one device, by name and mesh."""
    found = {}
    for name in names:
        call, batch, points = {"functions": function, "models": model}[kind](name)
        expected = gradient(call)(batch)
        for layout, mesh in meshes(jax.device_count(), layouts).items():
            arrays = split(batch, points, *mesh)
            for context in (contextlib.nullcontext(), jax.set_mesh(mesh[0])):
                with context:
                    actual = gradient(call)(arrays)
                pairs = zip(*map(jax.tree.leaves, (actual, expected)), strict=True)
                apart = [
                    np.max(np.abs(a - b), initial=0) / np.max(np.abs(b), initial=1)
                    for a, b in pairs
                ]
                key = f"{name} {layout}"
                found[key] = float(max([found.get(key, 0.0), *apart]))
    return found


if __name__ == "__main__":
    _, kind, file, *lists = sys.argv
    found = distances(kind, *(text.split(",") for text in lists))
    pathlib.Path(file).write_text(json.dumps(found))
