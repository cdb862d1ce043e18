"""Flags that there are not, and options of single models."""

import dataclasses

import pytest
from absl import flags

from opjax import learn
from opjax.learn.cli import command_line, flag_names, help_models, train
from opjax.learn.cli.train import PRESETS, Config
from opjax.learn.config import fields, model_options
from opjax.learn.registry import operators
from tests.refused import value_error

FEW = help_models.of_few()


def read(*arguments):
    values = flags.FlagValues()
    command_line.define_flags(PRESETS, flag_values=values)
    command_line.parse(["program", *arguments], within=FEW, flag_values=values)
    return command_line.read_flags(PRESETS, flag_values=values)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("epochs", "Did you mean --num_epochs?"),
        ("num_epoch", "Did you mean --num_epochs?"),
        ("lr", "Did you mean --learning_rate?"),
        ("batch", "Did you mean --batch_size?"),
        ("device", "Did you mean --devices?"),
        ("hidden_dim", "Did you mean --width?"),
        ("learning-rate", "Did you mean --learning_rate?"),
        ("features", "Since opjax 0.3 it is called --width."),
        ("mesh", "Since opjax 0.3 it is called --devices."),
        ("num_experts", "--model_options=num_experts=..."),
        ("noouter_norm", "--model_options=outer_norm=..."),
        ("num_expert", "Did you mean --model_options=num_experts=...?"),
    ],
)
def test_a_flag_that_there_is_not_leads_to_the_one_that_was_meant(wrong, hint):
    with pytest.raises(SystemExit, match=f"Unknown flag --{wrong}. ") as ended:
        read(f"--{wrong}=3")
    assert hint in str(ended.value)


def test_what_is_near_nothing_is_only_unknown():
    assert flag_names.meant("qqqqqq", ["num_epochs", "train"]) == ""


def test_every_suggested_flag_is_one_of_the_program():
    values = flags.FlagValues()
    groups = command_line.define_flags(PRESETS, flag_values=values)
    named = {name for names in groups.values() for name in names}
    assert named >= flag_names._ELSEWHERE.keys()


def test_no_option_of_few_models_has_a_flag_or_is_left_out_of_help():
    values = flags.FlagValues()
    command_line.define_flags(PRESETS, flag_values=values)
    text = help_models.sections()
    for name in FEW:
        assert name not in values
        assert f"  {name}:" in text
    readers = {name: operators.options_of(name) for name in operators.REGISTRY}
    for name in FEW:  # each is read by a model
        assert any(name in options for options in readers.values())
    assert all(name in " ".join(text.split()) for name in operators.REGISTRY)


def test_an_option_of_a_model_is_that_of_its_member_alone():
    config = read(
        "--models=gnot,ono,fno",
        "--model_options=gnot.num_experts=5,ono_attention=mean,fno.num_modes=7",
    )
    found = {name: one for (name, _), one in config.members().items()}
    assert (found["gnot"].num_experts, found["ono"].num_experts) == (5, 3)
    assert (found["fno"].num_modes, found["gnot"].num_modes) == (7, 12)
    assert found["ono"].ono_attention == "mean"
    assert {one.model_options for one in found.values()} == {""}
    operators.check_options(config, PRESETS["fast"])


def test_one_model_of_several_has_another_number_of_basis_functions():
    config = Config(
        models=("functional", "transolver"),
        model_options="num_basis=8,transolver.num_basis=16",
    )
    found = [one.num_basis for one in config.members().values()]
    assert found == [8, 16]  # that of one model comes before that of all


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_experts", "must have the form gnot.num_experts=4"),
        ("gnot.=4", "must have the form gnot.num_experts=4"),
        ("gnot.experts=4", "'experts' is unknown; choose from"),
        ("gnot.num_experts=four", "num_experts=four must be an integer"),
        ("temperature=warm", "temperature=warm must be a number"),
        ("outer_norm=1", "outer_norm=1 must be true or false"),
        ("num_experts=4,num_experts=5", "num_experts twice"),
    ],
)
def test_what_is_no_option_of_a_model_is_refused(text, message):
    with value_error(message):
        Config(models=("gnot",), model_options=text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "fno.num_modes=4",
            "fno.num_modes belongs to a model that is not in models=gnot",
        ),
        ("gnot.num_modes=4", "num_modes has no effect on gnot, whose options are"),
        ("num_modes=4", "num_modes has no effect on models=gnot; omit it"),
        ("gnot.width=32", "width is adjusted for equal parameters"),
    ],
)
def test_an_option_that_no_model_reads_is_refused(text, message):
    config = dataclasses.replace(PRESETS["quick"], models=("gnot",), model_options=text)
    with value_error(message):
        operators.check_options(config, PRESETS["quick"])


def test_an_option_out_of_range_is_refused_for_its_model():
    config = Config(models=("gnot",), model_options="num_experts=0")
    with value_error("num_experts=0 must be"):
        config.members()


def test_the_command_spells_what_was_given_in_python():
    base = PRESETS["quick"]
    config = dataclasses.replace(base, models=("gnot",), num_experts=5, width=32)
    command = fields.command("opjax-train", config, base)
    assert command == (
        "opjax-train --preset=quick --models=gnot --width=32 "
        "--model_options=num_experts=5"
    )
    again = read(*command.split()[1:])
    assert next(iter(again.members().values())) == next(iter(config.members().values()))


def test_values_have_the_types_of_their_options():
    defaults = {"outer_norm": False, "num_modes": 12, "dropout": 0.0, "unit": "one"}
    text = "outer_norm=True, fno.num_modes=3,dropout=1e-1,unit=mean"
    found = model_options.parse(text, defaults)
    assert model_options.values(found, "fno") == {
        "outer_norm": True,
        "num_modes": 3,
        "dropout": 0.1,
        "unit": "mean",
    }
    assert "num_modes" not in model_options.values(found, "lno")


@pytest.mark.nightly
def test_the_options_of_a_model_reach_training(tmp_path):
    train.run(
        dataclasses.replace(
            PRESETS["smoke"],
            models=("gnot",),
            model_options="gnot.num_experts=2",
            num_epochs=1,
        ),
        workdir=tmp_path,
    )
    assert learn.load(tmp_path).description.config["num_experts"] == 2


def test_a_blank_after_a_comma_is_named():
    line = ["--preset=smoke", "--models=functional,", "galerkin", "--seeds=0"]
    said = flag_names.unexpected(["galerkin"], line)
    assert "Unexpected arguments: galerkin." in said
    assert "write --models=functional,galerkin" in said
    assert "blank" not in flag_names.unexpected(["data"], ["data", "--seeds=0"])


def test_options_of_no_single_model_leave_no_empty_list_in_the_help():
    assert "; )" not in help_models.sections()
    assert "(default False)" in help_models.sections()
