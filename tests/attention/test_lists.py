"""Attention functions take nested lists as they take arrays."""

import numpy as np
import pytest

import opjax
from opjax import metrics

QUERY = [[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]
BASIS = [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
FUNCTIONS = {
    "softmax": opjax.softmax_attention,
    "linear": opjax.linear_attention,
    "galerkin": opjax.galerkin_attention,
    "fourier": opjax.fourier_attention,
    "intention": lambda q, k, v: opjax.intention(q, k, v, ridge=0.1),
    "nystrom": lambda q, k, v: opjax.nystrom_attention(q, k, v, num_landmarks=2),
    "linformer": lambda q, k, v: opjax.linformer_attention(
        q, k, v, key_projection=BASIS, value_projection=BASIS
    ),
    "transport": lambda q, k, v: opjax.transport(q, k, v, ridge=0.1),
    "functional": lambda q, k, v: opjax.functional_attention(
        q, k, v, query_basis=BASIS, key_basis=BASIS, ridge=0.1
    ),
    "weights": lambda q, k, v: opjax.functional_attention(
        q, k, v, BASIS, BASIS, ridge=0.1, key_weights=[1.0, 0.0, 2.0]
    ),
    "project": lambda q, k, v: opjax.project(v, BASIS),
    "map": lambda q, k, v: opjax.functional_map(q, k, ridge=0.1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_lists_give_the_values_of_arrays(name):
    evaluate = FUNCTIONS[name]
    array = np.asarray(QUERY)
    np.testing.assert_array_equal(
        evaluate(QUERY, QUERY, QUERY), evaluate(array, array, array)
    )


def test_other_functions_say_that_a_list_is_no_array():
    with pytest.raises(TypeError, match=r"prediction is a list.*jnp.asarray"):
        metrics.relative_l2([1.0, 2.0], [1.0, 3.0])
