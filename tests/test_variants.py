"""Pure functions give the same compiled, as they are and on a device, traced once."""

import functools
import inspect

import chex
import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import opjax
from opjax._jitted import jitted
from opjax.linalg import check_ridge
from opjax.projection import check_projection
from tests import refused
from tests.test_annotations import FUNCTIONS, WITHOUT_ARRAYS, arguments

PARTS = ("attention", "projection", "basis", "linalg", "schwarz.covers")
PARTS += ("schwarz.operators", "adaptive_ridge", "spectral")
PURE = [
    name
    for name, function in sorted(FUNCTIONS.items())
    if function.__module__.startswith(tuple(f"opjax.{part}" for part in PARTS))
    and name not in WITHOUT_ARRAYS | {"cover"}
]


def split(name):
    """Returns the arrays of a call, and what else the function needs."""
    given = arguments(name)
    arrays = {k: v for k, v in given.items() if isinstance(v, np.ndarray)}
    return arrays, {k: v for k, v in given.items() if k not in arrays}


@functools.cache
def plain():
    """All functions below their checks and their own compilation, by one program."""
    calls = {name: split(name) for name in PURE}

    @jax.jit
    def run(arrays):
        return {
            name: inspect.unwrap(FUNCTIONS[name])(**arrays[name], **others)
            for name, (_, others) in calls.items()
        }

    return run({name: arrays for name, (arrays, _) in calls.items()})


def check(variant):
    assert len(PURE) > 35
    for name in PURE:
        arrays, others = split(name)

        def call(arrays, function=FUNCTIONS[name], others=others):
            return function(**arrays, **others)

        actual, expected = variant(call)(arrays), plain()[name]
        chex.assert_trees_all_close(actual, expected, rtol=1e-10, atol=1e-12)


class PureFunctions(chex.TestCase):
    @chex.variants(without_jit=True)
    def test_a_function_agrees_with_what_it_compiles(self):
        check(self.variant)


@pytest.mark.nightly  # by day, `test_a_function_is_one_program` traces them
class PureFunctionsInPrograms(chex.TestCase):
    @chex.variants(with_jit=True, with_device=True)
    def test_variants_of_a_function_agree(self):
        check(self.variant)


@pytest.mark.parametrize("name", PURE)
def test_a_function_is_one_program(name):
    arrays, others = split(name)
    jaxpr = jax.make_jaxpr(lambda arrays: FUNCTIONS[name](**arrays, **others))(arrays)
    calls = [e.primitive.name for e in jaxpr.eqns if e.params.get("name") == name]
    assert calls == [], "a function in a trace is part of the trace, no call"
    if name not in ("additive", "basis_attention", "two_level_attention"):
        # The three run the callables that they are given in between.
        names = inspect.getclosurevars(FUNCTIONS[name]).nonlocals
        assert "compiled" in names


def test_other_values_are_no_other_program():
    arrays, _ = split("functional_attention")
    plain = inspect.unwrap(opjax.functional_attention)
    function = jitted(ridge=check_ridge, projection=check_projection)(
        chex.assert_max_traces(plain, n=1)
    )
    results = [
        function(**arrays, ridge=opjax.Convex(ridge), projection=opjax.Means(offset))
        for ridge, offset in ((0.1, 1e-5), (0.2, 1e-5), (0.2, 1e-3))
    ]
    assert len({float(np.sum(result)) for result in results}) == 3
    refused.each(
        (
            lambda: function(**arrays, ridge=opjax.Convex(2.0)),
            "ridge=2.0 must be at most 1",
        ),
        (
            lambda: function(
                **arrays | {"key_weights": -arrays["key_weights"]}, ridge=0.1
            ),
            "^key_weights=",
        ),
    )


def test_programs_of_one_class_of_objects_are_not_run_for_another():
    """`register_dataclass` of jax 0.10 to 0.12 takes their structures for equal."""
    objects = [opjax.Additive(0.3), opjax.Convex(0.3), opjax.Means(0.3)]
    objects += [opjax.LeastSquares(0.3), opjax.InnerProducts()]
    structures = [jax.tree.structure(one) for one in objects]
    for i, one in enumerate(structures):
        assert [one == other for other in structures].count(True) == 1, objects[i]
        assert jax.tree.unflatten(one, jax.tree.leaves(objects[i])) == objects[i]


def test_static_numbers_are_taken_from_arrays_and_not_from_tracers():
    x = np.linspace(0, 1, 5)[:, None]
    expected = opjax.hat_basis(x, num_nodes=3, lower=0.0, upper=1.0)
    ends = {"lower": np.array(0.0), "upper": jax.numpy.max(x)}
    assert_array_equal(opjax.hat_basis(x, num_nodes=3, **ends), expected)
    with pytest.raises(TypeError, match="upper=.* is a traced value"):
        jax.jit(lambda x: opjax.hat_basis(x, num_nodes=3, upper=x.max()))(x)


def test_classes_and_words_are_no_objects_and_no_numbers():
    arrays, _ = split("functional_attention")
    for wrong, words in (
        ({"ridge": opjax.Convex}, "pass a number, opjax.Additive"),
        ({"ridge": opjax.Convex(opjax.Additive(1.0))}, "pass a number"),
        ({"ridge": 0.1, "projection": opjax.Means}, "is a class; pass an instance"),
    ):
        with pytest.raises(TypeError, match=words):
            opjax.functional_attention(**arrays, **wrong)
    with pytest.raises(TypeError, match="temperature='a' is not a real number"):
        opjax.softmax_basis(np.ones((3, 2)), temperature="a")


def test_linear_attention_of_half_precision_and_of_no_points():
    q, k, v = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float16)
    no_weights = np.zeros(6, np.float16)
    masked = opjax.linear_attention(q, k, v, key_weights=no_weights)
    assert_array_equal(masked, np.zeros((6, 4)))
    assert_array_equal(opjax.linear_attention(q, k[:0], v[:0]), masked)
