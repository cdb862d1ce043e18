"""Baselines that are fitted to training cases and saved beside an operator."""

import functools
import json
import pathlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from opjax._files import replacing
from opjax.learn.baselines.fits import (
    MOST_COMPONENTS,
    Choice,
    Modes,
    Nearest,
    Radial,
    choose,
    choose_nearest,
    left_out,
)
from opjax.learn.baselines.inputs import Inputs, Reader
from opjax.learn.baselines.meshes import CommonMesh, interpolated
from opjax.samples import Sample
from opjax.samples.fields import Fields
from opjax.samples.mirror import is_copy
from opjax.samples.stored import Stored

FILE = "baselines.npz"
MEAN, NEAREST, POD, BEST = "mean_field", "nearest_case", "pod_rbf", "best"
NAMES = {MEAN: "mean field", NEAREST: "nearest case", POD: "POD with RBF"}
_MOST_VALUES = 20_000_000  # of targets and of what is read of the inputs, seconds
_MOST_CASES = 600


class Of(NamedTuple):
    """A field of the baselines: its name and its channels."""

    name: str
    channels: tuple[int, ...]


class Baselines:
    """Predictions without an operator, from training cases on a common mesh.

    Args:
      mesh: the common mesh.
      cases: the training cases, with points and targets.
      reader: computes the inputs of other cases.
      inputs: inputs of the training cases.
      weights: weights of the points of the mesh, `(m,)`.
      fields: fields of the target.
      choices: choices for POD, one for each field, then one for each target scalar;
        empty if POD does not apply.
      nearest: choice for the nearest case; None if no input distinguishes the cases.
      notes: sentences on omitted baselines and on the common mesh.
      rows: indices of the training cases among the given cases.
    """

    def __init__(
        self,
        mesh: CommonMesh,
        cases: Sequence[Sample],
        reader: Reader,
        inputs: Inputs,
        weights: np.ndarray,
        fields: Sequence[Of],
        choices: Sequence[Choice],
        nearest: Nearest | None,
        notes: Sequence[str] = (),
        rows: Sequence[int] = (),
    ):
        self._mesh, self._cases, self._reader = mesh, list(cases), reader
        self._inputs, self._weights = inputs, weights
        self.fields, self.choices = list(fields), list(choices)
        self.nearest, self.notes = nearest, list(notes)
        self.rows = list(rows)

    @classmethod
    def fit(cls, train: Sequence[Sample], fields: Fields | None = None) -> "Baselines":
        """Fits baselines to training cases in seconds; uses a subset if there are many.

        Mirrored copies of cases are used if the meshes do not correspond point by
        point. Otherwise they are omitted, because the points of a copy are in a
        different order.

        Args:
          train: the training cases, with targets `(n, q)`.
          fields: fields of the target, each with its own choices; if None, all channels
            are one field.
        """
        rows, notes = _part(train)
        mesh, different = CommonMesh.of([train[row] for row in rows])
        if not different:
            rows = [row for row in rows if not is_copy(train[row])]
        train = [train[row] for row in rows]
        if different:
            notes.append(
                f"The meshes do not correspond ({different}): values are interpolated "
                "between nearest points, with the boxes of the meshes over each other."
            )
        reader, inputs = Reader.of(mesh, train, MOST_COMPONENTS)
        made = cls(
            mesh,
            train,
            reader,
            inputs,
            _weights(mesh, train),
            _fields(train[0], fields),
            choices=(),
            nearest=None,
            notes=notes,
            rows=rows,
        )
        made.choices = choose(inputs, [*made._modes, *made._modes_of_scalars])
        made.nearest = choose_nearest(inputs, made._modes or made._modes_of_scalars)
        if made.nearest is None:
            made.notes.append(
                "No nearest case and no POD: the cases have no scalars, and their "
                "meshes and features are equal."
            )
        elif not made.choices:
            made.notes.append(
                f"No POD: the {len(train)} training cases are too few or too alike."
            )
        return made

    @property
    def correspond(self) -> bool:
        """Whether the meshes of the training cases correspond point by point."""
        return not self._mesh.subset

    @property
    def names(self) -> list[str]:
        """Names of the available baselines."""
        names = [MEAN] + [NEAREST] * (self.nearest is not None)
        return names + [POD] * bool(self.choices)

    @functools.cached_property
    def _gathered(self) -> np.ndarray:
        """Targets of the training cases on the common mesh, `(b, m, q)`."""
        mesh = self._mesh
        return np.stack([mesh.gathered(one, _target(one)) for one in self._cases])

    @functools.cached_property
    def _modes(self) -> list[Modes]:
        return [
            Modes.of(self._gathered[:, :, list(field.channels)], self._weights)
            for field in self.fields
        ]

    @functools.cached_property
    def _mean(self) -> np.ndarray:
        return self._gathered.mean(axis=0)

    @functools.cached_property
    def _scalars(self) -> np.ndarray:
        """Target scalars of the training cases, `(b, t)`."""
        each = [one.target_scalars for one in self._cases]
        rows = [np.zeros(0) if one is None else np.asarray(one, float) for one in each]
        return np.stack(rows)

    @functools.cached_property
    def _modes_of_scalars(self) -> list[Modes]:
        """Each scalar as a field of one value, with errors over its deviation."""
        all_modes = [
            Modes.of(each[:, None, None], np.ones(1)) for each in self._scalars.T
        ]
        return [
            modes._replace(sizes=np.full(len(self._cases), each.std()))
            for modes, each in zip(all_modes, self._scalars.T, strict=True)
        ]

    @functools.cached_property
    def errors(self) -> dict[str, list[float]]:
        """Mean relative cross-validation error of each field on the training cases."""
        count, errors = len(self._cases), dict[str, list[float]]()
        others = count / max(count - 1, 1)  # a case without itself in the mean
        squares = [np.sum(m.coefficients**2, axis=1) * others**2 for m in self._modes]
        errors[MEAN] = [
            m.relative(s) for m, s in zip(self._modes, squares, strict=True)
        ]
        if self.nearest is not None:
            rows = self.nearest.places(self._inputs, self._inputs, own=True)
            errors[NEAREST] = [m.relative_of(rows) for m in self._modes]
        if self.choices:
            errors[POD] = [one.error for one in self.choices[: len(self.fields)]]
        return errors

    @property
    def best(self) -> list[str]:
        """The best baseline of each field, by cross-validation errors."""
        return [
            min(self.errors, key=lambda name: self.errors[name][place])
            for place in range(len(self.fields))
        ]

    def words(self, name: str) -> str:
        """Describes a baseline in words, per field if they differ."""
        if name == NEAREST and self.nearest is not None:
            return self.nearest.words
        if name != POD:
            return ""
        each = [f"{one.rank} modes, {one.radial.words}" for one in self.choices]
        if not self.fields:
            return "radial basis functions alone, of scalars"
        if len({one.radial for one in self.choices[: len(self.fields)]}) == 1:
            return each[0]
        named = zip(self.fields, each, strict=False)
        return "; ".join(f"{field.name}: {text}" for field, text in named)

    def predict(self, name: str, sample: Sample) -> np.ndarray:
        """Predicts the target of a case, `(n, q)`, in the units of the target.

        Args:
          name: one of `names`, or `"best"` for the best baseline of each field.
          sample: the case, with mesh and inputs.
        """
        if name == BEST:
            return self._joined(lambda one: self.predict(one, sample))
        if name == MEAN:
            return self._mesh.spread(sample, self._mean)
        asked = self._reader.read(self._mesh, sample)
        if name == NEAREST:
            assert self.nearest is not None
            (row,) = self.nearest.places(self._inputs, asked)
            return self._transferred(self._cases[row], sample)
        fields = self._mean[None].copy()
        self._set_pod(
            fields,
            lambda radial, values: radial.predict(
                radial.chosen(self._inputs), values, radial.chosen(asked)
            ),
        )
        return self._mesh.spread(sample, fields[0])

    def predict_scalars(self, name: str, sample: Sample) -> np.ndarray:
        """Predicts the target scalars of a case, `(t,)`, in their units.

        Args:
          name: one of `names`.
          sample: the case.
        """
        if name == MEAN:
            return self._scalars.mean(axis=0)
        asked = self._reader.read(self._mesh, sample)
        if name == NEAREST:
            assert self.nearest is not None
            (row,) = self.nearest.places(self._inputs, asked)
            return self._scalars[row]
        choices = self.choices[len(self.fields) :]
        scalars = [
            one.radial.predict(
                one.radial.chosen(self._inputs),
                values[:, None],
                one.radial.chosen(asked),
            )
            for one, values in zip(choices, self._scalars.T, strict=True)
        ]
        return np.array(scalars).reshape(-1)

    def left_out(self) -> list[np.ndarray]:
        """Returns cross-validation predictions of `"best"` for all training cases."""
        made = {name: self._left_out(name) for name in set(self.best)}
        return [
            self._joined(lambda name, row=row: made[name][row])
            for row in range(len(self._cases))
        ]

    def _left_out(self, name: str) -> list[np.ndarray]:
        """What a baseline predicts of every training case by the others."""
        cases = self._cases
        if name == NEAREST:
            assert self.nearest is not None
            rows = self.nearest.places(self._inputs, self._inputs, own=True)
            return [
                self._transferred(cases[row], one)
                for row, one in zip(rows, cases, strict=True)
            ]
        count = len(cases)
        fields = (count * self._mean - self._gathered) / (count - 1)
        if name == POD:
            self._set_pod(
                fields, lambda one, values: left_out(one, self._inputs, values)
            )
        return [self._mesh.spread(*pair) for pair in zip(cases, fields, strict=True)]

    def _set_pod(
        self, fields: np.ndarray, fit: Callable[[Radial, np.ndarray], np.ndarray]
    ) -> None:
        """Replaces fields, `(b, m, q)`, by those of fitted coefficients of modes."""
        parts = zip(self.fields, self.choices, self._modes, strict=False)
        for field, choice, modes in parts:
            if choice.rank:
                rows = fit(choice.radial, modes.coefficients[:, : choice.rank])
                flat = [modes.field(row) for row in rows]
                shape = *fields.shape[:2], len(field.channels)
                fields[:, :, list(field.channels)] = np.reshape(flat, shape)

    def _joined(self, predict: Any) -> np.ndarray:
        """The channels of each field by its best baseline; others by the mean field."""
        joined = np.array(predict(MEAN) if MEAN in self.best else predict(self.best[0]))
        for field, name in zip(self.fields, self.best, strict=True):
            columns = list(field.channels)
            joined[:, columns] = predict(name)[:, columns]
        return joined

    def _transferred(self, known: Sample, asked: Sample) -> np.ndarray:
        """The target of a case at the points of another one."""
        mesh, target = self._mesh, _target(known)
        if known.target_grid is not None:
            return target
        if not mesh.subset and not mesh.obstacle(asked):
            return target
        places = mesh.in_box(known.mesh_points), mesh.in_box(asked.mesh_points)
        return interpolated(places[0], target, places[1])

    def save(
        self, folder: pathlib.Path, further: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """Writes the file of the baselines to a folder, with optional extra arrays."""
        mesh, inputs = self._mesh, self._inputs
        arrays: dict[str, np.ndarray] = {
            "text": np.asarray(json.dumps(self._text())),
            "points": mesh.points,
            "size": mesh.size,
            "weights": self._weights,
            "scalars": inputs.scalars,
            "shape": inputs.shape,
            "origins": inputs.origins,
            "target_scalars": self._scalars,
            "target": np.concatenate([_target(one) for one in self._cases]),
            **self._reader.arrays(),
        }
        if mesh.cells is not None:
            arrays["cells"] = mesh.cells
        if mesh.subset:
            points = [one.mesh_points for one in self._cases]
            arrays["case_points"] = np.concatenate(points)
        with replacing(folder / FILE) as path, open(path, "wb") as file:
            content: Any = {**arrays, **(further or {})}
            np.savez(file, **content)

    def _text(self) -> dict[str, Any]:
        return {
            "format": 1,
            "rows": [len(_target(one)) for one in self._cases],
            "subset": self._mesh.subset,
            "on_grid": self._cases[0].target_grid is not None,
            "fields": self.fields,
            "choices": [(tuple(c.radial), c.rank, c.error) for c in self.choices],
            "nearest": self.nearest,
            "notes": self.notes,
        }

    @classmethod
    def load(cls, folder: pathlib.Path) -> "Baselines":
        """Reads the file that `save` writes, see `load_with`."""
        return cls.load_with(folder, [])[0]

    @classmethod
    def load_with(
        cls, folder: pathlib.Path, further: Sequence[str]
    ) -> "tuple[Baselines, dict[str, np.ndarray]]":
        """Reads the file that `save` writes, with its extra arrays by name.

        Raises:
          FileNotFoundError: if there is no such file.
          ValueError: if it is damaged.
        """
        path = folder / FILE
        try:
            with open(path, "rb") as opened, np.load(opened) as file:
                arrays = dict(file)
            extra = {name: arrays[name] for name in further}
            return cls._of_arrays(arrays), extra
        except FileNotFoundError:
            raise
        except (
            ArithmeticError,
            LookupError,
            OSError,
            TypeError,
            ValueError,
            zipfile.BadZipFile,
        ) as error:
            raise ValueError(
                f"{path} is damaged: {error} (restore it from a copy, or train again)."
            ) from error

    @classmethod
    def _of_arrays(cls, stored: Mapping[str, np.ndarray]) -> "Baselines":
        text = json.loads(str(stored["text"]))
        _check(stored, text)
        ends = np.cumsum(text["rows"])[:-1]
        targets = np.split(stored["target"], ends)
        points = [stored["points"]] * len(targets)
        if text["subset"]:
            points = np.split(stored["case_points"], ends)
        mesh = CommonMesh(
            stored["points"],
            stored.get("cells"),
            stored["size"],
            subset=bool(text["subset"]),
        )
        grid = (len(targets[0]),) if text["on_grid"] else None
        cases = [
            Sample(place, target=target, target_grid=grid, target_scalars=scalars)
            for place, target, scalars in zip(
                points, targets, stored["target_scalars"], strict=True
            )
        ]
        reader, nearest = Reader.from_arrays(stored), text["nearest"]
        deviations = reader.shape.deviations
        origins = stored.get("origins", np.arange(len(cases)))
        return cls(
            mesh,
            cases,
            reader,
            Inputs(stored["scalars"], stored["shape"], deviations, origins),
            stored["weights"],
            [Of(name, tuple(channels)) for name, channels in text["fields"]],
            [Choice(Radial(*radial), *more) for radial, *more in text["choices"]],
            None if nearest is None else Nearest(*nearest),
            [str(note) for note in text["notes"]],
        )


def _check(stored: Mapping[str, np.ndarray], text: Mapping[str, Any]) -> None:
    """Raises ValueError if arrays that were read do not fit each other."""
    rows, (points, dim) = text["rows"], stored["points"].shape
    shapes = {
        "size": (dim,),
        "weights": (points if text["subset"] else rows[0],),
        "target": (sum(rows), stored["target"].shape[-1]),
        "scalars": (len(rows), np.count_nonzero(stored["scalar_std"])),
        "shape": (len(rows), len(stored["shape_modes"])),
        "shape_deviations": (len(stored["shape_modes"]),),
        "shape_modes": (len(stored["shape_modes"]), len(stored["shape_scale"])),
        "target_scalars": (len(rows), stored["target_scalars"].shape[-1]),
    }
    if "origins" in stored:  # since opjax 0.3
        shapes["origins"] = (len(rows),)
    if text["subset"]:
        shapes["case_points"] = (sum(rows), dim)
    elif len(set(rows)) > 1:
        raise ValueError(
            f"its cases have different numbers of points, {sorted(set(rows))}"
        )
    for name, shape in shapes.items():
        if stored[name].shape != shape or not np.isfinite(stored[name]).all():
            raise ValueError(
                f"{name} has shape {stored[name].shape}, expected finite values of "
                f"shape {shape}"
            )


def obstacle(train: Sequence[Sample]) -> str:
    """Returns why baselines cannot be fitted to cases; empty if they can."""
    if isinstance(train, Stored):
        return "samples are read from disk batch by batch"
    target = train[0].target
    if target is not None and (target.ndim != 2 or target.dtype.kind != "f"):
        return "the target has classes"
    if any(one.target_grid != train[0].target_grid for one in train):
        return "the targets are on different grids"
    if len(train) < 2:
        return "there is one training case"
    return ""


def _target(sample: Sample) -> np.ndarray:
    """The target, without channels of a case of scalars alone."""
    if sample.target is None:
        return np.zeros((sample.num_points, 0))
    return sample.target


def _part(train: Sequence[Sample]) -> tuple[list[int], list[str]]:
    """As many training cases as take seconds, evenly spaced, and a note of that."""
    mean = np.mean([_values(one) for one in train])
    most = max(2, min(_MOST_CASES, int(_MOST_VALUES / mean)))
    if len(train) <= most:
        return list(range(len(train))), []
    rows = np.linspace(0, len(train) - 1, most).round().astype(int)
    note = f"Fitted to {most} of the {len(train)} training cases, to take seconds."
    return rows.tolist(), [note]


def _values(sample: Sample) -> int:
    features = 0 if sample.features is None else sample.features.size
    return _target(sample).size + sample.mesh_points.size + features


def _fields(sample: Sample, fields: Fields | None) -> list[Of]:
    if sample.target is None:
        return []
    if fields is None:
        return [Of("target", tuple(range(_target(sample).shape[1])))]
    return [Of(one.name, tuple(one.channels)) for one in fields.varying]


def _weights(mesh: CommonMesh, train: Sequence[Sample]) -> np.ndarray:
    """The mean share of each point of the common mesh; equal where meshes differ."""
    count = len(_target(train[0])) if not mesh.subset else len(mesh.points)
    mean = np.zeros(count)
    for one in train:
        weights = one.quadrature_weights
        if mesh.subset or weights is None or len(weights) != count:
            return np.full(count, 1 / count)
        weights = np.asarray(weights, float)
        mean += weights / weights.sum() / len(train)
    return mean
