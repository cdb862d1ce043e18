"""Files say in which format they are; newer ones are refused, older ones are read."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from opjax import _formats, export
from opjax.learn.predict import trained
from opjax.learn.run import folder
from opjax.training import _manifest, checkpoint
from tests.refused import value_error
from tests.test_compatibility import FOLDER, unpack

MESSAGE = (
    r"has format 7 of {}\w+, but this opjax \(.+\) reads only formats up to 1\. Update"
)


@dataclasses.dataclass(frozen=True)
class Config:
    width: int = 4


def restored(directory, payload):
    found = checkpoint.restore(directory, payload)
    assert found is not None
    return found.step


def manifest(directory, **changes):
    """Changes values of a manifest, and signs them."""
    path = next(directory.rglob("opjax_manifest.json"))
    values = json.loads(path.read_text()) | changes
    kept = {k: v for k, v in values.items() if v is not None and k != "own"}
    path.write_text(_manifest.signed(kept))
    return path


def test_checkpoints_of_newer_formats_are_refused_and_older_ones_read(tmp_path):
    payload = {"w": np.arange(3.0)}
    for step in (1, 2):
        path = checkpoint.save(tmp_path, step, payload, metadata={"a": step})
    values = json.loads((path / "opjax_manifest.json").read_text())
    assert values["format"] == _formats.CHECKPOINT
    manifest(path, format=None)
    assert checkpoint.read_metadata(tmp_path, 2) == {"a": 2}
    assert restored(tmp_path, payload) == 2
    newer = manifest(path, format=7, more=[1])
    for read in (
        lambda: checkpoint.restore(tmp_path, payload),
        lambda: checkpoint.read_metadata(tmp_path, 2),
    ):
        with pytest.raises(_formats.NewerFormatError, match=MESSAGE.format("chec")):
            read()
    # Damage is none: the checksum does not fit.
    newer.write_text(newer.read_text().replace('"format": 7', '"format": 9'))
    with pytest.warns(UserWarning, match="Ignored damaged"):
        assert restored(tmp_path, payload) == 1
    manifest(path, format="1", more=None)
    with pytest.raises(checkpoint.CheckpointError, match="'1' is not a format"):
        checkpoint.read_metadata(tmp_path, 2)


def test_configurations_of_newer_formats_are_refused_and_older_ones_read(tmp_path):
    def run(config):
        return folder.run_once(tmp_path, config, lambda d: {"w": d.config["width"]})

    assert run(Config()) == {"w": 4}
    file = tmp_path / "config.json"
    assert json.loads(file.read_text()) == {"format": 1, "width": 4}
    file.write_text('{"width": 4}')
    assert folder.read_config(tmp_path, Config) == Config()
    assert run(Config()) == {"w": 4}
    file.write_text('{"format": 7, "width": 4, "later": 3}')
    for read in (run, lambda config: folder.read_config(tmp_path, type(config))):
        with pytest.raises(_formats.NewerFormatError, match=MESSAGE.format("conf")):
            read(Config())
    file.write_text('{"format": true}')
    with value_error(r"config\.json is damaged: 'True' is no"):
        run(Config())


def test_runs_of_0_1_0_have_no_format_and_later_ones_are_refused(tmp_path):
    root = unpack("0.1.0", "whole", tmp_path)
    (run,) = [path.parent for path in root.rglob("operator")]
    assert "format" not in json.loads((run / "config.json").read_text())
    operator = trained.load(root)
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "operator")
    trained.save(copy, operator.model, operator.normalizers, operator.description)
    assert trained.load(copy).description.config == operator.description.config
    manifest(run / "operator", format=7)
    with pytest.raises(_formats.NewerFormatError, match=MESSAGE.format("chec")):
        trained.load(root)


def test_exported_operators_of_newer_formats_are_refused_and_older_ones_read(
    tmp_path, monkeypatch
):
    pytest.importorskip("flatbuffers", reason="needs `pip install 'opjax[export]'`")
    content = (FOLDER / "0.1.0" / "operator.jax").read_bytes()  # of before checksums
    path = tmp_path / "operator.jax"
    for number in (0, 1):
        path.write_bytes(content + export._end(content, number))
        assert len(export.load(path).in_avals) == 2
        monkeypatch.setattr(export, "_parsed_apart", lambda content: "")  # once
    ends = [export._end(content, 7), export._end(content).replace(b" 1,", b" 7,")]
    for end, message in zip(ends, (MESSAGE.format("op"), "checksum"), strict=True):
        path.write_bytes(content + end)
        with value_error(message):
            export.load(path)
