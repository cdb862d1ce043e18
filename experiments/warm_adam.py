"""The optimizer of studies that train small operators on fresh samples."""

import jax
import optax

from opjax.learn import UpdateOptions


def warm_adam(
    config: UpdateOptions, total: int, rate: jax.Array, *, b2: float = 0.999
) -> optax.GradientTransformation:
    """Adam with a twentieth of warm-up steps and a cosine to zero.

    Args:
      config: clipping of gradients and averaging of weights.
      total: number of steps.
      rate: maximum learning rate.
      b2: decay of the mean square of the gradient.
    """
    shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, max(total // 20, 1), total)
    return config.updates.around(optax.adam(lambda step: rate * shape(step), b2=b2))
