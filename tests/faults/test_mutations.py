"""Every mutation still has its one place, so that the table can be made again."""

import pathlib
import re

from tests.faults.mutations import MUTATIONS, Mutation

ROOT = pathlib.Path(__file__).parents[2]


def test_what_is_broken_is_there_once():
    assert not [mutation.name for mutation in MUTATIONS if not _is_there(mutation)]
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def _is_there(mutation: Mutation) -> bool:
    once = (ROOT / mutation.file).read_text().count(mutation.old) == 1
    files = [ROOT / name for name in re.findall(r"tests/\S+\.py", mutation.tests)]
    there = bool(files) and all(file.is_file() for file in files)
    return once and mutation.old != mutation.new and there
