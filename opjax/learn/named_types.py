"""Types with one name in all of `learn`."""

from typing import Any

import numpy as np

Row = dict[str, Any]  # entries of a report, or of the last line of output, by name
Numbers = dict[str, float]  # results, by name
HostArrays = dict[str, np.ndarray]  # NumPy arrays, by name
