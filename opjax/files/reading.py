"""Samples from `.npz`, `.h5` and VTK files and surfaces.

One file, or one group in HDF5, contains one sample on one mesh. Arrays are found by
name:

    mesh_points         coordinates (n, p); in VTK files the points of the mesh
    features            input function (n, c), or (n,), if there is one
    target              output function (n, q), or (n,), where it is known
    quadrature_weights  weights of the points (n,)
    cells               point indices of the cells (m, corners)
    grid_shape          points per axis, of a structured grid in row-major order

Fields with other names are selected with `ReadOptions`.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from opjax import samples
from opjax.files import building, cases, repeats
from opjax.files.building import Built
from opjax.files.formats import Paths, find, opened
from opjax.files.npz import Arrays
from opjax.files.options import DEFAULT, ReadOptions
from opjax.samples import Sample, layout, narrowing, summaries
from opjax.samples.stored import Place, Stored


def read(paths: Paths, options: ReadOptions = DEFAULT) -> list[Sample]:
    """Reads samples without unpickling, and checks that all fit the same model.

        samples = files.read("data", files.ReadOptions(features="k,f", target="u"))

    Coinciding points (in float32, to which all arrays are rounded) are kept, with a
    warning. Meshes with cracks have them, and so do coordinates with a large offset,
    which should be subtracted.

    Args:
      paths: folder or files, see `find`; they are read in order of their names.
      options: content of a sample.

    Returns:
      The samples in float32; their `name` is the file, with the group or the row.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py or VTK is needed but missing.
      ValueError: if a file is damaged, pickled, too large or of an unknown format; an
        array is missing, not real-valued, not finite or of the wrong shape; cells refer
        to points that do not exist; or samples differ in dimension or channels.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import files
      >>> points = np.random.default_rng(0).uniform(size=(5, 2))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i in range(3):
      ...         k, u = points + i, points[:, 0] + i
      ...         np.savez(f"{folder}/case_{i}.npz", mesh_points=points, k=k, u=u)
      ...     samples = files.read(folder, files.ReadOptions(features="k", target="u"))
      >>> len(samples), samples[0].features.shape, samples[0].target.shape
      (3, (5, 2), (5, 1))
    """
    return read_all(paths, options)[0]


def stored(paths: Paths, options: ReadOptions = DEFAULT) -> Stored:
    """Checks samples one by one like `read`, but leaves them on disk.

    Args:
      paths: see `read`.
      options: content of a sample.

    Returns:
      The same samples, each of which is read from its file on every access.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py or VTK is needed but missing.
      ValueError: as for `read`.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import files
      >>> points = np.random.default_rng(0).uniform(size=(3, 5, 2))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i, mesh in enumerate(points):
      ...         np.savez(f"{folder}/{i}.npz", mesh_points=mesh, target=mesh[:, 0])
      ...     samples = files.stored(folder)
      ...     print(len(samples), samples[2].target.shape)  # reads one file
      3 (5, 1)
    """
    return look_at_all(paths, options)[0]


def first(paths: Paths, options: ReadOptions = DEFAULT) -> Built:
    """Reads only the first sample, for checks before all are read.

    Args:
      paths: see `read`.
      options: content of a sample.

    Raises:
      OSError: if there are no files.
      ValueError: as for `read`.
    """
    for _, built in _each(find(paths, stacked=options.stacked)[:1], options):
        return built
    raise ValueError(f"No samples found in {paths}.")


def build(place: Place, arrays: Arrays, options: ReadOptions) -> Built:
    """Builds a sample from its arrays and its row in a table of cases."""
    row = cases.row_of(Path(place.file), place.group, named=options.has_scalars)
    return building.build(place.name, arrays, options, row)


class Survey:
    """Collects the checks of samples one by one, and reports them at the end.

    Args:
      options: options of reading.
      like: a sample of another set, which must lie in the same plane.

    Attributes:
      parts: split of each sample according to the table.
      seen: digests of each sample, to find repeated samples.
    """

    def __init__(self, options: ReadOptions, like: Built | None):
        self._options, self._like = options, like
        self._first: Built | None = None
        self.parts: list[str] = []
        self._duplicates: list[tuple[str, int]] = []
        self._moved: list[tuple[str, float]] = []
        self.seen: list[repeats.Seen] = []
        self._senses: list[tuple[str, tuple[int, ...]]] = []
        self._layers: list[tuple[str, int | None]] = []

    @property
    def first(self) -> Built:
        """The first sample, with which all others must be consistent."""
        assert self._first is not None, "a sample"
        return self._first

    def look_at(self, built: Built) -> None:
        """Checks a sample against the first one, and records possible warnings.

        Raises:
          ValueError: if it is inconsistent.
        """
        first = self._first = self._first or built
        building.check_agree(first.sample, built.sample)
        building.check_plane(self._like or first, built, self._options.point_dim)
        sample = built.sample
        self.parts.append(built.part)
        self._duplicates.append(building.num_duplicates(sample))
        self._moved.append((sample.name, built.moved))
        self.seen.append(repeats.seen(sample, built.time))
        sense = layout.sense(sample.mesh_points, sample.grid_shape)
        self._senses.append((sample.name, sense))
        layer = None if built.plane is None else built.plane.layer
        self._layers.append((sample.name, layer))

    def warn(self) -> None:
        """Warns about everything doubtful, once for each kind."""
        building.warn_of_duplicates(self._duplicates)
        building.warn_of_offsets(self._moved, self._duplicates)
        layout.check_axes(self._senses)
        building.warn_of_layers(self._layers)
        if self._options.grid_axes:
            building.warn_of_channels_first(self.first)


def read_all(
    paths: Paths, options: ReadOptions, *, like: Built | None = None
) -> tuple[list[Sample], Survey]:
    """Reads samples, see `read`; in the same plane as `like`, if given."""
    every: list[Sample] = []
    survey = Survey(options, like)
    for _, built in _each(find(paths, stacked=options.stacked), options):
        every.append(built.sample)
        survey.look_at(built)
    every = narrowing.narrow_samples(every)
    samples.check(every)
    survey.warn()
    return every, survey


def look_at_all(
    paths: Paths, options: ReadOptions, *, like: Built | None = None
) -> tuple[Stored, Survey]:
    """Checks samples and leaves them on disk, see `stored` and `read_all`."""
    files = find(paths, stacked=options.stacked)
    if options.stacked and files[0].suffix.lower() == ".npz":
        raise ValueError(
            f"{files[0]} cannot be read row by row, as needed for samples on disk; "
            "save an .h5 file or a folder of .npy files, or load it completely."
        )
    places: list[Place] = []
    looked_at: list[summaries.Summary] = []
    scalars: list[dict[str, np.ndarray | None]] = []
    survey = Survey(options, like)
    for place, built in _each(files, options):
        survey.look_at(built)
        samples.check([built.sample])
        places.append(place)
        looked_at.append(summaries.summarize(built.sample))
        scalars.append(narrowing.scalars_of(built.sample))
    survey.warn()
    read_one = partial(_one, options, narrowing.single_scalars(scalars))
    return Stored(places, looked_at, read_one), survey


def _each(files: Iterable[Path], options: ReadOptions) -> Iterator[tuple[Place, Built]]:
    """Reads the samples of files, and says where they are."""
    for file in files:
        with opened(file, options) as groups:
            for group, arrays in groups.items():
                place = Place(str(file), group)
                yield place, build(place, arrays, options)


def _one(options: ReadOptions, singles: Sequence[str], place: Place) -> Sample:
    """Reads one sample again, with some kinds of its scalars in single precision."""
    with opened(Path(place.file), options, group=place.group) as groups:
        sample = build(place, groups[place.group], options).sample
        return narrowing.with_single(sample, singles)
