"""Training of any pytree model: a step, an epoch on the device, and a stop at NaN.

Everything here is a pure function of its arguments, including the order of the samples.
So the position of a run is its `TrainState`: `state.step` determines the next batch,
and a run continued from a saved state equals the uninterrupted one bit for bit.

Every real floating-point leaf of a model is trained; other leaves (integers, PRNG keys)
and parts marked by `tuning.Frozen` are carried along. So do not store constants, such
as mesh coordinates, in a model's arrays.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh

from opjax._trees import Batch, PyTree
from opjax.training import sharding
from opjax.training.averages import average_of
from opjax.training.tuning import Frozen

# `gradient(model, batch, key=None) -> ((value, numbers), gradients)`, see
# `value_and_grad`.
Gradient = Callable[..., Any]


class TrainState(NamedTuple):
    """Everything that changes during training.

    Attributes:
      model: any pytree, for example a Flax NNX module.
      optimizer_state: the optimizer's state for the trained leaves of `model`.
      step: number of updates applied so far, int32.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> model = {"w": jnp.ones(2)}
      >>> state = training.init(model, training.adamw(1e-3, weight_decay=0.0))
      >>> int(state.step), state.model["w"].shape
      (0, (2,))
    """

    model: Any
    optimizer_state: Any
    step: Array


class NonFiniteError(FloatingPointError):
    """A loss or gradient was NaN or infinite; the message names step and samples.

    Examples:
      >>> import numpy as np
      >>> from opjax import training
      >>> history = {"finite": np.array([True, False])}
      >>> step = training.first_non_finite(history)
      >>> raise training.NonFiniteError(f"step {step}: the loss is not finite")
      Traceback (most recent call last):
          ...
      opjax.training.step.NonFiniteError: step 1: the loss is not finite
    """


def init(model: PyTree, optimizer: optax.GradientTransformation) -> TrainState:
    """Builds the initial state.

    Args:
      model: pytree of arrays, copied so that donating the state does not delete it.
      optimizer: gradient transformation.

    Returns:
      The state at step zero.

    Raises:
      TypeError: if a leaf is complex.
      ValueError: if no leaf is floating point.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> optimizer = training.adamw(1e-3, weight_decay=0.0)
      >>> state = training.init({"w": jnp.ones(2)}, optimizer)
      >>> int(state.step)
      0
    """
    # One program, where operations one by one would be dozens to compile.
    return jit_with(optimizer, lambda rule: partial(_first, rule))(model)


def _first(optimizer: optax.GradientTransformation, model: PyTree) -> TrainState:
    """The state before the first step, in arrays of its own."""
    model = jax.tree.map(_copy, model)
    trained, _ = _partition(model)
    if not jax.tree.leaves(trained):
        raise ValueError("The model has no floating-point leaf to train.")
    return TrainState(model, optimizer.init(trained), jnp.zeros((), jnp.int32))


def averaged_model(state: TrainState) -> Any:
    """Returns the model with the average of its weights from `averaged`.

    Without an average, it returns the model. Leaves that are not trained are those of
    the model.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> optimizer = training.averaged(training.adamw(1e-3, weight_decay=0.0), 0.9)
      >>> state = training.init({"w": jnp.ones(2)}, optimizer)
      >>> training.averaged_model(state)["w"].tolist()
      [1.0, 1.0]
    """
    trained, carried = _partition(state.model)
    return _merge(average_of(state.optimizer_state, trained), carried)


def over_samples(function: Callable[..., Any]) -> Callable[..., Any]:
    """Converts a function of one sample to a function of a batch, like `jax.vmap`.

    A batch of one sample has no batch axis inside. With a leading axis of size one,
    sums over other axes than the last are 5 to 13 times slower in XLA on a CPU (jaxlib
    0.10.2), and a training step is 1.3 to 1.6 times slower.

    Args:
      function: function of pytrees of arrays.

    Returns:
      A function of the same pytrees with samples along axis 0 of every array.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> training.over_samples(jnp.sum)(jnp.ones((3, 5))).tolist()
      [5.0, 5.0, 5.0]
    """

    def each(*batch: Any) -> Any:
        if {jnp.shape(leaf)[0] for leaf in jax.tree.leaves(batch)} != {1}:
            return jax.vmap(function)(*batch)
        value = function(*jax.tree.map(lambda leaf: leaf[0], batch))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], value)

    return each


def make_step(
    loss: Callable[..., Any],
    optimizer: optax.GradientTransformation,
    *,
    microbatch: int | None = None,
    mesh: Mesh | None = None,
) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
    """Builds the update for one batch; jit it, or use `make_epoch`, which does.

    An update with a non-finite loss or gradient is not applied: the state is returned
    unchanged, including its step, and `metrics["finite"]` is False.

    Args:
      loss: `loss(model, batch)` returns a scalar, or a scalar and a dict of scalars.
      optimizer: gradient transformation.
      microbatch: number of samples whose gradients are computed at once, a divisor of
        the batch size; the whole batch by default. Losses, gradients and metrics of the
        parts are added, so `loss` must be a sum over samples. It needs the memory of
        one part, and on CPU, where its arrays stay in cache, less time.
      mesh: devices that share the samples of a batch, so `loss` must be a sum over
        samples; and their points, see `training.sharding`: `loss` is then called with
        `axis_name=`, the axis over which it must sum over points.

    Returns:
      `step(state, batch, key=None) -> (state, metrics)`, with the metrics "loss",
      "gradient_norm" (before clipping) and "finite", and those of `loss`. With a PRNG
      key, `loss` is called with `key=`, this key combined with the step, for dropout;
      so a resumed run draws the same numbers.

    Raises:
      ValueError: from `step`, if `microbatch` or the mesh do not divide the batch.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> optimizer = training.adamw(0.1, weight_decay=0.0)
      >>> def loss(model, batch):
      ...     return jnp.sum((model["w"] * batch["x"] - batch["y"]) ** 2)
      >>> step = jax.jit(training.make_step(loss, optimizer))
      >>> state = training.init({"w": jnp.array(1.0)}, optimizer)
      >>> batch = {"x": jnp.ones(4), "y": 2 * jnp.ones(4)}
      >>> state, metrics = step(state, batch)
      >>> round(float(state.model["w"]), 3), float(metrics["loss"])
      (1.1, 4.0)
    """
    update = make_update(
        value_and_grad(loss), optimizer, microbatch=microbatch, mesh=mesh
    )

    def step(
        state: TrainState, batch: Batch, key: Array | None = None
    ) -> tuple[TrainState, dict[str, Array]]:
        return update(state, batch, jnp.array(True), key)

    return step


def value_and_grad(loss: Callable[..., Any]) -> Gradient:
    """Makes a loss the function of its value and its gradients.

    Args:
      loss: as for `make_step`.

    Returns:
      `gradient(model, batch, key=None) -> ((value, numbers), gradients)`, with the
      scalars that `loss` returns besides, and None for the gradient of every leaf that
      is not trained. `axis_name=` is passed on to the loss.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> gradient = training.value_and_grad(lambda w, batch: jnp.sum(w * batch))
      >>> (value, numbers), slope = gradient(jnp.array(2.0), jnp.ones(4))
      >>> float(value), numbers, float(slope)
      (8.0, {}, 4.0)
    """

    def gradient(
        model: PyTree, batch: Batch, key: Array | None = None, **axis: str
    ) -> Any:
        def objective(trained: PyTree, carried: PyTree) -> Any:
            keys = {} if key is None else {"key": key}
            value = loss(_merge(trained, carried), batch, **keys, **axis)
            return value if isinstance(value, tuple) else (value, {})

        return jax.value_and_grad(objective, has_aux=True)(*_partition(model))

    return gradient


def make_update(
    gradient: Gradient,
    optimizer: optax.GradientTransformation,
    *,
    microbatch: int | None = None,
    mesh: Mesh | None = None,
) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
    """Builds the update of `make_step` with an argument that decides to apply it.

    Args:
      gradient: of a batch, as from `value_and_grad`.
      optimizer: gradient transformation.
      microbatch: as for `make_step`.
      mesh: as for `make_step`.

    Returns:
      `update(state, batch, good, key=None) -> (state, metrics)`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> optimizer = training.adamw(0.1, weight_decay=0.0)
      >>> def loss(model, x):
      ...     return jnp.sum(model["w"] * x)
      >>> update = training.make_update(training.value_and_grad(loss), optimizer)
      >>> state = training.init({"w": jnp.array(1.0)}, optimizer)
      >>> state, _ = update(state, jnp.ones(4), jnp.array(False))  # do not apply
      >>> int(state.step), float(state.model["w"])
      (0, 1.0)
    """
    of_batch = partial(gradient, **sharding.given(mesh))
    if microbatch is not None:
        of_batch = _in_parts(of_batch, microbatch)
    if mesh is not None:
        of_batch = sharding.add_gradients(of_batch, mesh, microbatch)

    def update(
        state: TrainState, batch: Batch, good: Array, key: Array | None = None
    ) -> tuple[TrainState, dict[str, Array]]:
        step_key = None if key is None else jax.random.fold_in(key, state.step)
        (value, numbers), gradients = of_batch(state.model, batch, step_key)
        state, metrics = updated(optimizer, state, value, gradients, good)
        metrics = {**numbers, **metrics}
        if mesh is not None:
            state, metrics = sharding.replicate((state, metrics), mesh)
        return state, metrics

    return update


def updated(
    optimizer: optax.GradientTransformation,
    state: TrainState,
    value: Array,
    gradients: PyTree,
    good: Array | bool = True,
) -> tuple[TrainState, dict[str, Array]]:
    """Applies gradients, unless they or the loss are not finite.

    Args:
      optimizer: gradient transformation.
      state: before the update.
      value: of the loss.
      gradients: of its trained leaves, as from `value_and_grad`.
      good: whether to apply them at all.

    Returns:
      The state, and the metrics of `make_step`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> optimizer = training.adamw(0.1, weight_decay=0.0)
      >>> state = training.init({"w": jnp.array(1.0)}, optimizer)
      >>> slopes = {"w": jnp.array(2.0)}
      >>> state, metrics = training.updated(optimizer, state, jnp.array(4.0), slopes)
      >>> round(float(state.model["w"]), 3), float(metrics["gradient_norm"])
      (0.9, 2.0)
    """
    trained, carried = _partition(state.model)
    norm = optax.tree.norm(gradients)
    finite = jnp.isfinite(value) & jnp.isfinite(norm)
    updates, new = optimizer.update(gradients, state.optimizer_state, trained)
    new = (jax.tree.map(jnp.add, trained, updates), new, state.step + 1)
    # Selecting leaf by leaf fuses with the update; `lax.cond` would not, and take
    # another pass over the state.
    old = (trained, state.optimizer_state, state.step)
    trained, opt_state, count = jax.tree.map(
        partial(jnp.where, good & finite), new, old
    )
    metrics = {"loss": value, "gradient_norm": norm, "finite": finite}
    return TrainState(_merge(trained, carried), opt_state, count), metrics


def _in_parts(gradient: Gradient, microbatch: int) -> Gradient:
    """Makes a function of a batch the sum of its values on the parts of the batch."""

    def total(model: PyTree, batch: Batch, key: Array | None) -> Any:
        sizes = {jnp.shape(x)[0] for x in jax.tree.leaves(batch)}
        if len(sizes) > 1 or min(sizes) % microbatch:
            raise ValueError(
                f"{microbatch=} must divide the number of samples, axis 0 of every "
                f"array of the batch, which is {sorted(sizes)}."
            )
        size = min(sizes)
        count = size // microbatch
        parts = jax.tree.map(
            lambda x: x.reshape(count, microbatch, *x.shape[1:]), batch
        )
        keys = None if key is None else jax.random.split(key, count)

        def evaluate(part: PyTree) -> Any:
            return gradient(model, *part)

        def add(sum_so_far: PyTree, part: PyTree) -> Any:
            return jax.tree.map(jnp.add, sum_so_far, evaluate(part)), None

        one = jax.eval_shape(evaluate, jax.tree.map(lambda x: x[0], (parts, keys)))
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)
        return jax.lax.scan(add, zero, (parts, keys))[0]

    return total


def jit_with(
    optimizer: optax.GradientTransformation,
    make: Callable[[optax.GradientTransformation], Callable[..., Any]],
    *,
    donate: bool = False,
) -> "WithNumbers":
    """Compiles `make(optimizer)` with the numbers of the optimizer as arguments.

    Rates, decays and schedule lengths that are leaves of the optimizer, as in
    `opjax.training.optimizers`, are then not constants of the program, so a training
    run with other numbers finds the program in the compilation cache. Everything else,
    such as functions of other optimizers, stays part of the program.

    Args:
      optimizer: gradient transformation.
      make: function that returns the function to compile.
      donate: whether to donate the first argument of that function.

    Returns:
      The compiled function, with the arguments of `make(optimizer)`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> optimizer = training.adamw(0.1, weight_decay=0.0)
      >>> update = training.jit_with(optimizer, lambda given: given.update)
      >>> params = {"w": jnp.ones(2)}
      >>> updates, _ = update(params, optimizer.init(params), params)
      >>> updates["w"].shape
      (2,)
    """
    return WithNumbers(optimizer, make, donate=donate)


class WithNumbers:
    """A compiled function with the numbers of an optimizer, see `jit_with`."""

    def __init__(
        self,
        optimizer: optax.GradientTransformation,
        make: Callable[[optax.GradientTransformation], Callable[..., Any]],
        *,
        donate: bool = False,
    ):
        leaves, structure = jax.tree.flatten(optimizer)
        places = [i for i, leaf in enumerate(leaves) if not callable(leaf)]
        self._numbers = [leaves[i] for i in places]
        self._arrays: dict[Any, list[Any]] = {}

        def call(numbers: list[Any], *given: Any) -> Any:
            filled = list(leaves)
            for place, number in zip(places, numbers, strict=True):
                filled[place] = number
            return make(jax.tree.unflatten(structure, filled))(*given)

        self._call = jax.jit(call, donate_argnums=(1,) if donate else ())

    def __call__(self, *given: Any) -> Any:
        """Calls the function."""
        return self._call(self._as_arrays(), *given)

    def _as_arrays(self) -> list[Any]:
        """The numbers as arrays, which calls take faster; weakly typed, as numbers are.

        Of several processes each has its own, so there they stay numbers.
        """
        if jax.process_count() > 1:
            return self._numbers
        dtype = jax.dtypes.canonicalize_dtype(float)
        if dtype not in self._arrays:
            with jax.ensure_compile_time_eval():
                self._arrays[dtype] = jax.tree.map(jnp.asarray, self._numbers)
        return self._arrays[dtype]

    def lower(self, *given: Any) -> jax.stages.Lowered:
        """Returns the lowered program of a call with such arguments."""
        return self._call.lower(self._numbers, *given)


class Epoch:
    """The updates for many batches, built by `make_epoch`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> optimizer = training.adamw(0.1, weight_decay=0.0)
      >>> epoch = training.make_epoch(lambda model, x: jnp.sum(model * x), optimizer)
      >>> isinstance(epoch, training.Epoch)
      True
    """

    def __init__(
        self,
        gradient: Gradient,
        optimizer: optax.GradientTransformation,
        *,
        microbatch: int | None = None,
        on_device_scan: bool = True,
        mesh: Mesh | None = None,
    ):
        self.on_device_scan = on_device_scan

        def make(rule: optax.GradientTransformation) -> Callable[..., Any]:
            update = make_update(gradient, rule, microbatch=microbatch, mesh=mesh)

            def one(carry: PyTree, data: Batch, rows: Array, key: Array | None) -> Any:
                state, good = carry
                batch = jax.tree.map(lambda x: jnp.take(x, rows, axis=0), data)
                state, metrics = update(state, batch, good, key)
                return (state, good & metrics["finite"]), metrics

            def all_of(
                carry: PyTree, data: Batch, order: Array, key: Array | None
            ) -> Any:
                return jax.lax.scan(
                    lambda carry, rows: one(carry, data, rows, key), carry, order
                )

            return all_of if on_device_scan else one

        self._advance = jit_with(optimizer, make, donate=True)

    def __call__(
        self,
        state: TrainState,
        data: Batch,
        order: Array | np.ndarray,
        key: Array | None = None,
    ) -> tuple[TrainState, dict[str, Array]]:
        """Trains on the batches of an order, see `make_epoch`."""
        carry, history = (state, jnp.array(True)), []
        if self.on_device_scan:
            (state, _), found = self._advance(carry, data, order, key)
            return state, found
        for rows in order:
            carry, metrics = self._advance(carry, data, rows, key)
            history.append(metrics)
        return carry[0], jax.tree.map(lambda *rows: jnp.stack(rows), *history)

    def compile(
        self,
        state: TrainState,
        data: Batch,
        order: Array | np.ndarray,
        key: Array | None = None,
    ) -> None:
        """Compiles the program of a call with such arguments, without running it."""
        rows = order if self.on_device_scan else order[0]
        self._advance.lower((state, jnp.array(True)), data, rows, key).compile()


def make_epoch(
    loss: Callable[..., Any],
    optimizer: optax.GradientTransformation,
    *,
    microbatch: int | None = None,
    on_device_scan: bool = True,
    mesh: Mesh | None = None,
) -> Epoch:
    """Builds the updates for many batches, gathered from data on the device.

    After the first non-finite loss or gradient the state is frozen, so the last finite
    one is returned; `first_non_finite` returns whether and where that happened.

    Args:
      loss: as for `make_step`.
      optimizer: gradient transformation; the numbers of optimizers in
        `opjax.training.optimizers` are arguments of the compiled program, see
        `jit_with`.
      microbatch: as for `make_step`.
      on_device_scan: one `lax.scan` for all batches, or one dispatch for each, for
        losses that are slow in XLA's loops. The two may differ by rounding.
      mesh: as for `make_step`; see `sharding.place` for the data.

    Returns:
      `epoch(state, data, order, key=None) -> (state, history)`: `data` is a pytree of
      arrays with samples along axis 0, `order` holds sample indices, shape
      `(num_steps, batch)`, `key` is as for the step of `make_step`, and `history` the
      metrics of `make_step`, each of shape `(num_steps,)`. The arrays of `state` are
      donated: use the returned state only. `epoch.compile`, with the same arguments,
      compiles ahead.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> def loss(model, batch):
      ...     return jnp.sum((model["w"] * batch["x"] - batch["y"]) ** 2)
      >>> optimizer = training.adamw(0.1, weight_decay=0.0)
      >>> epoch = training.make_epoch(loss, optimizer)
      >>> data = {"x": jnp.ones(8), "y": 2 * jnp.ones(8)}
      >>> order = training.sample_order(seed=0, epoch=0, num_samples=8, batch_size=4)
      >>> state = training.init({"w": jnp.array(1.0)}, optimizer)
      >>> state, history = epoch(state, data, order)
      >>> int(state.step), history["loss"].shape
      (2, (2,))
    """
    return Epoch(
        value_and_grad(loss),
        optimizer,
        microbatch=microbatch,
        on_device_scan=on_device_scan,
        mesh=mesh,
    )


def first_non_finite(history: dict[str, Array]) -> int | None:
    """Finds the first step of an epoch whose update was not applied.

    Args:
      history: metrics of `make_epoch`, per step.

    Returns:
      Its row in the order, or None if all losses and gradients were finite.

    Examples:
      >>> import numpy as np
      >>> from opjax import training
      >>> training.first_non_finite({"finite": np.array([True, True, False])})
      2
    """
    bad = np.flatnonzero(~np.asarray(history["finite"]))
    return int(bad[0]) if bad.size else None


def sample_order(
    seed: int, epoch: int | Array, num_samples: int, batch_size: int
) -> Array:
    """Draws the sample order of an epoch, a pure function of seed and epoch.

    Samples that do not fill the last batch are omitted in this epoch; the next epoch is
    shuffled anew. (torch's loaders keep a smaller last batch by default; to agree with
    them, choose a batch size that divides the number of samples.)

    Args:
      seed: seed of the run.
      epoch: number of the epoch.
      num_samples: number of training samples.
      batch_size: number of samples per batch.

    Returns:
      Sample indices, int32, shape `(num_samples // batch_size, batch_size)`.

    Raises:
      ValueError: if there are too few samples for one batch.

    Examples:
      >>> from opjax import training
      >>> order = training.sample_order(seed=0, epoch=3, num_samples=10, batch_size=4)
      >>> order.shape  # two batches; the last two samples are left out of this epoch
      (2, 4)
    """
    if not 1 <= batch_size <= num_samples:
        raise ValueError(
            f"{batch_size=} must lie between 1 and {num_samples=}; use a smaller "
            "batch or more samples."
        )
    key = jax.random.fold_in(jax.random.key(seed), epoch)
    return _shuffled(key, num_samples, batch_size)


def _shuffled(key: Array, num_samples: int, batch_size: int) -> Array:
    order = jax.random.permutation(key, jnp.arange(num_samples, dtype=jnp.int32))
    steps = num_samples // batch_size
    return order[: steps * batch_size].reshape(steps, batch_size)


def bucket_order(
    seed: int, epoch: int | Array, sizes: Sequence[int], batch_size: int
) -> tuple[Array, Array]:
    """Draws the sample order of an epoch over samples in several buckets.

    A batch contains samples of one bucket, whose arrays have one shape; the order of
    buckets is random. As in `sample_order`, samples that do not fill the last batch of
    a bucket are omitted in this epoch.

    Args:
      seed: seed of the run.
      epoch: number of the epoch.
      sizes: number of samples in every bucket.
      batch_size: number of samples per batch.

    Returns:
      Bucket of each batch, int32, shape `(steps,)`, and sample indices within the
      buckets, `(steps, batch_size)`.

    Raises:
      ValueError: if a bucket has too few samples for one batch.

    Examples:
      >>> from opjax import training
      >>> buckets, samples = training.bucket_order(0, 0, sizes=[4, 6], batch_size=2)
      >>> sorted(buckets.tolist()), samples.shape
      ([0, 0, 1, 1, 1], (5, 2))
    """
    if not sizes or not 1 <= batch_size <= min(sizes):
        raise ValueError(
            f"{batch_size=} must lie between 1 and the number of samples of the "
            f"smallest bucket, {sizes=}; use a smaller batch or fewer buckets."
        )
    # One bucket is what `sample_order` draws, so that both are the same run.
    key = jax.random.fold_in(jax.random.key(seed), epoch)
    keys = [key] + [jax.random.fold_in(key, b + 1) for b in range(1, len(sizes))]
    rows = [
        _shuffled(own, size, batch_size) for own, size in zip(keys, sizes, strict=True)
    ]
    which = np.repeat(np.arange(len(sizes), dtype=np.int32), [len(r) for r in rows])
    if len(sizes) == 1:
        return jnp.asarray(which), rows[0]
    shuffle = jax.random.permutation(jax.random.fold_in(key, 1), len(which))
    return jnp.asarray(which)[shuffle], jnp.concatenate(rows)[shuffle]


@partial(jax.jit, static_argnames=("metric", "batch_size", "mesh"))
def evaluate(
    metric: Callable[..., Any],
    model: PyTree,
    data: Batch,
    *,
    batch_size: int,
    mesh: Mesh | None = None,
) -> Any:
    """Applies a metric of one sample to every sample of a data set.

    Args:
      metric: `metric(model, sample)` returns a scalar or a pytree of arrays. Pass the
        same function object every time: each new one is compiled anew.
      model: any pytree.
      data: pytree of arrays with samples along axis 0.
      batch_size: number of samples evaluated at once; need not divide the number of
        samples.
      mesh: devices that share the samples and their points; `metric` is then called
        like the loss of `make_step`.

    Returns:
      The values, stacked along a new axis 0.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> def error(model, sample):
      ...     return jnp.abs(model["w"] * sample["x"] - sample["y"])
      >>> data = {"x": jnp.array([1.0, 2, 3]), "y": jnp.array([2.0, 4, 5])}
      >>> training.evaluate(error, {"w": jnp.array(2.0)}, data, batch_size=2).tolist()
      [0.0, 0.0, 1.0]
    """
    if mesh is None:
        return jax.lax.map(partial(metric, model), data, batch_size=batch_size)
    metric = partial(metric, **sharding.given(mesh))
    return sharding.map_samples(metric, model, data, batch_size=batch_size, mesh=mesh)


def _partition(model: PyTree) -> tuple[Any, Any]:
    """Splits into trained and carried leaves, None standing for those of the other."""

    def is_trained(leaf: PyTree) -> bool:
        if isinstance(leaf, Frozen):
            return False
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise TypeError(
                f"The model has a {leaf.dtype} leaf of shape {leaf.shape}; store "
                "complex parameters as two real arrays."
            )
        return bool(jnp.issubdtype(leaf.dtype, jnp.floating))

    def part(keep: bool) -> Any:
        return jax.tree.map(
            lambda leaf: leaf if is_trained(leaf) is keep else None,
            model,
            is_leaf=lambda leaf: isinstance(leaf, Frozen),
        )

    return part(True), part(False)


def _merge(trained: PyTree, carried: PyTree) -> Any:
    def pick(a: PyTree, b: PyTree) -> Any:
        return b if a is None else a

    return jax.tree.map(pick, trained, carried, is_leaf=lambda leaf: leaf is None)


def _copy(leaf: PyTree) -> Array:
    key = isinstance(leaf, Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    # With its dtype: a weakly typed leaf would turn strong in the first step, and the
    # second one be compiled again.
    return jnp.copy(leaf if key else jnp.asarray(leaf, jnp.result_type(leaf)))
