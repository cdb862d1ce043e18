"""What a run folder accepts when it is opened again."""

import dataclasses
import json

import pytest

from opjax.learn.config import RunOptions, TrainingOptions, renamed
from opjax.learn.config.fields import option
from opjax.learn.run import folder


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, TrainingOptions):
    width: int = option(4, "Channels")


def work(directory):
    return {"models": directory.config["models"]}


def once(path, config, **given):
    return folder.run_once(path, config, work, **given)


def test_other_members_are_accepted_and_the_result_is_made_anew(tmp_path):
    first, more = Config(models=("a",)), Config(models=("a", "b"), seeds=(0, 1))
    assert once(tmp_path, first)["models"] == ["a"]
    assert once(tmp_path, more)["models"] == ["a", "b"]
    assert once(tmp_path, first)["models"] == ["a"]
    with pytest.raises(ValueError, match=r"configuration \(width: 4 there, 5 now\)"):
        once(tmp_path, Config(models=("a",), width=5))


def test_a_folder_of_an_earlier_version_continues(tmp_path):
    once(tmp_path, Config())
    file = tmp_path / "config.json"
    values = json.loads(file.read_text())
    del values["eps"]  # this version's option
    file.write_text(json.dumps(values))
    assert folder.read_config(tmp_path, Config) == Config()
    changed = (tmp_path / "result.json").stat().st_mtime_ns
    with pytest.raises(ValueError, match=r"eps: 1e-08 there, 1e-06 now"):
        once(tmp_path, Config(eps=1e-6))
    once(tmp_path, Config())  # finished
    assert (tmp_path / "result.json").stat().st_mtime_ns == changed
    file.write_text(json.dumps({**values, "depth": 3}))
    with pytest.raises(ValueError, match=r"depth: 3 there, '\(unknown\)' now"):
        once(tmp_path, Config())


def test_the_environment_has_the_command_of_the_configuration(tmp_path):
    once(tmp_path, Config(), command="python -m experiments.x --preset=quick")
    text = folder.provenance(tmp_path, seconds=1.0)
    assert text.startswith("- command: `python -m experiments.x --preset=quick`\n")


def test_the_commit_is_said_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "_git", lambda *arguments: None)
    found = folder.environment(tmp_path, "opjax-train")
    (tmp_path / "environment.json").write_text(json.dumps(found))
    text = folder.provenance(tmp_path, seconds=1.0)
    assert f"- opjax {found['packages']['opjax']}, " in text
    assert "commit" not in text


@dataclasses.dataclass(frozen=True)
class Own:
    """A program of one's own, whose option `features` means something else."""

    features: int = option(3, "Fields")


def test_old_names_of_options_are_read_and_those_of_other_programs_left_alone():
    stored = {"features": 8, "num_layers": 2}
    assert renamed.current(stored, ["width", "num_layers"]) == {
        "width": 8,
        "num_layers": 2,
    }
    assert renamed.current(stored, ["features", "num_layers"]) == stored
    assert renamed.current({"width": 4, "features": 8})["width"] == 4
    assert renamed.current(stored) == {**stored, "width": 8}  # of an own model


def test_a_folder_of_an_own_program_keeps_its_names(tmp_path):
    with folder.open_run(tmp_path, Own(5)):
        pass
    assert folder.read_config(tmp_path, Own) == Own(5)
