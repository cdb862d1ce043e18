"""Series: evolving fields on one mesh, checked, and cut into windows.

A window consists of a few frames of a series: input frames of the model, and frames to
predict. Windows are cut on access. Only their positions are in memory, so memory does
not grow with the number of windows.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, overload

import numpy as np

from opjax.samples import base, fields, summaries
from opjax.samples.base import Sample
from opjax.samples.stored import Place, Stored
from opjax.samples.summaries import Summary

# Intervals of time count as equal up to this share of their median.
_EQUAL = 1e-3


class Frames(Protocol):
    """Frames `(t, n, c)`: an array, or a reader of single frames from files."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of frames, points and channels."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the values."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, frame: int, /) -> np.ndarray: ...


class Series(NamedTuple):
    """Fields on one mesh that evolve in time, on the host.

    Attributes:
      mesh_points: coordinates, shape `(n, p)`, the same at all times.
      times: increasing times of the frames, `(t,)`.
      values: the evolving fields, `(t, n, c)`, an array or frames in files.
      features: input fields that are constant in time, `(n, k)`; None for none.
      quadrature_weights: non-negative weights of the points, `(n,)`; None stands for `1
        / n` each.
      cells: point indices of the mesh's cells, `(m, corners)`.
      grid_shape: points per axis, if the points are a structured grid in row-major
        order.
      scalars: scalars of the case by name, such as a viscosity.
      name: name in messages.
      axes: axes of space that the coordinates are along, see `Sample`.

    Examples:
      >>> import numpy as np
      >>> from opjax.samples import Series
      >>> points, times = np.random.default_rng(0).uniform(size=(5, 2)), np.arange(3.0)
      >>> values = np.ones((3, 5, 1))  # of one field
      >>> series = Series(points, times, values, scalars={"viscosity": 0.01})
      >>> series.num_points, series.values.shape
      (5, (3, 5, 1))
    """

    mesh_points: np.ndarray
    times: np.ndarray
    values: Frames
    features: np.ndarray | None = None
    quadrature_weights: np.ndarray | None = None
    cells: np.ndarray | None = None
    grid_shape: tuple[int, ...] | None = None
    scalars: Mapping[str, float] | None = None
    name: str = ""
    axes: tuple[int, ...] = ()

    @property
    def num_points(self) -> int:
        """Number of mesh points."""
        return len(self.mesh_points)

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return len(self.values)

    @property
    def scalar_names(self) -> tuple[str, ...]:
        """Names of the scalars in alphabetical order, the order of model inputs."""
        return tuple(sorted(self.scalars or {}))

    def seen(self, frames: Iterable[int]) -> Sample:
        """Returns the model inputs for the given frames, with all constant inputs.

        `features` are the fields of the frames in order, followed by the constant
        fields, `(n, u c + k)`; `scalars` are in the order of `scalar_names`.
        """
        parts = [self.values[frame] for frame in frames]
        if self.features is not None:
            parts.append(self.features)
        numbers = [self.scalars[name] for name in self.scalar_names]  # pyright: ignore
        return Sample(
            self.mesh_points,
            features=np.concatenate(parts, axis=1),
            quadrature_weights=self.quadrature_weights,
            grid_shape=self.grid_shape,
            name=self.name,
            scalars=np.asarray(numbers, np.float64) if numbers else None,
            axes=self.axes,
        )


def check(found: Sequence[Series], *, min_frames: int = 2) -> None:
    """Raises an error unless all series are complete and consistent.

    Args:
      found: a data set.
      min_frames: minimum number of frames of a series.

    Raises:
      TypeError: if an array is not real floating-point.
      ValueError: if there is no series; frames and times differ in number, or there are
        too few; times do not increase; an array does not fit the mesh; a value is not
        finite; or series differ in dimension, channels or available arrays. The message
        names the series and the frame.
    """
    if not found:
        raise ValueError("The data set is empty; pass at least one series.")
    for index, series in enumerate(found):
        place = f"series {index}" + (f" ({series.name})" if series.name else "")
        _check_frames(series, place, min_frames)
        _check_times(series, place)
        _check_scalars(series, place, found[0])
        one, first = _first_frame(series), _first_frame(found[0])
        try:
            base.check([one._replace(name="")])
            base.check_same_channels(first, one, names=("series 0", place))
        except (TypeError, ValueError) as error:
            message = str(error).removeprefix("sample 0: ")
            raise type(error)(f"{place}: {message}") from None


def warn_of_still(found: Sequence[Series], names: Sequence[str] = ()) -> None:
    """Warns about series whose frames are all equal, and fields that never change.

    Frames are compared from the last one on, until all channels have changed.

    Args:
      found: the series of a data set.
      names: names of the channels of `values`, if they have any.
    """
    stills = [(one.name, _still(one)) for one in found if one.num_frames > 1]
    equal = [name for name, still in stills if still.all()]
    if equal:
        warnings.warn(
            f"All frames are equal in {len(equal)} of {len(found)} series, for "
            f"example in {equal[0]}: nothing evolves. Check how they were written, "
            "or omit them.",
            stacklevel=3,
        )
    moving = [still for _, still in stills if not still.all()]
    if not moving or len(names) != len(moving[0]):
        return
    always = np.all(moving, axis=0)
    for name, channels in fields.channels_of(names).items():
        if always[channels].all():
            warnings.warn(
                f"The field {name} is the same in all frames of every series. Pass "
                f"it as an input, --feature_names={name}, or omit it.",
                stacklevel=3,
            )


def _still(series: Series) -> np.ndarray:
    """Which channels are the same in all frames, `(c,)`."""
    still = np.ones(series.values.shape[2], bool)
    first = series.values[0]
    for frame in range(series.num_frames - 1, 0, -1):
        still &= (series.values[frame] == first).all(axis=0)
        if not still.any():
            break
    return still


def _first_frame(series: Series) -> Sample:
    """The first frame as a target, beside all that is constant."""
    return Sample(
        series.mesh_points,
        target=series.values[0],
        features=series.features,
        quadrature_weights=series.quadrature_weights,
        cells=series.cells,
        grid_shape=series.grid_shape,
        name=series.name,
        axes=series.axes,
    )


def _check_frames(series: Series, place: str, min_frames: int) -> None:
    values, count = series.values, series.num_points
    if values.dtype.kind != "f":
        raise TypeError(
            f"{place}: values has dtype {values.dtype}, expected real "
            "floating-point numbers."
        )
    if len(values.shape) != 3 or values.shape[1] != count:
        raise ValueError(
            f"{place}: values has shape {values.shape}, expected (frames, {count}, "
            "channels) with one row per point in every frame."
        )
    if series.times.shape != values.shape[:1]:
        raise ValueError(
            f"{place}: values has {len(values)} frames, but times has shape "
            f"{series.times.shape}: frames or times are missing."
        )
    if len(values) < min_frames:
        raise ValueError(
            f"{place} has {len(values)} frames, but at least {min_frames} are "
            "needed; use a longer series."
        )
    for number in range(len(values)):
        bad = ~np.isfinite(values[number])
        if bad.any():
            point, channel = np.argwhere(bad)[0].tolist()
            raise ValueError(
                f"{place}: frame {number} has {bad.sum()} non-finite values, the "
                f"first one at point {point} in channel {channel}; end the series "
                "before it or repair the frame."
            )


def _check_times(series: Series, place: str) -> None:
    times = series.times
    if times.dtype.kind != "f" or not np.isfinite(times).all():
        raise ValueError(
            f"{place}: times must be finite floating-point numbers, but they are "
            f"{times.dtype} from {times.min(initial=0)} to {times.max(initial=0)}."
        )
    back = np.flatnonzero(np.diff(times) <= 0)
    if len(back):
        i = int(back[0])
        raise ValueError(
            f"{place}: frame {i + 1} is at time {times[i + 1]:g}, not after frame "
            f"{i} at {times[i]:g}: times must increase; sort the frames or remove "
            "repetitions."
        )


def _check_scalars(series: Series, place: str, first: Series) -> None:
    if series.scalar_names != first.scalar_names:
        raise ValueError(
            f"{place} has the scalars {[*series.scalar_names]}, but series 0 has "
            f"{[*first.scalar_names]}: all must have the same."
        )
    for name, number in (series.scalars or {}).items():
        if not np.isfinite(number):
            raise ValueError(
                f"{place}: the scalar {name} is {number}, which is not finite; "
                "correct it or remove the series."
            )


def equal_interval(found: Sequence[Series]) -> float:
    """Returns the time between frames, equal in all series.

    Raises:
      ValueError: if it varies. The message names the series and the frame.
    """
    intervals = np.concatenate([np.diff(series.times) for series in found])
    usual = float(np.median(intervals))
    for series in found:
        steps = np.diff(series.times)
        off = np.flatnonzero(np.abs(steps - usual) > _EQUAL * usual)
        if len(off):
            i = int(off[0])
            raise ValueError(
                f"{series.name or 'A series'}: frame {i + 1} is {steps[i]:g} after "
                f"frame {i}, but frames are usually {usual:g} apart. If frames are "
                "missing, add them; with other intervals use --time=time_conditional "
                "or one_shot."
            )
    return usual


class Window(NamedTuple):
    """Position of a window.

    Attributes:
      series: index of the series.
      start: index of the first input frame.
      targets: indices of the frames to predict, in order.
    """

    series: int
    start: int
    targets: tuple[int, ...]


def places(
    found: Sequence[Series], mode: str, *, history: int, unroll: int
) -> Iterator[Window]:
    """Lists the training windows.

    Args:
      found: the series.
      mode: `"one_step"`: predicts the frame after each frame; `"unrolled"`: the next
        `unroll` frames; `"time_conditional"`: one of the next `unroll` frames;
        `"one_shot"`: any later frame from the first ones.
      history: number of input frames; zero, only with `"one_shot"`, predicts any frame
        from the constant inputs.
      unroll: number of frames, see `mode`.
    """
    for number, series in enumerate(found):
        count = series.num_frames
        if mode == "one_shot":
            yield from (Window(number, 0, (t,)) for t in range(history, count))
            continue
        ahead = unroll if mode == "unrolled" else 1
        for start in range(count - history - ahead + 1):
            first = start + history
            if mode == "time_conditional":
                last = min(first + unroll, count)
                yield from (Window(number, start, (t,)) for t in range(first, last))
            else:
                yield Window(number, start, tuple(range(first, first + ahead)))


class Windows(Stored):
    """Windows of series as samples, extracted on access.

    For a window, `features` are the input frames, oldest first, and the constant fields
    of the series, `(n, history c + k)`; `target` are the frames to predict, `(n, u c)`;
    scalars are those of the series.

    Args:
      found: the series.
      where: the windows, all with the same number of targets.
      history: number of input frames; with zero, only constant fields are inputs.
    """

    def __init__(
        self, found: Sequence[Series], where: Sequence[Window], *, history: int
    ):
        self.series, self.where, self.history = found, list(where), history
        frames = {len(window.targets) for window in self.where}
        assert len(frames) <= 1, "windows of one length"
        constant = all(series.features is not None for series in found)
        assert history or constant, "something that the model sees"
        targets = max(frames, default=1)
        each = [_summary(series, history, targets) for series in found]
        super().__init__(
            [Place(found[w.series].name, f"frame {w.start}") for w in self.where],
            [each[window.series] for window in self.where],
            _refuse,
        )

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> "Windows": ...

    def __getitem__(self, index: int | slice) -> "Sample | Windows":
        """Cuts a window; of a slice, says where its windows are."""
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        return self._cut(self.where[index])

    def take(self, rows: Iterable[int]) -> "Windows":
        """Returns some of the windows, in the given order."""
        chosen = [self.where[row] for row in rows]
        return Windows(self.series, chosen, history=self.history)

    def lags(self, row: int) -> np.ndarray:
        """Times of the targets relative to the last input frame, float32.

        Without input frames, they are relative to the first frame of the window.
        """
        window = self.where[row]
        times = self.series[window.series].times
        last = times[window.start + max(self.history - 1, 0)]
        return (times[list(window.targets)] - last).astype(np.float32)

    def _cut(self, window: Window) -> Sample:
        series = self.series[window.series]
        seen = series.seen(range(window.start, window.start + self.history))
        return seen._replace(
            target=np.concatenate([series.values[t] for t in window.targets], axis=1),
            name=f"{series.name}, frame {window.start}",
        )


def _refuse(place: Place) -> Sample:
    raise AssertionError(f"{place} is not a file.")


def _summary(series: Series, history: int, targets: int) -> Summary:
    """The summary of a series, in the channels of its windows, over all frames."""
    constant = series.seen(range(1))._replace(features=series.features)
    summary = summaries.summarize(constant)
    low, high, mean, square = _moments(series.values)
    frames = series.num_points, mean, square
    ranges, joined = dict(summary.ranges), dict(summary.sums)
    tiles = {"features": history, "target": targets}
    parts = {k: [(low, high)] * n for k, n in tiles.items()}
    sums = {k: [frames[1:]] * n for k, n in tiles.items()}
    if series.features is not None:
        parts["features"] = [*parts["features"], summary.ranges["features"]]
        sums["features"] = [*sums["features"], summary.sums["features"][1:]]
    for name in tiles:
        lows, highs = zip(*parts[name], strict=True)
        ranges[name] = np.concatenate(lows), np.concatenate(highs)
    for name in tiles:
        means, squares = zip(*sums[name], strict=True)
        joined[name] = frames[0], np.concatenate(means), np.concatenate(squares)
    return Summary(
        series.num_points,
        series.grid_shape,
        ranges,
        joined,
        summary.quantiles,
        series.axes,
    )


def _moments(values: Frames) -> tuple[np.ndarray, ...]:
    """Ranges and means of the channels, and sums of squares for the rows of a frame."""
    parts: list[tuple[np.ndarray, ...]] = []
    for number in range(len(values)):
        frame = values[number]
        mean = frame.mean(axis=0, dtype=np.float64)
        squares = np.sum((frame - mean) ** 2, axis=0)
        parts.append((frame.min(axis=0), frame.max(axis=0), mean, squares))
    low, high, means, squares = map(np.stack, zip(*parts, strict=True))
    mean, rows = means.mean(axis=0), values.shape[1]
    square = (squares + rows * (means - mean) ** 2).mean(axis=0)
    return low.min(axis=0), high.max(axis=0), mean, square
