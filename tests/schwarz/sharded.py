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

import tests.conftest  # noqa: F401 - the strict session of all tests
from benchmarks.communication import exchanged
from opjax import nn, schwarz, sharding
from opjax.nn import Subdomains
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
    return np.pad(array, [(0, more)] + [(0, 0)] * (array.ndim - 1))


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
    split = schwarz.split(cover, devices)
    functions = schwarz.split_space(space, devices)
    specs = (along, along, P(), P(), along, along, along)
    run = mapped(devices, operator, in_specs=specs, out_specs=along)

    def found(query, key, coarse_query, coarse_key, f):
        query, key = map(split.arrange, (query, key))
        own = (query, key, coarse_query, coarse_key, padded(f, split))
        return run(*own, split.cover, functions)[: len(f)]

    def gradients(*arrays):
        *factors, f = arrays
        query, key = map(split.arrange, factors[:2])
        own = (query, key, *factors[2:], padded(f, split))

        def square(*own):
            return jnp.sum(jnp.sin(run(*own, split.cover, functions)[: len(f)]))

        slopes = jax.grad(square, tuple(range(5)))(*own)
        back = np.argsort(split.subdomains, kind="stable")[-cover.num_subdomains :]
        return *(s[back] for s in slopes[:2]), *slopes[2:4], slopes[4][: len(f)]

    return split, run, functions, found, gradients


def operators():
    """Distances of images and gradients, by devices and precision."""
    found = {}
    cases = ((2, 40, 4, 3), (4, 64, 8, 5), (8, 64, 8, 2), (4, 37, 5, 3), (8, 30, 3, 4))
    for dtype in (np.float64, np.float32):
        for devices, n, boxes, overlap in cases:
            cover, space, *arrays = problem(n, boxes, overlap, dtype=dtype)
            *_, images, gradients = split_operator(devices, cover, space)

            def whole(*arrays, cover=cover, space=space):
                return jnp.sum(jnp.sin(operator(*arrays, cover, space)))

            name = f"{np.dtype(dtype).name} {devices} {n} {boxes} {overlap}"
            expected = operator(*arrays, cover, space)
            slopes = jax.grad(whole, tuple(range(5)))(*map(jnp.asarray, arrays))
            found[name] = [
                distance(images(*arrays), expected),
                distance(gradients(*arrays), slopes),
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
    place = schwarz.order(cover)
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
        coarse=nn.FunctionalMap,
        rngs=nnx.Rngs(0),
    )
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), model)

    def loss(model, x, weights, subdomains):
        y = model(x, quadrature_weights=weights, subdomains=subdomains)
        return jnp.sum(weights[:, None] * jnp.sin(y + x))

    def part(*given):
        return jax.lax.psum(loss(*given), "points")

    split = schwarz.split(cover, devices)
    own = Subdomains(split.cover, schwarz.split_space(cover, devices))
    specs = (P(), along, along, along)
    run = mapped(devices, part, in_specs=specs, out_specs=P())
    arrays = padded(x, split), padded(weights, split)
    whole = jax.value_and_grad(loss)(model, x, weights, Subdomains(cover, cover))
    return distance(jax.value_and_grad(run)(model, *arrays, own), whole)


if __name__ == "__main__":
    results = {
        "operators": operators(),
        "communication": communication(),
        "layer": layer(),
    }
    pathlib.Path(sys.argv[1]).write_text(json.dumps(results))
