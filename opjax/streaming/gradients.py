"""Loss and gradients of a whole mesh, in passes over its chunks.

In the forward direction, one pass per layer sums its moments. In the backward
direction, one pass per layer, from the last one, converts the cotangent of the layer's
output features to that of its coefficients, from which the small linear system gives
the cotangent of its moments; with these the next pass continues through the layer.
Features that are not stored are recomputed from the last earlier layer whose input is
stored; there, the cotangent is stored too.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax._trees import PyTree
from opjax.nn import OperatorTransformer
from opjax.nn.attention.sums import Sums
from opjax.nn.models import block_parts
from opjax.quadrature import active
from opjax.streaming import programs
from opjax.streaming.losses import RELATIVE_L2, SumLoss
from opjax.streaming.passes import (
    Mesh,
    Total,
    forward,
    open_mesh,
)
from opjax.streaming.plan import Chunks, Plan
from opjax.streaming.programs import Fixed, Leaves
from opjax.streaming.source import Chunk, Reader, Source


def _open(
    model: OperatorTransformer, source: Source, chunks: Chunks, time: ArrayLike | None
) -> Mesh:
    def plan(reader: Reader) -> Plan:
        return chunks.plan(model, reader.num_points, reader.size)

    return open_mesh(model, source, chunks, time, plan=plan, names=("target",))


class InputCotangents(NamedTuple):
    """Cotangents of the inputs at the points of a chunk, on the host.

    Attributes:
      mesh_points: cotangents of the coordinates, `(m, p)`.
      features: cotangents of the features, `(m, c)`; None for a model without features.

    Examples:
      >>> import numpy as np
      >>> from opjax import streaming
      >>> streaming.InputCotangents(np.zeros((4, 2)), None).mesh_points.shape
      (4, 2)
    """

    mesh_points: np.ndarray
    features: np.ndarray | None


_Model = TypeVar("_Model", bound=OperatorTransformer)
_Parameters = TypeVar("_Parameters")


def value_and_grad(
    model: _Model,
    source: Source,
    chunks: Chunks,
    *,
    loss: SumLoss = RELATIVE_L2,
    time: ArrayLike | None = None,
) -> tuple[jax.Array, _Model]:
    r"""Returns the loss of a whole mesh and its gradients, in bounded memory.

    They equal those of `jax.value_and_grad` for all points at once. Memory contains the
    arrays of a chunk, parameters, moments, and the stored data: for `n` points, `c`
    channels and `l` layers,

        n c ceil(l / store_every)    numbers, in memory or on disk, or none.

    In 16 bits, stored features and cotangents are rounded. Tests bound the relative
    change of the loss by one unit roundoff, 2^-8 for bfloat16 and 2^-11 for float16,
    and the change of the gradients by one per layer, relative to their norm. Moments,
    solves, norms and the loss have the dtype of the parameters, and sums over chunks
    are in double precision.

    The source is read `2 l + 2` times. Each layer is evaluated about six times if the
    input of every layer is stored; in total there are about `l (l + 1)` evaluations if
    none is.

    Args:
      model: an operator transformer that supports chunks.
      source: named arrays `mesh_points` `(n, p)`, `target` `(n, q)` and, if the model
        uses them, `features`, `quadrature_weights`, `basis_functions`, of any type that
        supports slicing; or an object whose iterators yield such arrays for successive
        points. They are cast to the dtype of the parameters.
      chunks: chunk size, and the stored data.
      loss: loss of the whole mesh.
      time: time, if the model has a time embedding.

    Returns:
      The loss, a scalar, and gradients in the structure of the model.

    Raises:
      MemoryError: if the memory limit is too small. The message states a chunk size
        that fits.
      OSError: if the folder cannot be written or is full.
      TypeError: if an array is not real-valued.
      ValueError: if the model does not support chunks, an option or an array is
        invalid, a value is not finite, or the source changes while it is read.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import numpy as np
      >>> from opjax import nn, streaming
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> sizes = {"feature_dim": 0, "out_features": 1, "features": 8, "num_layers": 2}
      >>> build = partial(nn.OperatorTransformer, attention=attention, **sizes)
      >>> model = build(position=nn.Coordinates(2), rngs=nnx.Rngs(0))
      >>> mesh = np.random.default_rng(0).uniform(size=(9, 2))
      >>> source = {"mesh_points": mesh, "target": mesh[:, :1]}
      >>> value, _ = streaming.value_and_grad(model, source, streaming.Chunks(4))
      >>> value.shape
      ()
    """
    value, (gradients, _) = value_and_grads(
        model, None, source, chunks, loss=loss, time=time
    )
    return value, gradients


def value_and_grads(
    model: _Model,
    parameters: _Parameters,
    source: Source,
    chunks: Chunks,
    *,
    loss: SumLoss,
    time: ArrayLike | None = None,
) -> tuple[jax.Array, tuple[_Model, _Parameters]]:
    """Returns a loss with separate parameters, and the gradients of both.

        loss.value(sum_i s_i, parameters)

    Such a loss computes scalars of the whole mesh from the sums, see
    `nn.models.ScalarHead`.

    Args:
      model: see `value_and_grad`, also for the other arguments.
      parameters: pytree of the arrays that the value of the loss takes after the sums;
        None if it takes none.
      source: named arrays.
      chunks: chunk size and storage.
      loss: loss of the whole mesh.
      time: time, if the model has a time embedding.

    Returns:
      The loss, a scalar, and gradients in the structures of the model and of the
      parameters.

    Raises:
      MemoryError: as from `value_and_grad`.
      OSError: as from `value_and_grad`.
      TypeError: as from `value_and_grad`.
      ValueError: as from `value_and_grad`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from opjax import nn, streaming
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> sizes = {"feature_dim": 0, "out_features": 1, "features": 8, "num_layers": 2}
      >>> build = partial(nn.OperatorTransformer, attention=attention, **sizes)
      >>> model = build(position=nn.Coordinates(2), rngs=nnx.Rngs(0))
      >>> mesh = np.random.default_rng(0).uniform(size=(9, 2))
      >>> source = {"mesh_points": mesh, "target": mesh[:, :1]}
      >>> def sums(values, target, weights):
      ...     return jnp.sum(weights[:, None] * (values - target) ** 2)
      >>> loss = streaming.SumLoss(sums, lambda total, scale: scale * total)
      >>> scale, chunks = jnp.array(2.0), streaming.Chunks(4)
      >>> find = partial(streaming.value_and_grads, model, scale, source, chunks)
      >>> _, (_, slope) = find(loss=loss)
      >>> slope.shape  # the gradient of the scale
      ()
    """
    mesh = _open(model, source, chunks, time)
    with mesh.storage:
        mixed, layer_sums = forward(mesh)
        fixed = jnp.asarray(mixed)
        sums = _sums_of_loss(mesh, fixed, loss).cast(mesh.dtype)
        of_parameters = parameters
        if parameters is None:
            value, of_sums = jax.value_and_grad(loss.value)(sums)
        else:
            both = jax.value_and_grad(loss.value, argnums=(0, 1))
            value, (of_sums, of_parameters) = both(sums, parameters)
        backward = _Backward(mesh, fixed, layer_sums, loss, of_sums)
        return value, (backward.gradients(model), of_parameters)


def input_cotangents(
    model: OperatorTransformer,
    source: Source,
    chunks: Chunks,
    *,
    time: ArrayLike | None = None,
) -> Iterator[InputCotangents]:
    r"""Pulls cotangents of the predicted values back to the inputs, chunk by chunk.

        x_i' = sum_j (d v_j / d x_i)^T v_j',    f_i' = sum_j (d v_j / d f_i)^T v_j',

    equal to `jax.vjp` of all points at once. If `v' = dQ / dv` for a scalar `Q` of the
    whole mesh, these are the derivatives of `Q` with respect to the coordinates and the
    features of every point. This needs as much memory as `value_and_grad` and reads the
    source `2 l + 2` times. Weights and basis functions do not change when points move.

    Args:
      model: an operator transformer that supports chunks.
      source: the mesh, see `value_and_grad`; its `target` contains the cotangents,
        `(n, q)`. Points with zero weight are ignored.
      chunks: chunk size and storage.
      time: time, if the model has a time embedding.

    Yields:
      Cotangents of the inputs, chunk by chunk.

    Raises:
      MemoryError: as from `value_and_grad`.
      OSError: as from `value_and_grad`.
      TypeError: as from `value_and_grad`.
      ValueError: as from `value_and_grad`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import numpy as np
      >>> from opjax import nn, streaming
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> sizes = {"feature_dim": 0, "out_features": 1, "features": 8, "num_layers": 2}
      >>> build = partial(nn.OperatorTransformer, attention=attention, **sizes)
      >>> model = build(position=nn.Coordinates(2), rngs=nnx.Rngs(0))
      >>> mesh = np.random.default_rng(0).uniform(size=(9, 2))
      >>> of_mean = np.full((9, 1), 1 / 9)
      >>> source = {"mesh_points": mesh, "target": of_mean}
      >>> parts = streaming.input_cotangents(model, source, streaming.Chunks(4))
      >>> np.concatenate([part.mesh_points for part in parts]).shape
      (9, 2)
    """
    mesh = _open(model, source, chunks, time)
    with mesh.storage:
        mixed, layer_sums = forward(mesh)
        fixed = jnp.asarray(mixed)
        if mesh.plan.kept:
            _sums_of_loss(mesh, fixed, _PAIRING)
        of_sum = jnp.ones((), mesh.dtype)
        backward = _Backward(mesh, fixed, layer_sums, _PAIRING, of_sum)
        backward.to_sums()
        pull = partial(_to_inputs, mesh, backward.fixed())
        for chunk, (points, features) in mesh.results(pull):
            rows = slice(chunk.size)
            yield InputCotangents(
                np.asarray(points)[rows],
                None if features is None else np.asarray(features)[rows],
            )


def _to_inputs(
    mesh: Mesh, sums: Fixed, chunk: Chunk
) -> tuple[jax.Array, jax.Array | None]:
    arrays = chunk.arrays
    inputs = arrays["mesh_points"], arrays.get("features")
    cotangent = jnp.asarray(arrays["target"] * (chunk.weights > 0)[:, None])
    weights = mesh.weights(chunk)
    return programs.pull_inputs(
        mesh.flat, sums, inputs, mesh.time, chunk.given, weights, cotangent
    )


def _pairing(values: jax.Array, target: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(active(weights)[:, None], target * values, 0))


_PAIRING = SumLoss(_pairing, lambda total: total)


def _sums_of_loss(mesh: Mesh, mixed: jax.Array, loss: SumLoss) -> Total[Any]:
    """Adds up the sums of the loss; what leaves the last layer is kept."""
    total, layers = Total[Any](), mesh.plan.num_layers
    for chunk, (z, sums) in mesh.results(partial(_finished, mesh, mixed, loss)):
        mesh.keep(layers, chunk, z)
        total.add(sums)
    return total


def _finished(
    mesh: Mesh, mixed: jax.Array, loss: SumLoss, chunk: Chunk
) -> tuple[jax.Array, Any]:
    """Features behind the last layer, and the sums of the loss over a chunk."""
    start = mesh.plan.start(mesh.plan.num_layers - 1)
    z, values = programs.finish(mesh.flat, mixed, mesh.inputs(start, chunk), start)
    target, weights = jnp.asarray(chunk.arrays["target"]), jnp.asarray(chunk.weights)
    return z, programs.sums(values, target, weights, loss=loss)


class _Backward:
    """The backward passes: one from the loss, one through each layer.

    Args:
      mesh: that is gone over.
      mixed: coefficients of all layers.
      layer_sums: sums of all layers.
      loss: loss of the whole mesh.
      of_sums: cotangent of its sums.
    """

    def __init__(
        self,
        mesh: Mesh,
        mixed: jax.Array,
        layer_sums: list[Sums],
        loss: SumLoss,
        of_sums: PyTree,
    ):
        self.mesh, self.mixed = mesh, mixed
        self._layer_sums, self._loss, self._of_sums = layer_sums, loss, of_sums
        layers = mesh.plan.num_layers
        # Cotangents of the sums of all layers, filled from the last one.
        self._of_added: Any = jax.tree.map(
            lambda x: np.zeros((layers, *x.shape), x.dtype), layer_sums[0].added
        )
        highest = [sums.highest for sums in layer_sums if sums.highest is not None]
        self._highest = jnp.stack(highest) if highest else None
        self.outer: Total[Leaves] = Total()
        self.shared: Total[Leaves] = Total()
        self.blocks: list[Total[Leaves]] = [Total() for _ in range(layers)]

    def gradients(self, model: _Model) -> _Model:
        """Passes over the mesh and returns gradients structured like the model."""
        self.to_sums()
        pull = partial(self._to_encoder, self.fixed())
        for _, (of_block, of_shared, of_encoder) in self.mesh.results(pull):
            self.blocks[0].add(of_block)
            self.shared.add(of_shared)
            self.outer.add(of_encoder)
        return _gradients(model, self.outer, self.shared, self.blocks)

    def to_sums(self) -> None:
        """Passes over the mesh for the cotangents of the sums of all layers."""
        mesh, layers = self.mesh, self.mesh.plan.num_layers
        of_mixed = Total[jax.Array]()
        for chunk, (g, of_outer, pulled) in mesh.results(self._from_last):
            mesh.keep(layers, chunk, g)
            self.outer.add(of_outer)
            of_mixed.add(pulled)
        self._combine_back(layers - 1, of_mixed)
        for layer in range(layers - 1, 0, -1):
            of_mixed = Total[jax.Array]()
            pull = partial(self._through_layer, layer, self.fixed())
            for chunk, (g, of_block, of_shared, pulled) in mesh.results(pull):
                mesh.keep(layer, chunk, g)
                self.blocks[layer].add(of_block)
                self.shared.add(of_shared)
                of_mixed.add(pulled)
            self._combine_back(layer - 1, of_mixed)

    def _combine_back(self, layer: int, of_mixed: Total[jax.Array]) -> None:
        """Takes cotangents of a layer's coefficients to those of its sums."""
        mesh = self.mesh
        of_block, of_shared, of_added = programs.pull_combine(
            mesh.flat,
            layer,
            self._layer_sums[layer].added,
            mesh.totals,
            of_mixed.cast(mesh.dtype),
        )
        self.blocks[layer].add(of_block)
        self.shared.add(of_shared)
        _put(self._of_added, layer, of_added)

    def fixed(self) -> Fixed:
        """Returns the state of all layers so far."""
        of_added = jax.tree.map(jnp.asarray, self._of_added)
        return Fixed(self.mixed, of_added, self._highest)

    def states(self, chunk: Chunk, start: int, stop: int) -> jax.Array:
        """Returns the inputs of layers, recomputed from a stored one."""
        mesh = self.mesh
        here, depth = mesh.inputs(start, chunk), mesh.plan.depth
        return programs.states(mesh.flat, self.mixed, here, start, stop, depth=depth)

    def from_loss(self, chunk: Chunk, z: jax.Array) -> tuple[Leaves, jax.Array]:
        """Returns cotangents of the decoder and of features after the last layer."""
        target = jnp.asarray(chunk.arrays["target"])
        weights = jnp.asarray(chunk.weights)
        return programs.pull_loss(
            self.mesh.flat, z, target, weights, self._of_sums, loss=self._loss
        )

    def through(
        self, chunk: Chunk, low: int, fixed: Fixed
    ) -> tuple[jax.Array, Leaves, Leaves, tuple[int, jax.Array]]:
        """Backpropagates to the input of layer `low`.

        Returns:
          The cotangent of the features there, those of the block `low` and of the
          shared basis in it, and the first layer of `states` with these.
        """
        mesh, plan = self.mesh, self.mesh.plan
        starts = low == 0 or low in plan.kept
        start, end = low if starts else plan.start(low), plan.end(low)
        if plan.kept:
            states, behind = self.states(chunk, start, end - 1), mesh.load(end, chunk)
        else:
            states = self.states(chunk, start, end)
            _, behind = self.from_loss(chunk, programs.state(states, end - start))
        weights = mesh.weights(chunk)
        of_block, of_shared, g = programs.pull(
            mesh.flat, fixed, states, behind, chunk.given, weights, start, low, end
        )
        return g, of_block, of_shared, (start, states)

    def of_coefficients(
        self, chunk: Chunk, low: int, g: jax.Array, known: tuple[int, jax.Array]
    ) -> jax.Array:
        """Returns cotangents of the coefficients of the layer before `low`.

        Args:
          chunk: of the mesh.
          low: the layer.
          g: cotangent of the features in front of it.
          known: first layer of some `states`, and these.
        """
        start, states = known
        if start == low:  # they begin too late
            start = self.mesh.plan.start(low - 1)
            states = self.states(chunk, start, low - 1)
        here = programs.Inputs(programs.state(states, low - 1 - start), chunk.given)
        return programs.pull_rest(self.mesh.flat, self.mixed, here, g, low - 1)

    def _from_last(self, chunk: Chunk) -> tuple[jax.Array, Leaves, jax.Array]:
        """Cotangents of features behind the last layer, decoder and coefficients."""
        layers = self.mesh.plan.num_layers
        start = self.mesh.plan.start(layers)
        states = self.states(chunk, start, layers)
        of_outer, g = self.from_loss(chunk, programs.state(states, layers - start))
        pulled = self.of_coefficients(chunk, layers, g, (start, states))
        return g, of_outer, pulled

    def _through_layer(
        self, layer: int, fixed: Fixed, chunk: Chunk
    ) -> tuple[jax.Array, Leaves, Leaves, jax.Array]:
        """Cotangents in front of a layer: features, block, basis, coefficients."""
        g, of_block, of_shared, states = self.through(chunk, layer, fixed)
        return g, of_block, of_shared, self.of_coefficients(chunk, layer, g, states)

    def _to_encoder(self, fixed: Fixed, chunk: Chunk) -> tuple[Leaves, Leaves, Leaves]:
        """Cotangents of the first block, the shared basis and the encoder."""
        mesh, arrays = self.mesh, chunk.arrays
        g, of_block, of_shared, _ = self.through(chunk, 0, fixed)
        of_encoder = programs.pull_encoder(
            mesh.flat, arrays["mesh_points"], arrays.get("features"), mesh.time, g
        )
        return of_block, of_shared, of_encoder


def _put(trees: PyTree, layer: int, tree: PyTree) -> None:
    def put(rows: np.ndarray, row: jax.Array) -> None:
        rows[layer] = row

    jax.tree.map(put, trees, tree)


def _gradients(
    model: _Model,
    outer: Total[Leaves],
    shared: Total[Leaves],
    blocks: list[Total[Leaves]],
) -> _Model:
    """Puts gradients of the parts together."""
    stacked = [np.stack(rows) for rows in zip(*(b.tree for b in blocks), strict=True)]
    of_outer, of_shared = iter(outer.tree), iter(shared.tree)
    of_blocks = iter(stacked)
    leaves, structure = jax.tree_util.tree_flatten_with_path(model)
    gradients: list[jax.Array] = []
    for path, leaf in leaves:
        name = block_parts.first_name(path)
        gradient = next(of_blocks) if name == "blocks" else next(of_outer)
        if name == "basis":
            gradient = gradient + next(of_shared)
        gradients.append(jnp.asarray(gradient, leaf.dtype))
    return jax.tree.unflatten(structure, gradients)
