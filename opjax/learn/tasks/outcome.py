"""Results of a trained model on the test samples, in a file for figures.

`predictions.npz` in the folder of a member contains

    errors              of every test sample, (num_test,)
    rows                test samples that are shown: the first two, in which models are
                        compared, and best, median and worst
    mesh_points_0, features_0, target_0, prediction_0, grid_shape_0, target_grid_0
                        of the first of them, in physical units, and so on
    basis, maps         basis functions of one head, `(layers, n, columns)`, and
                        functional maps, `(layers, heads, k, k)`, for the first test
                        sample, if the model has them; `layers` are their indices
    series, series_name errors of every test sample by step, `(num_test, steps)`, and
                        the name of a step, if programs predict step by step
    window              left, right, bottom and top limits of figures, if they do not
                        show everything

and additional arrays of the program.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from opjax import training
from opjax._trees import Model, PyTree
from opjax.files import npz
from opjax.learn.json_files import replacing
from opjax.learn.predict.prediction import of_function
from opjax.learn.registry import operators
from opjax.samples import Sample
from opjax.samples.flat import flatten, unflatten

FILE = "predictions.npz"
_FIRST = 2  # samples in which models are compared
_COLUMNS = 6  # basis functions of a layer
_HEADS = 4  # functional maps of a layer
_MAX_BYTES = 2**30
_ARRAYS = ("mesh_points", "features", "target")


class Outcome(NamedTuple):
    """The content of `predictions.npz`, see `write`."""

    errors: np.ndarray
    rows: list[int]
    samples: list[Sample]
    predicted: list[np.ndarray]
    arrays: dict[str, np.ndarray]  # everything in the file, by name


def extremes(errors: ArrayLike) -> dict[str, int]:
    """Indices of the best, the median and the worst sample."""
    order = np.argsort(np.asarray(errors), kind="stable")
    chosen = order[[0, (len(order) - 1) // 2, -1]]
    return dict(zip(("best", "median", "worst"), map(int, chosen), strict=True))


def rows(errors: ArrayLike) -> list[int]:
    """Indices of the samples to show: the first two and the extremes, each once."""
    first = range(min(_FIRST, np.size(errors)))
    return list(dict.fromkeys([*first, *extremes(errors).values()]))


def write(
    folder: pathlib.Path,
    *,
    errors: ArrayLike,
    rows: Sequence[int],
    samples: Sequence[Sample],
    predicted: Sequence[ArrayLike],
    inspected: Mapping[str, ArrayLike] | None = None,
    extra: Mapping[str, ArrayLike] | None = None,
) -> None:
    """Writes `predictions.npz` to the folder of a member.

    Args:
      folder: folder of the member.
      errors: error of every test sample.
      rows: indices of the samples to show, from `rows`.
      samples: those samples, in physical units.
      predicted: predictions for them, `(n, q)`; `(n,)` for classes.
      inspected: result of `inspect`.
      extra: additional arrays of the program.
    """
    arrays: dict[str, Any] = {"errors": errors, "rows": np.asarray(rows, np.int64)}
    for i, (sample, values) in enumerate(zip(samples, predicted, strict=True)):
        arrays[f"prediction_{i}"] = values
        arrays |= {f"{k}_{i}": array for k, array in flatten(sample, _ARRAYS).items()}
    arrays |= {**(inspected or {}), **(extra or {})}
    with replacing(folder / FILE) as path:
        npz.add(path, {k: np.asarray(v) for k, v in arrays.items()})


def evaluate_steps(
    look: Callable[[Any, Any], tuple[jax.Array, ...]],
    model: Model,
    folder: pathlib.Path,
    *,
    samples: Sequence[Sample],
    arrays: PyTree,
    batch_size: int,
    name: str,
    inspected: Mapping[str, ArrayLike] | None = None,
    extra: Mapping[str, ArrayLike] | None = None,
) -> tuple[np.ndarray, ...]:
    """Evaluates a step-by-step model and writes `predictions.npz`.

    Args:
      look: `look(model, sample)` returns the error of all steps together, the errors of
        the steps, `(steps,)`, the prediction to show, `(n, q)`, and further numbers.
      model: the model, as passed to `look`.
      folder: folder of the member.
      samples: the test samples, with the target of that prediction.
      arrays: the same samples, stacked for `look`.
      batch_size: number of samples evaluated at once.
      name: name of a step.
      inspected: result of `inspect`.
      extra: additional arrays of the program.

    Returns:
      The errors, `(num_test,)`, the errors of the steps, `(num_test, steps)`, and the
      further numbers, in float64.
    """
    batch = min(batch_size, len(samples))
    measured = training.evaluate(look, model, arrays, batch_size=batch)
    shown = np.asarray(measured[2])
    numbers = (np.asarray(part, np.float64) for part in (*measured[:2], *measured[3:]))
    errors, series, *more = numbers
    chosen = rows(errors)
    write(
        folder,
        errors=errors,
        rows=chosen,
        samples=[samples[row] for row in chosen],
        predicted=[shown[row] for row in chosen],
        inspected=inspected,
        extra={"series": series, "series_name": name, **(extra or {})},
    )
    return errors, series, *more


def read(folder: pathlib.Path) -> Outcome:
    """Reads `predictions.npz` from the folder of a finished member."""
    with np.load(folder / FILE) as file:
        arrays = dict(file)
    rows = [int(row) for row in arrays["rows"]]
    samples = []
    for i, row in enumerate(rows):
        end = f"_{i}"
        own = {k.removesuffix(end): a for k, a in arrays.items() if k.endswith(end)}
        samples.append(unflatten(own, f"test sample {row}"))
    predicted = [arrays[f"prediction_{i}"] for i in range(len(rows))]
    return Outcome(arrays["errors"], rows, samples, predicted, arrays)


def inspect(
    model: Model,
    sample: Mapping[str, ArrayLike],
    *,
    num_points: int | None = None,
    time: jax.Array | None = None,
) -> dict[str, np.ndarray]:
    """Evaluates the basis functions and functional maps of a model.

    The result is empty for a model without a method `inspect` or whose attention has no
    maps, and for a mesh whose bases need more than 1 GiB.

    Args:
      model: any model.
      sample: encoded sample, as for `operators.call`, possibly padded.
      num_points: number of points of the mesh without padding.
      time: time, for a model with a time embedding.
    """
    model = of_function(model)
    if not hasattr(model, "inspect"):
        return {}
    arrays = {name: jnp.asarray(array) for name, array in sample.items()}

    @jax.jit  # with the parameters as an argument, so that the next run finds it
    def look(model: PyTree, arrays: PyTree, time: jax.Array | None) -> Any:
        return operators.call(model.inspect, arrays, time=time)

    try:
        shapes = jax.eval_shape(look, model, arrays, time)
    except ValueError:  # this model has a method, its attention has no maps
        return {}
    if sum(4 * leaf.size for leaf in jax.tree.leaves(shapes)) > _MAX_BYTES:
        return {}
    seen = look(model, arrays, time)
    # Attention on subdomains has many local maps; the coarse one, if any, is shown.
    coarse = getattr(seen, "coarse_map", None)
    local = seen.maps[:, :, 0] if hasattr(seen, "maps") else seen.functional_map
    maps = np.asarray(local if coarse is None else coarse)
    basis = np.asarray(seen.basis if hasattr(seen, "basis") else seen.key_basis)
    basis = basis[:, :, :num_points]
    layers = sorted({0, len(maps) // 2, len(maps) - 1})
    shown = [_most_varying(basis[layer, 0]) for layer in layers]
    return {
        "layers": np.asarray(layers),
        "maps": maps[layers, :_HEADS],
        "basis": np.stack(shown),
    }


def _most_varying(basis: np.ndarray) -> np.ndarray:
    """The columns `(n, k)` that vary most over the points, in their order."""
    order = np.argsort(-np.std(basis, axis=0), kind="stable")
    return basis[:, np.sort(order[:_COLUMNS])]
