"""Values of quantities of interest from a field and a quadrature rule."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import quantities
from opjax.learn.config.quantities import (
    ACROSS_FLOW,
    FLUX,
    FORCES,
    MOMENTS,
    SHEARS,
    SUM,
    Quantity,
    Value,
)
from opjax.samples import Patch, Sample
from opjax.samples.base import AXES, letters
from opjax.samples.normalizers import Names
from opjax.samples.padding import with_zeros

_ACROSS_PLANE = 0.1  # of a vector, that may point out of the plane of its mesh
_REDUCTIONS = {
    "max": quantities.maximum,
    "min": quantities.minimum,
    "mean": quantities.mean,
    "integral": quantities.integral,
}


def value(
    wanted: Quantity, sample: Sample, names: Names, field: Any, rule: Patch
) -> Any:
    """Computes a quantity, a scalar, with arrays of NumPy or JAX.

    With JAX arrays, no error depends on values.

    Args:
      wanted: the quantity.
      sample: the mesh, with its inputs in physical units.
      names: names of the channels of the sample.
      field: values of the quantity's field at the rows of the rule, `(r, c)`.
      rule: the rows that are used, and their weights.

    Raises:
      ValueError: if a reference value is not constant, or the quantity is not defined
        in this dimension or for this field.
    """
    if wanted.is_force:
        return _force_value(wanted, sample, names, field, rule)
    if wanted.kind == FLUX:
        return (_in_space(field, rule) * rule.area_vectors).sum()
    if wanted.kind == SUM:
        total = field.sum(axis=0)
        return _module(field).linalg.norm(total) if len(total) > 1 else total[0]
    return _REDUCTIONS[wanted.kind](*_padded(field[:, 0], rule.areas))


def _force_value(
    wanted: Quantity, sample: Sample, names: Names, field: Any, rule: Patch
) -> Any:
    """A force or moment, or its coefficient."""

    def reference(key: str, usual: float) -> Any:
        value = dict(wanted.references).get(key, usual)
        return _constant(value, sample, names)

    if wanted.kind in SHEARS:
        viscosity = reference("viscosity", 1.0) * reference("kinematic", 1.0)
        force = viscosity * _shear(field, rule, sample)
    else:
        pressure = field[:, 0] - reference("reference", 0.0)
        pressure = reference("kinematic", 1.0) * pressure
        if wanted.kind in MOMENTS:
            force = _moment(wanted, pressure, rule)
        else:
            force = quantities.force(*_padded(pressure, rule.area_vectors))
    if wanted.is_coefficient:
        force = quantities.coefficient(
            force,
            density=reference("density", 1.0),
            speed=reference("speed", 1.0),
            area=reference("area", 1.0),
        )
    if wanted.kind in ACROSS_FLOW:
        return _across(wanted, force, _constant(wanted.angle or 0.0, sample, names))
    if force.size == 1:  # a moment in the plane
        return force
    kinds = next(k for k in (FORCES, MOMENTS, SHEARS) if wanted.kind in k)
    axis, axes = kinds.index(wanted.kind), rule.axes or range(len(force))
    if axis not in axes:
        raise ValueError(
            f"the mesh has only {len(force)} dimensions, along {letters(axes)}; use "
            f"{' or '.join(kinds[other] for other in axes)}."
        )
    return force[axes.index(axis)]


def _moment(wanted: Quantity, values: Any, rule: Patch) -> jax.Array:
    """The moment of a pressure, `(3,)` in space, a number in the plane."""
    p = rule.centers.shape[1]
    axes = list(rule.axes or range(p))
    about, normal = np.array(wanted.about or [0.0] * p), 3 - sum(axes)
    if p == 2 and wanted.kind != MOMENTS[normal]:
        raise ValueError(f"the mesh is two-dimensional; use {MOMENTS[normal]}.")
    if len(about) != p and not (p == 2 and len(about) == 3):
        raise ValueError(
            f"about= has {len(about)} coordinates, but the mesh has {p} dimensions."
        )
    about = about[axes] if len(about) == 3 else about
    about = about.astype(rule.centers.dtype)
    arrays = _padded(values, rule.area_vectors, rule.centers)
    moment = quantities.moment(*arrays, center=about)
    return -moment if p == 2 and normal == 1 else moment  # x, z, -y are right-handed


def _shear(field: Any, rule: Patch, sample: Sample) -> Any:
    """Force of the shear stress on a wall at rest, over the viscosity, `(p,)`.

    The velocity rises linearly from zero at the wall to its value at the centre of the
    cell beside it.
    """
    velocity = _in_space(field, rule)
    vectors, module = rule.area_vectors, _module(rule.area_vectors)
    sizes = module.linalg.norm(vectors, axis=1, keepdims=True)
    normals = vectors / module.where(sizes > 0, sizes, 1)
    beside: Any = sample.mesh_points
    if isinstance(beside, np.ndarray):
        beside = beside.astype(np.float64)
    heights = ((rule.centers - beside[rule.rows]) * normals).sum(axis=1, keepdims=True)
    flat = isinstance(heights, np.ndarray) and (heights <= 1e-6 * np.sqrt(sizes)).any()
    if rule.surface or flat:
        raise ValueError(
            "the shear stress needs velocities as cell data at the wall, "
            "--location=cells, because point velocities on the wall are zero."
        )
    across = (velocity * normals).sum(axis=1, keepdims=True) * normals
    return ((velocity - across) / heights * rule.areas[:, None]).sum(axis=0)


def _across(wanted: Quantity, force: Any, angle: Any) -> jax.Array:
    """Drag or lift of a force in the plane."""
    if len(force) != 2:
        raise ValueError(
            "drag and lift are defined in two dimensions; use force_x, force_y or "
            "force_z."
        )
    angle = _module(angle).deg2rad(angle) if wanted.degrees else angle
    both = quantities.drag_and_lift(force, angle=angle)
    return both[ACROSS_FLOW.index(wanted.kind)]


def _in_space(field: Any, rule: Patch) -> Any:
    """Vectors of a field in as many dimensions as the mesh has, `(r, p)`."""
    count, p = field.shape[1], rule.area_vectors.shape[1]
    if count < max(p, 2):
        raise ValueError(
            f"the field has {count} channels, but the mesh has {p} dimensions; "
            "expected a vector, as in flux:U@outlet."
        )
    axes = list(rule.axes if count == 3 and rule.axes else range(p))
    if isinstance(field, jax.Array):
        return field[:, np.asarray(axes)]
    across = np.linalg.norm(np.delete(field, axes, axis=1))
    if across > _ACROSS_PLANE * np.linalg.norm(field):
        raise ValueError(
            "the vectors have a component normal to the plane of the mesh, which "
            f"has the axes {', '.join(AXES[axis] for axis in axes)}."
        )
    return field[:, axes]


def _constant(value: Value, sample: Sample, names: Names) -> Any:
    """A number, a scalar of the case, or the constant value of an input."""
    if not isinstance(value, str):
        return value
    scalars = list(names.get("scalars", ()))
    if sample.scalars is None:
        scalars = []
    listed = list(names.get("features", ())) if sample.features is not None else []
    if [*scalars, *listed].count(value) != 1:
        available = ", ".join([*scalars, *listed]) or "none"
        raise ValueError(
            f"there is no unique scalar or input {value!r}; available: {available}."
        )
    if value in scalars:
        assert sample.scalars is not None
        scalar: Any = sample.scalars[scalars.index(value)]
        return scalar if isinstance(scalar, jax.Array) else float(scalar)
    assert sample.features is not None
    if isinstance(sample.features, jax.Array):
        return sample.features[:, listed.index(value)].mean()
    column = np.asarray(sample.features[:, listed.index(value)], np.float64)
    if np.ptp(column) > 1e-6 * np.abs(column).max():
        raise ValueError(
            f"the input {value!r} varies from {column.min():.6g} to "
            f"{column.max():.6g}, expected a constant."
        )
    return float(column[0])


def _padded(*arrays: Any) -> Sequence[Any]:
    """Arrays of NumPy with zero rows up to a power of two: few sizes are compiled."""
    if isinstance(arrays[0], jax.Array):
        return arrays
    size = 1 << (len(arrays[0]) - 1).bit_length()
    return [with_zeros(array, size) for array in arrays]


def _module(array: Any) -> Any:
    """`jax.numpy` for an array of JAX, and `numpy` for all else."""
    return jnp if isinstance(array, jax.Array) else np
