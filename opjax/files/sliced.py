"""Samples of `.h5` and `.vtu` files that are larger than memory, for training."""

import contextlib
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.files import cases, hdf5, mapped
from opjax.files.formats import Paths, find
from opjax.files.mapped import row_of
from opjax.files.vtk import fields as vtk_fields
from opjax.files.vtk import vtu_slices
from opjax.samples.sliced import Column, Sliced, channels, summarize
from opjax.samples.stored import Place


def read_sliced(
    paths: Paths,
    *,
    features: Sequence[str] = (),
    target: Sequence[str] = (),
    point_dim: int | None = None,
    scalars: Sequence[str] = (),
    target_scalars: Sequence[str] = (),
) -> Sliced:
    """Looks at files once, in slices of points, and leaves their arrays there.

    Args:
      paths: folder, files or patterns, as for `read`: `.h5` files, of one sample or of
        a group for each, and `.vtu` files.
      features: names of the fields that together are the input function; by default
        `features`, where it exists.
      target: names of the fields to predict; by default `target`.
      point_dim: number of leading axes that are space, of `.vtu` files.
      scalars: names of the numbers that are given for the whole sample, see
        `files.cases`.
      target_scalars: names of such numbers to predict.

    Returns:
      The samples, none of which is in memory.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py is needed and missing.
      ValueError: if a file is of another format or damaged, a field is missing or not
        what it has to be, or samples differ in their channels.
    """
    asked = {"features": tuple(features), "target": tuple(target)}
    asked |= {"scalars": tuple(scalars), "target_scalars": tuple(target_scalars)}
    look = partial(opened, asked=asked, point_dim=point_dim, need_scalars=True)
    places, known = [], []
    weighted: set[bool] = set()
    for file in find(paths):
        for place in places_of(file):
            with look(place) as arrays:
                name = name_of(place)
                if not {"target", "target_scalars"} & arrays.keys():
                    raise ValueError(
                        f"{name} has no field {', '.join(target) or 'target'} to learn "
                        "from; name what to predict, target_names=..."
                    )
                weighted.add("quadrature_weights" in arrays)
                found = summarize(name, arrays)
            places.append(place)
            known.append(found)
            if channels(found) != channels(known[0]) or len(weighted) > 1:
                raise ValueError(
                    f"{name} has channels {channels(found)}, weights: "
                    f"{'quadrature_weights' in arrays}; the first sample, "
                    f"{name_of(places[0])}, has {channels(known[0])}: all samples of a "
                    "data set must agree."
                )
    return Sliced(places, known, weighted=weighted == {True}, opened=look)


class SlicedSplits(NamedTuple):
    """Samples that are larger than memory, divided as `Splits` are.

    Attributes:
      train: for training.
      validation: chooses the model; empty if there is one training sample.
      test: used once; the training sample, if there is one sample in all.
      source: where they come from.
    """

    train: Sliced
    validation: Sliced
    test: Sliced
    source: str


def sliced_splits(
    train: Paths,
    test: Paths = (),
    *,
    features: Sequence[str] = (),
    target: Sequence[str] = (),
    point_dim: int | None = None,
    scalars: Sequence[str] = (),
    target_scalars: Sequence[str] = (),
    validation_fraction: float = 0.1,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> SlicedSplits:
    """Divides samples that are larger than memory, at random.

    One mesh that does not fit into memory is often all there is: a single sample is
    trained on and tested.

    Args:
      train: folders, files or patterns, see `read_sliced`.
      test: folders, files or patterns of the test set; if empty, a part of the training
        samples is held out.
      features: see `read_sliced`.
      target: see `read_sliced`.
      point_dim: see `read_sliced`.
      scalars: see `read_sliced`. A column `split` of `cases.csv`, see `files.cases`,
        divides the samples in place of the fractions, also without scalars.
      target_scalars: see `read_sliced`.
      validation_fraction: part of the training samples for validation, at least one.
      test_fraction: part of the training samples for tests, where there are no others.
      seed: of the division.

    Returns:
      The samples, on disk.

    Raises:
      OSError: if there are no files.
      ValueError: as from `read_sliced`, or if a file is in both lists.
    """
    read = partial(
        read_sliced,
        features=features,
        target=target,
        point_dim=point_dim,
        scalars=scalars,
        target_scalars=target_scalars,
    )
    found = read(train)
    rows = np.random.default_rng(seed).permutation(len(found)).tolist()
    source = f"own files ({train})"
    parts = _parts(found.places, named=bool(scalars or target_scalars))
    if any(parts):
        of_part = cases.rows_of_parts(parts, given=bool(test))
        kept, validation, tests = (found.take(of_part[part]) for part in cases.PARTS)
        return SlicedSplits(kept, validation, tests, source)
    if test:
        both = {p.resolve() for p in find(train)} & {p.resolve() for p in find(test)}
        if both:
            raise ValueError(
                f"{len(both)} files are in train and in test, such as {min(both)}; a "
                "test needs other samples."
            )
        tests = read(test)
    elif len(rows) == 1:
        return SlicedSplits(found, found.take([]), found, source)
    else:
        held = _count(test_fraction, len(rows))
        rows, tests = rows[:-held], found.take(rows[-held:])
    held = _count(validation_fraction, len(rows)) if len(rows) > 1 else 0
    kept = len(rows) - held
    return SlicedSplits(found.take(rows[:kept]), found.take(rows[kept:]), tests, source)


def _parts(places: Sequence[Place], *, named: bool) -> list[str]:
    """What a table of cases says that samples are for; empty where it does not."""
    rows = (row_of(Path(place.file), place.group, named=named)[0] for place in places)
    return ["" if row is None else row.get("split", "") for row in rows]


def _count(fraction: float, available: int) -> int:
    """How many of the samples are held out: at least one, and not all."""
    return min(max(1, round(fraction * available)), available - 1)


def name_of(place: Place) -> str:
    """What messages call a sample: its file, and its group if it is one.

    Args:
      place: of the sample.
    """
    return str(Path(place.file) / place.group) if place.group else place.file


def places_of(file: Path) -> list[Place]:
    """Returns the samples of a file.

    Args:
      file: an `.h5` or `.vtu` file.

    Raises:
      ValueError: if it is another file, or damaged.
    """
    suffix = file.suffix.lower()
    if suffix == ".vtu":
        return [Place(str(file), "")]
    if suffix not in hdf5.SUFFIXES:
        raise ValueError(
            f"{file} is read as a whole; only .h5 and .vtu files are read in slices."
        )
    with hdf5.open_groups(file) as groups:
        return [Place(str(file), key) for key in groups]


@contextlib.contextmanager
def opened(
    place: Place,
    *,
    asked: Mapping[str, tuple[str, ...]],
    point_dim: int | None,
    need_scalars: bool = False,
) -> Generator[Mapping[str, Column]]:
    """Opens the arrays of a sample.

    Args:
      place: of the sample.
      asked: see `mapped.columns`.
      point_dim: as for `read_sliced`.
      need_scalars: whether missing target scalars are an error.

    Raises:
      OSError: if the file is missing.
      ValueError: as from `read_sliced`.
    """
    file, name = Path(place.file), name_of(place)
    columns = partial(
        mapped.columns,
        place=(file, place.group),
        need_scalars=need_scalars,
        asked=asked,
    )
    if file.suffix.lower() == ".vtu":
        with vtu_slices.open_mesh(file) as mesh:
            axes = vtk_fields.axes(file, *mesh.ranges(), point_dim)
            points = vtu_slices.Axes(mesh.points, axes)
            found = {**mesh.fields, "mesh_points": points}
            yield columns(name, found, found.__getitem__)
        return
    if point_dim is not None:
        raise ValueError(f"{point_dim=} means nothing for {file}; leave it out.")
    with hdf5.open_groups(file) as groups:
        group = groups[place.group]
        present = hdf5.names(file, group)
        lookup = partial(hdf5.dataset, Path(name), group)
        yield columns(name, present, lookup)
