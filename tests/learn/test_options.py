import dataclasses
import logging
import math
import pathlib

import pytest
from absl import flags

from opjax.learn import published, recipe
from opjax.learn.cli import calibrate, command_line, predict, shared
from opjax.learn.config import fields
from opjax.learn.run import folder
from tests.refused import value_error


@dataclasses.dataclass(frozen=True)
class Config:
    preset: str = fields.option("small", "Values of all other flags")
    width: int = fields.option(4, "Channels", minimum=1)
    rate: float = fields.option(0.5, "Learning rate", above=0, maximum=1)
    deep: bool = fields.option(False, "Whether it is deep")

    def __post_init__(self):
        fields.check(self)


PRESETS = {"small": Config(), "large": Config(preset="large", width=9)}


def read(*arguments):
    flag_values = flags.FlagValues()
    command_line.define_flags(PRESETS, flag_values=flag_values)
    flag_values(["program", *map(str, arguments)])
    return command_line.read_flags(PRESETS, flag_values=flag_values)


def test_flags_override_the_preset_and_it_the_defaults():
    assert read() == Config()
    assert read("--preset=large") == PRESETS["large"]
    expected = Config(preset="large", width=2, rate=0.25, deep=True)
    assert read("--width=2", "--preset=large", "--rate=0.25", "--deep") == expected


def test_help_names_the_value_of_every_preset():
    flag_values = flags.FlagValues()
    command_line.define_flags(PRESETS, flag_values=flag_values)
    assert flag_values["width"].help == "Channels (small 4, large 9)"
    assert flag_values["rate"].help == "Learning rate (default 0.5)"
    assert flag_values["preset"].help == (
        "<small|large>: Values of all other flags (default small)"
    )


def test_a_workdir_alone_brings_its_configuration_back(tmp_path):
    config = Config(width=7, rate=0.125)
    assert read(f"--workdir={tmp_path}") == Config()
    with folder.open_run(tmp_path, config):
        pass
    assert read(f"--workdir={tmp_path}") == config
    assert read(f"--workdir={tmp_path}", "--tensorboard") == config
    assert read(f"--workdir={tmp_path}", "--width=7") == Config(width=7)


def test_fast_is_the_default_where_there_is_one():
    presets = {**PRESETS, "fast": Config(preset="fast", width=7)}
    values = flags.FlagValues()
    command_line.define_flags(presets, program="line", flag_values=values)
    values(["program"])
    assert command_line.read_flags(presets, flag_values=values) == presets["fast"]
    assert values["preset"].help.endswith("(default fast)")
    assert "(default runs/line-fast, with" in " ".join(values["workdir"].help.split())


def test_an_unknown_preset_lists_those_there_are():
    with pytest.raises(flags.IllegalFlagValueError, match="preset=huge.*small|large"):
        read("--preset=huge")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("width", 0, "at least 1"),
        ("rate", 0.0, "above 0 and at most 1"),
        ("rate", -1.0, "above 0"),
        ("rate", 1.5, "at most 1"),
        ("rate", math.nan, "finite"),
        ("rate", math.inf, "finite"),
    ],
)
def test_a_number_out_of_range_names_the_range(name, value, words):
    with value_error(f"{name}={value} must be .*{words}"):
        Config(**{name: value})


def test_the_console_shows_the_message_and_not_the_traceback(monkeypatch):
    monkeypatch.setattr(logging.getLogger("jax"), "level", logging.NOTSET)
    message = "^ValueError: too wide"
    with pytest.raises(SystemExit, match=message) as caught, command_line.console():
        raise ValueError("too wide")
    assert "verbosity" in str(caught.value.code)
    with pytest.raises(TypeError), command_line.console():
        raise TypeError("a bug of ours keeps its traceback")


def test_model_is_another_name_of_models():
    several = dataclasses.make_dataclass(
        "Several",
        [
            ("preset", str, fields.option("quick", "Values of all other flags")),
            ("models", tuple[str, ...], fields.option(("a",), "Names")),
        ],
        frozen=True,
    )
    presets = {"quick": several()}
    values = flags.FlagValues()
    command_line.define_flags(presets, flag_values=values)
    values(["program", "--model=b"])
    assert command_line.read_flags(presets, flag_values=values).models == ("b",)


@dataclasses.dataclass(frozen=True)
class WithModels(Config):
    models: tuple[str, ...] = fields.option(("a",), "Names")


def test_a_model_takes_the_preset_of_its_own():
    paper, changes = WithModels("paper", width=8), recipe(WithModels, rate=0.25)
    presets = {"small": WithModels(width=8), **published(paper, {"b": changes})}
    assert list(presets) == ["small", "paper", "paper_b"]

    def read(*arguments):
        values = flags.FlagValues()
        command_line.define_flags(presets, flag_values=values)
        values(["program", "--preset=paper", *arguments])
        return command_line.read_flags(presets, flag_values=values)

    one = read("--models=b", "--width=3")
    assert (one.preset, one.width, one.rate) == ("paper_b", 3, 0.25)
    assert read("--models=c").preset == "paper"
    assert read().models == ("a",)
    with value_error("preset=paper is not available for all of models=b"):
        read("--models=b,c")
    values = flags.FlagValues()
    command_line.define_flags(presets, flag_values=values)
    assert values["width"].help == "Channels (default 8)"
    assert values["rate"].help == "Learning rate (default 0.5)"  # without paper_b


def given(cls, *arguments):
    values = flags.FlagValues()
    command_line.define_options(cls, flag_values=values)
    values(["program", *arguments])
    return command_line.read_options(cls, flag_values=values)


def test_programs_without_presets_have_flags_of_their_options():
    found = given(
        predict.PredictOptions,
        *("--workdir=run", "--input=a,b", "--output=out", "--band=pointwise"),
        *("--point_dim=2", "--memory_gib=0.5", "--strict"),
    )
    assert found == predict.PredictOptions(
        "run",
        input=("a", "b"),
        output="out",
        band="pointwise",
        point_dim=2,
        memory_gib=0.5,
        strict=True,
    )
    assert shared.divided(found.input) == shared.divided("a, b") == ["a", "b"]
    assert shared.divided(pathlib.Path("a")) == ["a"]
    for missing in ("workdir", "input"):
        others = [f"--{name}=a" for name in ("workdir", "input") if name != missing]
        with pytest.raises(flags.IllegalFlagValueError, match=missing):
            given(calibrate.CalibrateOptions, *others)
    with pytest.raises(flags.IllegalFlagValueError, match="chunk_size"):
        given(predict.PredictOptions, "--workdir=run", "--chunk_size=0")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "Pass --input and --output, or --export"),
        ({"input": "new"}, "Name a folder for the predictions, --output"),
        ({"export": "model", "strict": True}, "--strict has no effect without --input"),
        (
            {"input": ["a"], "output": "b", "derivatives": 1},
            "no effect without --export",
        ),
        ({"export": "model", "derivatives": -1}, "must not be negative"),
        ({"input": ["a"], "output": "b", "sensitivity": "max:u,min:u"}, "must be one"),
        ({"export": "model", "sensitivity": "max:u"}, "no effect without --input"),
        ({"input": "new", "output": "out", "gif": True}, "no effect without --steps"),
        ({"input": "new", "output": "out", "band": "no"}, "band='no' is unknown"),
        ({"export": "model", "memory_gib": math.nan}, "memory_gib=nan must be finite"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_any_work(options, words):
    with value_error(words):
        predict.PredictOptions("run", **options)


@dataclasses.dataclass(frozen=True)
class Laws:
    laws: tuple[str, ...] = fields.option(("linear",), "Laws")
    power: int = fields.only_with(fields.option(2, "Power"), laws=["power"])


def test_values_without_an_effect_are_refused_if_the_preset_lacks_them():
    base = Laws()
    for ignored in (base, Laws(laws=("power", "linear"), power=3)):
        fields.check_effects(ignored, base)
    changed = Laws(power=3)
    fields.check_effects(changed, changed)
    with value_error("power=3 has no effect with laws=linear"):
        fields.check_effects(changed, base)


def test_a_part_of_a_configuration_has_its_values_and_some_of_its_own():
    one = fields.part(WithModels, Config("large", width=9), models=("b",))
    assert one == WithModels("large", width=9, models=("b",))
