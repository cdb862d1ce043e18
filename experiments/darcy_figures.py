"""What a Darcy run leaves beside its numbers: predictions and figures."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import darcy_data
from opjax import normalize, training
from opjax.datasets.samples import Sample
from opjax.learn import Fitted, figures, outcome
from opjax.learn import folder as run_folder


def draw(
    config: Any,
    directory: run_folder.RunDirectory,
    data: darcy_data.Data,
    predict: Callable[[Any, Any], jax.Array],
    fitted: Fitted,
    errors: np.ndarray,
) -> None:
    """Writes `predictions.npz` and the figures.

    Args:
      config: has the fields of `experiments.darcy.Config`.
      directory: the open folder of the run.
      data: the samples; the best, median and worst of the test samples are drawn.
      predict: `predict(model, sample)`, the solution in physical units.
      fitted: the trained model and the history of its training.
      errors: relative L2 errors of the test samples.
    """
    test, shape = data.test, config.grid_shape
    points = np.asarray(darcy_data.mesh_points(shape))
    rows = outcome.rows(errors)
    chosen = {name: values[np.asarray(rows)] for name, values in test.items()}
    predicted = training.evaluate(
        predict, fitted.best_model, chosen, batch_size=len(rows)
    )
    given = normalize.decode(
        data.normalizers["coefficient"], jnp.asarray(chosen["coefficient"])
    )
    first = {"mesh_points": points, "features": chosen["coefficient"][0]}
    outcome.write(
        directory.path,
        errors=errors,
        rows=rows,
        samples=[
            Sample(points, target, np.asarray(features), grid_shape=tuple(shape))
            for target, features in zip(chosen["solution"], given, strict=True)
        ],
        predicted=list(np.asarray(predicted)),
        inspected=outcome.inspect(fitted.best_model, first),
    )
    figures.draw(directory.path, [figures.member(directory.path)])
