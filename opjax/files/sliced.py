"""Samples of `.h5` and `.vtu` files that are larger than memory, for training."""

import contextlib
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path

from opjax.files import cases, hdf5, mapped
from opjax.files.division import check_apart
from opjax.files.formats import Paths, find
from opjax.files.options import DEFAULT, ReadOptions
from opjax.files.vtk import vtu_slices
from opjax.samples.base import check_plane
from opjax.samples.division import SHARES, Divided, Shares
from opjax.samples.sliced import Column, Sliced, channels, summarize
from opjax.samples.stored import Place
from opjax.samples.summaries import Summary


def read_sliced(paths: Paths, options: ReadOptions = DEFAULT) -> Sliced:
    """Scans files once in slices of points, and leaves their arrays on disk.

    Args:
      paths: folder, files or patterns, as for `read`: `.h5` files of one sample or one
        group per sample, and `.vtu` files.
      options: content of a sample; fields must be point data.

    Returns:
      The samples, none of which is in memory.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py is needed but missing.
      ValueError: if a file has another format or is damaged, a field is missing or
        invalid, samples differ in their channels, or an option does not support slices.

    Examples:
      >>> import tempfile
      >>> import h5py
      >>> import numpy as np
      >>> from opjax import files
      >>> points = np.random.default_rng(0).uniform(size=(5, 2))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with h5py.File(f"{folder}/large.h5", "w") as file:
      ...         file["mesh_points"], file["target"] = points, points[:, :1]
      ...     len(files.read_sliced(f"{folder}/large.h5"))
      1
    """
    look = partial(opened, options=options)
    places: list[Place] = []
    looked_at: list[Summary] = []
    weighted: set[bool] = set()
    for file in find(paths):
        for place in places_of(file):
            with look(place) as arrays:
                name = place.name
                if not {"target", "target_scalars"} & arrays.keys():
                    target = ", ".join(options.target) or "target"
                    raise ValueError(
                        f"{name} has no field {target} to predict; pass "
                        "target_names=... with the fields to predict."
                    )
                weighted.add("quadrature_weights" in arrays)
                summary = summarize(name, arrays)
            places.append(place)
            looked_at.append(summary)
            check_plane(places[0].name, looked_at[0].axes, name, summary.axes)
            if channels(summary) != channels(looked_at[0]) or len(weighted) > 1:
                raise ValueError(
                    f"{name} has the channels {channels(summary)}, weights: "
                    f"{'quadrature_weights' in arrays}; the first sample, "
                    f"{places[0].name}, has {channels(looked_at[0])}: all samples "
                    "of a data set must be consistent."
                )
    return Sliced(places, looked_at, weighted=weighted == {True}, opened=look)


class SlicedSplits(Divided[Sliced]):
    """Samples larger than memory, split into training, validation and test sets.

    If there is only one mesh that does not fit into memory, the same sample is used for
    training and test, without validation.

    Examples:
      >>> import tempfile
      >>> import h5py
      >>> import numpy as np
      >>> from opjax import files
      >>> points = np.random.default_rng(0).uniform(size=(4, 5, 2))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i, mesh in enumerate(points):
      ...         with h5py.File(f"{folder}/{i}.h5", "w") as file:
      ...             file["mesh_points"], file["target"] = mesh, mesh[:, :1]
      ...     splits = files.sliced_splits(folder)
      >>> isinstance(splits, files.SlicedSplits), len(splits.train)
      (True, 2)
    """

    one_is_enough = True


def sliced_splits(
    train: Paths,
    test: Paths = (),
    options: ReadOptions = DEFAULT,
    shares: Shares = SHARES,
) -> SlicedSplits:
    """Splits samples that are larger than memory.

    Args:
      train: folders, files or patterns, see `read_sliced`.
      test: the same for the test set. If empty, a fraction of the training samples is
        held out.
      options: content of a sample.
      shares: fractions of the split. A column `split` of `cases.csv`, see
        `files.cases`, takes precedence over the fractions, even if no scalars are
        requested.

    Returns:
      The samples, on disk.

    Raises:
      OSError: if there are no files.
      ValueError: as from `read_sliced`, or if a file is in both lists.

    Examples:
      >>> import tempfile
      >>> import h5py
      >>> import numpy as np
      >>> from opjax import files
      >>> points = np.random.default_rng(0).uniform(size=(4, 5, 2))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i, mesh in enumerate(points):
      ...         with h5py.File(f"{folder}/{i}.h5", "w") as file:
      ...             file["mesh_points"], file["target"] = mesh, mesh[:, :1]
      ...     splits = files.sliced_splits(folder)
      >>> len(splits.train), len(splits.validation), len(splits.test)
      (2, 1, 1)
    """
    sliced, tests = read_sliced(train, options), None
    if test:
        check_apart(find(train), find(test), "files")
        tests = read_sliced(test, options)
        check_plane(
            sliced.places[0].name,
            sliced.summaries[0].axes,
            tests.places[0].name,
            tests.summaries[0].axes,
        )
    rows = (
        cases.row_of(Path(place.file), place.group, named=options.has_scalars)
        for place in sliced.places
    )
    parts = ["" if row is None else row.part for row in rows]
    divided = SlicedSplits.divide(sliced, tests, shares, parts=parts)
    return divided._replace(source=f"own files ({train})")


def places_of(file: Path) -> list[Place]:
    """Returns the samples of a file.

    Args:
      file: an `.h5` or `.vtu` file.

    Raises:
      ValueError: if it is another kind of file, or damaged.
    """
    suffix = file.suffix.lower()
    if suffix == ".vtu":
        return [Place(str(file), "")]
    if suffix not in hdf5.SUFFIXES:
        raise ValueError(
            f"{file} cannot be read in slices; only .h5 and .vtu files can."
        )
    with hdf5.open_groups(file) as groups:
        return [Place(str(file), key) for key in groups]


@contextlib.contextmanager
def opened(place: Place, options: ReadOptions) -> Generator[Mapping[str, Column]]:
    """Opens the arrays of a sample.

    Args:
      place: location of the sample.
      options: content of a sample.

    Raises:
      OSError: if the file is missing.
      ValueError: as from `read_sliced`.
    """
    file = Path(place.file)
    if file.suffix.lower() == ".vtu":
        with vtu_slices.open_mesh(file) as mesh:
            arrays = mapped.fields_of(file, mesh, options)
            yield mapped.columns(place, arrays, arrays.__getitem__, options)
        return
    if options.point_dim is not None:
        raise ValueError(
            f"point_dim={options.point_dim} has no effect on {file}; omit it."
        )
    with hdf5.open_groups(file) as groups:
        group = groups[place.group]
        lookup = partial(hdf5.dataset, Path(place.name), group)
        yield mapped.columns(place, hdf5.names(file, group), lookup, options)
