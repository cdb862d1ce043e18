"""Reading and writing your own data: arrays, VTK files and surfaces.

`ReadOptions` defines the content of a sample. `read` loads samples into memory,
`stored` leaves them on disk, and `splits` divides them according to `Shares`. `write`
and `extended` add predictions to the content of a file. `files.mapped` reads and writes
meshes that do not fit into memory, in slices of points.
"""

from opjax.files.division import splits
from opjax.files.formats import find
from opjax.files.options import ReadOptions, parse_names
from opjax.files.reading import read, stored
from opjax.files.sliced import SlicedSplits, read_sliced, sliced_splits
from opjax.files.writing import extended, write
from opjax.samples.division import Shares

__all__ = [
    "ReadOptions",
    "Shares",
    "SlicedSplits",
    "extended",
    "find",
    "parse_names",
    "read",
    "read_sliced",
    "sliced_splits",
    "splits",
    "stored",
    "write",
]
