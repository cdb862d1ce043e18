"""Your own data: samples from arrays, VTK files and surfaces, and back again.

`read` loads samples into memory, `stored` leaves them on disk, and `splits` divides
them. `write` and `extended` put predictions beside what a file holds. `files.mapped`
reads and writes meshes that do not fit into memory, in slices of points.
"""

from opjax.files.division import divide, splits
from opjax.files.formats import find
from opjax.files.reading import ReadOptions, channels, parse_names, read, stored
from opjax.files.sliced import SlicedSplits, read_sliced, sliced_splits
from opjax.files.writing import extended, write

__all__ = [
    "ReadOptions",
    "SlicedSplits",
    "channels",
    "divide",
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
