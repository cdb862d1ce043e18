"""Windows of series for training, and statistics of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from opjax import samples
from opjax.files.series import SeriesSplits
from opjax.learn.config.time import TimeOptions
from opjax.learn.predict.description import Stepping
from opjax.learn.registry import operators
from opjax.learn.run import buckets
from opjax.learn.tasks.field_losses import without_constants
from opjax.normalize import Normalizer
from opjax.samples import Series, summaries
from opjax.samples import series as windows
from opjax.samples.fields import Fields, fields_of
from opjax.samples.normalizers import fit_normalizers, varies
from opjax.samples.series import Window, Windows


class WindowBucket(buckets.Bucket):
    """Windows of one size, with the times of their targets as `lags`."""

    found: Windows

    def read(self, rows: Iterable[int]) -> buckets.Arrays:
        """Cuts and stacks windows, without encoding them."""
        chosen = [int(row) for row in rows]
        lags = np.stack([self.found.lags(row) for row in chosen])
        return super().read(chosen) | {"lags": lags}


def bucketed(
    found: Windows,
    encode: Callable[[Mapping[str, np.ndarray]], buckets.Arrays],
    *,
    batch_size: int,
    num_buckets: int = 0,
) -> tuple[WindowBucket, ...]:
    """Divides windows into buckets by number of points, like `buckets.of`.

    Args:
      found: the windows.
      encode: function that encodes stacked windows.
      batch_size: see `samples.stack`.
      num_buckets: see `samples.stack`; 0 stands for four.
    """
    counts = summaries.num_points(found)
    if len(set(counts)) <= 1:
        return (WindowBucket(found, None, encode),) if found else ()
    rows = samples.bucket_rows(
        counts, batch_size=batch_size, num_buckets=num_buckets or 4
    )
    return tuple(WindowBucket(found.take(some), n, encode) for n, some in rows)


class Data:
    """Windows of series, with their normalisers and sizes."""

    def __init__(self, config: TimeOptions, splits: SeriesSplits):
        train, history = splits.train, config.history
        every = [*train, *splits.validation, *splits.test]
        windows.check(every, min_frames=history + 1)
        self.test = splits.test
        unroll = config.unroll_stages[-1]
        if config.time not in ("time_conditional", "one_shot") or history > 1:
            interval = windows.equal_interval(every)
        else:
            interval = float(np.median(np.diff(train[0].times)))
        places = list(
            windows.places(train, config.time, history=history, unroll=unroll)
        )
        if not places:
            raise ValueError(
                f"No training series has {history} frames followed by {unroll} "
                f"more, as time={config.time} needs; use longer series or a "
                "smaller unroll."
            )
        if config.validation_steps and not splits.validation:
            raise ValueError(
                f"validation_steps={config.validation_steps} has no effect without "
                "validation series; omit it, or hold some series out."
            )
        # Stages begin at the same frames, so their epochs have the same batches.
        self.stages = tuple(
            Windows(
                train,
                [w._replace(targets=w.targets[:steps]) for w in places],
                history=history,
            )
            for steps in config.unroll_stages[:-1]
        )
        whole = partial(rolled, history=history)
        chosen = config.validation_steps or config.rollout_steps
        self.windows = (
            Windows(train, places, history=history),
            whole(splits.validation, most=chosen),
            whole(splits.test, most=config.rollout_steps),
        )
        lags = [self.windows[0].lags(row)[0] for row in range(len(places))]
        longest = float(max(lags)) if config.time != "unrolled" else interval
        channels = train[0].values.shape[2]
        self.how = Stepping(
            config.time,
            history,
            channels,
            config.time_target == "increment",
            interval,
            longest,
            span=float(max(np.ptp(series.times) for series in train)),
            shortest=float(min(lags)),
        )
        self.names = _names(splits, history, channels)
        self.normalizers, self.fields = _normalizers(
            self.windows[0], self.how, self.names
        )
        seen = Windows(
            every,
            [Window(i, 0, (history,)) for i in range(len(every))],
            history=history,
        )
        self.sizes = operators.sizes(
            seen,
            self.normalizers,
            out_features=channels,
            time_embedding=self.how.timed,
        )
        self.batch_sizes = getattr(config, "batch_size", 1), 1, 1


def rolled(found: Sequence[Series], *, history: int, most: int = 0) -> Windows:
    """Converts whole series to windows; the last frame of shorter ones is repeated.

    Args:
      found: the series.
      history: number of frames that the model receives.
      most: maximum number of targets; 0 uses all frames.
    """
    counts = [min(s.num_frames - history, most or s.num_frames) for s in found]
    longest = max(counts, default=1)
    steps = [[min(i, count - 1) for i in range(longest)] for count in counts]
    return Windows(
        found,
        [Window(n, 0, tuple(history + i for i in row)) for n, row in enumerate(steps)],
        history=history,
    )


def _names(
    splits: SeriesSplits, history: int, channels: int
) -> dict[str, tuple[str, ...]]:
    """Names of the channels that the model sees and predicts."""
    names = splits.channels or {}
    target = tuple(names.get("target", ()))
    scalars = splits.train[0].scalar_names
    named = {"scalars": scalars} if scalars else {}
    if not target:
        return named
    assert len(target) == channels
    seen = [
        name if back == 0 else f"{name}[-{back}]"
        for back in reversed(range(history))
        for name in target
    ]
    constants = names.get("features", ())
    return {"features": (*seen, *constants), "target": target, **named}


def _normalizers(
    found: Windows, how: Stepping, names: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Normalizer], Fields]:
    """Of points, of what the model sees, and of what it predicts; and the fields."""
    fitted = fit_normalizers(
        found, points=True, features=True, target=False, names=names
    )
    stop = how.history * how.channels
    last = slice(stop - how.channels, stop)
    mean, std = (np.asarray(part[last]) for part in fitted["features"])
    varying = varies(found, "features", names.get("features"))[last]
    fields = fields_of(names.get("target"), std, varying)
    if not fields.varying:
        raise ValueError(
            f"{', '.join(fields.constant)} are constant in all training series, so "
            "there is nothing to learn. Use other targets, or transient series."
        )
    if how.increments:
        mean, deviation = _increments(found)
        std = np.where(deviation > 1e-6 * std, deviation, std)
    target = without_constants(Normalizer(mean, std), fields)
    return {**fitted, "target": target}, fields


def _increments(found: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the increments to the first targets of windows."""
    count, total, square = 0, 0.0, 0.0
    for window in found.where:
        values = found.series[window.series].values
        before = values[window.start + found.history - 1].astype(np.float64)
        step = values[window.targets[0]] - before
        count += len(step)
        total, square = total + step.sum(axis=0), square + (step**2).sum(axis=0)
    mean = total / count
    return np.asarray(mean), np.sqrt(np.maximum(square / count - mean**2, 0))
