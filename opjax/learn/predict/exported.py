"""Operators of scaled cases as functions that can be exported."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from opjax import normalize
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.prediction import of_function
from opjax.learn.predict.scaling import Scaling


def scalars_of(trained: Learned) -> list[str]:
    """Names of the scalars that calls of an exported operator take, in their order.

    Those of the operator, and numbers that cases are scaled by.
    """
    names = list(trained.description.names.get("scalars") or ())
    return names + [name for name in trained.description.numbers if name not in names]


def in_physical_units(trained: Learned, scaling: Scaling) -> Callable[..., jax.Array]:
    """Returns an operator between physical units, whose scalars are features.

    Args:
      trained: the operator.
      scaling: of its cases.

    Returns:
      `function(mesh_points, features, quadrature_weights=)`, for `opjax.export.save`
      without normalisers: the last channels of the features are those of `scalars_of`,
      each the same at all points.
    """
    names, channels = scalars_of(trained), trained.description.channels
    num_scalars, model = channels.scalars, of_function(trained.model)

    def encode(role: str, values: jax.Array) -> jax.Array:
        normalizer = trained.normalizers.get(role)
        return values if normalizer is None else normalize.encode(normalizer, values)

    def function(
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        encoded: list[jax.Array] = []
        row = jnp.zeros(0) if features is None else features[0, channels.features :]
        counts = channels._asdict()
        factors = scaling.traced_factors(dict(zip(names, row, strict=True)), counts)

        def of_points(role: str) -> jax.Array:
            return factors.get(role, jnp.ones(1))[None]

        points = encode("mesh_points", mesh_points / of_points("mesh_points"))
        if channels.features:
            assert features is not None
            own = features[:, : channels.features] / of_points("features")
            encoded.append(encode("features", own))
        if num_scalars:
            scalars = scaling.turned(
                row[:num_scalars] / factors.get("scalars", jnp.ones(1))
            )
            scalars = encode("scalars", scalars)
            encoded.append(jnp.broadcast_to(scalars, (points.shape[0], len(scalars))))
        arguments = [points, *([jnp.concatenate(encoded, axis=1)] if encoded else [])]
        if quadrature_weights is not None:
            values = model(*arguments, quadrature_weights=quadrature_weights)
        else:
            values = model(*arguments)
        if "target" in trained.normalizers:
            values = normalize.decode(trained.normalizers["target"], values)
        return values * of_points("target")

    return function
