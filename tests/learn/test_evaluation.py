"""Errors of samples: their order, and what those of scalars weigh."""

import jax.numpy as jnp
import numpy as np
import pytest

from opjax.learn.tasks import errors, scalars
from opjax.learn.tasks.evaluation import TestSet


def test_errors_of_several_buckets_are_in_the_order_of_the_samples():
    buckets = {"x": np.array([[2.0], [0.0]])}, {"x": np.array([[1.0, 1.0]])}
    places = [np.array([2, 0]), np.array([1])]
    found = TestSet([], buckets, 1, rows=places).measured(
        lambda model, sample: model * jnp.max(sample["x"]), jnp.asarray(10.0)
    )
    assert found.tolist() == [0.0, 10.0, 20.0]


def test_the_error_of_scalars_has_its_weight_beside_that_of_the_field(monkeypatch):
    one = errors.SampleError(normalizers={}, scalars=True)
    monkeypatch.setattr(errors, "call_both", lambda *_, axis_name: (3.0, 5.0))
    monkeypatch.setattr(type(one), "_of_field", lambda self, values, *_: values)
    monkeypatch.setattr(type(one), "_of_scalars", lambda self, read, _: read)
    assert one(None, {}) == pytest.approx(3 + 5 * scalars.WEIGHT)
