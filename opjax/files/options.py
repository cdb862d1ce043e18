"""Options of reading files, declared once for all readers."""

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
    """Converts comma-separated names to a tuple.

    A name that contains a comma is put into double quotes: `"Stress, Mises",U`.

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
        raise ValueError(
            f"Name every field only once: {','.join(stripped)!r} has repetitions."
        )
    return stripped


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Which arrays of files make up a sample, and how they are read.

    Names are a sequence or one comma-separated text, see `parse_names`, and are stored
    as tuples.

    Args:
      features: names of the fields that make up the input function, scalars and
        vectors. The default is `features`, if it exists. For series, these fields are
        constant.
      target: names of the fields to predict; by default `target`, if it exists. For
        series, these are the evolving fields.
      scalars: names of scalar inputs of the sample, see `files.cases`: arrays of one
        number, field data in VTK files, or columns of a table `cases.csv` in the folder
        of the files.
      target_scalars: names of scalars to predict.
      numbers: names of scalars for `Sample.numbers`, which scales use.
      point_dim: for VTK files, whose points have three coordinates: the number of
        leading axes that are space; the other coordinates must be constant. The default
        is all axes on which coordinates vary, so a planar mesh is 2-D. A mesh that is
        one cell thick is 2-D too, as in OpenFOAM's two-dimensional flows. 3 keeps all
        axes.
      quadrature: compute weights of the points from the cells if a file has none;
        points without a cell get zero weight, which masks them.
      location: `"cells"` for fields with one row per cell: the points of a sample are
        then the cell centroids, and its quadrature weights their volumes (areas). VTK
        files store such fields as cell data, others as arrays with as many rows as
        `cells`. In a mixed mesh, only cells of the highest dimension are used.
      boundary_names: named boundaries, which become `Sample.boundaries` and indicator
        features (one on the boundary, zero elsewhere). In VTK files they are masks
        `boundary_NAME`, or numbers `boundary` with optional names in the field data
        `boundary_names`, at points or cells. In other files they are arrays
        `boundary_NAME` of point indices or booleans, or numbers `boundary` of the
        points. A set of points or cells may also be an array `NAME` of zeros and ones.
      boundary: additional named boundaries, defined by conditions: `"clamp: x < 1e-6;
        hole: (x-5)^2 + y^2 < 1.01"`, see `files.expressions`. A condition may contain
        coordinates, point fields of one channel, scalars of the case, or only cell
        fields. If the mesh has cells, only its boundary points are included.
      facets: store the quadrature rules on named boundaries, `Sample.patches`.
      geometry: geometric features: `"normals"`, `"distance"`, `"layers"` or several.
        They are the outward unit normal of the nearest facet, the distance to it, and
        decaying functions of the distance, see `geometry.layers`; for each named
        boundary, or for the boundary of the mesh if none is named.
      grid_axes: number of grid axes of the fields in files without points: 2 for arrays
        `(h, w)` or `(h, w, channels)`, on a uniform grid of the unit square; for
        series, `(t, h, w)`. 0 for files with points.
      stacked: whether every array of a file has samples along axis 0: `.npz` and `.h5`
        files, or folders with one `.npy` file per array. `mesh_points`, `cells`,
        `quadrature_weights` and `grid_shape` may also be shared by all samples, with
        one axis less.
      need_target: whether a missing target is an error; otherwise samples have no
        target.
      max_bytes: maximum size of the arrays of a file, uncompressed; of one sample, if
        they are stacked.

    Raises:
      ValueError: if a grid, location or feature is unknown, a field is named twice, or
        options are incompatible.

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
                "quadrature=True has no effect with location='cells', because the "
                "quadrature weights are the volumes of the cells; omit it."
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
                f"{others[0]} has no effect with grid_axes={self.grid_axes}, because "
                "grids have no cells; omit one of them."
            )

    def _check_scalars(self) -> None:
        """Raises ValueError for a scalar that has two roles."""
        scalars, targets = self.scalars, self.target_scalars
        for name in (*scalars, *targets):
            fields = name in (*self.features, *self.target)
            if fields or name in scalars and name in targets:
                raise ValueError(
                    f"{name} has two roles; it can be in only one of scalar_names, "
                    "target_scalars, feature_names and target_names. Rename the "
                    f"scalar, for example to {name}_inlet in cases.csv."
                )
            if name in ("file", "split"):
                raise ValueError(
                    f"A scalar cannot be named {name}, a column of the table."
                )
        if twice := [name for name in self.numbers if name in scalars]:
            raise ValueError(
                f"{twice[0]} is in scalars and in numbers; the model does not receive "
                "numbers. Name it once."
            )

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all point or cell fields to search for."""
        return (*(self.features or ("features",)), *(self.target or ("target",)))

    @property
    def conditions(self) -> dict[str, Expression]:
        """Conditions of boundaries, by name."""
        return parse_named(self.boundary, condition=True)

    @property
    def needs_shape(self) -> bool:
        """Whether boundaries, geometric features or facets are requested."""
        return bool(
            self.boundary_names or self.boundary or self.geometry or self.facets
        )

    @property
    def has_scalars(self) -> bool:
        """Whether a sample has scalars, which a table may contain."""
        names = {name for one in self.conditions.values() for name in one.names}
        named = self.scalars or self.target_scalars or self.numbers
        return bool(named or names - {"x", "y", "z"})

    def given(self) -> list[str]:
        """Names of the options that differ from the default."""
        return [
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]

    def check_only(self, names: Collection[str], where: str) -> None:
        """Raises ValueError if an option is set that a reader does not support.

        Args:
          names: names of the supported options.
          where: what the reader reads, for the message.
        """
        for name in self.given():
            if name not in names:
                raise ValueError(
                    f"{name}={getattr(self, name)} has no effect on {where}; omit it."
                )


DEFAULT = ReadOptions()
