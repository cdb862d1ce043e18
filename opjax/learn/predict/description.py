"""Description of a trained operator: sizes, names and ranges of its training data."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Required, TypedDict, TypeVar

import numpy as np

from opjax._trees import Json
from opjax.learn.config import ModelOptions, fields, renamed
from opjax.learn.config.time import MODES, TIMED
from opjax.learn.json_files import check_form, to_json, tuples
from opjax.learn.predict.scaling import Scaling
from opjax.learn.registry.entries import Sizes
from opjax.learn.registry.models import Layout
from opjax.samples import Sample, grid_points, ranges, summaries
from opjax.samples.fields import Fields, from_description, to_description
from opjax.samples.sliced import Sliced

_MAX_LAYERS = 10_000
_Built = TypeVar("_Built", bound=tuple[Any, ...])
_MEASURED = ("num_points", "ranges", "rounding", "quantiles", "numbers")


class Channels(NamedTuple):
    """Numbers of channels of the arrays of a sample; zero if an array is missing."""

    mesh_points: int
    features: int
    target: int
    scalars: int = 0
    target_scalars: int = 0

    @classmethod
    def of(cls, sizes: Sizes) -> "Channels":
        """Returns the numbers of channels for given sizes."""
        return cls(
            sizes.point_dim,
            sizes.feature_dim - sizes.scalar_dim,
            sizes.out_features,
            sizes.scalar_dim,
            sizes.target_scalars,
        )

    def to_json(self) -> dict[str, int]:
        """Returns the numbers of channels by array; scalars only if there are any."""
        counts = self._asdict()
        scalars = ("scalars", "target_scalars")
        return {k: n for k, n in counts.items() if n or k not in scalars}


class Stepping(NamedTuple):
    """How an operator advances fields in time.

    Attributes:
      mode: see `TimeOptions.time`.
      history: number of frames that the model receives. Zero if the model computes the
        state at a time from constant inputs, with mode `"one_shot"` and without
        increments.
      channels: number of channels of the evolving fields.
      increments: whether the model predicts the increment from the last frame.
      interval: time between frames in training, the median if it varies.
      longest: largest time difference in training, which is scaled to one for the
        model.
      span: time from the first to the last frame of the longest training series.
      shortest: smallest time difference in training; zero if an earlier opjax did not
        store it.
    """

    mode: str
    history: int
    channels: int
    increments: bool
    interval: float
    longest: float
    span: float = math.inf
    shortest: float = 0.0

    @property
    def timed(self) -> bool:
        """Whether the model receives the time."""
        return self.mode in TIMED

    @classmethod
    def from_json(cls, stored: Any) -> "Stepping":
        """Reads the stored values.

        Raises:
          ValueError: if it is damaged.
        """
        check_form(stored, cls, "operator.time")
        how = _built(cls, stored)
        sizes = how.history, how.channels, how.interval, how.longest, how.span
        if how.mode not in MODES or min(sizes) <= 0 or how.shortest < 0:
            raise ValueError(f"time={how}")
        return how


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """Description of a trained operator.

    Attributes:
      sizes: sizes that the model was built for.
      channels: numbers of channels of the arrays of a sample.
      names: names of the channels, by array.
      layout: layout that the model was built with.
      weighted: whether samples have quadrature weights.
      num_train: number of training samples.
      measured: JSON values from `samples.ranges.measure`, for scaled samples if the
        configuration has scales; and `numbers`, the ranges of the numbers in these
        scales.
      uniform: whether the samples are on uniform grids that fill their box.
      fields: fields of the output function, if each has a separate error.
      time: time stepping of an operator for series.
      seen: digests of the samples that trained or selected the operator, if known.
      axes: axes of space of the training meshes, see `Sample`; empty if unknown, as in
        runs of earlier versions.
      config: configuration of the run, with the fields of `ModelOptions`.
    """

    sizes: Sizes
    channels: Channels
    names: dict[str, list[str]]
    weighted: bool
    num_train: int
    measured: Mapping[str, Any]
    layout: Layout = Layout()
    uniform: bool = False
    fields: Fields | None = None
    time: Stepping | None = None
    seen: list[str] | None = None
    axes: tuple[int, ...] = ()
    config: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def num_points(self) -> tuple[int, int]:
        """Number of points of the smallest and of the largest training mesh."""
        fewest, most = self.measured["num_points"]
        return fewest, most

    @property
    def ranges(self) -> Mapping[str, Any]:
        """Minimum and maximum of every channel, by array."""
        return self.measured["ranges"]

    @property
    def training(self) -> Mapping[str, Any]:
        """Statistics of the (scaled) training samples, for `samples.ranges`."""
        names = self.names if self.scaling is None else self.scaling.reduced_names()
        return {**self.measured, "names": names}

    @functools.cached_property
    def scaling(self) -> Scaling | None:
        """The physical scales in the configuration of the run."""
        return Scaling.of(self.config, self.names, self.axes)

    @property
    def numbers(self) -> Mapping[str, Sequence[float]]:
        """Minimum and maximum in training of the numbers in scale formulas."""
        return self.measured.get("numbers", {})

    def to_json(self) -> dict[str, Any]:
        """Returns the stored description, without the configuration."""
        stored: dict[str, Any] = {
            "sizes": self.sizes._asdict(),
            "channels": self.channels.to_json(),
            "names": self.names,
            "layout": self.layout._asdict(),
            "weighted": self.weighted,
            "num_train": self.num_train,
        }
        if self.fields is not None:
            stored["fields"] = to_description(self.fields)
        stored |= {**self.measured, "uniform": self.uniform}
        if self.time is not None:
            stored["time"] = self.time._asdict()
        if self.seen is not None:
            stored["seen"] = self.seen
        if self.axes:
            stored["axes"] = self.axes
        return to_json(stored)

    @classmethod
    def from_json(cls, stored: Any) -> "Description":
        """Reads the stored description and the configuration of an operator.

        Operators of opjax 0.2 lack `layout`, and `shortest` if trained on series.

        Raises:
          ValueError: if parts are missing or invalid.
        """
        check_form(stored, _Stored, "operator")
        sizes = _built(Sizes, stored["sizes"])
        channels = _built(Channels, stored["channels"])
        expected = Channels.of(sizes)._replace(scalars=channels.scalars)
        if channels != expected:
            raise ValueError(f"operator.channels={channels}, expected {expected}.")
        axes = tuples(stored.get("axes", []))
        if axes and (len(axes) != channels.mesh_points or max(axes) > 2):
            raise ValueError(f"operator.axes={axes}")
        for role, names in stored["names"].items():
            count = getattr(channels, role, 0)
            if count and len(names) not in (0, count):
                raise ValueError(
                    f"operator.names.{role} has {len(names)} names, expected {count}."
                )
        return cls(
            sizes=sizes,
            channels=channels,
            names=stored["names"],
            weighted=stored["weighted"],
            num_train=stored.get("num_train", 0),
            measured={name: stored[name] for name in _MEASURED if name in stored},
            layout=_built(Layout, stored.get("layout", {})),
            uniform=bool(stored.get("uniform")),
            fields=from_description(stored["fields"]) if "fields" in stored else None,
            time=Stepping.from_json(stored["time"]) if "time" in stored else None,
            seen=stored.get("seen"),
            axes=axes,
            config=_configuration(stored["config"]),
        )


class _Options(TypedDict, total=False):
    """Options of any program that predictions depend on, beside the model's."""

    models: Required[tuple[str]]
    scales: str
    angles: str
    start_from: str


class _Varying(TypedDict, total=False):
    """Stored `Fields`."""

    varying: Required[list[tuple[str, list[int], float]]]
    constant: Required[list[str]]


class _Stored(TypedDict, total=False):
    """The stored description of an operator."""

    sizes: Required[Sizes]
    channels: Required[Channels]
    names: Required[dict[str, list[str]]]
    weighted: Required[bool]
    config: Required[_Options]
    ranges: Required[dict[str, tuple[list[float], list[float]]]]
    num_points: Required[tuple[int, int]]
    layout: Layout
    num_train: int
    fields: _Varying
    rounding: dict[str, float]
    quantiles: tuple[list[list[float]], list[list[float]]]
    numbers: dict[str, tuple[float, float]]
    uniform: bool | None
    time: Stepping
    seen: list[str] | None
    axes: list[int]
    normalizers: Required[dict[str, list[int]]]
    normalizer_types: dict[str, str]


def _built(kind: type[_Built], stored: Json) -> _Built:
    """A named tuple from the JSON value of its fields."""
    return kind(**{name: tuples(value) for name, value in stored.items()})


def _configuration(stored: Json) -> dict[str, Any]:
    """The configuration of a run with the names of today, checked."""
    config = renamed.current(dict(stored))
    values = {name: tuples(value) for name, value in config.items()}
    fields.check_types(ModelOptions, values)
    if not 0 < config.get("num_layers", 1) <= _MAX_LAYERS:
        raise ValueError(f"num_layers={config['num_layers']}")
    return config


def describe(
    train: Sequence[Sample] | Sliced,
    *,
    sizes: Sizes,
    names: Mapping[str, Sequence[str]] | None = None,
    layout: Layout | None = None,
    fields: Fields | None = None,
    time: Stepping | None = None,
    seen: list[str] | None = None,
    scaling: Scaling | None = None,
) -> Description:
    """Describes an operator: sizes and ranges of the training samples.

    Args:
      train: training samples, in physical units.
      sizes: sizes that the model was built for.
      names: names of the channels, by array.
      layout: layout that the model was built with; the default if None.
      fields: fields of the output function, if each has a separate error.
      time: time stepping of an operator for series.
      seen: digests of samples, see `Description`.
      scaling: physical scales of the samples.
    """
    channels, numbers = Channels.of(sizes), {}
    axes = summaries.axes_of(train)
    if scaling is not None and not isinstance(train, Sliced):
        scalars = train[0].scalars
        num_scalars = 0 if scalars is None else len(scalars)
        channels = channels._replace(scalars=num_scalars)
        numbers = {"numbers": scaling.measure(train)}
        train = [scaling.reduce(sample) for sample in train]
    weighted = (
        train.weighted
        if isinstance(train, Sliced)
        else train[0].quadrature_weights is not None
    )
    return Description(
        sizes=sizes,
        channels=channels,
        names={k: list(listed) for k, listed in (names or {}).items()},
        weighted=weighted,
        num_train=len(train),
        measured=to_json(ranges.measure(train) | numbers),
        layout=layout or Layout(),
        uniform=_is_uniform(train),
        fields=fields,
        time=time,
        seen=seen,
        axes=axes,
    )


def _is_uniform(train: Sequence[Sample] | Sliced) -> bool:
    """Whether the first training sample is on a uniform grid that fills its box."""
    if isinstance(train, Sliced) or train[0].grid_shape is None:
        return False
    points, shape = train[0].mesh_points, train[0].grid_shape
    low, high = points.min(axis=0), points.max(axis=0)
    expected = grid_points(shape, low.tolist(), high.tolist())
    distance, width = np.abs(points - expected).max(), (high - low).max()
    return bool(distance <= 1e-5 * width)
