"""What MATLAB has in place of vectors and of integers."""

import numpy as np


def vector(array: np.ndarray) -> np.ndarray:
    """An array of one axis; MATLAB has rows `(1, n)` and columns `(n, 1)` in place."""
    single = array.ndim == 2 and 1 in array.shape
    return array.reshape(-1) if single else array


def whole(array: np.ndarray) -> np.ndarray:
    """Integers; MATLAB has whole numbers in double precision in place of them."""
    doubles = array.dtype.kind == "f" and np.isfinite(array).all()
    if doubles and (np.abs(array) < 2**53).all() and (array == np.rint(array)).all():
        return array.astype(np.int64)
    return array
