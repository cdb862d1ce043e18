"""MATLAB's representations of vectors and integers."""

import numpy as np


def vector(array: np.ndarray) -> np.ndarray:
    """Returns a one-axis array; MATLAB stores rows `(1, n)` or columns `(n, 1)`."""
    single = array.ndim == 2 and 1 in array.shape
    return array.reshape(-1) if single else array


def whole(array: np.ndarray) -> np.ndarray:
    """Returns integers; MATLAB stores them as whole numbers in double precision."""
    doubles = array.dtype.kind == "f" and np.isfinite(array).all()
    if doubles and (np.abs(array) < 2**53).all() and (array == np.rint(array)).all():
        return array.astype(np.int64)
    return array
