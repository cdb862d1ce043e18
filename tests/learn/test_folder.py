"""What a run folder accepts when it is opened again."""

import dataclasses
import json

import numpy as np
import pytest

from opjax.files.fingerprints import difference, fingerprint
from opjax.learn.config import RunOptions, TrainingOptions, renamed
from opjax.learn.config.fields import option
from opjax.learn.run import folder
from tests.refused import value_error


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
    with value_error(r"configuration \(width: 4 there, 5 now\)"):
        once(tmp_path, Config(models=("a",), width=5))


def test_a_folder_of_an_earlier_version_continues(tmp_path):
    once(tmp_path, Config())
    file = tmp_path / "config.json"
    values = json.loads(file.read_text())
    del values["eps"]  # this version's option
    file.write_text(json.dumps(values))
    assert folder.read_config(tmp_path, Config) == Config()
    changed = (tmp_path / "result.json").stat().st_mtime_ns
    with value_error(r"eps: 1e-08 there, 1e-06 now"):
        once(tmp_path, Config(eps=1e-6))
    once(tmp_path, Config())  # finished
    assert (tmp_path / "result.json").stat().st_mtime_ns == changed
    file.write_text(json.dumps({**values, "depth": 3}))
    with value_error(r"depth: 3 there, '\(unknown\)' now"):
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


def write(path, count, value=0.0):
    path.mkdir(exist_ok=True)
    for number in range(count):
        array = np.full(4, value + number)
        np.savez(path / f"{number}.npz", mesh_points=np.eye(4), target=array)


def interrupted(directory):
    (directory.path / "metrics.jsonl").write_text("{}")
    raise KeyboardInterrupt


def test_a_study_goes_on_only_with_the_files_it_began_with(tmp_path):
    data, run = tmp_path / "data", tmp_path / "run"
    write(data, 3)
    given = {"data": lambda: {"train": fingerprint([str(data)])}}
    one, two = Config(seeds=(0,)), Config(seeds=(0, 1))
    once(run, one, **given)
    write(data, 5)
    assert once(run, one, **given)["models"]  # finished: it is read
    for _ in range(2):  # a refusal leaves the folder as it was
        with value_error("contains a run on other files of --train") as s:
            once(run, two, **given)
        assert "3 files of" in str(s.value)
        assert "there, 5 files of" in str(s.value)
        assert f"2 added, such as {data / '3.npz'}" in str(s.value)
        assert (run / "result.json").exists()
    for name in ("3", "4"):
        (data / f"{name}.npz").unlink()
    once(run, two, **given)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: write(data, 4), "1 added"),
        (lambda data: write(data, 3, value=1.0), "3 changed"),
        (lambda data: (data / "1.npz").unlink(), "1 removed"),
        (lambda data: (data / "cases.csv").write_text("file,a\n"), "1 added"),
    ],
)
def test_an_interrupted_run_is_not_resumed_on_other_files(change, said, tmp_path):
    data, run = tmp_path / "data", tmp_path / "run"
    write(data, 3)
    given = {"data": lambda: {"train": fingerprint([str(data)])}}
    with pytest.raises(KeyboardInterrupt):
        folder.run_once(run, Config(), interrupted, **given)
    once(tmp_path / "same", Config(), **given)
    change(data)
    with value_error(f"other files of --train.*{said}"):
        once(run, Config(), **given)


def test_all_parts_of_samples_count_for_the_digest_of_files(tmp_path):
    data = tmp_path / "data"
    (data / "a" / "boundary").mkdir(parents=True)
    (data / "a.vtm").write_text("<VTKFile/>")
    (data / "a" / "internal.vtu").write_bytes(b"1")
    before = fingerprint([str(data)])
    assert before == fingerprint([str(data)])
    assert before.files == 2
    (data / "a" / "internal.vtu").write_bytes(b"2")
    assert fingerprint([str(data)]).digest != before.digest
    large = data / "b.npz"
    large.write_bytes(bytes(2**21))
    known = fingerprint([str(large)])
    content = bytearray(2**21)
    content[-1] = 1
    large.write_bytes(content)
    assert difference(known, fingerprint([str(large)])) == f"1 changed, such as {large}"
