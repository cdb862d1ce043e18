"""What a run folder accepts when it is opened again."""

import dataclasses
import json

import pytest

from opjax.learn import folder, stored
from opjax.learn.config import RunOptions, TrainingOptions
from opjax.learn.fields import option
from opjax.learn.provenance import provenance


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, TrainingOptions):
    width: int = option(4, "Channels")


def work(directory):
    return {"models": directory.config["models"]}


def once(path, config, **given):
    return folder.run_once(path, config, work, last_line=False, **given)


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
    values["models"], values["seeds"] = ",".join(values["models"]), "0"
    file.write_text(json.dumps(values))
    assert stored.read_config(tmp_path, Config) == Config()
    presets = {"quick": Config(eps=1e-6)}
    assert stored.read_config(tmp_path, Config, presets) == presets["quick"]
    # As the defaults have it, then as the preset has it: finished both times.
    changed = (tmp_path / "result.json").stat().st_mtime_ns
    once(tmp_path, Config())
    file.write_text(json.dumps(values))
    once(tmp_path, presets["quick"], base=presets["quick"])
    file.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"eps: 1e-06 there, 1e-08 now"):
        once(tmp_path, Config(), base=presets["quick"])
    assert (tmp_path / "result.json").stat().st_mtime_ns == changed
    file.write_text(json.dumps({**values, "depth": 3}))
    with pytest.raises(ValueError, match=r"depth: 3 there, '\(unknown\)' now"):
        once(tmp_path, Config())


def test_the_only_model_of_an_earlier_version_gets_a_folder_of_its_own(tmp_path):
    values = {"preset": "quick", "model": "fno", "seed": 2, "width": 4}
    (tmp_path / "config.json").write_text(json.dumps(values))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    stored.adopt(tmp_path, Config)
    config = Config(models=("fno",), seeds=(2,))
    assert (tmp_path / "fno-2" / "checkpoints").is_dir()
    with folder.open_run(tmp_path / "fno-2", config) as run:
        assert run.resumed
    stored.adopt(tmp_path, Config)  # nothing is left to do
    with folder.open_run(tmp_path, config) as run:
        assert run.resumed


def test_the_environment_has_the_command_of_the_configuration(tmp_path):
    once(tmp_path, Config(), command="python -m experiments.x --preset=quick")
    text = provenance(tmp_path, seconds=1.0)
    assert text.startswith("- command: `python -m experiments.x --preset=quick`\n")
