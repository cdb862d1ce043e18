"""Splits of your own files into training, validation and test sets."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from opjax._files import OnePath
from opjax.files import repeats
from opjax.files.formats import find
from opjax.files.options import DEFAULT, ReadOptions
from opjax.files.reading import look_at_all, read_all
from opjax.samples.division import SHARES, Shares, Splits


def splits(
    train: Sequence[OnePath],
    test: Sequence[OnePath] = (),
    options: ReadOptions = DEFAULT,
    shares: Shares = SHARES,
    *,
    in_memory: bool = True,
) -> Splits:
    """Reads samples and splits them.

    Args:
      train: folders, files or patterns of the training samples, see `find`.
      test: the same for the test set. If empty, a fraction of the training samples is
        held out.
      options: content of a sample.
      shares: fractions of the split. A column `split` of `cases.csv`, see
        `files.cases`, takes precedence over the fractions, even if no scalars are
        requested.
      in_memory: whether samples are kept in memory. Otherwise a sample is read from its
        file on every access, see `stored`.

    Returns:
      The splits, with the names of the channels.

    Raises:
      OSError: if there are no files.
      ValueError: if a file is damaged, has no target or is in both lists, samples are
        inconsistent, or there are too few to split.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import files
      >>> points = np.random.default_rng(0).uniform(size=(10, 5, 2))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i, mesh in enumerate(points):
      ...         np.savez(f"{folder}/{i}.npz", mesh_points=mesh, target=mesh[:, 0])
      ...     splits = files.splits([folder], shares=files.Shares(test_fraction=0.3))
      >>> len(splits.train), len(splits.validation), len(splits.test)
      (6, 1, 3)
    """
    stacked = options.stacked
    read = read_all if in_memory else look_at_all
    data, survey = read(train, options)
    if data[0].target is None and data[0].target_scalars is None:
        raise ValueError(
            f"{data[0].name} has no array 'target'; name what to predict, "
            "target_names=... or target_scalars=..."
        )
    tests, seen = None, survey.seen
    if test:
        check_apart(find(train, stacked=stacked), find(test, stacked=stacked), "files")
        tests, others = read(test, options, like=survey.first)
        seen = [*seen, *others.seen]
    repeats.warn(seen)
    divided = Splits.divide(data, tests, shares, parts=survey.parts)
    source = f"own files ({','.join(map(str, train))})"
    return divided._replace(source=source, channels=survey.first.channels)


def check_apart(
    train: Iterable[Path], test: Iterable[Path], kind: str, others: str = "samples"
) -> None:
    """Raises ValueError if a file is in both sets.

    Args:
      train: files of the training set.
      test: files of the test set.
      kind: name of the files in messages.
      others: required test data, for messages.
    """
    both = {*map(Path.resolve, train)} & {*map(Path.resolve, test)}
    if both:
        raise ValueError(
            f"{len(both)} {kind} are in both train and test, such as {min(both)}; "
            f"the test set needs different {others}."
        )
