"""Your own data: samples from arrays, VTK files and surfaces, and back again.

`ReadOptions` says what a sample is made of. `read` loads samples into memory, `stored`
leaves them on disk, and `splits` divides them, as `Shares` says. `write` and `extended`
put predictions beside what a file holds. `files.mapped` reads and writes meshes that do
not fit into memory, in slices of points.
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
