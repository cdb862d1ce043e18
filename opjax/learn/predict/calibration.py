"""Calibration of a trained operator: bands for its predictions, see `calibrate`."""

import dataclasses
import hashlib
import json
import pathlib
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax import _checks, _formats, files, uncertainty
from opjax._files import remove_leftovers
from opjax._trees import Json
from opjax.files.npz import add, open_npz
from opjax.learn.config.quantities import parse
from opjax.learn.json_files import replacing, to_json
from opjax.learn.messages import say
from opjax.learn.named_types import HostArrays, Numbers, Row
from opjax.learn.predict import (
    calibrated,
    intervals,
    likeness,
    prediction,
    trained,
    widths,
)
from opjax.learn.predict.field_errors import keys
from opjax.learn.predict.functions import Function
from opjax.learn.predict.intervals import HalfWidths
from opjax.learn.predict.learned import MeshFile
from opjax.learn.predict.likeness import Reference
from opjax.learn.predict.prediction import Predicted
from opjax.learn.predict.trained import Trained
from opjax.learn.predict.widths import WIDTHS, Width, WidthFunction
from opjax.samples import Sample
from opjax.samples.digests import digest
from opjax.samples.fields import Fields
from opjax.samples.padding import with_zeros

FILE = "calibration.npz"
BANDS = ("whole_field", "pointwise")
_MAX_BYTES = 2**30
_ROUNDING = 2.0**-20  # of scores, which are in single precision


class FieldBand(NamedTuple):
    """Lower and upper field around a prediction, on the host.

    Attributes:
      lower: lower bound at every point, `(n, q)`.
      upper: upper bound at every point, `(n, q)`.
    """

    lower: np.ndarray
    upper: np.ndarray


class OtherOperatorError(ValueError):
    """The calibration belongs to a different operator."""


class Calibration(NamedTuple):
    """Converts predictions of one operator to bands.

    Attributes:
      trained: the operator.
      width_name: one of `WIDTHS`.
      width: the width model.
      coverage: target coverage.
      factors: factors of the width by name of the band, `whole_field` and `pointwise`;
        with several fields `whole_field_U` and so on, one per field; empty if only
        scalars are predicted.
      scores: sorted whole-field scores of the calibration cases, `(b,)`; if only
        scalars are predicted, the largest error of a case divided by the training
        spread of that scalar.
      members: digests of the operators of the ensemble.
      half_widths: half-widths of the intervals of scalars and quantities, see
        `intervals`.
      reference: reference statistics of the calibration cases for the
        out-of-distribution test; None if there are too few cases.

    Examples:
      >>> import numpy as np
      >>> from opjax import learn, samples
      >>> points = np.random.default_rng(0).uniform(size=(16, 9, 2))
      >>> cases = samples.from_arrays(mesh_points=points, target=points[..., 0])
      >>> trained = learn.train(cases[:8], preset="smoke", num_epochs=1)
      >>> found = learn.calibrate(trained, cases[8:], coverage=0.8)
      >>> found.width_name, found.coverage, sorted(found.factors)
      ('constant', 0.8, ['pointwise', 'whole_field'])
    """

    trained: Trained
    width_name: str
    width: Width
    coverage: float
    factors: Numbers
    scores: np.ndarray
    members: tuple[str, ...] = ()
    half_widths: Mapping[str, Numbers] = types.MappingProxyType({})
    reference: Reference | None = None

    def band(
        self,
        sample: Sample,
        prediction: np.ndarray | None = None,
        *,
        kind: str = "whole_field",
    ) -> FieldBand:
        """Returns the band around the prediction for a case.

        Args:
          sample: the case, as passed to the operator.
          prediction: prediction of the operator, `(n, q)`, if it is already available.
          kind: `"whole_field"`: the whole field lies inside with the target coverage;
            or `"pointwise"`: on average, this fraction of the points does. With several
            fields, the coverage holds for each field separately.

        Returns:
          Lower and upper field in physical units, `(n, q)` each.

        Raises:
          ValueError: if the kind is unknown, the sample does not fit the operator, or
            the operator predicts only scalars.
        """
        factors = self._factors_of(kind)
        values = self.trained(sample) if prediction is None else prediction
        half = np.zeros(values.shape)
        varying = np.flatnonzero(factors)  # a constant channel is predicted exactly
        width = self.width(sample, values)[:, varying]
        half[:, varying] = factors[varying] * (1 + _ROUNDING) * width
        # Rounded outwards: a target whose score is the factor lies inside.
        lower = np.nextafter((values - half).astype(values.dtype), -np.inf)
        upper = np.nextafter((values + half).astype(values.dtype), np.inf)
        return FieldBand(lower, upper)

    def likeness(
        self, sample: Sample, prediction: np.ndarray | None = None
    ) -> Row | None:
        """Tests whether a case is out of distribution.

        It is compared with the calibration cases.

        Args:
          sample: the case, as passed to the operator.
          prediction: prediction of the operator, `(n, q)`, if it is already available.

        Returns:
          `unlike`, `unlike_in` (`"moments"`, `"shape"` or `"scalars"`),
          `likeness_p_value` and `likeness_distance`, see
          `opjax.uncertainty.likeness_of_groups`; `likeness_cases`, the number of
          calibration cases, and `likeness_shifts`, the smallest detectable shifts, see
          `opjax.uncertainty.detectable_shifts`. None if calibration cases were too few.

        Raises:
          ValueError: if the sample does not fit the operator.
        """
        if self.reference is None:
            return None
        values = prediction
        if values is None:
            values = self.trained.both(sample).values
        return self.reference.row(self.trained, sample, values)

    def band_function(
        self,
        mesh: MeshFile | None = None,
        *,
        kind: str = "whole_field",
    ) -> Function:
        """Returns the band as a pure function of the arguments of `Trained.function`.

            band = found.band_function()
            lower, upper = band(trained.parameters, *trained.arguments(sample))

        It equals `band` in the precision of the arguments, except that it does not
        round outwards. Other seeds, which some widths need, are constants.

        Args:
          mesh: a sample, or a file with one; only the widths `"residual"` and
            `"combined"` need it, for the neighbours of each point. Neighbours do not
            change when points move.
          kind: see `band`.

        Returns:
          A function that returns `uncertainty.Band`: lower and upper field, `(n, q)`.

        Raises:
          OSError: if the file cannot be read.
          ValueError: if the kind is unknown, the width needs a mesh, or the operator
            predicts scalars alone or starts from a baseline.
        """
        width, factors = self._width_function(mesh), self._factors_of(kind)
        return calibrated.band(self.trained, width, factors)

    def quantity(self, text: str, mesh: MeshFile) -> Function:
        r"""Returns the interval of a quantity of interest as a pure function.

            interval = found.quantity("lift:p@wall", "new/wing.vtu")
            lower, upper = interval(trained.parameters, *trained.arguments("..."))

        These are the minimum and maximum of the quantity `Q` over all fields inside
        the band `p +- h` for whole fields, so the interval holds if the band does:

            Q(p) +- sum_i |dQ/dp_i| h_i   for means, sums and forces, Q(p +- h) for max.

        It is wider than `half_widths`, which are the same for all cases. Its width
        depends on the width of the band.

        Args:
          text: one quantity, as in --quantities; any, whether or not training used it.
          mesh: see `Trained.quantity`.

        Returns:
          A function that returns `uncertainty.Band`: two scalars.

        Raises:
          OSError: if the file cannot be read.
          ValueError: as from `Trained.quantity` and `band_function`; or if the
            quantity is the length of a vector.
        """
        facets = any(one.is_over_facets for one in parse(text))
        sample = self.trained.one(mesh, facets=facets)
        width, factors = self._width_function(sample), self._factors_of(BANDS[0])
        return calibrated.quantity(self.trained, width, factors, text, sample)

    @property
    def unlikeness(self) -> Function:
        """The out-of-distribution test as a pure function, for gradients.

            unlikeness = found.unlikeness
            unlikeness(trained.parameters, *trained.arguments(sample)) <= 0  # no alarm

        It has the arguments of `Trained.function`. Its value is a scalar,
        `uncertainty.alarm_margin`: positive if `likeness` and `opjax-predict` report
        the case as out of distribution, negative otherwise. It is differentiable, so an
        optimiser can use it as a constraint.

        Raises:
          ValueError: if there were too few calibration cases for the test, or the
            operator starts from a baseline.
        """
        if self.reference is None:
            raise ValueError(
                f"The calibration of {self.trained.folder} has no out-of-distribution "
                "test: it had too few cases. Run opjax-calibrate with "
                f"{likeness.least_cases(likeness.RATE)} cases or more, or with "
                "--false_alarms."
            )
        return calibrated.unlikeness(self.trained, self.reference)

    def _width_function(self, mesh: MeshFile | None) -> WidthFunction:
        return self.width.function(None if mesh is None else self.trained.one(mesh))

    def _factors_of(self, kind: str) -> np.ndarray:
        """The factor of the width of each channel, `(q,)`; zero for constant ones."""
        _checks.option("kind", kind, BANDS)
        if not self.factors:
            raise ValueError(
                f"The operator in {self.trained.folder} predicts only scalars, which "
                "have intervals, `half_widths`, but no band."
            )
        return factors_of_channels(self.trained.fields, kind, self.factors)

    def save(self) -> pathlib.Path:
        """Writes `calibration.npz` to the operator's folder, for `opjax-predict`.

        Returns:
          The path of the file.

        Raises:
          OSError: if it cannot be written.
        """
        path = self.trained.folder / FILE
        description = {
            "format": _formats.CALIBRATION,
            "operator": identity(self.trained),
            "width": self.width_name,
            "coverage": self.coverage,
            "factors": self.factors,
            "members": self.members,
            "half_widths": dict(self.half_widths),
        }
        arrays = {"scores": self.scores, **self.width.arrays()}
        if self.reference is not None:
            description["false_alarms"] = self.reference.false_alarms
            arrays |= self.reference.arrays()
        text = np.asarray(json.dumps(to_json(description)))
        remove_leftovers(path.parent, path.stem)
        with replacing(path) as temporary:
            add(temporary, {"description": text, **arrays})
        return path


def calibrate(
    operator: Trained,
    cases: Sequence[Sample],
    *,
    coverage: float = 0.9,
    width: str = "constant",
    members: Sequence[Trained] = (),
    false_alarms: float | None = None,
    predict: Callable[[Sample], np.ndarray | Predicted] | None = None,
) -> Calibration:
    """Calibrates the bands of a trained operator on held-out cases.

        trained = learn.load("runs/mine")
        found = learn.calibrate(trained, opjax.files.read("data/calibration"))
        lower, upper = found.band(sample)

    Bands are split-conformal, see `opjax.uncertainty`: if calibration cases and later
    cases are exchangeable, whole fields lie inside with the target probability,
    regardless of the error of the operator. The same holds for intervals of scalars and
    of the quantities of training. `found.likeness(sample)` tests whether a case is out
    of distribution.

    Args:
      operator: from `learn.load`.
      cases: cases with targets, read in the same way as the training cases; none of
        them from the training or validation set. With `"residual"` and `"combined"`, a
        third of them fits the width and the others calibrate.
      coverage: target coverage, inside (0, 1).
      width: how the width varies: `"constant"`, not at all; `"ensemble"`, with the
        distance of other seeds from the prediction; `"residual"`, with the errors at
        similar points; `"combined"`, `"residual"` with the distance of other seeds as
        an additional feature.
      members: the other seeds of an ensemble, see `siblings`; for `"ensemble"` and
        `"combined"`.
      false_alarms: false-alarm rate of the out-of-distribution test, inside (0, 1). If
        None, it is 0.05, or the test is omitted if there are too few cases.
      predict: `predict(sample)`, which replaces the operator's default call; returns
        values, or the same as `Trained.both`.

    Returns:
      The calibration, not yet saved.

    Raises:
      ValueError: if there are too few cases (the message states the required number), a
        case was in the training or validation set of the operator or of a member or
        does not fit one of them, or an option is unknown or has no effect.

    Examples:
      >>> import numpy as np
      >>> from opjax import learn, samples
      >>> points = np.random.default_rng(0).uniform(size=(16, 9, 2))
      >>> cases = samples.from_arrays(mesh_points=points, target=points[..., 0])
      >>> trained = learn.train(cases[:8], preset="smoke", num_epochs=1)
      >>> found = learn.calibrate(trained, cases[8:], coverage=0.8)
      >>> lower, upper = found.band(cases[8])
      >>> bool(np.all(lower < upper))
      True
    """
    _checks.option("width", width, WIDTHS)
    if (width in widths.OF_SEEDS) != bool(members):
        raise ValueError(
            f"{width=} with {len(members)} members: "
            f"{' and '.join(widths.OF_SEEDS)} need at least one other seed, and "
            "other widths support none."
        )
    uncertainty.least_cases(coverage)  # refuses what is no coverage
    alone = not operator.channels.target
    if alone and width != "constant":
        raise ValueError(
            f"{width=} has no effect on the operator in {operator.folder}: it "
            "predicts only scalars, whose intervals have the same width in all "
            "cases. Omit it."
        )
    for one in (operator, *members):
        _check_targets(one, cases)
    _check_unseen((operator, *members), cases)
    # By their digests, so that the order of files does not matter.
    order = np.argsort([digest(sample) for sample in cases], kind="stable")
    ordered = [cases[place] for place in order]
    num_fit = len(ordered) // 3 if width in widths.FITTED else 0
    if width in widths.FITTED:
        _check_divided(len(ordered), num_fit, coverage, width)
    uncertainty.check_cases(len(ordered) - num_fit, coverage=coverage)
    each = map(predict or operator.both, ordered)
    predicted = [Predicted(one) if isinstance(one, np.ndarray) else one for one in each]
    values = [one.values for one in predicted]
    reference = likeness.refer(operator, ordered, values, false_alarms=false_alarms)
    half_widths = intervals.calibrate(
        operator, ordered[num_fit:], predicted[num_fit:], coverage=coverage
    )
    if num_fit:
        fit, ordered = ordered[:num_fit], ordered[num_fit:]
        model: Width = widths.fit_residual(
            operator, fit, values[:num_fit], coverage=coverage, members=members
        )
        values = values[num_fit:]
    else:
        model = widths.restore(width, operator, members=members)
    scores, factors = (
        (_scores_of_scalars(operator, ordered, predicted), Numbers())
        if alone
        else _factors(operator.fields, model, ordered, values, coverage)
    )
    names = tuple(map(identity, members))
    return Calibration(
        operator,
        width,
        model,
        coverage,
        factors,
        scores,
        names,
        half_widths,
        reference,
    )


def factors_of_channels(
    fields: Fields, kind: str, factors: Mapping[str, float]
) -> np.ndarray:
    """Returns the factor of every channel, `(q,)`; zero for constant channels."""
    each = np.zeros(fields.num_channels)
    for name, field in zip(_factor_names(fields, kind), fields.varying, strict=True):
        each[list(field.channels)] = factors[name]
    return each


def _factor_names(fields: Fields, kind: str) -> list[str]:
    return [f"{kind}_{key}" for key in keys(fields.names)] or [kind]


def _factors(
    fields: Fields,
    width: Width,
    cases: Sequence[Sample],
    values: Sequence[np.ndarray],
    coverage: float,
) -> tuple[np.ndarray, Numbers]:
    """Sorted scores of whole cases, and the factors of both bands of each field."""
    points, weights = _scores_of_points(width, cases, values, fields.channels)
    factors: Numbers = {}
    largest = np.zeros(len(cases))
    for number, field in enumerate(fields.varying):
        own = [p[:, [fields.channels.index(c) for c in field.channels]] for p in points]
        scores = np.array([one.max() for one in own])
        largest = np.maximum(largest, scores)
        whole, pointwise = _quantiles(scores, own, weights, coverage)
        for kind, factor in zip(BANDS, (whole, pointwise), strict=True):
            factors[_factor_names(fields, kind)[number]] = factor
    return np.sort(largest), factors


def _scores_of_points(
    width: Width,
    cases: Sequence[Sample],
    values: Sequence[np.ndarray],
    channels: list[int],
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Errors over widths at the points of each case, `(n, c)`, and their weights."""
    points: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    for sample, value in zip(cases, values, strict=True):
        assert sample.target is not None
        weight = prediction.weights_of(sample)
        arrays = value - sample.target, width(sample, value)
        # Padded, so that meshes of many sizes are few programs.
        size = prediction.padded_size(len(value))
        error, half = (
            jnp.asarray(with_zeros(a[:, channels], size), jnp.float32) for a in arrays
        )
        mass = jnp.asarray(with_zeros(weight, size), jnp.float32)
        scores = uncertainty.pointwise_scores(error, half, quadrature_weights=mass)
        points.append(np.asarray(scores)[: len(value)])
        weights.append(weight)
        if not np.isfinite(points[-1]).all():
            raise ValueError(
                f"The prediction for {sample.name} is not finite; remove the case, or "
                "train the operator again."
            )
    return points, weights


def _quantiles(
    scores: np.ndarray,
    points: Sequence[np.ndarray],
    weights: Sequence[np.ndarray],
    coverage: float,
) -> tuple[float, float]:
    """Factors of the bands of a field: of whole cases, and of their points."""
    most, channels = max(map(len, points)), points[0].shape[1]
    flat = [with_zeros(one, most).ravel() for one in points]
    mass = [np.repeat(with_zeros(weight, most), channels) for weight in weights]
    with jax.enable_x64(True):  # sums over many points
        whole = uncertainty.conformal_quantile(
            np.asarray(scores, np.float64), coverage=coverage
        )
        pointwise = uncertainty.pointwise_quantile(
            np.asarray(flat, np.float64),
            coverage=coverage,
            quadrature_weights=np.asarray(mass, np.float64),
        )
    return float(whole), float(pointwise)


def _scores_of_scalars(
    operator: Trained, cases: Sequence[Sample], predicted: Sequence[Predicted]
) -> np.ndarray:
    """Sorted largest errors of the scalars of each case, over their spread."""
    std = np.asarray(operator.normalizers["target_scalars"].std, np.float64)
    errors: list[np.ndarray] = []
    for one, case in zip(predicted, cases, strict=True):
        scale = operator.physical(std, case, "target_scalars")
        errors.append(np.abs(one.scalars - case.target_scalars) / scale)
    return np.sort(np.max(errors, axis=1))


def _check_divided(num_cases: int, num_fit: int, coverage: float, width: str) -> None:
    least = uncertainty.least_cases(coverage)
    if num_cases - num_fit < least or num_fit < 2:
        needed = next(n for n in range(6, 2 * least + 9) if n - n // 3 >= least)
        raise ValueError(
            f"{num_cases} calibration cases are too few for {coverage=:g} with "
            f"{width=}, whose fit uses a third of them: at least {needed} are "
            "needed."
        )


def _check_targets(operator: Trained, cases: Sequence[Sample]) -> None:
    """Raises ValueError unless all cases have targets that the operator predicts."""
    if operator.description.time is not None:
        raise ValueError(
            f"The operator in {operator.folder} was trained on series, for which "
            "bands are not available."
        )
    channels = operator.channels.target
    for sample in cases:
        if not channels:
            if sample.target_scalars is None:
                raise ValueError(
                    f"{sample.name} has no target scalars; calibration cases need them."
                )
            continue
        if sample.target is None:
            names = operator.config.get("target_names")
            called = f" {names!r}, as --target_names of the training" if names else ""
            raise ValueError(
                f"{sample.name} has no target{called}; calibration cases need targets "
                "with the same names."
            )
        if sample.target.shape != (sample.num_points, channels):
            raise ValueError(
                f"{sample.name} has a target of shape {sample.target.shape}, expected "
                f"{(sample.num_points, channels)} as predicted by {operator.folder}."
            )


def _check_unseen(operators: Sequence[Trained], cases: Sequence[Sample]) -> None:
    """Raises ValueError for cases of the training or validation set of an operator."""
    own = [(digest(sample), sample.name) for sample in cases]
    unknown: list[str] = []
    for operator in operators:
        seen = operator.description.seen
        if not isinstance(seen, list):
            unknown.append(str(operator.folder))
            continue
        digests = set(seen)
        names = [name for key, name in own if key in digests]
        if names:
            raise ValueError(
                f"{len(names)} of {len(cases)} calibration cases were in the "
                f"training or validation set of {operator.folder}, for example "
                f"{names[0]}. Their errors are too small, so bands would be too "
                "narrow. Use held-out cases."
            )
    if unknown:
        say(
            f"The run in {' and '.join(dict.fromkeys(unknown))} has no list of its "
            "samples (older runs and samples on disk have none), so it is not "
            "checked whether calibration cases were among them."
        )


def read_cases(
    operator: Trained,
    inputs: str | Sequence[str],
    *,
    point_dim: int | None = None,
) -> list[Sample]:
    """Reads cases with targets in the same way as the training samples.

    Args:
      operator: from `learn.load`.
      inputs: folder, files or patterns, see `files.find`.
      point_dim: as for `files.read`; by default, as in training.

    Raises:
      OSError: if a file cannot be read.
      ValueError: if a file is damaged or has no field with the name of the target.
    """
    options = operator.read_options(point_dim=point_dim)
    return files.read(inputs, dataclasses.replace(options, need_target=True))


def siblings(operator: Trained, *, own_model: str | None = None) -> list[Trained]:
    """Finds the other seeds of the study that an operator belongs to.

    Args:
      operator: operator from `learn.load`, one of several seeds.
      own_model: as for `learn.load`.

    Returns:
      Finished operators of the same model and options in sibling folders, by name;
      empty if there are none.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import learn
      >>> points = np.random.default_rng(0).uniform(size=(8, 9, 2))
      >>> data = {"mesh_points": points, "target": points[..., 0]}
      >>> trained = learn.train(data, preset="smoke", num_epochs=1)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     trained.save(folder)
      ...     learn.siblings(learn.load(folder))  # the only seed
      []
    """
    others: list[Trained] = []
    mine = _options(operator.config)
    for place in sorted(operator.folder.parent.glob("*/operator")):
        folder = place.parent
        if folder == operator.folder or not (folder / "result.json").is_file():
            continue
        if _options(trained.read_config(folder)) == mine:
            others.append(trained.load(folder, own_model=own_model))
    return others


def _options(config: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k not in ("seeds", "format")}


def identity(operator: Trained) -> str:
    """Returns a digest of 16 characters of an operator's parameters."""
    hashed = hashlib.blake2b(digest_size=8)
    for leaf in jax.tree.leaves((operator.model, operator.normalizers)):
        hashed.update(np.asarray(leaf).tobytes())
    return hashed.hexdigest()


def load_calibration(
    operator: Trained, *, own_model: str | None = None
) -> Calibration | None:
    """Reads the calibration of an operator; None if there is none.

    Args:
      operator: from `learn.load`.
      own_model: as for `learn.load`, for the members of an ensemble.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is damaged, was written by a later opjax or belongs to another
        operator, or a member of its ensemble is missing.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import learn
      >>> points = np.random.default_rng(0).uniform(size=(8, 9, 2))
      >>> data = {"mesh_points": points, "target": points[..., 0]}
      >>> trained = learn.train(data, preset="smoke", num_epochs=1)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     trained.save(folder)
      ...     print(learn.load_calibration(learn.load(folder)))  # not calibrated yet
      None
    """
    path = operator.folder / FILE
    if not path.is_file():
        return None
    try:
        with open_npz(path, _MAX_BYTES) as groups:
            arrays = {name: groups[""][name] for name in groups[""]}
        text = json.loads(str(arrays.pop("description")))
        _formats.check(
            path, text.pop("format"), _formats.CALIBRATION, what="calibrations"
        )
        calibration = _parsed(operator, text, arrays, own_model)
    except (_formats.NewerFormatError, OtherOperatorError, OSError):
        raise
    except Exception as error:  # what is not as it was leads anywhere
        raise ValueError(
            f"{path} is damaged: {str(error)[:200]!r}. Run opjax-calibrate again, or "
            "delete the file for predictions without bands."
        ) from error
    return calibration


def _parsed(
    operator: Trained,
    text: Json,
    arrays: HostArrays,
    own_model: str | None,
) -> Calibration:
    if text["operator"] != identity(operator):
        raise OtherOperatorError(
            f"{operator.folder / FILE} belongs to an earlier operator in this "
            "folder. Run opjax-calibrate again."
        )
    members: list[Trained] = []
    if text["members"]:
        others = {identity(o): o for o in siblings(operator, own_model=own_model)}
        missing = [name for name in text["members"] if name not in others]
        if missing:
            raise OtherOperatorError(
                f"{len(missing)} of {len(text['members'])} other seeds that "
                f"{operator.folder / FILE} was calibrated with are missing in "
                f"{operator.folder.parent}. Restore them, or run opjax-calibrate "
                "again."
            )
        members = [others[name] for name in text["members"]]
    factors = {name: float(value) for name, value in text["factors"].items()}
    if operator.channels.target:
        for kind in BANDS:
            factors_of_channels(operator.fields, kind, factors)
    scores = arrays.pop("scores")
    if not np.isfinite([*factors.values(), *scores]).all() or any(
        factor < 0 for factor in factors.values()
    ):
        raise ValueError("its factors are invalid")
    width = widths.restore(text["width"], operator, members=members, arrays=arrays)
    coverage = float(text["coverage"])
    uncertainty.least_cases(coverage)
    return Calibration(
        operator,
        text["width"],
        width,
        coverage,
        factors,
        scores,
        tuple(text["members"]),
        _half_widths(text.get("half_widths", {})),
        likeness.restore(text.get("false_alarms"), arrays),
    )


def _half_widths(found: dict[str, Numbers]) -> HalfWidths:
    numbers = [h for named in found.values() for h in named.values()]
    if not np.isfinite(numbers).all() or any(h < 0 for h in numbers):
        raise ValueError("its widths are invalid")
    return found


def row_of(
    band: FieldBand, sample: Sample, fields: Fields, *, kind: str, coverage: float
) -> Row:
    """Report entries of the band of a case, and of its target if available.

    Args:
      band: band of the case.
      sample: the case.
      fields: fields of the output function.
      kind: kind of the band.
      coverage: target coverage of each field.
    """
    arrays = [*band] if sample.target is None else [sample.target, *band]
    size = prediction.padded_size(sample.num_points)
    mass = jnp.asarray(with_zeros(prediction.weights_of(sample), size), jnp.float32)
    each: dict[str, Row] = {}
    for field in fields.varying:
        # In units of the spread, without the prediction's mean, which may be large.
        own = [np.asarray(a, np.float64)[:, list(field.channels)] for a in arrays]
        middle = own[-2].mean(axis=0)
        ends = [
            jnp.asarray(with_zeros((a - middle) / field.spread, size), jnp.float32)
            for a in own
        ]
        over_spread = float(uncertainty.mean_width(*ends[-2:], quadrature_weights=mass))
        one: Row = {
            "width": over_spread * field.spread,
            "width_over_spread": over_spread,
        }
        if sample.target is not None:
            inside = uncertainty.field_inside(*ends, quadrature_weights=mass)
            share = uncertainty.pointwise_coverage(*ends, quadrature_weights=mass)
            one |= {"inside": bool(inside > 0), "coverage_pointwise": float(share)}
        each[field.name] = one
    row: Row = {"band": kind, "band_coverage": coverage, "fields": each}
    names = ("width_over_spread", "coverage_pointwise")
    if len(each) == 1:
        names = ("width", *names)
    row |= _means(each.values(), names)
    if sample.target is not None:
        row["inside"] = all(one["inside"] for one in each.values())
    return row


# What `row_of` adds to a row.
ROW = (
    *("band", "band_coverage", "width", "width_over_spread", "inside"),
    "coverage_pointwise",
    *intervals.ROW,
    *likeness.ROW,
)


def summary(rows: Sequence[Row]) -> Row:
    """Entries of the last line of output for the bands of all cases.

    `coverage`, `coverage_pointwise` and `width_over_spread` are means over the fields.
    With several fields, there are separate numbers for each.
    """
    fields: dict[str, list[Row]] = {}
    for row in rows:
        for name, one in row.get("fields", {}).items() if "band" in row else ():
            fields.setdefault(name, []).append(one)
    each = {name: _summary_of_field(field_rows) for name, field_rows in fields.items()}
    names = ("coverage", "coverage_pointwise", "width", "width_over_spread")
    names = names if len(each) == 1 else (*names[:2], names[3])
    numbers: Row = _means(each.values(), names)
    for key, one in zip(keys(tuple(each)), each.values(), strict=False):
        numbers |= {f"{name}_{key}": value for name, value in one.items()}
    if any("unlike" in row for row in rows):
        numbers["unlike"] = sum(row["unlike"] for row in rows)
    return numbers | intervals.summary(rows)


def _summary_of_field(rows: Sequence[Row]) -> Numbers:
    """Means over the cases of a field."""
    cases = [
        {"coverage": one["inside"], **one} if "inside" in one else one for one in rows
    ]
    names = ("coverage", "coverage_pointwise", "width", "width_over_spread")
    return _means(cases, names)


def _means(rows: Collection[Mapping[str, Any]], names: Sequence[str]) -> Numbers:
    """Means over the rows that have a number, by names."""
    there = {name: [row[name] for row in rows if name in row] for name in names}
    return {name: float(np.mean(each)) for name, each in there.items() if each}
