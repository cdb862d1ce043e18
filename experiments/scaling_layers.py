"""One attention layer of every kind, for comparing their cost."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import opjax

Parameters = dict[str, jax.Array]


class Layer(NamedTuple):
    """A layer `(parameters, x) -> y` from features `(n, d)` to `(n, d)`.

    Attributes:
      init: `(key, n, d, k) -> parameters`.
      apply: `(parameters, x) -> y`.
      quadratic: whether it compares all points with all points.
    """

    init: Callable[[jax.Array, int, int, int], Parameters]
    apply: Callable[[Parameters, jax.Array], jax.Array]
    quadratic: bool = False


def _normal(key, shape):
    return jax.random.normal(key, shape, jnp.float32) * shape[0] ** -0.5


def _projections(*names: str, **more: Callable) -> Callable:
    """Initialises `d x d` matrices and, by name, what `more` gives for `(n, d, k)`."""

    def init(key, n, d, k):
        shapes = {name: (d, d) for name in (*names, "out")}
        shapes |= {name: shape(n, d, k) for name, shape in more.items()}
        keys = jax.random.split(key, len(shapes))
        return {
            name: _normal(key, shape)
            for key, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    return init


def _pointwise(attention: Callable, *options: str) -> Callable:
    """Queries, keys and values from every point, one head, output projection."""

    def apply(parameters, x):
        q, k, v = (x @ parameters[name] for name in ("query", "key", "value"))
        given = {name: parameters[name] for name in options}
        return attention(q, k, v, **given) @ parameters["out"]

    return apply


def _in_basis(attend: Callable) -> Callable:
    """Features expanded in a learned softmax basis, mapped there, and summed up.

    The maps of features, before and after, are linear as those to and from the basis
    are. So they act on the `k` coefficients, or are multiplied with each other first:
    the same numbers, for `3 n k d` rather than `3 n d (k + d)` multiplications. Maps
    with something in between, as normalised or exponentiated queries and keys of other
    attentions, have to be evaluated at the points.
    """

    def apply(parameters, x):
        scores = x @ (parameters["features"] @ parameters["scores"])
        basis = opjax.softmax_basis(scores, temperature=0.5)
        tokens = opjax.project(x, basis, method="mean") @ parameters["values"]
        q, k, v = (tokens @ parameters[name] for name in ("query", "key", "value"))
        return opjax.reconstruct(attend(q, k, v) @ parameters["out"], basis)

    return apply


def _layer(attention: Callable, *, quadratic: bool = False, **arrays: Callable):
    return Layer(
        _projections("query", "key", "value", **arrays),
        _pointwise(attention, *arrays),
        quadratic,
    )


def _layer_in_basis(attend: Callable) -> Layer:
    names = ("features", "values", "query", "key", "value")
    scores = {"scores": lambda n, d, k: (d, k)}
    return Layer(_projections(*names, **scores), _in_basis(attend))


def _functional(q, k, v):
    return opjax.transport(q, k, v, ridge=0.5, regularization="convex")


def _performer(q, k, v, projection):
    return opjax.performer_attention(q, k, v, projection_matrix=projection.T)


def _orthogonal(parameters, x):
    """Modes of a learned basis, orthonormalised, amplified by attention."""
    basis = opjax.softmax_basis(x @ (parameters["features"] @ parameters["scores"]))
    tokens = opjax.project(x, basis, method="mean")
    q, k = tokens @ parameters["query"], tokens @ parameters["key"]
    y = opjax.orthogonal_attention(q, k, x @ parameters["value"], basis)
    return y @ parameters["out"]


def _fourier_layer(parameters, x):
    """The layer of the Fourier neural operator, not an attention, to compare with."""
    shape = (x.shape[0],)
    y = opjax.spectral_convolution(x, parameters["kernel"], grid_shape=shape)
    return y + x @ parameters["out"]


LAYERS: dict[str, Layer] = {
    "functional": _layer_in_basis(_functional),
    "physics": _layer_in_basis(opjax.softmax_attention),
    "galerkin": _layer(opjax.galerkin_attention),
    "linear": _layer(opjax.linear_attention),
    "orthogonal": Layer(
        _projections(
            "features", "query", "key", "value", scores=lambda n, d, k: (d, k)
        ),
        _orthogonal,
    ),
    "fourier_neural_operator": Layer(
        _projections(kernel=lambda n, d, k: (k, d, d, 2)), _fourier_layer
    ),
    "intention": _layer(lambda q, k, v: opjax.intention(q, k, v, ridge=1.0)),
    "performer": _layer(_performer, projection=lambda n, d, k: (d, k)),
    "linformer": _layer(
        opjax.linformer_attention,
        key_projection=lambda n, d, k: (n, k),
        value_projection=lambda n, d, k: (n, k),
    ),
    "softmax": _layer(opjax.softmax_attention, quadratic=True),
    "fourier": _layer(opjax.fourier_attention, quadratic=True),
}


def nystrom(num_landmarks: int) -> Layer:
    """Returns the Nyström layer, whose number of landmarks is not in its parameters."""

    def attention(q, k, v):
        return opjax.nystrom_attention(q, k, v, num_landmarks=num_landmarks)

    return _layer(attention)


def layers(num_basis: int) -> dict[str, Layer]:
    """Returns all layers by name."""
    return LAYERS | {"nystrom": nystrom(num_basis)}


def loss(apply: Callable, parameters: Parameters, x: jax.Array) -> jax.Array:
    """A number whose gradient needs all of the output."""
    return jnp.mean(apply(parameters, x) ** 2)


def compiled(layer: Layer, parameters: Parameters, x: jax.Array) -> dict[str, Any]:
    """Compiles the forward pass, and the gradient in parameters and input."""

    def gradient(parameters, x):
        return jax.grad(loss, argnums=(1, 2))(layer.apply, parameters, x)

    return {
        "forward": jax.jit(layer.apply).lower(parameters, x).compile(),
        "gradient": jax.jit(gradient).lower(parameters, x).compile(),
    }
