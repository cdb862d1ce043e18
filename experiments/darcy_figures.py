"""What a Darcy run leaves beside its numbers: predictions and figures."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import darcy_data
from opjax import normalize, training
from opjax.learn import Fitted, figures
from opjax.learn import folder as run_folder
from opjax.learn.folder import replacing


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
    folder = directory.path / "figures"
    folder.mkdir(exist_ok=True)
    order = np.argsort(errors)
    index = order[[0, (len(order) - 1) // 2, -1]]
    chosen = {name: values[index] for name, values in data.test.items()}
    predicted = training.evaluate(
        predict, fitted.best_model, chosen, batch_size=len(index)
    )
    coefficient = normalize.decode(
        data.normalizers["coefficient"], jnp.asarray(chosen["coefficient"])
    )
    fields: dict[str, Any] = {
        "coefficient": coefficient,
        "solution": chosen["solution"],
        "prediction": predicted,
    }
    grid = (len(index), *config.grid_shape)
    fields = {name: np.asarray(values).reshape(grid) for name, values in fields.items()}
    with (
        replacing(directory.path / "predictions.npz") as path,
        open(path, "wb") as file,
    ):
        np.savez_compressed(file, index=index, relative_l2=errors, **fields)
    figures.predictions(
        folder / "predictions.png",
        **fields,
        errors=errors[index],
        names=("best", "median", "worst"),
    )
    figures.curves(
        folder / "curves.png",
        fitted.history,
        batch_size=config.batch_size,
        test_error=float(np.mean(errors)),
    )
    inspect = getattr(fitted.best_model, "inspect", None)
    if inspect is not None:
        points = darcy_data.mesh_points(config.grid_shape)
        seen = jax.jit(inspect)(points, jnp.asarray(chosen["coefficient"][1]))
        # Schwarz models have many local maps and one coarse map, which is shown.
        local = not hasattr(seen, "coarse_map")
        bases = np.asarray(seen.key_basis if local else seen.basis)
        maps = seen.functional_map if local else seen.coarse_map
        figures.basis_functions(
            folder / "basis.png",
            bases.reshape(*bases.shape[:2], *config.grid_shape, -1),
        )
        figures.functional_maps(folder / "functional_map.png", np.asarray(maps))
