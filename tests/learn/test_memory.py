import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from flax import nnx

from opjax import nn
from opjax.learn import Settings, Task
from opjax.learn.run import buckets, memory
from opjax.samples import Sample

EXHAUSTED = "RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.\nmore"


def model(**changes):
    basis = partial(nn.bases.SoftmaxBasis, num_basis=3)
    return nn.OperatorTransformer(
        position=nn.Coordinates(2),
        feature_dim=0,
        out_features=1,
        features=8,
        num_layers=2,
        mlp_ratio=1,
        attention=partial(nn.BasisAttention, num_heads=2, basis=basis, **changes),
        rngs=nnx.Rngs(0),
    )


def message(given, **changes):
    points = np.zeros((2, 10_000, 2), np.float32)
    task = Task(train=({"mesh_points": points},), loss=lambda *_: 0.0)
    settings = dataclasses.replace(Settings(num_epochs=1, batch_size=2), **changes)
    with pytest.raises(MemoryError) as caught, memory.explained(task, given, settings):
        raise jax.errors.JaxRuntimeError(EXHAUSTED)
    return str(caught.value)


def test_missing_memory_says_what_was_needed_and_what_fits():
    text = message(model())
    assert "2 samples" in text
    assert "Out of memory allocating 123 bytes." in text
    assert "more\n" not in text
    assert "10000 points" in text
    assert "--microbatch=1" in text
    assert "--chunk_size=512, about" in text


def test_what_has_no_meaning_is_not_proposed():
    assert "--microbatch" not in message(model(), microbatch=1)
    assert "--chunk_size" not in message(object())


@pytest.mark.parametrize(("size", "expected"), [(None, 7), (9, 9)])
def test_samples_on_disk_have_points_too(size, expected):
    found = [Sample(mesh_points=np.zeros((7, 2), np.float32))]
    assert buckets.Bucket(found, size, dict).num_points == expected


def test_other_errors_pass():
    task = Task(train=(), loss=lambda *_: 0.0)
    with (
        pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"),
        memory.explained(task, None, Settings(num_epochs=1)),
    ):
        raise jax.errors.JaxRuntimeError("INTERNAL: other")
