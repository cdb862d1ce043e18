"""Spaces that the heads of a layer expand in, and their inf-sup constants."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import opjax
from experiments.studies import one_of
from opjax import nn
from opjax.nn.mixers import Own

# Pairs of spaces, and what their constant is called.
FORMS = ("value", "key", "operator", "softmax")
# Between points; all but softmax are then divided by the number of points.
ATTENTIONS: dict[type, Callable[..., jax.Array]] = {
    nn.GalerkinAttention: opjax.galerkin_attention,
    nn.LinearAttention: opjax.linear_attention,
    nn.FourierAttention: opjax.fourier_attention,
    nn.SoftmaxAttention: opjax.softmax_attention,
}


class Spaces(NamedTuple):
    """Features of the heads of one layer, `(h, n, d)`: columns are functions.

    Attributes:
      query: what the layer expands in.
      key: what it integrates against, from a softmax over points times their number.
      value: what is attended to.
      attended: what attention makes of the values.
      raw_key: the keys before a softmax over points, if there is one.
    """

    query: jax.Array
    key: jax.Array
    value: jax.Array
    attended: jax.Array
    raw_key: jax.Array | None


@jax.jit
def of_layers(model: Any, mesh_points: jax.Array, features: jax.Array) -> list[Spaces]:
    """Returns the spaces of every layer for one sample."""
    latents = model.latents(mesh_points, features)
    return [
        spaces(one_of(model.layers, i).attention, z, mesh_points)
        for i, z in enumerate(latents[:-1])
    ]


def spaces(attention: Any, x: jax.Array, mesh_points: jax.Array) -> Spaces:
    """Returns the spaces of a layer for its input `(n, c)`."""
    if isinstance(attention, nn.BasisAttention):
        return _in_basis(attention, x, mesh_points)
    query, key, value = attention.head_inputs(x, mesh_points=mesh_points)

    attend = ATTENTIONS[type(attention)]
    attended = jax.lax.map(lambda heads: attend(*heads), (query, key, value))
    if not isinstance(attention, nn.SoftmaxAttention):
        attended = attended / len(x)
    if not isinstance(attention, nn.LinearAttention):
        return Spaces(query, key, value, attended, None)
    over_points = len(x) * jax.nn.softmax(key, axis=1)
    return Spaces(jax.nn.softmax(query, axis=2), over_points, value, attended, key)


def _in_basis(attention: Any, x: jax.Array, mesh_points: jax.Array) -> Spaces:
    """Spaces of a functional map: expansions of its coefficients."""
    values, phi = attention.basis(x, mesh_points=mesh_points)
    mixer = attention.mixer

    def head(values: jax.Array, phi: jax.Array, own: Own) -> tuple[jax.Array, ...]:
        coefficients = opjax.project(values, phi, projection=opjax.Means())
        maps = mixer.query, mixer.key, mixer.value
        made = [linear(coefficients) for linear in maps]
        return tuple(phi @ one for one in (*made, mixer(coefficients, own)))

    query, key, value, attended = jax.vmap(head)(values, phi, mixer.own())
    return Spaces(query, key, value, attended, None)


def constants(
    grids: Sequence[Spaces], *, tolerance: float
) -> tuple[list[dict[str, float]], dict[str, int]]:
    """Returns the constants of one head on grids from coarse to fine, and its ranks.

    Of nearly dependent functions those combinations count whose norm on the coarsest
    grid is above the tolerance times that of the largest one; on finer grids as many.
    The keys of `FORMS` are

    - value: queries and values in the inner product (004, Theorem 4.3);
    - key: queries and keys (004, Theorem 4.4);
    - operator: queries and values in the form `<q, Attention v>` of the layer itself;
    - softmax: queries and keys, in the norm of the keys before the softmax (004, Remark
      D.7).

    Args:
      grids: the spaces of a head, features `(n, d)` each.
      tolerance: of the norms.
    """

    def double(array: jax.Array) -> np.ndarray:
        return np.asarray(array, np.float64)

    exact = [jax.tree.map(double, one) for one in grids]
    ranks = {
        name: _rank(functions, tolerance)
        for name, functions in exact[0]._asdict().items()
        if functions is not None and name != "attended"
    }
    return [_of_grid(one, ranks) for one in exact], ranks


def _of_grid(one: Any, ranks: dict[str, int]) -> dict[str, float]:
    def leading(name: str) -> np.ndarray:
        return _leading(getattr(one, name), ranks[name])

    key, value = one.key @ leading("key"), one.value @ leading("value")
    pairs = {
        "value": (value, value),
        "key": (key, key),
        "operator": (one.attended @ leading("value"), value),
    }
    if one.raw_key is not None:
        raw = leading("raw_key")
        pairs["softmax"] = (one.key @ raw / len(one.key), one.raw_key @ raw)
    return {
        name: _constant(one.query, ranks["query"], *pair)
        for name, pair in pairs.items()
    }


def _constant(
    query: np.ndarray, rank: int, tested: np.ndarray, test: np.ndarray
) -> float:
    """The constant of `<q, tested>` in the norm of the test functions.

    There are no more trial than test functions, as the theorem assumes.
    """
    trial = query @ _leading(query, min(rank, test.shape[1]))
    grams = _inner(trial, trial), _inner(test, test)
    with jax.enable_x64(True):
        return float(opjax.inf_sup_constant(_inner(trial, tested), *grams))


def _inner(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Inner products of columns on the uniform grid, as means."""
    return a.T @ b / len(a)


def _rank(functions: np.ndarray, tolerance: float) -> int:
    squares = np.linalg.eigvalsh(_inner(functions, functions))
    return int(np.sum(squares > tolerance**2 * squares[-1]))


def _leading(functions: np.ndarray, rank: int) -> np.ndarray:
    """Orthonormal coefficients `(d, rank)` of the combinations of largest norm."""
    return np.linalg.eigh(_inner(functions, functions))[1][:, -rank:]
