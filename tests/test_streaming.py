"""Meshes read in chunks: the loss and gradients of the whole, in bounded memory."""

import dataclasses
import functools

import chex
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import metrics, nn, streaming, training
from opjax.precision import STORED_TYPES
from opjax.streaming import Chunks, plan
from tests.builders import small_operator
from tests.nn.attention.layers import single
from tests.nn.models.test_chunks import build
from tests.nn.models.test_packing import ROUNDOFF, distance
from tests.selection import by_day

NAMES = ("mesh_points", "features", "target", "quadrature_weights")
TIME = {"functional": {"time": 0.3}, "flare": {"time": 0.3}}


@pytest.fixture
def mesh(rng):
    weights = rng.uniform(0.5, 2, 23)
    weights[[3, 11, 22]] = 0
    target = rng.normal(size=(23, 2))
    target[11] = np.nan  # of a masked point
    points, features = rng.uniform(size=(23, 2)), rng.normal(size=(23, 1))
    return dict(zip(NAMES, (points, features, target, weights), strict=True))


class Pieces:
    """A source whose pieces do not fit the chunks."""

    def __init__(self, mesh, lengths=(3, 9, 11)):
        self.mesh, self.lengths, self.passes = mesh, lengths, 0

    def __iter__(self):
        self.passes, begin = self.passes + 1, 0
        for length in self.lengths:
            yield {k: a[begin : begin + length] for k, a in self.mesh.items()}
            begin += length


def dense(model, mesh, **when):
    """Both losses of the whole mesh with their gradients, of one program."""
    weights, target = mesh.get("quadrature_weights"), mesh["target"]
    given = {name: jnp.asarray(x) for name, x in when.items()}
    given["quadrature_weights"] = weights

    @jax.jit
    def pulled(model, cotangent):
        inputs = mesh["mesh_points"], mesh["features"]
        values, pull = jax.vjp(lambda model: model(*inputs, **given), model)
        return values, pull(cotangent.astype(values.dtype))[0]

    def mean(values):
        if weights is None:
            return jnp.mean((values - target) ** 2)
        keep = weights[:, None] > 0
        square = (
            jnp.where(keep, weights[:, None], 0)
            * jnp.where(keep, values - jnp.where(keep, target, 0), 0) ** 2
        )
        return jnp.sum(square) / (2 * np.sum(weights))

    def relative(values):
        return metrics.relative_l2(values, target, quadrature_weights=weights)

    values, _ = pulled(model, jnp.zeros_like(target))
    found = {}
    for name, loss in (("relative", relative), ("mean", mean)):
        value, cotangent = jax.value_and_grad(loss)(values)
        found[name] = value, pulled(model, cotangent)[1]
    return found


def same(actual, expected):
    assert max(np.max(np.abs(x)) for x in jax.tree.leaves(expected)) > 1e-2
    chex.assert_trees_all_close(actual, expected, rtol=1e-10, atol=1e-11)


@functools.cache
def deep():
    return small_operator(
        out_features=2,
        num_layers=5,
        attention=functools.partial(nn.FunctionalAttention, num_heads=2, num_basis=4),
    )


@pytest.mark.parametrize(
    ("name", "weighted"),
    by_day(
        [
            *[("functional", True), ("least squares", True), ("fixed", False)],
            *[("galerkin", True), ("galerkin", False), ("intention", False)],
            *[("linear", True), ("latents", False), ("flare", True)],
            *[("normalised flare", False), ("own projection", True)],
        ],
        day=[("functional", True)],
    ),
)
def test_streams_have_the_loss_and_gradients_of_the_whole(
    name, weighted, mesh, tmp_path
):
    if not weighted:
        mesh = {k: np.nan_to_num(mesh[k]) for k in NAMES[:3]}
    model, when = build(name), TIME.get(name, {})
    expected = dense(model, mesh, **when)
    found = streaming.value_and_grad(model, mesh, Chunks(5, 0), **when)
    same(found, expected["relative"])
    # A step along the gradient of the other loss, with features on the disk.
    chunks, descent = Chunks(5, 1, storage=tmp_path), optax.sgd(1.0)
    step = streaming.make_step(descent, chunks, loss=streaming.MEAN_SQUARED_ERROR)
    after, found = step(training.init(model, descent), mesh, **when)
    gradients = jax.tree.map(np.subtract, model, after.model)
    same((found["loss"], gradients), expected["mean"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "weighted"),
    by_day(
        [
            *[("functional", True), ("least squares", True), ("fixed", False)],
            *[("galerkin", True), ("galerkin", False), ("latents", False)],
            *[("linear", True), ("flare", True), ("intention", False)],
        ],
        day=[("functional", True)],
    ),
)
def test_streams_pull_cotangents_back_to_points_and_features(name, weighted, mesh):
    mesh["target"] = np.where(
        mesh["quadrature_weights"][:, None] > 0, mesh["target"], 0
    )
    if not weighted:
        del mesh["quadrature_weights"]
    model, when = build(name), TIME.get(name, {})

    def paired(points, features):
        given = {"quadrature_weights": mesh.get("quadrature_weights")}
        given |= {k: jnp.asarray(v) for k, v in when.items()}
        return jnp.sum(mesh["target"] * model(points, features, **given))

    inputs = mesh["mesh_points"], mesh["features"]
    expected = jax.jit(jax.grad(paired, argnums=(0, 1)))(*inputs)
    for every in (0, 1):
        parts = list(streaming.input_cotangents(model, mesh, Chunks(5, every), **when))
        same(tuple(map(np.concatenate, zip(*parts, strict=True))), expected)


@pytest.mark.nightly
def test_whatever_is_stored_wherever_it_is_the_same_gradient(mesh, tmp_path):
    model = jax.tree.map(lambda p: jnp.asarray(p, float) * 2, deep())
    both = dense(model, mesh)
    mean = streaming.MEAN_SQUARED_ERROR
    same(streaming.value_and_grad(model, mesh, Chunks(6, 1), loss=mean), both["mean"])
    expected = both["relative"]
    for every in (0, 1, 2, 3, 5):
        storage = tmp_path if every in (1, 3) else None
        chunks, source = Chunks(6, every, storage=storage), Pieces(mesh)
        same(streaming.value_and_grad(model, source, chunks), expected)
        # One to count the points, forward, loss, backward.
        assert source.passes == 1 + 5 + 1 + 6
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_sources_may_be_files_or_pieces(mesh, tmp_path):
    model, chunks = build("functional"), Chunks(10)
    expected = streaming.value_and_grad(model, mesh, chunks, time=0.3)
    mapped, stored = {}, h5py.File(tmp_path / "mesh.h5", "w")
    for name, array in mesh.items():
        np.save(tmp_path / f"{name}.npy", array)
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
        stored[name] = array
    for source in (mapped, stored, Pieces(mesh), Pieces(mesh, (1,) * 23)):
        same(streaming.value_and_grad(model, source, chunks, time=0.3), expected)


def test_coefficients_of_a_mesh_give_values_at_other_points(mesh, tmp_path):
    model, given = build("functional"), {"time": 0.3}
    del mesh["target"]
    points, features, weights = mesh.values()
    call = jax.jit(model.__call__)
    when = {"time": jnp.asarray(0.3)}
    expected = call(points, features, quadrature_weights=weights, **when)
    for chunks in (Chunks(10), Chunks(10, 0), Chunks(10, storage=tmp_path)):
        parts = streaming.predict(model, mesh, chunks, **given)
        assert_allclose(np.concatenate(list(parts)), expected, rtol=1e-10)
    found = streaming.coefficients(model, mesh, Chunks(10), **given)
    assert found.shape == (2, 2, 4, 4)
    some = {"mesh_points": points[7:19], "features": features[7:19]}
    parts = list(streaming.evaluate(model, found, some, chunk_size=10, **given))
    assert [len(part) for part in parts] == [10, 2]
    assert_allclose(np.concatenate(parts), expected[7:19], rtol=1e-10)


@pytest.mark.nightly
def test_a_step_is_the_step_of_the_whole(mesh):
    model, optimizer = single(build("functional")), optax.sgd(0.1)
    step = streaming.make_step(optimizer, Chunks(10))
    state = training.init(model, optimizer)
    after, found = step(state, mesh, time=0.3)
    whole = {k: jnp.asarray(a, jnp.float32) for k, a in mesh.items()}
    loss, gradients = dense(model, whole, time=np.float32(0.3))["relative"]
    assert found["loss"].dtype == jnp.float32
    assert_allclose(found["loss"], loss, rtol=1e-5)
    assert after.step == 1
    jax.tree.map(
        lambda p, q, g: assert_allclose(q, p - 0.1 * g, rtol=1e-3, atol=1e-3),
        model,
        after.model,
        gradients,
    )
    zero = mesh | {"target": np.zeros((23, 2))}
    frozen, found = step(state, zero, time=0.3)
    assert not found["finite"]
    jax.tree.map(assert_array_equal, frozen, state)


@pytest.mark.nightly
@pytest.mark.parametrize("storage_dtype", by_day(STORED_TYPES, day=["bfloat16"]))
def test_narrow_features_change_gradients_by_unit_roundoffs(
    storage_dtype, mesh, tmp_path
):
    model = jax.tree.map(lambda p: jnp.asarray(p, float) * 2, deep())
    value, expected = dense(model, mesh)["relative"]
    chunks = Chunks(6, 2, storage_dtype=storage_dtype)
    found = streaming.value_and_grad(model, mesh, chunks)
    assert_allclose(found[0], value, rtol=ROUNDOFF[storage_dtype])
    assert 0 < distance(found[1], expected) < 5 * ROUNDOFF[storage_dtype]
    # Chunks are rounded alike in memory and on disk.
    chunks = dataclasses.replace(chunks, storage=tmp_path)
    on_disk = streaming.value_and_grad(model, mesh, chunks)
    jax.tree.map(assert_array_equal, found, on_disk)


def test_what_is_stored_is_what_fits():
    n, chunk = 10**6, {"chunk_size": 512}
    needed = [
        streaming.needed_bytes(deep(), n, store_every=every, **chunk)
        for every in (1, 2, 3, 5, 0)
    ]
    assert needed == sorted(needed, reverse=True)
    assert needed[0] - needed[-1] == pytest.approx(5 * n * 8 * 4, rel=1e-2)
    for every, size in zip((1, 2, 3, 5, 0), needed, strict=True):
        chosen = plan.choose_store_every(deep(), n, memory_limit=size, **chunk)
        assert chosen == every
    narrow = chunk | {"storage_dtype": "bfloat16"}
    half = streaming.needed_bytes(deep(), n, store_every=1, **narrow)
    assert half - needed[-1] == pytest.approx(5 * n * 8 * 2, rel=1e-2)
    assert plan.choose_store_every(deep(), n, memory_limit=half, **narrow) == 1
    limit = needed[-1] - 1000
    with pytest.raises(MemoryError, match="chunk_size=.* fits"):
        plan.choose_store_every(deep(), n, memory_limit=limit, **chunk)
    with pytest.raises(MemoryError, match="no size of chunks fits"):
        plan.choose_store_every(deep(), n, memory_limit=10, **chunk)


def test_what_cannot_be_streamed_is_refused(mesh, tmp_path):
    model = build("functional")
    blocked = tmp_path / "file"
    blocked.touch()
    huge = np.broadcast_to(np.zeros(1), (10**13, 1))
    cases = [
        ({}, {"size": 0}, ValueError, "chunk_size=0"),
        ({}, {"store_every": 3}, ValueError, "between 0 and 2, the number of layers"),
        (
            {},
            {"memory_limit": 1e9, "store_every": 1},
            ValueError,
            "omit memory_limit, or store_every",
        ),
        ({}, {"store_every": 0, "storage": "."}, ValueError, "Nothing is stored"),
        ({}, {"store_every": 0, "storage_dtype": "float16"}, ValueError, "Nothing is"),
        ({}, {"storage_dtype": "float8"}, ValueError, "must be one of bfloat16"),
        ({}, {"storage": blocked}, OSError, "file' cannot be written"),
        ({}, {"storage": tmp_path / "missing"}, OSError, "missing' cannot be"),
        ({}, {"memory_limit": 10}, MemoryError, "no size of chunks"),
        ({"features": np.zeros((22, 1))}, {}, ValueError, "features 22"),
        ({"mesh_points": np.zeros((23, 2), int)}, {}, TypeError, "int64"),
        ({"quadrature_weights": -mesh["quadrature_weights"]}, {}, ValueError, "non-ne"),
        ({"colour": np.zeros((23, 1))}, {}, ValueError, "unknown arrays .'colour'"),
        ({"target": mesh["target"][:, 0]}, {}, ValueError, "target has chunks"),
    ]
    for change, options, error, words in cases:
        with pytest.raises(error, match=words):
            streaming.value_and_grad(
                model, mesh | change, Chunks(**{"size": 10, **options}), time=0.3
            )
    many = {"mesh_points": np.broadcast_to(huge, (10**13, 2)), "features": huge}
    with pytest.raises(OSError, match="GiB are needed"):
        next(streaming.predict(model, many, Chunks(10**6, storage=tmp_path)))
    with pytest.raises(TypeError, match="method __iter__"):
        streaming.value_and_grad(model, iter([mesh]), Chunks(5), time=0.3)
    del mesh["features"]
    with pytest.raises(ValueError, match="has no features"):
        streaming.value_and_grad(model, mesh, Chunks(5), time=0.3)
    fourier = small_operator(
        feature_dim=0,
        num_layers=1,
        attention=functools.partial(nn.FourierAttention, num_heads=2),
    )
    with pytest.raises(ValueError, match="FourierAttention knows more of points"):
        streaming.value_and_grad(fourier, mesh, Chunks(5))
    perceptron = nn.MLP(2, 3, 1, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="a MLP needs all points of a sample"):
        streaming.value_and_grad(perceptron, mesh, Chunks(5))


def test_points_that_are_not_finite_are_named(mesh):
    model, given = build("functional"), {"chunks": Chunks(10), "time": 0.3}
    mesh["features"][[13, 17]] = np.nan
    with pytest.raises(ValueError, match="features is not .* 2 .* 10 to 19: 13, 17"):
        streaming.value_and_grad(model, mesh, **given)
    mesh["features"][:] = 0
    mesh["target"][[3, 4]] = np.inf
    with pytest.raises(ValueError, match="target is not finite at 1 .*: 4"):
        streaming.value_and_grad(model, mesh, **given)


@pytest.mark.parametrize("later", [(12,), (24,), (1, 20)])
def test_sources_that_change_are_noticed(later, mesh):
    class Changing(Pieces):
        def __iter__(self):
            self.lengths = later if self.passes else (23,)
            return super().__iter__()

    twice = {name: np.concatenate([array, array]) for name, array in mesh.items()}
    twice["target"] = np.nan_to_num(twice["target"])
    given = {"chunks": Chunks(10), "time": 0.3}
    with pytest.raises(ValueError, match="had 23 points"):
        streaming.value_and_grad(build("functional"), Changing(twice), **given)
