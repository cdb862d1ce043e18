"""Fresh parameters have the statistics of those of the reference code."""

from pathlib import Path

import numpy as np
import pytest

from tests.golden import initialization
from tests.selection import by_day

FILE = Path(__file__).with_name("init_stats_default_models.npz")


@pytest.fixture(scope="module")
def arrays():
    with np.load(FILE, allow_pickle=False) as archive:
        return dict(archive)


NIGHT = ("Burgers", "NS", "RNA", "Plasticity", "Pipe", "AirfRANS", "Darcy")


DAY = [name for name in initialization.OURS if name not in NIGHT]
models = pytest.mark.parametrize("name", by_day(initialization.OURS, DAY))


@models
def test_parameters_start_as_in_the_reference_code(name, arrays):
    assert initialization.differences(name, arrays) == []


@models
def test_a_basis_starts_orthonormal_where_the_references_does(name, arrays):
    assert initialization.orthogonality(name, arrays) == []


def test_a_parameter_of_another_law_is_named(arrays):
    name = "attention_rna_fresh"
    changed = arrays | {f"{name}.std": 1.1 * arrays[f"{name}.std"]}
    lines = initialization.differences(name, changed)
    assert any(line.startswith(f"{name} to_out.0.weight") for line in lines)
