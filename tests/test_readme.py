"""The README's examples run as they are printed, one after the other."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from opjax import learn, nn
from tests import sessions

README = (Path(__file__).parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def results():
    names = {}
    # A user's session is neither strict nor in double precision.
    with sessions.user():
        for example in EXAMPLES:
            exec(example, names)
    return names


def test_the_readme_fits_on_two_screens():
    assert len(EXAMPLES) == 2
    assert len(README.splitlines()) <= 110
    assert "pip install opjax" not in README  # not while it is on no index


def test_the_examples_run_in_order(monkeypatch):
    train = learn.train

    def short(data, num_epochs):
        assert num_epochs > 1
        few = {name: values[:20] for name, values in data.items()}
        return train(few, preset="smoke", num_epochs=1)

    monkeypatch.setattr(learn, "train", short)
    small = partial(nn.OperatorTransformer, features=16, num_layers=1)
    monkeypatch.setattr(nn, "OperatorTransformer", small)
    names = results()
    assert names["temperature"].shape == (24, 24)
    assert names["output"].shape == (200, 1)


@pytest.mark.nightly
def test_the_plate_is_learned_to_the_printed_error():
    names = results()
    truth = names["solution"][0]
    error = np.linalg.norm(names["temperature"] - truth) / np.linalg.norm(truth)
    assert error < 0.03
