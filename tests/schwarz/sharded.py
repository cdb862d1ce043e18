"""What `test_splitting.py` compares, found on eight virtual devices of a CPU.

A process of its own: the number of devices is settled before JAX starts.

    JAX_NUM_CPU_DEVICES=8 python -m tests.schwarz.sharded FILE
"""

import json
import pathlib
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec as P

import tests.strict  # noqa: F401 - the strict session of all tests
from benchmarks.communication import exchanged
from opjax import nn, schwarz
from opjax.nn.attention import Subdomains
from opjax.training import sharding
from tests.sharded import distance

along = P("points")


def mapped(devices, function, **specs):
    """`jax.shard_map` over so many devices that share points."""
    mesh = sharding.device_mesh(points=devices)
    return jax.jit(jax.shard_map(function, mesh=mesh, **specs))


def padded(array, split):
    """Zeros after the last point, as many as devices have beyond it."""
    devices = -(-len(array) // split.cover.num_points)
    more = devices * split.cover.num_points - len(array)
    return jnp.pad(array, [(0, more)] + [(0, 0)] * (array.ndim - 1))


def problem(n, boxes, overlap, rank=3, dtype=np.float64, seed=0):
    """A cover, a coarse space, local and coarse factors, and two functions."""
    rng, cover = (
        np.random.default_rng(seed),
        schwarz.box_cover(n, boxes, overlap=overlap),
    )
    space = schwarz.partition_hats(n, boxes + 1)
    local = [rng.normal(size=(*cover.indices.shape, rank)) for _ in range(2)]
    coarse = [rng.normal(size=(boxes + 1, 2)) for _ in range(2)]
    arrays = (*local, *coarse, rng.normal(size=(n, 2)))
    return cover, space, *(array.astype(dtype) for array in arrays)


def operator(query, key, coarse_query, coarse_key, f, cover, space):
    """Two levels."""
    coarse = partial(schwarz.low_rank_attention, coarse_query, coarse_key)
    return schwarz.two_level_attention(
        query, key, f, cover, coarse_space=space, coarse=coarse
    )


def split_operator(devices, cover, space):
    """The operator on devices, of arrays as `problem` returns them."""
    split = schwarz.split_cover(cover, devices)
    functions = schwarz.split_coarse_space(space, devices)
    specs = (along, along, P(), P(), along, along, along)
    run = mapped(devices, operator, in_specs=specs, out_specs=along)

    def found(query, key, coarse_query, coarse_key, f):
        query, key = map(split.arrange, (query, key))
        own = (query, key, coarse_query, coarse_key, padded(f, split))
        return run(*own, split.cover, functions)[: len(f)]

    def gradients(scale, *arrays):
        def loss(*arrays):
            return jnp.sum(jnp.sin(found(*arrays) / scale))

        return jax.grad(loss, tuple(range(5)))(*map(jnp.asarray, arrays))

    return split, run, functions, found, gradients


def operators():
    """Distances of images and gradients, by devices and precision."""
    found = {}
    cases = ((2, 40, 4, 3), (4, 64, 8, 5), (8, 64, 8, 2), (4, 37, 5, 3), (8, 30, 3, 4))
    for dtype in (np.float64, np.float32):
        for devices, n, boxes, overlap in cases:
            cover, space, *arrays = problem(n, boxes, overlap, dtype=dtype)
            *_, images, gradients = split_operator(devices, cover, space)

            expected = operator(*arrays, cover, space)
            # The sine of larger numbers amplifies the rounding of images.
            scale = jnp.max(jnp.abs(expected))

            def whole(*arrays, cover=cover, space=space, scale=scale):
                return jnp.sum(jnp.sin(operator(*arrays, cover, space) / scale))

            name = f"{np.dtype(dtype).name} {devices} {n} {boxes} {overlap}"
            slopes = jax.jit(jax.grad(whole, tuple(range(5))))(*arrays)
            found[name] = [
                distance(images(*arrays), expected),
                distance(gradients(scale, *arrays), slopes),
            ]
    return found


def communication():
    """Bytes for two numbers of points, twice the overlap, and twice the channels."""
    found = []
    for n, overlap in ((64, 2), (128, 2), (64, 4)):
        cover, space, *arrays = problem(n, 8, overlap, dtype=np.float32)
        split, run, functions, *_ = split_operator(4, cover, space)
        query, key = map(split.arrange, arrays[:2])
        own = (query, key, *arrays[2:4], padded(arrays[4], split))
        compiled = run.lower(*own, split.cover, functions).compile()
        found.append(exchanged(compiled))
    return found


def module():
    """Distance of loss and gradients of three levels, factors of a module split."""
    model = nn.schwarz.box_attention(
        (41,),
        num_boxes=6,
        rank=3,
        coarse_rank=2,
        levels=3,
        coarse_boxes=2,
        factor_init=nnx.initializers.normal(0.3),
        rngs=nnx.Rngs(0),
    )
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), model)
    parts, functions = (
        schwarz.split_cover(model.cover, 4),
        schwarz.split_coarse_space(model.coarse_space, 4),
    )

    def local(query, key, coarse, f, cover, space):
        return schwarz.two_level_attention(
            query, key, f, cover, coarse_space=space, coarse=coarse
        )

    specs = (along, along, P(), along, along, along)
    run = mapped(4, local, in_specs=specs, out_specs=along)
    f = np.random.default_rng(0).normal(size=(41, 2))

    def loss(model):
        query, key = parts.arrange(model.query[...]), parts.arrange(model.key[...])
        own = query, key, model.coarse, padded(f, parts), parts.cover, functions
        return jnp.sum(jnp.sin(run(*own)[:41]))

    def whole(model):
        return jnp.sum(jnp.sin(model(f)))

    found, expected = map(jax.value_and_grad, (loss, whole))
    return distance(found(model), expected(model))


def layer():
    """Distances of attention in a basis on subdomains of a mesh, split along them."""
    rng, n, devices = np.random.default_rng(0), 61, 4
    points = rng.uniform(size=(n, 2))
    cover = schwarz.cover(
        [
            np.flatnonzero(np.abs(points[:, 0] - c) < 0.16)
            for c in np.arange(0.1, 1, 0.2)
        ],
        num_points=n,
    )
    place = schwarz.order_by_subdomain(cover)
    back = np.argsort(place)
    cover = schwarz.cover(
        [back[i[w > 0]] for i, w in zip(cover.indices, cover.weights, strict=True)],
        num_points=n,
    )
    points = points[place]
    x, weights = rng.normal(size=(n, 8)), rng.uniform(0.5, 1, n)
    model = nn.SubdomainAttention(
        8,
        attention=partial(nn.FunctionalAttention, num_heads=2, num_basis=3),
        coarse=nn.mixers.FunctionalMap,
        rngs=nnx.Rngs(0),
    )
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), model)

    def loss(model, x, weights, subdomains):
        y = model(x, quadrature_weights=weights, subdomains=subdomains)
        return jnp.sum(weights[:, None] * jnp.sin(y + x))

    def part(*given):
        return jax.lax.psum(loss(*given), "points")

    split = schwarz.split_cover(cover, devices)
    own = Subdomains(split.cover, schwarz.split_coarse_space(cover, devices))
    specs = (P(), along, along, along)
    run = mapped(devices, part, in_specs=specs, out_specs=P())
    arrays = padded(x, split), padded(weights, split)
    whole = jax.value_and_grad(loss)(model, x, weights, Subdomains(cover, cover))
    return distance(jax.value_and_grad(run)(model, *arrays, own), whole)


def grid_layer():
    """Distances of attention on boxes of a grid whose rows are split over devices."""
    found = {}
    for devices, (rows, columns), boxes, levels in (
        (2, (9, 7), 4, 3),
        (4, (8, 6), 4, 2),
        (4, (10, 5), 3, 1),  # a device has no box of its own
        (4, (10, 5), 3, 2),
        (4, (10, 5), 4, 3),
    ):
        n, rng = rows * columns, np.random.default_rng(0)
        model = nn.SubdomainAttention(
            8,
            attention=partial(nn.FunctionalAttention, num_heads=2, num_basis=3),
            coarse=nn.mixers.FunctionalMap if levels > 1 else None,
            subdomains=nn.attention.GridSubdomains(
                (rows, columns), boxes, overlap=1, num_levels=max(levels, 2)
            ),
            rngs=nnx.Rngs(0),
        )
        model = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), model)
        x, weights = rng.normal(size=(n, 8)), rng.uniform(0.5, 1, n)

        def loss(model, x, weights, axis_name=None):
            y = model(x, quadrature_weights=weights, axis_name=axis_name)
            return jnp.sum(weights[:, None] * jnp.sin(y + x))

        def part(*given, loss=loss):
            return jax.lax.psum(loss(*given, axis_name="points"), "points")

        more = (-(-rows // devices) * devices - rows) * columns
        own = (np.pad(x, [(0, more), (0, 0)]), np.pad(weights, (0, more)))
        run = mapped(devices, part, in_specs=(P(), along, along), out_specs=P())
        whole = jax.value_and_grad(loss)(model, x, weights)
        name = f"{devices} {rows}x{columns} {boxes} {levels}"
        found[name] = distance(jax.value_and_grad(run)(model, *own), whole)
    return found


if __name__ == "__main__":
    results = {
        "operators": operators(),
        "communication": communication(),
        "module": module(),
        "layer": layer(),
        "grid_layer": grid_layer(),
    }
    pathlib.Path(sys.argv[1]).write_text(json.dumps(results))
