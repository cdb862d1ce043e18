"""Division of a data set at random."""

import pytest

from opjax.samples import Shares, Splits


def drawn(**shares):
    return Splits.divide(list(range(20)), shares=Shares(**shares))[:3]


def test_every_sample_is_in_one_part_that_the_seed_decides():
    parts = drawn(seed=1)
    assert [len(part) for part in parts] == [14, 2, 4]
    assert sorted(sum(parts, [])) == list(range(20))
    assert drawn(seed=1) == parts != drawn(seed=2)


@pytest.mark.parametrize(("name", "part"), [("train", 0), ("validation", 1)])
def test_every_part_has_a_maximum_of_its_own(name, part):
    one, whole = drawn(**{f"num_{name}": 1}), drawn()
    assert [*one[:part], *one[part + 1 :]] == [*whole[:part], *whole[part + 1 :]]
    assert one[part] == whole[part][:1]
