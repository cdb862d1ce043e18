"""Samples of your own files, divided for training, validation and tests."""

from collections.abc import Iterable, Sequence

import numpy as np

from opjax.files import cases, repeats
from opjax.files.formats import OnePath, find
from opjax.files.reading import (
    MAX_BYTES,
    How,
    Names,
    look_at_all,
    read_all,
    wanted_of,
)
from opjax.samples import Sample, Splits
from opjax.samples.stored import Stored


def splits(
    train: Sequence[OnePath],
    test: Sequence[OnePath] = (),
    *,
    validation_fraction: float = 0.1,
    test_fraction: float = 0.2,
    num_train: int = 0,
    num_validation: int = 0,
    num_test: int = 0,
    seed: int = 0,
    in_memory: bool = True,
    features: Names = None,
    target: Names = None,
    point_dim: int | None = None,
    quadrature: bool = False,
    grid_axes: int = 0,
    stacked: bool = False,
    max_bytes: int = MAX_BYTES,
    location: str = "points",
    boundary_names: Names = None,
    geometry: Names = None,
    scalars: Names = None,
    target_scalars: Names = None,
) -> Splits:
    """Reads samples and divides them at random.

    Args:
      train: folders, files or patterns of the training samples, see `find`.
      test: likewise, of the test set. If empty, a part of the training samples.
      validation_fraction: part of the training samples for validation, at least one.
      test_fraction: part of the training samples for the test set, if `test` is empty.
      num_train: maximum number of training samples. 0 uses all of them.
      num_validation: maximum number of validation samples, likewise.
      num_test: maximum number of test samples, likewise.
      seed: of the division.
      in_memory: whether samples are kept in memory. Otherwise a sample is read from its
        file whenever it is looked up, see `stored`.
      features: see `read`; likewise the others.
      target: names of the fields to predict.
      point_dim: number of leading axes that are space.
      quadrature: make weights of the points from the cells.
      grid_axes: number of axes of the grid of files without points.
      stacked: whether arrays have samples along axis 0.
      max_bytes: largest size of the arrays of a file.
      location: whether fields are at points or at cells.
      boundary_names: named boundaries that become features.
      geometry: features of the shape.
      scalars: numbers that are given for the whole sample. A column `split` of
        `cases.csv`, see `files.cases`, divides the samples in place of the fractions,
        also without scalars.
      target_scalars: numbers of the whole sample to predict.

    Returns:
      The splits, with the names of the channels.

    Raises:
      OSError: if there are no files.
      ValueError: if a file is damaged, has no target or is in both lists; samples do
        not agree; or they are too few to be divided.
    """
    wanted = wanted_of(
        features,
        target,
        True,
        quadrature,
        grid_axes,
        location=location,
        boundary_names=boundary_names,
        geometry=geometry,
        scalars=scalars,
        target_scalars=target_scalars,
    )
    how = How(wanted, point_dim, stacked, max_bytes)
    read = read_all if in_memory else look_at_all
    found, channels, parts, first, seen = read(train, how)
    if found[0].target is None and found[0].target_scalars is None:
        raise ValueError(
            f"{found[0].name} has no array 'target'; name what to predict, "
            "target_names=... or target_scalars=..."
        )
    tests = None
    if test:
        _check_apart(train, test, stacked)
        others = read(test, how, like=first)
        tests, seen = others.samples, [*seen, *others.seen]
    repeats.warn(seen)
    if any(parts):
        rows = cases.rows_of_parts(parts, given=bool(test))
        chosen, validation, tests = (_take(found, rows[part]) for part in cases.PARTS)
        divided = Splits(chosen, validation, tests, "own samples")
    else:
        divided = divide(
            found,
            tests,
            validation_fraction=validation_fraction,
            test_fraction=test_fraction,
            seed=seed,
        )
    return Splits(
        divided.train[: num_train or None],
        divided.validation[: num_validation or None],
        divided.test[: num_test or None],
        f"own files ({','.join(map(str, train))})",
        channels=channels,
    )


def divide(
    found: Sequence[Sample],
    tests: Sequence[Sample] | None = None,
    *,
    validation_fraction: float = 0.1,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Splits:
    """Divides samples at random for training, validation and tests.

    Args:
      found: the samples.
      tests: the test set; a part of `found` if None.
      validation_fraction: part of the training samples for validation, at least one.
      test_fraction: part of the samples for the test set, if it is not given.
      seed: of the division.

    Raises:
      ValueError: if they are too few to be divided.
    """
    rows = rows_at_random(
        len(found),
        validation_fraction=validation_fraction,
        test_fraction=test_fraction if tests is None else None,
        seed=seed,
        what="samples",
    )
    kept, validation, test = (_take(found, rows[part]) for part in cases.PARTS)
    return Splits(kept, validation, test if tests is None else tests, "own samples")


def rows_at_random(
    count: int,
    *,
    validation_fraction: float,
    test_fraction: float | None,
    seed: int,
    what: str,
) -> dict[str, list[int]]:
    """Numbers of samples, or of series, for each of `cases.PARTS`.

    Args:
      count: how many there are.
      validation_fraction: part of those that are not for tests, at least one.
      test_fraction: part of all, at least one; None where tests are given besides.
      seed: of the division.
      what: name of what is divided.

    Raises:
      ValueError: if they are too few to be divided.
    """
    kept = np.random.default_rng(seed).permutation(count).tolist()
    test: list[int] = []
    if test_fraction is not None:
        kept, test = _cut(kept, test_fraction, f"test_fraction={test_fraction}", what)
    name = f"validation_fraction={validation_fraction}"
    kept, validation = _cut(kept, validation_fraction, name, what)
    return dict(zip(cases.PARTS, (kept, validation, test), strict=True))


def _check_apart(
    train: Sequence[OnePath], test: Sequence[OnePath], stacked: bool
) -> None:
    both = {p.resolve() for p in find(train, stacked=stacked)}
    both &= {p.resolve() for p in find(test, stacked=stacked)}
    if both:
        raise ValueError(
            f"{len(both)} files are in train and in test, such as {min(both)}; a "
            "test needs other samples."
        )


def _take(found: Sequence[Sample], rows: Iterable[int]) -> Sequence[Sample]:
    return found.take(rows) if isinstance(found, Stored) else [found[i] for i in rows]


def _cut(
    rows: list[int], fraction: float, name: str, what: str
) -> tuple[list[int], list[int]]:
    """Cuts off a part of the rows, at least one."""
    count = max(1, round(fraction * len(rows)))
    if count >= len(rows):
        raise ValueError(
            f"{name} of {len(rows)} {what} leaves none for training; give more {what}, "
            "or a test set of its own."
        )
    return rows[:-count], rows[-count:]
