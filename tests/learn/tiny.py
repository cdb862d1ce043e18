"""The smallest training of the tests."""

import dataclasses

from opjax import learn

TINY = dataclasses.replace(
    learn.TRAIN_PRESETS["smoke"],
    train="",
    width=8,
    num_layers=1,
    num_basis=4,
    num_epochs=2,
    num_buckets=1,
)
