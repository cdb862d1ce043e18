"""What is read from files, and how: declared once, for all readers."""

import csv
import dataclasses
from collections.abc import Collection, Sequence

from opjax.files.expressions import Expression, parse_named

# Names of fields: a sequence, or a text with commas.
Names = Sequence[str]
LOCATIONS = ("points", "cells")
GEOMETRY = ("normals", "distance", "layers")
MAX_BYTES = 2**33


def parse_names(names: Names) -> tuple[str, ...]:
    """Turns names with commas between them into a tuple.

    A name that has a comma itself is put into double quotes: `"Stress, Mises",U`.

    Raises:
      ValueError: if a name is given twice.

    Examples:
      >>> from opjax import files
      >>> files.parse_names('U, "Stress, Mises"')
      ('U', 'Stress, Mises')
    """
    if isinstance(names, str):
        names = next(csv.reader([names], skipinitialspace=True), [])
    stripped = tuple(name.strip() for name in names if name.strip())
    if len(set(stripped)) < len(stripped):
        raise ValueError(f"Every field can be named once, not {','.join(stripped)!r}.")
    return stripped


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Which arrays of files make a sample, and how they are read.

    Names are given as a sequence or as one text with commas, see `parse_names`, and are
    kept as tuples.

    Args:
      features: names of fields that together are the input function, scalars and
        vectors. By default `features`, where it exists. Of series, constant fields.
      target: names of the fields to predict; by default `target`, where it exists. Of
        series, the fields that evolve.
      scalars: names of numbers that are given for the whole sample, see `files.cases`:
        arrays of one number, in VTK files field data, or columns of a table
        `cases.csv` in the folder of the files.
      target_scalars: names of such numbers to predict.
      numbers: names of such numbers that become `Sample.numbers`, for scales.
      point_dim: of VTK files, whose points have three coordinates: the number of
        leading axes that are space, others being constant. By default all axes on
        which coordinates vary, so that a mesh in a plane is 2-D, and so is one that is
        one cell thick, as OpenFOAM's of two-dimensional flows. 3 keeps all in space.
      quadrature: make weights of the points from the cells where a file has none;
        points of no cell get zero weight, which masks them.
      location: `"cells"` for fields with one row for each cell: the points of a sample
        are then the cells' centres of mass, and its quadrature weights their volumes
        (areas). VTK files have them as cell data, others as arrays of as many rows as
        `cells`. Of a mixed mesh, cells of the highest dimension count.
      boundary_names: named boundaries, which become features that are one there and
        zero elsewhere, and `Sample.boundaries`. In VTK files they are masks
        `boundary_NAME`, or numbers `boundary` with or without names in the field data
        `boundary_names`, at points or cells; in others, arrays `boundary_NAME` of point
        indices or booleans, or numbers `boundary` of the points. A set of points or
        cells may also be an array `NAME` of zeros and ones.
      boundary: more named boundaries, by conditions: `"clamp: x < 1e-6; hole:
        (x-5)^2 + y^2 < 1.01"`, see `files.expressions`. Names in them are coordinates,
        fields of one channel at points, numbers of the case, or fields at cells alone.
        Of a mesh with cells, only points of its boundary count.
      facets: keep how to integrate over named boundaries, `Sample.patches`.
      geometry: `"normals"`, `"distance"`, `"layers"` or several, features of the
        shape: the outward unit normal of the nearest facet, the distance to it, and
        functions of the distance that decay, see `geometry.layers`, of each named
        boundary, or of the mesh's boundary if none is named.
      grid_axes: number of axes of the grid on which fields lie in files that have no
        points: 2 for arrays `(h, w)` or `(h, w, channels)`, on a uniform grid of the
        unit square; of series, `(t, h, w)`. 0 for files with points.
      stacked: whether every array of a file has samples along axis 0: `.npz` and `.h5`
        files, or folders of one `.npy` file for each array. `mesh_points`, `cells`,
        `quadrature_weights` and `grid_shape` may also be one for all samples, with an
        axis less.
      need_target: whether a missing field or scalar to predict is an error; samples
        have no target otherwise.
      max_bytes: largest size of the arrays of a file, uncompressed; of a sample, if
        they are stacked.

    Raises:
      ValueError: if there is no such grid, location or feature, a field is named twice,
        or options do not go together.

    Examples:
      >>> from opjax import files
      >>> options = files.ReadOptions(features="k,f", target="u", quadrature=True)
      >>> options.features, options.fields
      (('k', 'f'), ('k', 'f', 'u'))
      >>> files.ReadOptions(location="faces")
      Traceback (most recent call last):
          ...
      ValueError: location='faces' is unknown; choose from points, cells.
    """

    features: Names = ()
    target: Names = ()
    scalars: Names = ()
    target_scalars: Names = ()
    numbers: Names = ()
    point_dim: int | None = None
    quadrature: bool = False
    location: str = "points"
    boundary_names: Names = ()
    boundary: str = ""
    facets: bool = False
    geometry: Names = ()
    grid_axes: int = 0
    stacked: bool = False
    need_target: bool = True
    max_bytes: int = MAX_BYTES

    def __post_init__(self):
        """Keeps names as tuples, and refuses what no reader could do."""
        for field in dataclasses.fields(self):
            if field.type == Names:
                names = parse_names(getattr(self, field.name))
                object.__setattr__(self, field.name, names)
        if not 0 <= self.grid_axes <= 3:
            raise ValueError(
                f"grid_axes={self.grid_axes} must be 1, 2 or 3, or 0 for points."
            )
        self._check_shape()
        self._check_scalars()

    def _check_shape(self) -> None:
        """Raises ValueError for an unknown value, and for options that mean nothing."""
        if self.location not in LOCATIONS:
            raise ValueError(
                f"location={self.location!r} is unknown; choose from "
                f"{', '.join(LOCATIONS)}."
            )
        if unknown := sorted(set(self.geometry) - set(GEOMETRY)):
            raise ValueError(f"geometry={unknown} is unknown; choose from {GEOMETRY}.")
        if self.quadrature and self.location == "cells":
            raise ValueError(
                "quadrature=True means nothing with location='cells', whose quadrature "
                "weights are the volumes of the cells; leave it out."
            )
        of_cells = ("location", "boundary_names", "boundary", "geometry")
        twice = sorted({*self.boundary_names} & {*self.conditions})
        if twice:
            raise ValueError(
                f"The boundary {twice[0]} is in boundary_names and in boundary; name "
                "it once."
            )
        others = [name for name in self.given() if name in of_cells]
        if self.grid_axes and others:
            raise ValueError(
                f"{others[0]} means nothing with grid_axes={self.grid_axes}, whose "
                "files have no cells; leave one of them out."
            )

    def _check_scalars(self) -> None:
        """Raises ValueError for a scalar that has two roles."""
        scalars, targets = self.scalars, self.target_scalars
        for name in (*scalars, *targets):
            fields = name in (*self.features, *self.target)
            if fields or name in scalars and name in targets:
                raise ValueError(
                    f"{name} is named as a scalar and as something else; it can be one "
                    "of scalar_names, target_scalars, feature_names and target_names. "
                    f"Rename the scalar, for example to {name}_inlet in cases.csv."
                )
            if name in ("file", "split"):
                raise ValueError(
                    f"A scalar cannot be named {name}, a column of the table."
                )
        if twice := [name for name in self.numbers if name in scalars]:
            raise ValueError(
                f"{twice[0]} is named as a scalar and as a number; numbers are those "
                "that no model is given. Name it once."
            )

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all fields of points or cells that are looked for."""
        return (*(self.features or ("features",)), *(self.target or ("target",)))

    @property
    def conditions(self) -> dict[str, Expression]:
        """Conditions of boundaries, by name."""
        return parse_named(self.boundary, condition=True)

    @property
    def needs_shape(self) -> bool:
        """Whether boundaries, features of the shape or facets are asked for."""
        return bool(
            self.boundary_names or self.boundary or self.geometry or self.facets
        )

    @property
    def has_scalars(self) -> bool:
        """Whether a sample has numbers of its own, which a table may hold."""
        names = {name for one in self.conditions.values() for name in one.names}
        named = self.scalars or self.target_scalars or self.numbers
        return bool(named or names - {"x", "y", "z"})

    def given(self) -> list[str]:
        """Names of the options that are not as by default."""
        return [
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]

    def check_only(self, names: Collection[str], where: str) -> None:
        """Raises ValueError for an option that a reader does not know.

        Args:
          names: of the options that it knows.
          where: what it reads.
        """
        for name in self.given():
            if name not in names:
                raise ValueError(
                    f"{name}={getattr(self, name)} means nothing for {where}; leave it "
                    "out."
                )


DEFAULT = ReadOptions()
