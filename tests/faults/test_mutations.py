"""Every mutation still has its one place, so that the table can be made again."""

import pathlib

import pytest

from tests.faults.mutations import MUTATIONS

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_is_broken_is_there_once(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.old != mutation.new
    assert (ROOT / mutation.tests.split()[0].partition("::")[0]).is_file()
