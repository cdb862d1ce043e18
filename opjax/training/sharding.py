"""Points and samples split over devices: placement of arrays, and sums over devices.

    mesh = sharding.device_mesh(points=4, batch=2)
    epoch = training.make_epoch(loss, optimizer, mesh=mesh)

Every device has all parameters, a part of the samples of a batch, and a part of their
points. Gradients add up over samples, for any model. The points of a sample depend on
each other: a loss that is split over points must compute its sums with
`axis_name="points"`, and so must its model. Losses and gradients equal those of one
device except for rounding. The number of bytes that devices exchange in a step does not
depend on the number of points.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from opjax._trees import Batch, PyTree

POINTS, BATCH = "points", "batch"
# Arrays of samples whose second axis are points.
OF_POINTS = ("mesh_points", "features", "target", "quadrature_weights")
# Arrays that are whole on all devices with points of a sample.
OF_SAMPLES = ("scalars", "target_scalars")


def parse(text: str) -> dict[str, int]:
    """Parses the sizes of a device mesh: `points:4,batch:2`, or one of the two.

    Raises:
      ValueError: if the text does not have this form.

    Examples:
      >>> from opjax.training import sharding
      >>> sharding.parse("points:4,batch:2")
      {'points': 4, 'batch': 2}
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = (piece.strip() for piece in part.partition(":"))
        fits = name in (POINTS, BATCH) and name not in sizes
        if not (fits and count.isdecimal() and int(count)):
            raise ValueError(
                f"mesh={text!r} must contain the numbers of devices for points and "
                "for batch, such as points:4,batch:2 or batch:2."
            )
        sizes[name] = int(count)
    return sizes


def device_mesh(*, points: int = 1, batch: int = 1) -> Mesh:
    """Returns a mesh of the first devices, with the axes `points` and `batch`.

    With several processes, see `jax.distributed`, each contributes the same number of
    devices.

    Args:
      points: number of devices that share the points of a sample.
      batch: number of devices, or groups of devices, that share the samples of a batch.

    Raises:
      ValueError: if there are too few devices, or the processes have different numbers
        of them.

    Examples:
      >>> from opjax.training import sharding
      >>> mesh = sharding.device_mesh(points=1, batch=1)
      >>> dict(mesh.shape)
      {'points': 1, 'batch': 1}
    """
    devices, count, processes = jax.devices(), points * batch, jax.process_count()
    if min(points, batch) < 1 or count > len(devices):
        more = " JAX_NUM_CPU_DEVICES in the environment makes more of a CPU."
        raise ValueError(
            f"A mesh of points:{points},batch:{batch} needs {count} devices, but "
            f"there are {len(devices)}." + more * (devices[0].platform == "cpu")
        )
    own = [jax.local_devices(process_index=i) for i in range(processes)]
    share = count // processes
    if count % processes or any(len(several) < share for several in own):
        raise ValueError(
            f"A mesh of points:{points},batch:{batch} needs {count} devices, the same "
            f"number from each of the {processes} processes, which have "
            f"{list(map(len, own))}."
        )
    chosen = [device for several in own for device in several[:share]]
    grid = np.array(chosen).reshape(points, batch)
    return Mesh(grid, (POINTS, BATCH), axis_types=(AxisType.Auto,) * 2)


def size(mesh: Mesh | None, name: str) -> int:
    """Returns the number of devices along an axis; one if there is no such axis.

    Examples:
      >>> from opjax.training import sharding
      >>> mesh = sharding.device_mesh(points=1)
      >>> sharding.size(mesh, "points"), sharding.size(None, "points")
      (1, 1)
    """
    return 1 if mesh is None else mesh.shape.get(name, 1)


def given(mesh: Mesh | None) -> dict[str, str]:
    """Returns the argument `axis_name` for functions split over points, if they are.

    Examples:
      >>> from opjax.training import sharding
      >>> sharding.given(sharding.device_mesh(points=1))  # points are not split
      {}
    """
    return {"axis_name": POINTS} if size(mesh, POINTS) > 1 else {}


def check_batch(mesh: Mesh | None, samples: int, microbatch: int | None = None) -> None:
    """Raises ValueError unless the devices get equal parts of a batch.

    Examples:
      >>> from opjax.training import sharding
      >>> mesh = sharding.device_mesh(batch=1)
      >>> sharding.check_batch(mesh, samples=4, microbatch=3)
      Traceback (most recent call last):
          ...
      ValueError: microbatch=3 must divide 4, the number of samples of a batch ...
    """
    shards, parts = size(mesh, BATCH), microbatch or 1
    if samples % shards:
        raise ValueError(
            f"batch:{shards} of the device mesh must divide the {samples} samples of a "
            "batch."
        )
    if samples // shards % parts:
        raise ValueError(
            f"{microbatch=} must divide {samples // shards}, the number of samples "
            f"of a batch for each of batch:{shards}."
        )


def specs(data: Batch, mesh: Mesh, *, samples: str | None = BATCH) -> Any:
    """Returns how arrays of samples are split, one `PartitionSpec` for each.

    Args:
      data: pytree of arrays with samples along axis 0; if points are split, a
        dictionary of arrays with names in `OF_POINTS`, with points along axis 1.
      mesh: device mesh.
      samples: device axis over which samples are split; None for all samples on each
        device.

    Raises:
      ValueError: if points are split and an array has another name, or another number
        of points.

    Examples:
      >>> import numpy as np
      >>> from opjax.training import sharding
      >>> mesh = sharding.device_mesh(batch=1)
      >>> sharding.specs({"features": np.ones((4, 9, 1))}, mesh)
      {'features': P('batch',)}
    """
    shards = size(mesh, POINTS)
    if shards == 1:
        return jax.tree.map(lambda leaf: PartitionSpec(samples), data)
    names = data if isinstance(data, Mapping) else {"the batch": None}
    if unknown := [name for name in names if name not in (*OF_POINTS, *OF_SAMPLES)]:
        raise ValueError(
            f"points:{shards} of the device mesh can split only "
            f"{', '.join(OF_POINTS)}; it is unknown which axis of "
            f"{', '.join(unknown)} contains the points."
        )
    for name, array in data.items():
        if name in OF_SAMPLES:
            continue
        if np.ndim(array) < 2 or array.shape[1] % shards:
            raise ValueError(
                f"points:{shards} of the device mesh must divide the number of "
                f"points, axis 1 of {name} with shape {np.shape(array)}; use "
                "`pad_points` to add points with weight zero."
            )
    whole, split = PartitionSpec(samples), PartitionSpec(samples, POINTS)
    return {name: whole if name in OF_SAMPLES else split for name in data}


def pad_points(data: Batch, mesh: Mesh, *, row: int = 1) -> Any:
    """Adds points of zero weight, so that devices get equal numbers of points.

    Args:
      data: see `specs`.
      mesh: device mesh.
      row: number of points that stay together: those of a grid row, its size divided by
        that of its first axis.

    Returns:
      The data, padded if necessary, with `quadrature_weights` of `1 / n` if there were
      none, which is equivalent for models.

    Examples:
      >>> import numpy as np
      >>> from opjax.training import sharding
      >>> mesh = sharding.device_mesh(points=1)
      >>> data = {"mesh_points": np.ones((4, 9, 2)), "features": np.ones((4, 9, 1))}
      >>> sorted(sharding.pad_points(data, mesh))  # one device: nothing to add
      ['features', 'mesh_points']
    """
    shards = size(mesh, POINTS)
    if shards == 1 or not isinstance(data, Mapping) or "mesh_points" not in data:
        return data
    count, n = data["mesh_points"].shape[:2]
    missing = -n % (shards * row)
    if not missing:
        return data
    dtype = data["mesh_points"].dtype
    arrays = {"quadrature_weights": np.full((count, n), 1 / n, dtype), **data}

    def padded(name: str, array: Any) -> np.ndarray:
        if name in OF_SAMPLES:
            return np.asarray(array)
        more = np.repeat(np.asarray(array)[:, :1], missing, axis=1)
        if name == "quadrature_weights":
            more = np.zeros_like(more)
        return np.concatenate([array, more], axis=1)

    return {name: padded(name, array) for name, array in arrays.items()}


def replicate(tree: PyTree, mesh: Mesh) -> Any:
    """Replicates a tree on every device; inside `jax.jit`, declares it replicated.

    With several processes, each must have the same tree, and places it on its own
    devices.

    Examples:
      >>> import numpy as np
      >>> from opjax.training import sharding
      >>> mesh = sharding.device_mesh(batch=1)
      >>> sharding.replicate({"w": np.ones(2)}, mesh)["w"].sharding.is_fully_replicated
      True
    """
    return _put(tree, NamedSharding(mesh, PartitionSpec()))


def place(data: Batch, mesh: Mesh, *, row: int = 1) -> Any:
    """Places all samples on each device, with the device's part of the points.

    `row`: see `pad_points`. With several processes, each must have the same samples,
    and places the data of its own devices.

    Examples:
      >>> import numpy as np
      >>> from opjax.training import sharding
      >>> mesh = sharding.device_mesh(points=1)
      >>> data = {"mesh_points": np.ones((4, 9, 2)), "features": np.ones((4, 9, 1))}
      >>> sharding.place(data, mesh)["features"].shape
      (4, 9, 1)
    """
    data = pad_points(data, mesh, row=row)
    layout = specs(data, mesh, samples=None)
    return jax.tree.map(
        lambda x, spec: _put(x, NamedSharding(mesh, spec)), data, layout
    )


def own_samples(mesh: Mesh, count: int) -> np.ndarray:
    """Returns the indices in a batch of the samples on devices of this process.

    Args:
      mesh: device mesh.
      count: number of samples of the batch, see `check_batch`.

    Examples:
      >>> from opjax.training import sharding
      >>> sharding.own_samples(sharding.device_mesh(batch=1), count=4).tolist()
      [0, 1, 2, 3]
    """
    here = np.vectorize(lambda device: device.process_index)(mesh.devices)
    others = tuple(i for i, name in enumerate(mesh.axis_names) if name != BATCH)
    parts = np.flatnonzero((here == jax.process_index()).any(axis=others))
    share = count // size(mesh, BATCH)
    return (parts[:, None] * share + np.arange(share)).ravel()


def place_batch(data: Batch, mesh: Mesh, *, samples: int, row: int = 1) -> Any:
    """Places the samples of a batch on the devices: each has its own, and its points.

    Args:
      data: the samples of `own_samples`, in this process.
      mesh: device mesh.
      samples: number of samples of the batch over all processes.
      row: see `pad_points`.

    Examples:
      >>> import numpy as np
      >>> from opjax.training import sharding
      >>> mesh = sharding.device_mesh(batch=1)
      >>> batch = {"features": np.ones((4, 9, 1))}
      >>> sharding.place_batch(batch, mesh, samples=4)["features"].shape
      (4, 9, 1)
    """
    data = pad_points(data, mesh, row=row)

    def put(array: Any, spec: PartitionSpec) -> jax.Array:
        whole = (samples, *array.shape[1:])
        own = NamedSharding(mesh, spec)
        return jax.make_array_from_process_local_data(own, array, whole)

    return jax.tree.map(put, data, specs(data, mesh))


def fetch(tree: PyTree) -> Any:
    """Returns a replicated tree on one device of this process.

    Examples:
      >>> import numpy as np
      >>> from opjax.training import sharding
      >>> mesh = sharding.device_mesh(batch=1)
      >>> model = sharding.replicate({"w": np.ones(2)}, mesh)
      >>> len(sharding.fetch(model)["w"].devices())
      1
    """
    own = jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)
    return jax.device_put(own, jax.local_devices()[0])


def _put(tree: PyTree, sharding: NamedSharding) -> Any:
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(tree)):
        return lax.with_sharding_constraint(tree, sharding)
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(partial(_put_part, sharding), tree)


def _put_part(sharding: NamedSharding, leaf: PyTree) -> jax.Array:
    """Puts the parts of an array that belong on devices of this process there."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _put_part(sharding, jax.random.key_data(leaf))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    # Copied from devices, because what is put back may be donated.
    array = np.array(leaf) if isinstance(leaf, jax.Array) else np.asarray(leaf)
    return jax.make_array_from_process_local_data(sharding, array, array.shape)


def add_gradients(
    gradient: Callable[..., Any], mesh: Mesh, microbatch: int | None
) -> Callable[..., Any]:
    """Converts a function of a batch to a sum over the samples of all devices.

    Args:
      gradient: `gradient(model, batch, key)` returns a value, which is equal on all
        devices with points of the same samples, and gradients, see below.
      mesh: device mesh.
      microbatch: number of samples into which `gradient` divides the samples of a
        device.

    Returns:
      A function of the same arguments, with the whole batch. Devices along `batch` have
      different keys.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax.training import sharding
      >>> def gradient(weight, batch, key):
      ...     return jax.value_and_grad(lambda w: w * batch["features"].sum())(weight)
      >>> total = sharding.add_gradients(gradient, sharding.device_mesh(batch=1), None)
      >>> batch = {"features": jnp.ones((4, 9, 1))}
      >>> value, slope = total(jnp.array(2.0), batch, None)
      >>> float(value), float(slope)
      (72.0, 36.0)
    """
    shards = size(mesh, BATCH)

    def local(model: PyTree, batch: Batch, key: jax.Array | None) -> Any:
        if key is not None and shards > 1:
            key = jax.random.split(key, shards)[lax.axis_index(BATCH)]
        found = gradient(model, batch, key)
        values, gradients = found if shards == 1 else lax.psum(found, BATCH)
        if size(mesh, POINTS) > 1:
            # Every device asks for the gradient of the same loss, and what it gets
            # belongs to the loss of all: their sum counts it once for each of them.
            gradients = lax.pmean(gradients, POINTS)
        return values, gradients

    def total(model: PyTree, batch: Batch, key: jax.Array | None) -> Any:
        check_batch(mesh, jax.tree.leaves(batch)[0].shape[0], microbatch)
        whole = PartitionSpec()
        # Unchecked: models need not know of devices.
        run = jax.shard_map(
            local,
            mesh=mesh,
            in_specs=(whole, specs(batch, mesh), whole),
            out_specs=whole,
            check_vma=False,
        )
        return run(model, batch, key)

    return total


def map_samples(
    function: Callable[[Any, Any], Any],
    model: PyTree,
    data: Batch,
    *,
    batch_size: int,
    mesh: Mesh,
) -> Any:
    """Applies a function of model and sample to every sample, on all devices.

    All devices get all values. See `training.evaluate`; call it inside `jax.jit`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.training import sharding
      >>> mesh = sharding.device_mesh(batch=1)
      >>> data = {"features": jnp.ones((4, 9, 1))}
      >>> def total(model, sample):
      ...     return model * sample["features"].sum()
      >>> model = jnp.array(2.0)
      >>> sharding.map_samples(total, model, data, batch_size=2, mesh=mesh).tolist()
      [18.0, 18.0, 18.0, 18.0]
    """
    count, shards = jax.tree.leaves(data)[0].shape[0], size(mesh, BATCH)
    rows = jnp.minimum(jnp.arange(count + -count % shards), count - 1)
    data = jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0), data)

    def local(model: PyTree, data: Batch) -> Any:
        own = max(batch_size // shards, 1)
        return lax.map(partial(function, model), data, batch_size=own)

    run = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(PartitionSpec(), specs(data, mesh)),
        out_specs=PartitionSpec(BATCH),
        check_vma=False,
    )
    values = jax.tree.map(lambda leaf: leaf[:count], run(model, data))
    return replicate(values, mesh)
