import dataclasses

import pytest

from opjax.learn.config import RunOptions, TrainingOptions, fields
from opjax.learn.config.fields import option


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, TrainingOptions):
    data_dir: str = option("", "Folder")
    noises: tuple[float, ...] = option((0.0,), "Noises", members=True)


QUICK = Config()


def changed(**changes):
    return dataclasses.replace(QUICK, **changes)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "run-quick"),
        ({"seeds": (1, 2), "models": ("fno",)}, "run-quick-fno-seeds1+2"),
        ({"models": ("a", "mine.models:build")}, "run-quick-a+mine.models_build"),
        ({"num_epochs": 3, "eps": 3e-4}, "run-quick-epochs3-eps0.0003"),
        ({"cycle_momentum": False}, "run-quick-no_cycle_momentum"),
        ({"noises": (0.0, 0.1)}, "run-quick-noises0.0+0.1"),
    ],
)
def test_a_folder_is_named_by_what_differs_from_the_preset(changes, name):
    assert fields.run_name("run", changed(**changes), QUICK) == name


def test_folders_of_the_same_name_and_long_names_stay_apart():
    first, second = (
        fields.run_name("run", changed(data_dir=f"/{x}/files"), QUICK) for x in "ab"
    )
    assert first.startswith("run-quick-data_dirfiles_")
    assert first != second
    long = [
        fields.run_name("run", changed(models=(f"m{'x' * 200}{i}",)), QUICK)
        for i in range(2)
    ]
    assert max(map(len, long)) < 120
    assert long[0] != long[1]


def test_the_command_repeats_the_configuration():
    config = changed(seeds=(0, 1), cycle_momentum=False, data_dir="a folder")
    assert fields.command("python -m experiments.run", config, QUICK) == (
        "python -m experiments.run --preset=quick --nocycle_momentum "
        "--data_dir='a folder' --seeds=0,1"
    )
