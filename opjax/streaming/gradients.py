"""Loss and gradients of a whole mesh, in passes over its chunks.

Forward, a pass for each layer sums its moments. Backward, a pass for each layer, from
the last one, takes the cotangent of the features behind it to that of its coefficients,
which by the small system give that of its moments; with these the next pass can go
through the layer. Points whose features are not kept are computed again from the last
layer in front whose input is; where it was, the cotangent is kept.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import precision
from opjax.nn.models import block_parts
from opjax.streaming import programs
from opjax.streaming.losses import RELATIVE_L2, SumLoss
from opjax.streaming.passes import Mesh, Total, forward, open_mesh
from opjax.streaming.plan import Plan, choose_store_every, sizes
from opjax.streaming.source import Chunk, Reader, Source


def value_and_grad(
    model: Any,
    source: Source,
    *,
    chunk_size: int,
    loss: SumLoss = RELATIVE_L2,
    time: Any = None,
    store_every: int | None = None,
    memory_limit: float | None = None,
    storage: Any = None,
    storage_dtype: str | None = None,
) -> tuple[jax.Array, Any]:
    r"""Returns the loss of a whole mesh and its gradients, in bounded memory.

    They are those of `jax.value_and_grad` of all points at once. In memory are arrays
    of a chunk, parameters, moments, and what is stored: of `n` points, `c` channels and
    `l` layers,

        n c ceil(l / store_every)    numbers, in memory or on disk, or none.

    In 16 bits, features and cotangents that are stored are rounded; tests bound the
    change of the loss by a unit roundoff, 2^-8 of bfloat16 and 2^-11 of float16, and
    that of the gradients by one for each layer, relative to their norm. Moments,
    solves, norms and the loss are in the type of the parameters, and sums over chunks
    in double precision.

    The source is read `2 l + 2` times. Layers are evaluated about six times each if the
    input of every one is stored, and about `l (l + 1)` times in all if none is.

    Args:
      model: an operator transformer that has chunks.
      source: named arrays `mesh_points` `(n, p)`, `target` `(n, q)` and, where the
        model takes them, `features`, `quadrature_weights`, `basis_functions`, of any
        kind that can be sliced; or an object that yields such of the next points, as
        often as it is asked to begin. They are cast to the type of the parameters.
      chunk_size: points that are computed at once; 512 to 4096 are fast on a core.
      loss: of the whole mesh.
      time: as for the model.
      store_every: inputs of every so many-th layer are stored, one by default; zero for
        nothing, so that memory does not depend on the number of points.
      memory_limit: bytes, from which `store_every` is chosen instead, the fastest.
      storage: folder for what is stored, in a file that disappears; None for memory.
      storage_dtype: "bfloat16" or "float16", what is stored in half the memory; None
        for the type of the parameters.

    Returns:
      The loss, a scalar, and gradients like the model.

    Raises:
      MemoryError: if the memory limit is too small, with a size of chunks that fits.
      OSError: if the folder cannot be written or is full.
      TypeError: if an array is not of real numbers.
      ValueError: if the model has no chunks, an option or an array is not what it has
        to be, a value is not finite, or the source changes while it is read.
    """
    layers, _, _ = sizes(model) if hasattr(model, "blocks") else (1, 1, 1)
    _check_options(layers, store_every, memory_limit, storage, storage_dtype)

    def plan(reader: Reader) -> Plan:
        if memory_limit is None:
            return Plan(layers, 1 if store_every is None else store_every)
        given: Any = {"chunk_size": reader.size, "memory_limit": memory_limit}
        given["storage_dtype"] = storage_dtype
        return Plan(layers, choose_store_every(model, reader.num_points, **given))

    names = ("target",)
    given: Any = {"chunk_size": chunk_size, "storage": storage, "time": time}
    given["storage_dtype"] = storage_dtype
    mesh = open_mesh(model, source, names, plan=plan, **given)
    with mesh.storage:
        mixed, moments = forward(mesh)
        fixed = jnp.asarray(mixed)
        sums = _sums(mesh, fixed, loss)
        value, of_sums = jax.value_and_grad(loss.value)(sums)
        return value, _backward(mesh, fixed, moments, (loss, of_sums))


def _check_options(
    layers: int, store_every: Any, memory_limit: Any, storage: Any, storage_dtype: Any
) -> None:
    precision.check(storage_dtype=storage_dtype)
    if store_every is not None and not 0 <= store_every <= layers:
        raise ValueError(f"{store_every=} must lie between 0 and {layers} layers.")
    if memory_limit is not None and (store_every is not None or storage is not None):
        raise ValueError(
            "memory_limit chooses what is stored in memory; leave store_every and "
            "storage out, or memory_limit."
        )
    if store_every == 0 and storage is not None:
        raise ValueError(f"Nothing is stored with {store_every=}; leave storage out.")
    if store_every == 0 and storage_dtype is not None:
        raise ValueError(
            f"Nothing is stored with {store_every=}; leave storage_dtype out."
        )


def _sums(mesh: Mesh, mixed: jax.Array, loss: SumLoss) -> Any:
    """Sums of the loss; what leaves the last layer is kept."""
    layers = mesh.plan.num_layers
    start, total = mesh.plan.start(layers - 1), Total()

    def work(chunk):
        z = mesh.load(start, chunk)
        z, values = programs.finish(mesh.flat, mixed, z, chunk.given, start)
        target = chunk.arrays["target"]
        return z, programs.sums(values, target, chunk.weights, loss=loss)

    def take(chunk, found):
        mesh.keep(layers, chunk, found[0])
        total.add(found[1])

    mesh.run(work, take)
    return total.cast(mesh.dtype)


def _backward(mesh: Mesh, mixed: jax.Array, moments: list[Any], of_loss: Any) -> Any:
    """Gradients like the model, from coefficients and moments of all layers."""
    layers = mesh.plan.num_layers
    of_found: Any = jax.tree.map(
        lambda x: np.zeros((layers, *x.shape), x.dtype), moments[0]
    )
    outer, shared, blocks = Total(), Total(), [Total() for _ in range(layers)]
    for low in range(layers, -1, -1):
        fixed, of_mixed = (mixed, jax.tree.map(jnp.asarray, of_found)), Total()

        def work(chunk, low=low, fixed=fixed):
            g, z, found = _behind(mesh, chunk, low, fixed, of_loss)
            if low == 0:
                arrays = chunk.arrays
                features = arrays.get("features")
                given = arrays["mesh_points"], features, mesh.time
                return g, found, programs.pull_encoder(mesh.flat, *given, g)
            given = chunk.given
            pulled = programs.pull_rest(mesh.flat, mixed, z, g, given, low - 1)
            return g, found, pulled

        def take(chunk, found, low=low, of_mixed=of_mixed):
            g, (of_outer, of_block, of_shared), last = found
            mesh.keep(low, chunk, g)
            if of_outer is not None:
                outer.add(of_outer)
            if of_block is not None:
                blocks[low].add(of_block)
                shared.add(of_shared)
            (of_mixed if low else outer).add(last)

        mesh.run(work, take)
        if low:
            of_block, of_shared, of_moments = programs.pull_mix(
                mesh.flat, low - 1, moments[low - 1], mesh.totals,
                of_mixed.cast(mesh.dtype),
            )  # fmt: skip
            blocks[low - 1].add(of_block)
            shared.add(of_shared)
            _put(of_found, low - 1, of_moments)
    return _gradients(mesh.model, outer, shared, blocks)


def _behind(mesh: Mesh, chunk: Chunk, low: int, fixed: Any, of_loss: Any) -> Any:
    """Goes back to the front of the layer `low`.

    Returns:
      The cotangent of the features in front of that layer, the features in front of
      the layer before it, and cotangents of the decoder, the block `low` and the shared
      basis; None for what other passes find.
    """
    model, plan, given = mesh.flat, mesh.plan, chunk.given
    layers, mixed = plan.num_layers, fixed[0]
    of_outer = of_block = of_shared = z = None

    def states(start, stop):
        z, depth = mesh.load(start, chunk), plan.depth
        return programs.states(model, mixed, z, given, start, stop, depth=depth)

    anew = low == 0 or low in plan.kept  # no need of features in front of `low`
    start, end = low if anew else plan.start(low), plan.end(low)
    if low == layers or not plan.kept:
        found = states(start, end)
        last, target = programs.state(found, end - start), chunk.arrays["target"]
        loss, of_sums = of_loss
        of_outer, g = programs.pull_loss(
            model, last, target, chunk.weights, of_sums, loss=loss
        )
    else:
        found, g = states(start, end - 1), mesh.load(end, chunk)
    if low < layers:
        of_outer = None  # which the first pass has found
        weights, places = mesh.weights(chunk), (start, low, end)
        of_block, of_shared, g = programs.pull(
            model, fixed, found, g, given, weights, places
        )
    if low > 0:
        if anew:
            start = plan.start(low - 1)
            found = states(start, low - 1)
        z = programs.state(found, low - 1 - start)
    return g, z, (of_outer, of_block, of_shared)


def _put(trees: Any, layer: int, tree: Any) -> None:
    def put(rows, row):
        rows[layer] = row

    jax.tree.map(put, trees, tree)


def _gradients(model: Any, outer: Total, shared: Total, blocks: list[Total]) -> Any:
    """Puts gradients of the parts together."""
    stacked = [np.stack(rows) for rows in zip(*(b.tree for b in blocks), strict=True)]
    of_outer, of_shared, of_blocks = map(iter, (outer.tree, shared.tree, stacked))
    leaves, structure = jax.tree_util.tree_flatten_with_path(model)
    found = []
    for path, leaf in leaves:
        name = block_parts.first_name(path)
        gradient = next(of_blocks) if name == "blocks" else next(of_outer)
        if name == "basis":
            gradient = gradient + next(of_shared)
        found.append(jnp.asarray(gradient, leaf.dtype))
    return jax.tree.unflatten(structure, found)
