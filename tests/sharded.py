"""What `test_sharding.py` compares, found on eight virtual devices of a CPU.

A process of its own: the number of devices is settled before JAX starts.

    JAX_NUM_CPU_DEVICES=8 python -m tests.sharded by_day FILE
"""

import contextlib
import dataclasses
import json
import pathlib
import sys
import tempfile
from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec as P

import opjax
import tests.strict  # noqa: F401 - the strict session of all tests
from opjax import learn, metrics, nn, training
from opjax.learn import FreshTask, Settings, Task, fit
from opjax.learn.run import devices, fitting
from opjax.training import sharding
from tests import explicit
from tests.builders import small_operator
from tests.nn.models.test_chunks import build

BOTH = {"points": 4, "batch": 2}
# Model, points of a chunk, and whether there are weights.
ATTENTIONS = (
    ("functional", None, True),
    ("least squares", 4, True),
    ("fixed", 4, False),
    ("galerkin", None, True),
    ("linear", 4, True),
    ("intention", 3, False),
    ("efficient", 4, True),
    ("flare", 4, True),
    ("normalised flare", None, False),
)
TIMED = ("functional", "flare")
EXPLICIT = ("functional_attention", "gcv_ridge")


def distance(found, expected):
    """The largest distance of two leaves, relative to the norm of the second.

    A leaf that is rounding beside the others, in both, is a zero: softmaxes over points
    do not depend on the bias of their keys.
    """
    norms = [np.linalg.norm(leaf) for leaf in jax.tree.leaves(expected)]
    ratios = [0.0]
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for (a, b), norm in zip(pairs, norms, strict=True):
        least = np.finfo(b.dtype).eps * max(norms)
        if max(norm, np.linalg.norm(a)) > least:
            ratios.append(np.linalg.norm(np.ravel(a - b)) / norm)
    return float(max(ratios))


def arrays(count, n, dtype=np.float64):
    """Samples with weights, of which a few are zero."""
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2, (count, n))
    weights[:, [3, 11, n - 1]] = 0
    found = {
        "mesh_points": rng.uniform(size=(count, n, 2)),
        "features": rng.normal(size=(count, n, 1)),
        "target": rng.normal(size=(count, n, 2)),
        "quadrature_weights": weights,
    }
    return {name: array.astype(dtype) for name, array in found.items()}


def loss(model, batch, *, when=None, chunk_size=None, **split):
    """The sum of the relative errors of the samples."""
    time = {} if when is None else {"time": when}

    def one(sample):
        weights = {"quadrature_weights": sample.get("quadrature_weights")}
        given = {"chunk_size": chunk_size, **weights, **time, **split}
        values = model(sample["mesh_points"], sample["features"], **given)
        return metrics.relative_l2(values, sample["target"], **weights, **split)

    return jnp.sum(jax.vmap(one)(batch))


def attentions(name, chunk_size, weighted, **devices):
    """Distances of loss and gradients, for model and data, checked types and not."""
    model, batch = build(name), arrays(2, 24)
    mesh = sharding.device_mesh(**(devices or BOTH))
    if not weighted:
        del batch["quadrature_weights"]
    when = jnp.asarray(0.3) if name in TIMED else None
    whole = partial(loss, when=when)
    expected = jax.jit(jax.value_and_grad(whole, (0, 1)))(model, batch)
    part = partial(whole, axis_name="points", chunk_size=chunk_size)
    specs = P(), sharding.specs(batch, mesh)

    def summed(model, batch):
        return jax.lax.psum(part(model, batch), "batch")

    along = partial(jax.shard_map, mesh=mesh, in_specs=specs)
    inside = along(jax.value_and_grad(summed, (0, 1)), out_specs=(P(), specs))
    found = jax.jit(inside)(model, batch)
    return distance(found, expected)


def pooled():
    """The distance of moments of the points of all devices from those of a mesh."""
    rng, mesh = np.random.default_rng(0), sharding.device_mesh(points=8)
    values, basis = rng.normal(size=(16, 3)), rng.uniform(size=(16, 4))
    weights = rng.uniform(size=16)

    def found(values, basis, weights):
        return opjax.moments(values, basis, quadrature_weights=weights, with_gram=True)

    def of_all(*arrays):
        return found(*arrays).psum("points")

    given = {"mesh": mesh, "in_specs": P("points"), "out_specs": P()}
    split = jax.jit(jax.shard_map(of_all, **given))(values, basis, weights)
    return distance(split, found(values, basis, weights))


def training_steps(dtype, microbatch, **sizes):
    """Distances of losses and models in fifty steps on padded samples."""
    model = small_operator(
        out_features=2,
        attention=partial(nn.FunctionalAttention, num_heads=2, num_basis=4),
    )
    model = jax.tree.map(lambda x: x.astype(dtype), model)
    data, optimizer = arrays(4, 22, dtype), training.adamw(1e-3, weight_decay=1e-5)
    data["target"] = np.sin(3 * data["mesh_points"]) + data["features"]
    order = jnp.concatenate([training.sample_order(0, i, 4, 2) for i in range(25)])
    found = []
    for mesh in (None, sharding.device_mesh(**sizes)):
        epoch = training.make_epoch(loss, optimizer, microbatch=microbatch, mesh=mesh)
        state, own = training.init(model, optimizer), data
        if mesh is not None:
            state = sharding.replicate(state, mesh)
            own = sharding.place(own, mesh)
        state, history = epoch(state, own, order)
        found.append((history["loss"], state.model))
    (losses, model), (same_losses, same_model) = found
    return distance(same_losses, losses), distance(
        jnp.concatenate(jax.tree.leaves(jax.tree.map(jnp.ravel, same_model))),
        jnp.concatenate(jax.tree.leaves(jax.tree.map(jnp.ravel, model))),
    )


GRID = 11, 5  # four devices have three rows each, the last one two


def on_grid(grid, **changes):
    """A model with convolutions."""
    sizes = {"features": 8, "num_layers": 2, "chunk_size": 7, **changes}
    basis = partial(nn.bases.SoftmaxBasis, num_basis=4, grid_shape=grid, num_heads=2)
    return nn.OperatorTransformer(
        position=nn.Coordinates(2),
        feature_dim=1,
        out_features=2,
        attention=partial(nn.BasisAttention, num_heads=2, basis=None),
        basis=basis,
        rngs=nnx.Rngs(0),
        **sizes,
    )


def with_slopes(grid, model, batch, **split):
    """The errors of the samples and of their slopes, as for Darcy flow."""

    def one(sample):
        weights = {"quadrature_weights": sample.get("quadrature_weights")}
        values = model(sample["mesh_points"], sample["features"], **weights, **split)
        pair = values, sample["target"]
        slopes = metrics.relative_gradient_error(*pair, grid_shape=grid, **split)
        return metrics.relative_l2(*pair, **weights, **split) + 0.1 * slopes

    return jnp.sum(training.over_samples(one)(batch))


def grid_arrays(count, grid, dtype=np.float64):
    """Samples on a grid, without weights."""
    n = grid[0] * grid[1]
    data = arrays(count, n, dtype)
    del data["quadrature_weights"]
    data["target"] = np.sin(3 * data["mesh_points"]) + data["features"]
    return data


def on_boxes(grid):
    """A model with attention on overlapping boxes and a coarse level."""
    attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
    return small_operator(
        out_features=2,
        attention=partial(
            nn.SubdomainAttention,
            attention=attention,
            coarse=nn.mixers.FunctionalMap,
            subdomains=nn.attention.GridSubdomains(grid, 2, overlap=1),
        ),
    )


def rows(dtype, *, build=on_grid, **sizes):
    """Distances of losses and models in fifty steps on rows, of which one is added."""
    model = jax.tree.map(lambda x: x.astype(dtype), build(GRID))
    data, optimizer = grid_arrays(2, GRID, dtype), training.adamw(1e-3, weight_decay=0)
    order = jnp.tile(jnp.arange(2).reshape(2, 1), (25, 1))
    found = []
    for mesh in (None, sharding.device_mesh(**sizes)):
        given = {"mesh": mesh, "microbatch": 1}
        epoch = training.make_epoch(partial(with_slopes, GRID), optimizer, **given)
        state, own = training.init(model, optimizer), data
        if mesh is not None:
            state = sharding.replicate(state, mesh)
            own = sharding.place(own, mesh, row=GRID[1])
        state, history = epoch(state, own, order)
        flat = jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(state.model)])
        found.append((history["loss"], flat))
    (losses, model), (same_losses, same_model) = found
    return distance(same_losses, losses), distance(same_model, model)


def grids():
    """Distances of losses and gradients, checked types: in turn and by tiles."""
    found = {}
    for name, grid, changes in (
        ("winograd", (33, 16), {"features": 64, "num_layers": 1, "chunk_size": None}),
        ("tiles", (65, 32), {"features": 64, "num_layers": 1, "chunk_size": 80}),
        ("line", (23, 2), {}),
    ):
        mesh, model = sharding.device_mesh(points=2), on_grid(grid, **changes)
        model = jax.tree.map(lambda x: x.astype(jnp.float64), model)
        data = jax.tree.map(jnp.asarray, grid_arrays(1, grid))
        whole = partial(with_slopes, grid)
        alone = jax.tree.map(lambda x: x, model)
        alone.chunk_size = None
        expected = jax.jit(jax.value_and_grad(whole))(alone, data)
        expected[1].chunk_size = model.chunk_size
        padded = sharding.pad_points(data, mesh, row=grid[1])
        specs = P(), sharding.specs(padded, mesh, samples=None)
        along = partial(jax.shard_map, mesh=mesh, in_specs=specs)
        part = jax.value_and_grad(partial(whole, axis_name="points"))
        actual = jax.jit(along(part, out_specs=(P(), P())))(model, padded)
        found[name] = distance(actual, expected)
    return found


def halo():
    """What devices exchange for two heights of a grid, and for twice the width."""
    from benchmarks.communication import exchanged  # with flags, as a program has

    found, mesh = [], sharding.device_mesh(points=4)
    for grid in (GRID, (22, 5), (11, 10)):
        data = sharding.place(grid_arrays(1, grid, np.float32), mesh, row=grid[1])
        optimizer = training.adamw(1e-3, weight_decay=0)
        step = training.make_step(loss, optimizer, mesh=mesh)
        state = training.init(on_grid(grid, chunk_size=None), optimizer)
        compiled = jax.jit(step).lower(sharding.replicate(state, mesh), data).compile()
        found.append(exchanged(compiled))
    return found


def communication():
    """The benchmark of large meshes, split for two sizes, and as a whole."""
    from benchmarks import scale  # with flags, as a program has

    sizes = {"layers": 2, "features": 8, "heads": 2, "bases": 4, "chunk_size": 24}
    sizes |= {"devices": 4, "steps": 1}
    modes = ("sharded", 64), ("sharded", 128), ("dense", 64)
    return [scale.measure(mode, {**sizes, "points": n}) for mode, n in modes]


def evaluation():
    """The distance of a metric of five samples, three of them at once."""
    mesh, model, data = sharding.device_mesh(**BOTH), build("adaptive"), arrays(5, 22)

    def metric(model, sample, **split):
        return loss(model, jax.tree.map(lambda x: x[None], sample), **split)

    own = sharding.place(data, mesh)
    found = training.evaluate(metric, model, own, batch_size=3, mesh=mesh)
    return distance(found, training.evaluate(metric, model, data, batch_size=3))


def head():
    """Distances of scalars and gradients read off a mesh that eight devices share."""
    reader = nn.models.ScalarHead(3, 2, width=8, rngs=nnx.Rngs(0))
    reader = jax.tree.map(lambda x: x.astype(jnp.float64), reader)
    rng, found = np.random.default_rng(0), {}
    values = rng.normal(size=(24, 3))
    weights = rng.uniform(0.5, 2, 24)
    weights[[3, 22, 23]] = 0  # padding of the last device among them
    mesh = sharding.device_mesh(points=8)
    for name, given in (("weighted", jnp.asarray(weights)), ("equal", None)):

        def total(reader, values, given, **split):
            return jnp.sum(reader(values, given, **split) ** 2)

        specs = P(), P("points"), None if given is None else P("points")
        along = partial(jax.shard_map, mesh=mesh, in_specs=specs)
        gradients = partial(jax.value_and_grad, argnums=(0, 1))
        part = gradients(partial(total, axis_name="points"))
        split = along(part, out_specs=(P(), (P(), P("points"))))
        expected = jax.jit(gradients(total))(reader, values, given)
        found[name] = distance(jax.jit(split)(reader, values, given), expected)
    return found


def line(model, batch):
    """A quadratic loss."""
    return jnp.sum((batch["x"] @ model["w"] - batch["y"]) ** 2)


def line_error(model, sample):
    """The square of one sample."""
    return (sample["x"] @ model["w"] - sample["y"]) ** 2


def runs():
    """Models of runs that stop half-way and go on, with the same devices or others."""
    x = np.random.default_rng(0).normal(size=(16, 3))
    data = ({"x": x, "y": x.sum(axis=1)},)
    task = Task(train=data, validation=data, loss=line, metric=line_error)
    drawn = FreshTask(draw=lambda key, step: line_batch(key), loss=line)
    model, found = {"w": jnp.zeros(3)}, {}
    optimizer = lambda total: training.adamw(1e-2, weight_decay=0.0)  # noqa: E731
    given = {"batch_size": 4, "optimizer": optimizer}
    half = Settings(num_epochs=1, checkpoint_every=1, **given)
    full = dataclasses.replace(half, num_epochs=2)
    meshes = {"none": None, "two": sharding.device_mesh(batch=2)}
    meshes["four"] = sharding.device_mesh(batch=4)

    def finish(first, then):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder) / "run"
            if first is not None:
                interrupted(task, model, full, meshes[first], place)
            own = dataclasses.replace(full, mesh=meshes[then])
            return np.asarray(fit(task, model, own, folder=place).best_model["w"])

    found["whole"] = finish(None, "none").tolist()
    found["two"] = finish(None, "two").tolist()
    found["two_two"] = finish("two", "two").tolist()
    found["two_none"] = finish("two", "none").tolist()
    found["none_four"] = finish("none", "four").tolist()
    for name in ("none", "two"):
        fresh = Settings(num_steps=8, steps_per_call=3, mesh=meshes[name], **given)
        with tempfile.TemporaryDirectory() as folder:
            ended = fit(drawn, model, fresh, folder=folder)
        found[f"fresh_{name}"] = ended.model["w"].tolist()
    return found


def line_batch(key):
    """A batch drawn anew."""
    x = jax.random.normal(key, (4, 3))
    return {"x": x, "y": jnp.sum(x, axis=1)}


def interrupted(task, model, settings, mesh, folder):
    """Trains for one epoch of a run of more, and is told to stop."""
    settings, calls = dataclasses.replace(settings, mesh=mesh), []

    def told():
        calls.append(0)
        return len(calls) == 1

    stop = contextlib.nullcontext(told)
    with mock.patch.object(fitting, "put_off", return_value=stop):
        try:
            fit(task, model, settings, folder=folder)
        except learn.Stopped:
            return
    raise AssertionError("The run was not stopped.")


def refusals():
    """Messages of what is refused."""
    both, data = sharding.device_mesh(**BOTH), arrays(2, 22)
    task = Task(train=(), loss=loss, over_points=True)

    def make(**options):  # what is refused computes nothing
        sizes = {"feature_dim": 1, "out_features": 1, "features": 8, "num_layers": 1}
        plane = nn.Coordinates(2)
        return jax.eval_shape(
            lambda key: nn.OperatorTransformer(
                position=plane, **sizes, **options, rngs=nnx.Rngs(key)
            ),
            jax.random.key(0),
        )

    fourier = make(attention=partial(nn.FourierAttention, num_heads=2))
    basis = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
    options = learn.TrainingOptions(batch_size=2)
    asked = {
        "devices": lambda: devices.start("points:4,batch:4", options),
        "text": lambda: devices.start("points:two", options),
        "twice": lambda: sharding.parse("batch:2,batch:2"),
        "batch": lambda: devices.start("batch:4", options),
        "microbatch": lambda: sharding.check_batch(both, 4, 4),
        "points": lambda: sharding.specs(data, both),
        "names": lambda: sharding.specs({"surface": data["target"]}, both),
        "loss": lambda: devices.check(
            both, dataclasses.replace(task, over_points=False), None
        ),
        "mean": lambda: devices.check(
            both, dataclasses.replace(task, over_batch=False), None
        ),
        "attention": lambda: devices.check(both, task, fourier),
        "rows": lambda: convolved(25, (9, 10), 3),
        "few rows": lambda: convolved(10, (4, 10), 5),
        "memory": lambda: devices.check(
            both, task, make(attention=basis, rematerialize=True)
        ),
        "other": lambda: devices.check(both, task, nn.layers.LayerNorm(3)),
        "call": lambda: fourier(
            data["mesh_points"][0], data["features"][0], axis_name="points"
        ),
    }
    found = {}
    for name, call in asked.items():
        try:
            call()
        except ValueError as error:
            found[name] = str(error)
    return found


def convolved(local, grid, size):
    """Convolves rows of four devices, of so many points each."""

    def one(values):
        kernel = jnp.ones((size, 3, 1, 1))
        given = {"grid_shape": grid, "axis_name": "points"}
        return opjax.convolution.grid_convolution(values, kernel, **given)

    mesh = sharding.device_mesh(points=4)
    split = jax.shard_map(one, mesh=mesh, in_specs=P("points"), out_specs=P("points"))
    return jax.eval_shape(split, jnp.ones((4 * local, 1)))


def by_day():
    """What is quick, and takes every way once."""
    found = {"refusals": refusals(), "evaluation": evaluation(), "pooled": pooled()}
    on_mesh = explicit.distances("functions", EXPLICIT, ["both"])
    return found | {"head": head(), "explicit": on_mesh}


def by_night():
    """All the rest."""
    found = {
        "runs": runs(),
        "attentions": {given[0]: attentions(*given) for given in ATTENTIONS},
        "two devices": {
            name: attentions(name, 5, True, points=2) for name in ("galerkin", "flare")
        },
        "steps_64": training_steps(jnp.float64, None, **BOTH),
        "rows_64": rows(jnp.float64, points=4),
        "boxes_64": rows(jnp.float64, build=on_boxes, points=4),
        "grids": grids(),
    }
    with jax.enable_x64(False):
        found["communication"] = communication()
        found["rows_32"], found["halo"] = rows(jnp.float32, points=2), halo()
        found["steps_32"] = training_steps(jnp.float32, 1, points=2, batch=2)
    return found


def main(name, file):
    """Writes all that is found as JSON."""
    found = {"by_day": by_day, "by_night": by_night}[name]()
    pathlib.Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
