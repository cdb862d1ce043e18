"""Trains and evaluates one member of the inverse Darcy experiment."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments import darcy_inverse_data
from experiments.darcy_inverse_models import MODELS, Objective, objective
from opjax import training
from opjax.learn import Settings, Task, fit
from opjax.learn import folder as run_folder


def train(
    config: Any,
    directory: run_folder.RunDirectory,
    data: darcy_inverse_data.Data,
    *,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Trains one model with one noise and seed and evaluates it on the test samples.

    Args:
      config: `experiments.darcy_inverse.Config` of one model, one noise and one seed.
      directory: open folder of the member.
      data: from `darcy_inverse_data.load`.
      tensorboard: write TensorBoard files too.

    Returns:
      `error`, `error_std` over the samples, `validation`, `parameters`, `seconds`.
    """
    splits = data.noises[config.noise_sizes[0]]
    goal = objective(config, data.normalizers)
    seed = int(config.seeds)
    settings = Settings(
        num_epochs=config.num_epochs,
        batch_size=config.batch_size,
        seed=seed,
        checkpoint_every=config.checkpoint_every,
        microbatch=1 if jax.default_backend() == "cpu" else None,
        tensorboard=tensorboard,
        optimizer=partial(
            training.adamw_onecycle,
            config.learning_rate,
            weight_decay=0.0,
            clip_norm=config.clip_norm or None,
            div_factor=1e4,
            final_div_factor=1e4,
        ),
    )
    fitted = fit(
        Task(
            train=(splits.train,),
            validation=(splits.validation,),
            loss=goal.loss,
            metric=goal.error,
            extra={"normalizers": data.normalizers},
        ),
        MODELS[config.models](config, rngs=nnx.Rngs(seed)),
        settings,
        folder=directory,
    )
    model = fitted.best_model
    batch = min(config.batch_size, config.num_test)
    errors = training.evaluate(goal.error, model, splits.test, batch_size=batch)
    errors = np.asarray(errors, np.float64)
    _save_predictions(config, directory, data, goal, model, errors)
    return {
        "error": float(np.mean(errors)),
        "error_std": float(np.std(errors)),
        "validation": fitted.best_metric,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model)),
        "seconds": fitted.seconds,
    }


def _save_predictions(
    config: Any,
    directory: run_folder.RunDirectory,
    data: darcy_inverse_data.Data,
    goal: Objective,
    model: Any,
    errors: np.ndarray,
) -> None:
    """Writes the first test samples in physical units, and the errors of all."""
    test = data.noises[config.noise_sizes[0]].test
    first = {name: values[:4] for name, values in test.items()}
    prediction = training.evaluate(
        goal.predict, model, first, batch_size=len(first["measurement"])
    )
    measurement = jax.vmap(darcy_inverse_data.decode, in_axes=(None, 0))(
        data.normalizers["measurement"], jnp.asarray(first["measurement"])
    )
    fine, coarse = (-1, *config.grid_shape), (-1, *config.coarse_shape)
    np.savez(
        directory.path / "predictions.npz",
        measurement=np.asarray(measurement).reshape(fine),
        coefficient=first["coefficient"].reshape(coarse),
        prediction=np.asarray(prediction).reshape(coarse),
        errors=errors,
    )
