"""Compares fresh parameters with statistics of those of the reference code, in law."""

import functools

import numpy as np

from tests.golden.initial_models import OURS, SLICES
from tests.golden.recorded import UnsupportedError

# The reference initialises the trunk after the blocks, and so overwrites the basis that
# a block owns by N(0, 0.02^2), and leaves the layer after it; ours start as everywhere.
_OWN_BASIS = (*SLICES, "Attn.in_project_x", "Attn.in_project_fx")
DIFFERENT = {
    "RNA": (*_OWN_BASIS, "last_lin"),
    "AirfRANS": _OWN_BASIS,
    "NS": SLICES,
    "Pipe": SLICES,
    "Plasticity": SLICES,
}
# A part of a bias here; a perceptron that the reference never evaluates.
ABSENT = ("placeholder", "mlp_new.")


@functools.cache
def fresh(name):
    """Returns parameters of a fresh model, by their names."""
    return OURS[name]()


def differences(name, arrays):
    """Compares a model with its statistics in the file.

    Args:
      name: the model's, a key of `OURS`.
      arrays: those of the file.

    Returns:
      What is different, one line for every parameter, of another size or law.
    """
    keys = ("names", "shapes", "mean", "std", "absmax")
    columns = [arrays[f"{name}.{key}"] for key in keys]
    ours, found = fresh(name), []
    for parameter, shape, *theirs in zip(*columns, strict=True):
        parameter = _ours(str(parameter))
        if any(part in parameter for part in ABSENT):
            continue
        value = np.asarray(ours[parameter], float)
        size = np.prod([int(n) for n in str(shape).split("x") if n], dtype=int)
        ignored = any(part in parameter for part in DIFFERENT.get(name, ()))
        if value.size != size or not (ignored or _agree(value, *theirs)):
            line = f"{name} {parameter}: {_statistics(value)} of {value.size}"
            found.append(f"{line}, {tuple(map(float, theirs))} of {size} there")
    return found


def orthogonality(name, arrays):
    """Says which scores start orthonormal on one side only.

    The file has the largest entry of `A A^T - I`, of the smaller of the two Grams.
    """
    prefix, found = f"{name}.gram_minus_I.", []
    for key in [key for key in arrays if key.startswith(prefix)]:
        theirs, parameter = arrays[key], _ours(key.removeprefix(prefix))
        if any(part in parameter for part in DIFFERENT.get(name, ())):
            continue
        kernel = np.asarray(fresh(name)[parameter], float)
        kernel = kernel if len(kernel) <= kernel.shape[1] else kernel.T
        ours = np.max(np.abs(kernel @ kernel.T - np.eye(len(kernel))))
        if (ours < 1e-5) != (theirs < 1e-5):
            found.append(f"{name} {parameter}: {ours} from orthonormal, {theirs} there")
    return found


def agree(arrays):
    """Whether all models of the file start as in the reference code."""
    names = sorted({str(key).split(".")[0] for key in arrays})
    unknown = [name for name in names if name not in OURS]
    if unknown:
        raise UnsupportedError(f"models {', '.join(unknown)}")
    found = [differences(name, arrays) + orthogonality(name, arrays) for name in names]
    return not any(found)


def _ours(parameter):
    """Returns our name of a parameter."""
    parameter = parameter.removeprefix("feature_extractor.")
    return parameter.replace("SelfAttn.", "Attn.")


def _statistics(value):
    return float(np.mean(value)), float(np.std(value)), float(np.max(np.abs(value)))


def _agree(value, mean, std, absmax):
    """Whether two samples of one size may have one distribution, at six sigma."""
    our_mean, our_std, our_absmax = _statistics(value)
    if value.size == 1 and mean and our_mean:
        return 0.01 < abs(our_mean / mean) < 100  # one number tells nothing of a law
    if std == 0 and value.size > 1 or our_std == 0:
        return our_std == std and np.allclose(our_mean, mean) and our_absmax == absmax
    sigma = 6 * np.sqrt(2 / value.size)
    if absmax < 2 * std:  # uniform: the largest entry is near the bound
        close = abs(our_absmax / absmax - 1) < 12 / value.size
    else:
        close = abs(our_absmax - absmax) < 2 * std
    return (
        abs(our_mean - mean) < sigma * std and abs(our_std / std - 1) < sigma and close
    )
