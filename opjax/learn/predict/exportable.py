"""Trained operators as functions of arrays alone, with numbers as named outputs.

Numbers are predicted scalars and quantities of interest. An exported operator has no
mesh. What a quantity needs of it becomes an input, `(n,)` or `(n, p)`, with a row for
each point:

    quadrature_weights     mean and integral over the mesh
    mask@BOUNDARY          max, min and sum over a boundary: 1 on it, 0 elsewhere
    areas@BOUNDARY         mean and integral over a boundary
    area_vectors@BOUNDARY  forces, moments and fluxes: normal times area, zero elsewhere
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax._trees import Json
from opjax.export import VALUES, Inputs
from opjax.learn.config.quantities import (
    EXTREMES,
    FLUX,
    MEANS,
    MOMENTS,
    SHEARS,
    SUM,
    Quantity,
)
from opjax.learn.json_files import to_json
from opjax.learn.predict import functions
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.prediction import Predicted
from opjax.learn.predict.quantities import field_of, rule_of
from opjax.learn.predict.quantity_values import value
from opjax.learn.registry import operators
from opjax.samples import Patch, Sample
from opjax.samples.base import letters

_WEIGHTS = "quadrature_weights"
_MASK, _AREAS, _VECTORS = "mask", "areas", "area_vectors"
_ABOUT = {
    _MASK: "1 at the points of the boundary, 0 elsewhere",
    _AREAS: "area of the boundary (length in 2D) at each point",
    _VECTORS: "outward normal times area at each point, 0 elsewhere",
}


class Exportable:
    """An operator and quantities of interest, as `export.save` takes them.

    Args:
      trained: the operator, whose parameters are part of the function.
      quantities: quantities that the function returns with the field.

    Attributes:
      inputs: sizes of the arrays of a call.
      about: what each input and output holds, by its name.

    Raises:
      ValueError: if the operator cannot be exported, or a quantity needs more of a mesh
        than arrays with a row for each point.
    """

    def __init__(self, trained: Learned, quantities: Sequence[Quantity] = ()):
        _refuse(trained)
        self._trained, self._quantities = trained, tuple(quantities)
        count = trained.sizes.target_scalars
        names = trained.channel_names.get("target_scalars") or ()
        names = names or [f"target_scalars_{i}" for i in range(count)]
        self._scalars = names[:count]  # none, where data without scalars name some
        self._call = functions.operator(trained)
        self._needs = {
            one.text: need
            for one in quantities
            if (need := _need(one, trained)) is not None
        }
        self.inputs = self._inputs()
        self.about = self._about()
        self._check()

    def __call__(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
        **others: jax.Array,
    ) -> Any:
        """Computes the field, and the quantities if there are any.

        Args:
          mesh_points: `(n, p)`.
          features: input functions, and scalars as further channels, `(n, c + s)`.
          quadrature_weights: `(n,)`.
          **others: further inputs, by name.

        Returns:
          The field `(n, q)`; with predicted scalars or quantities, a dictionary of
          the field, `"values"`, if there is one, of the scalars by name, and of the
          quantities by their text. All are in the units of the training data.
        """
        channels = self._trained.channels.features
        own = scalars = None
        if features is not None:
            own = features[:, :channels] if channels else None
            scalars = features[0, channels:] if self.inputs.scalar_dim else None
        weighted = self._trained.description.weighted
        weights = quadrature_weights if weighted else None
        trained = self._trained
        parameters = functions.Parameters(trained.model, trained.normalizers)
        output = self._call(parameters, mesh_points, own, scalars, weights)
        values, numbers = output if isinstance(output, Predicted) else (output, ())
        if not (self._scalars or self._quantities):
            return values
        results = {VALUES: values} if values.shape[1] else {}
        results |= dict(zip(self._scalars, numbers, strict=True))
        case = _case(mesh_points, own, scalars, quadrature_weights)
        measured = partial(self._measured, case=case, values=values, others=others)
        return results | {one.text: measured(one) for one in self._quantities}

    def arrays(self, sample: Sample) -> dict[str, np.ndarray]:
        """Returns the inputs that the quantities need of a mesh, by name, in order.

        Args:
          sample: the mesh, with the facets of its boundaries.

        Raises:
          ValueError: if the quantity is not defined on the mesh.
        """
        by_name: dict[str, np.ndarray] = {}
        for one in self._quantities:
            if (need := self._needs.get(one.text)) is not None:
                try:
                    by_name[need] = _array(
                        one, need, sample, self._trained.description.axes
                    )
                except ValueError as error:
                    raise ValueError(f"{sample.name}: {one.text}: {error}") from None
        return {name: by_name[name] for name in self.inputs.names() if name in by_name}

    def _measured(
        self,
        one: Quantity,
        case: Sample,
        values: jax.Array,
        others: dict[str, jax.Array],
    ) -> jax.Array:
        names = self._trained.channel_names
        field = field_of(one, values, names)
        need = self._needs.get(one.text)
        inputs = others | {_WEIGHTS: case.quadrature_weights}
        rows: Any = None if need is None else inputs[need]
        kind = "" if need is None else need.partition("@")[0]
        areas: Any = jnp.ones(field.shape[0], field.dtype)
        areas = rows if kind in (_WEIGHTS, _AREAS, _MASK) else areas
        vectors: Any = rows if kind == _VECTORS else jnp.zeros_like(case.mesh_points)
        if one.kind == SUM:
            field = jnp.where(areas[:, None] == 0, 0, field)
        rule = Patch(np.empty(0, int), areas, vectors, case.mesh_points)
        rule = rule._replace(axes=self._trained.description.axes)
        return jnp.asarray(value(one, case, names, field, rule), field.dtype)

    def _inputs(self) -> Inputs:
        trained, entry = self._trained, operators.entry(self._trained.name)
        description = trained.description
        least = description.config[entry.min_points] if entry.min_points else 1
        names, channels = functions.scalars_of(trained), description.channels
        p = channels.mesh_points
        needed = dict.fromkeys(self._needs.values())
        return Inputs(
            point_dim=p,
            feature_dim=channels.features,
            scalar_dim=len(names) or channels.scalars,
            weighted=description.weighted or _WEIGHTS in needed,
            num_points=description.sizes.num_points if trained.fixed_points else None,
            min_points=least,
            others={
                name: p if name.startswith(_VECTORS) else 0
                for name in needed
                if name != _WEIGHTS
            },
        )

    @property
    def provenance(self) -> Json:
        """Origin of the operator, as JSON: model, sizes and ranges of the training."""
        names = ("num_train", "num_points", "ranges", "names")
        facts = {name: getattr(self._trained.description, name) for name in names}
        return to_json({"model": self._trained.name} | facts)

    def _about(self) -> dict[str, str]:
        names = self._trained.channel_names
        texts = {
            "mesh_points": "coordinates",
            "features": ", ".join(names.get("features") or ()),
            "scalars": ", ".join(functions.scalars_of(self._trained)),
            _WEIGHTS: "volume (area in 2D) of each point",
            VALUES: ", ".join(self._trained.component_names),
        }
        texts |= {need: _ABOUT[need.partition("@")[0]] for need in self.inputs.others}
        texts |= dict.fromkeys(self._scalars, "predicted scalar")
        return texts | {one.text: _unit(one) for one in self._quantities}

    def _check(self) -> None:
        """Raises ValueError for a name or a quantity that is not defined."""
        taken = dict.fromkeys(self.inputs.names(), "receive an input")
        taken[VALUES] = "return the field"
        if alike := [name for name in self._scalars if name in taken]:
            raise ValueError(
                f"The predicted scalar {alike[0]!r} cannot be exported: exported "
                f"operators {taken[alike[0]]} by this name. Rename the scalar."
            )
        description, inputs = self._trained.description, self.inputs
        n = max(inputs.num_points or 0, inputs.min_points)

        def measured(one: Quantity) -> jax.Array:
            scalars, features = inputs.scalar_dim, inputs.feature_dim
            case = _case(
                jnp.zeros((n, inputs.point_dim)),
                jnp.zeros((n, features)) if features else None,
                jnp.zeros(scalars) if scalars else None,
                jnp.ones(n),
            )
            others = {
                name: jnp.zeros((n, count) if count else n)
                for name, count in inputs.others.items()
            }
            values = jnp.zeros((n, description.channels.target))
            return self._measured(one, case, values, others)

        for one in self._quantities:
            try:
                jax.eval_shape(partial(measured, one))
            except ValueError as error:
                raise ValueError(f"{one.text}: {error}") from None


def _case(points: Any, features: Any, scalars: Any, weights: Any) -> Sample:
    """A case whose arrays JAX traces."""
    return Sample(
        points, features=features, scalars=scalars, quadrature_weights=weights
    )


def _refuse(trained: Learned) -> None:
    """Raises ValueError for an operator that is no function of one sample."""
    description = trained.description
    if description.time is not None:
        raise ValueError(
            f"The operator in {trained.folder} was trained on series, and time steps "
            "cannot be exported; roll it out with --steps, or train without --time."
        )
    if trained.start is not None:
        raise ValueError(
            f"The operator in {trained.folder} uses a baseline, which cannot be "
            "exported; use opjax-predict, or train without --start_from."
        )


def _need(one: Quantity, trained: Learned) -> str | None:
    """Name of the input that a quantity needs, if any.

    Raises:
      ValueError: if it needs more than arrays with a row for each point.
    """
    if one.kind in SHEARS:
        raise ValueError(
            f"{one.text} cannot be exported: the shear stress needs the distances from "
            "the wall to the cells beside it. Compute it from the exported field."
        )
    if one.kind in MOMENTS and trained.config.get("location") == "cells":
        raise ValueError(
            f"{one.text} cannot be exported for cell data: its force acts on facets, "
            "which are not at the points of the operator. Train on point data, or "
            "compute it from the exported field."
        )
    at = f"@{one.boundary}" if one.boundary else ""
    if one.is_force or one.kind == FLUX:
        return _VECTORS + at
    if one.kind in MEANS:
        return _AREAS + at if at else _WEIGHTS
    if at:
        return _MASK + at
    weighted = one.kind in EXTREMES and trained.description.weighted
    return _WEIGHTS if weighted else None


def _array(
    one: Quantity, need: str, sample: Sample, axes: tuple[int, ...]
) -> np.ndarray:
    """The input that a quantity needs of a mesh."""
    rule, n = rule_of(one, sample), sample.num_points
    if need == _WEIGHTS and sample.quadrature_weights is not None:
        return np.asarray(sample.quadrature_weights, np.float32)
    if one.kind in MOMENTS and rule.facets is None:
        raise ValueError("moments of exported operators need point data.")
    axes = axes or tuple(range(rule.area_vectors.shape[1]))
    if one.kind == FLUX and rule.axes not in ((), axes):
        raise ValueError(
            f"fluxes of this exported operator need a mesh along {letters(axes)}."
        )
    parts = rule.area_vectors if need.startswith(_VECTORS) else rule.areas
    sums = np.zeros((n, *parts.shape[1:]))
    np.add.at(sums, rule.rows, parts)
    return sums.astype(np.float32)


def _unit(one: Quantity) -> str:
    """What a quantity holds, with its unit in those of the data."""
    if one.is_coefficient:
        return "no unit"
    if one.kind in MOMENTS:
        return f"unit of {one.field} times area times length"
    if one.is_force or one.kind == FLUX:
        return f"unit of {one.field} times area"
    if one.kind == "integral":
        return f"unit of {one.field} times {'area' if one.boundary else 'volume'}"
    return f"unit of {one.field}"
