"""Fits of fields on a common mesh to the inputs of cases, and held-out errors.

Every error is a cross-validation error, so the training cases alone select among
several fits.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from opjax.learn.baselines.inputs import Inputs

KERNELS = ("cubic", "linear", "thin_plate_spline", "quintic")
# The smallest degree of the polynomial that a kernel needs.
_DEGREES = {"linear": 0, "thin_plate_spline": 1, "cubic": 1, "quintic": 2}
_COUNTS = (2, 4, 8, 16, 32)  # of components of the shape
MOST_COMPONENTS = _COUNTS[-1]
_SMOOTHINGS = (0.0, 1e-3, 1e-1)
_ALL_LEFT_OUT = 64  # of up to so many cases each is left out once, by itself
_FOLDS = 10  # of more


class Modes(NamedTuple):
    """Proper orthogonal decomposition of a field of the training cases.

    Attributes:
      mean: mean over the training cases, `(d,)`.
      roots: square roots of the weights of all values, `(d,)`.
      modes: modes, orthonormal after multiplication with the roots, `(k, d)`.
      coefficients: coefficients of the training cases, `(b, k)`.
      sizes: norms of the fields of the training cases, `(b,)`.
    """

    mean: np.ndarray
    roots: np.ndarray
    modes: np.ndarray
    coefficients: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, fields: np.ndarray, weights: np.ndarray) -> "Modes":
        """Decomposes fields `(b, m, c)`, with one weight per point, `(m,)`."""
        flat = fields.reshape(len(fields), -1)
        roots = np.sqrt(np.repeat(weights, fields.shape[2]))
        mean = flat.mean(axis=0)
        left, sizes, modes = np.linalg.svd((flat - mean) * roots, full_matrices=False)
        kept = sizes > 1e-12 * max(sizes[0], 1e-300)
        coefficients = left[:, kept] * sizes[kept]
        norms = np.linalg.norm(flat * roots, axis=1)
        return cls(mean, roots, modes[kept], coefficients, norms)

    def field(self, coefficients: np.ndarray) -> np.ndarray:
        """Returns the field, `(d,)`, from its first `k` coefficients."""
        modes = self.modes[: len(coefficients)]
        return self.mean + coefficients @ modes / np.where(
            self.roots > 0, self.roots, 1
        )

    def relative_of(self, rows: np.ndarray) -> float:
        """Returns the mean relative error of other cases in place of the cases."""
        change = self.coefficients[rows] - self.coefficients
        return self.relative(np.sum(change**2, axis=1))

    def relative(self, squares: np.ndarray) -> float:
        """Mean over the cases of the RMS error relative to the size of the field."""
        varying = self.sizes > 1e-9 * self.sizes.max(initial=0)
        if not varying.any():  # a scalar that is constant in training
            return 0.0
        return float(np.mean(np.sqrt(squares[varying]) / self.sizes[varying]))


class Radial(NamedTuple):
    """Radial basis functions of selected inputs.

    Attributes:
      kernel: kernel of `scipy.interpolate.RBFInterpolator`.
      smoothing: its smoothing; zero interpolates the training cases.
      inputs: kind of the inputs, see `Inputs.chosen`.
      components: number of shape components.
      scaled: whether each component is divided by its standard deviation.
    """

    kernel: str
    smoothing: float
    inputs: str
    components: int = 0
    scaled: bool = False

    def chosen(self, inputs: Inputs) -> np.ndarray:
        """Returns the selected inputs, `(b, k)`."""
        return inputs.chosen(self.inputs, self.components, scaled=self.scaled)

    def predict(
        self, known: np.ndarray, values: np.ndarray, asked: np.ndarray
    ) -> np.ndarray:
        """Fits values at given inputs, and returns the values at other inputs."""
        from scipy.interpolate import RBFInterpolator

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a degree that is low
            fitted = RBFInterpolator(
                known,
                values,
                kernel=self.kernel,
                smoothing=self.smoothing,
                degree=self.degree(*known.shape),
            )
        return np.asarray(fitted(asked))

    def degree(self, cases: int, dim: int) -> int:
        """Returns the degree of the polynomial, reduced if there are few cases."""
        degree = _DEGREES[self.kernel]
        while degree > 0 and 2 * math.comb(dim + degree, degree) > cases:
            degree -= 1
        return degree

    @property
    def words(self) -> str:
        """Describes the functions in words, for a table."""
        kernel = self.kernel.replace("_", " ")
        smoothed = f", smoothing {self.smoothing:g}" if self.smoothing else ""
        shape = f"{self.components} components of the shape and inputs"
        of = {"scalars": "the scalars", "shape": shape, "both": f"the scalars, {shape}"}
        return f"{kernel} kernel{smoothed}, over {of[self.inputs]}"


class Choice(NamedTuple):
    """The radial basis functions of a field.

    Attributes:
      radial: kernel and inputs.
      rank: number of modes.
      error: mean relative cross-validation error.
    """

    radial: Radial
    rank: int
    error: float


def folds(origins: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the mask of every fold; a case and its mirrored copies share a fold."""
    count = len(np.unique(origins))
    number = count if count <= _ALL_LEFT_OUT else _FOLDS
    for place in range(number):
        yield origins % number == place


def left_out(radial: Radial, inputs: Inputs, values: np.ndarray) -> np.ndarray:
    """Returns cross-validation predictions for all cases, `(b, k)`."""
    predicted, chosen = np.zeros_like(values), radial.chosen(inputs)
    for fold in folds(inputs.origins):
        predicted[fold] = radial.predict(chosen[~fold], values[~fold], chosen[fold])
    return predicted


def _candidates(inputs: Inputs) -> list[Radial]:
    """Inputs to choose from, all with the cubic kernel."""
    cases, rank = inputs.shape.shape
    candidates: list[Radial] = []
    for kind in inputs.kinds():
        if kind == "scalars":
            candidates.append(Radial("cubic", 0.0, kind))
            continue
        counts = sorted({min(count, rank) for count in _COUNTS if 2 * count < cases})
        for count in counts:
            candidates += [
                Radial("cubic", 0.0, kind, count, scaled=s) for s in (True, False)
            ]
    return candidates


def choose(inputs: Inputs, fields: Sequence[Modes]) -> list[Choice]:
    """Chooses the inputs, then kernel and rank of each field, by cross-validation.

    Returns:
      A choice for each field; empty without inputs, or if no fit is possible.
    """
    candidates, best = _candidates(inputs), list[Choice]()
    if not candidates or not fields or len(inputs.scalars) < 3:
        return []
    best = _best([_judged(one, inputs, fields) for one in candidates])
    kept = dict.fromkeys(one.radial for one in best)
    others = [
        one._replace(kernel=kernel, smoothing=smoothing)
        for one in kept
        for kernel in KERNELS
        for smoothing in _SMOOTHINGS
    ]
    best = _best([best, *(_judged(one, inputs, fields) for one in others)])
    return best if all(math.isfinite(one.error) for one in best) else []


def _best(several: Sequence[Sequence[Choice]]) -> list[Choice]:
    """The best choice of each field; of equals the first."""
    of_fields = zip(*several, strict=True)
    return [min(choices, key=lambda one: one.error) for choices in of_fields]


def _judged(radial: Radial, inputs: Inputs, fields: Sequence[Modes]) -> list[Choice]:
    """The best rank of each field, for some radial basis functions."""
    widths = [one.coefficients.shape[1] for one in fields]
    values = np.concatenate([one.coefficients for one in fields], axis=1)
    try:
        left = left_out(radial, inputs, values)
    except np.linalg.LinAlgError:  # cases with equal inputs, or on a line
        return [Choice(radial, 0, math.inf) for _ in fields]
    parts = np.split(left, np.cumsum(widths)[:-1], axis=1)
    choices: list[Choice] = []
    for modes, predicted in zip(fields, parts, strict=True):
        true = modes.coefficients
        # Without a mode, its coefficient is missed as a whole.
        change = np.cumsum((predicted - true) ** 2 - true**2, axis=1)
        squares = np.maximum(np.sum(true**2, axis=1)[:, None] + change, 0)
        errors = [modes.relative(squares[:, k]) for k in range(squares.shape[1])]
        rank = int(np.argmin(errors)) + 1 if errors else 0
        choices.append(Choice(radial, rank, min(errors, default=0.0)))
    return choices


class Nearest(NamedTuple):
    """The inputs in which the nearest case is searched.

    Attributes:
      inputs: kind of the inputs, see `Inputs.chosen`.
      error: mean relative leave-one-out error over all fields.
    """

    inputs: str
    error: float

    def places(self, known: Inputs, asked: Inputs, *, own: bool = False) -> np.ndarray:
        """Returns the indices of the nearest cases.

        With `own`, each case itself is excluded. A mirrored copy of a case counts as
        the same case.
        """
        one, other = (
            each.chosen(self.inputs, MOST_COMPONENTS, scaled=False)
            for each in (known, asked)
        )
        squares = np.sum((other[:, None] - one[None]) ** 2, axis=2)
        if own:
            squares[asked.origins[:, None] == known.origins] = np.inf
        return np.argmin(squares, axis=1)

    @property
    def words(self) -> str:
        """Describes in words in which inputs the nearest case is searched."""
        of = {"shape": "shape and inputs", "both": "scalars, shape and inputs"}
        return f"nearest in {of.get(self.inputs, self.inputs)}"


def choose_nearest(inputs: Inputs, fields: Sequence[Modes]) -> Nearest | None:
    """Chooses the inputs of the nearest-case baseline by leave-one-out errors."""
    candidates: list[Nearest] = []
    for kind in inputs.kinds():
        places = Nearest(kind, 0.0).places(inputs, inputs, own=True)
        errors = [modes.relative_of(places) for modes in fields]
        candidates.append(Nearest(kind, float(np.mean(errors))))
    return min(candidates, key=lambda one: one.error, default=None)
