import json
import logging
import pathlib
import socket
import subprocess
import sys
import textwrap
import threading

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from opjax import normalize, training
from opjax.training import _arrays, checkpoint
from tests import refused

ROOT = pathlib.Path(__file__).parents[1]


class Model(nnx.Module):
    def __init__(self, *, rngs):
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs) for _ in range(2)])
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.offset = jnp.arange(3)


@pytest.fixture
def payload():
    rule = training.adamw_onecycle(1e-3, 10, weight_decay=0.1, clip_norm=1.0)
    return {
        "state": training.init(Model(rngs=nnx.Rngs(0)), rule),
        "key": jax.random.key(3),
        "normalizer": normalize.Normalizer(jnp.ones(2), jnp.full(2, 3.0)),
        "half": jnp.ones(2, jnp.bfloat16),
        "single": jnp.full(3, jnp.nan, jnp.float32),
        "empty": jnp.zeros((0, 2)),
        "numpy": np.arange(3),
        "best": np.float64(1e300),
        "seconds": 0.1,
        "epoch": 3,
    }


def raw(leaf):
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes()


def assert_identical(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(x) is type(y)
        assert getattr(x, "dtype", None) == getattr(y, "dtype", None)
        assert raw(x) == raw(y)


def blank(payload):
    def zero(leaf):
        key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.key(0) if key else leaf * 0

    return jax.tree.map(zero, payload)


def test_every_type_and_bit_comes_back(tmp_path, payload, caplog):
    with caplog.at_level(logging.INFO):
        checkpoint.save(tmp_path, 5, payload, metadata={"config": {"a": [1, None]}})
        restored = checkpoint.restore(tmp_path, blank(payload))
    assert restored is not None
    assert restored.step == 5
    assert restored.metadata == {"config": {"a": [1, None]}}
    assert_identical(restored.payload, payload)
    assert type(restored.payload["state"].model) is Model
    assert not [r for r in caplog.records if r.name == "absl"], "Orbax must be silent"


def test_an_abstract_template_is_enough(tmp_path):
    values = {"w": jnp.arange(3.0), "key": jax.random.key(1)}
    checkpoint.save(tmp_path, 0, values)
    restored = checkpoint.restore(tmp_path, jax.eval_shape(lambda: values))
    assert restored is not None
    assert_identical(restored.payload, values)


def test_restored_arrays_may_be_donated(tmp_path):
    checkpoint.save(tmp_path, 0, {"w": jnp.arange(3.0)})
    restored = checkpoint.restore(tmp_path, {"w": jnp.zeros(3)})
    assert restored is not None
    double = jax.jit(lambda x: 2 * x, donate_argnums=0)(restored.payload["w"])
    np.testing.assert_array_equal(double, [0, 2, 4])


def test_the_latest_are_kept(tmp_path):
    for step in range(5):
        checkpoint.save(tmp_path, step, {"x": step}, keep=2)
    assert checkpoint.all_steps(tmp_path) == [3, 4]
    restored = checkpoint.restore(tmp_path, {"x": 0}, step=3)
    assert restored is not None
    assert restored.payload == {"x": 3}


def test_nothing_to_restore_is_none(tmp_path):
    assert checkpoint.restore(tmp_path / "none", {"x": 0}) is None
    assert checkpoint.all_steps(tmp_path / "none") == []


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, damage):
    values = {"w": jnp.arange(100.0)}
    for step in (1, 2):
        path = checkpoint.save(tmp_path, step, values)
    files = [f for f in path.rglob("*") if f.is_file() and f.stat().st_size > 1]
    for file in files:
        content = file.read_bytes()
        middle = len(content) // 2
        if damage == "truncate":
            file.write_bytes(content[:middle])
        elif damage == "flip":
            flipped = bytes([content[middle] ^ 255])
            file.write_bytes(content[:middle] + flipped + content[middle + 1 :])
        else:
            file.unlink()
        if file.name == "opjax_manifest.json" and damage == "delete":
            restored = checkpoint.restore(tmp_path, values)  # never was complete
        else:
            with pytest.warns(UserWarning, match="Continuing from step 1"):
                restored = checkpoint.restore(tmp_path, values)
        assert restored is not None
        assert restored.step == 1
        file.write_bytes(content)
    restored = checkpoint.restore(tmp_path, values)
    assert restored is not None
    assert restored.step == 2


def test_if_all_are_damaged_the_error_says_so(tmp_path):
    path = checkpoint.save(tmp_path, 1, {"x": 1.0})
    (path / "arrays" / "manifest.ocdbt").write_bytes(b"")
    with pytest.raises(checkpoint.CheckpointError, match="from a copy, or delete"):
        checkpoint.restore(tmp_path, {"x": 0.0})
    with pytest.raises(checkpoint.CheckpointError, match="no step 7"):
        checkpoint.restore(tmp_path, {"x": 0.0}, step=7)


def test_a_run_killed_while_saving_leaves_the_previous_checkpoint(tmp_path):
    script = f"""
        import os, pathlib, signal
        import jax.numpy as jnp
        from opjax.training import checkpoint
        checkpoint.save({str(tmp_path)!r}, 1, {{"w": jnp.ones(3)}})
        rename = pathlib.Path.replace
        def kill(self, target):
            os.kill(os.getpid(), signal.SIGKILL)
        pathlib.Path.replace = kill
        checkpoint.save({str(tmp_path)!r}, 2, {{"w": jnp.zeros(3)}})
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    assert subprocess.run(command, cwd=ROOT).returncode == -9
    like = {"w": jnp.zeros(3, jnp.float32)}
    restored = checkpoint.restore(tmp_path, like)
    assert restored is not None
    assert restored.step == 1
    checkpoint.save(tmp_path, 2, like)
    assert checkpoint.all_steps(tmp_path) == [1, 2]


def test_a_changed_model_is_refused_by_name(tmp_path):
    checkpoint.save(tmp_path, 1, {"w": jnp.ones(3), "old": 1.0})
    refused.each(
        (
            lambda: checkpoint.restore(tmp_path, {"w": jnp.ones(3), "new": 1.0}),
            r"missing.*'new'.*unexpected.*'old'.*config",
        ),
        (
            lambda: checkpoint.restore(tmp_path, {"w": jnp.ones(4), "old": 1.0}),
            r"'w'.*\(3,\).*\(4,\)",
        ),
        (
            lambda: checkpoint.restore(
                tmp_path, {"w": jnp.ones(3, jnp.float32), "old": 1.0}
            ),
            "float64",
        ),
    )


def test_an_unwritable_folder_and_a_full_disk_name_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(checkpoint.CheckpointError, match="Not a directory.*Free disk"):
        checkpoint.save(tmp_path / "file" / "x", 1, {"x": 1.0})
    checkpoint.save(tmp_path, 1, {"x": 1.0})

    def full(*args, **kwargs):
        raise ValueError("RESOURCE_EXHAUSTED: No space left on device")

    monkeypatch.setattr(ocp.Checkpointer, "save", full)
    with pytest.raises(checkpoint.CheckpointError, match="No space left.*Free disk"):
        checkpoint.save(tmp_path, 2, {"x": 2.0})
    restored = checkpoint.restore(tmp_path, {"x": 0.0})
    assert restored is not None
    assert restored.payload == {"x": 1.0}


def test_text_belongs_into_the_metadata(tmp_path):
    with pytest.raises(TypeError, match="metadata"):
        checkpoint.save(tmp_path, 1, {"x": "text"})
    with pytest.raises(ValueError, match="keep=0"):
        checkpoint.save(tmp_path, 1, {"x": 1.0}, keep=0)


SECOND = """
    import json, pathlib, sys
    import jax, numpy as np
    from opjax.training import _arrays, checkpoint

    folder, address, index = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    jax.distributed.initialize(address, 2, index)
    assert (jax.process_count(), jax.process_index()) == (2, index)
    payload, found = {"w": np.arange(3.0) + index, "n": 2}, {}
    try:  # twice: nothing waits for the other process
        for step in (1, 2):
            checkpoint.save(folder / str(index), step, payload)
    except RuntimeError as error:
        found["refused"] = str(error)
        _arrays.write(folder / "unchecked", {"w": np.arange(3.0)})
        files = [f for f in (folder / "unchecked").rglob("d/*") if f.is_file()]
        found["files"] = len(files)
    else:
        restored = checkpoint.restore(folder / str(index), payload)
        found["restored"] = [restored.step, *restored.payload["w"].tolist()]
        (folder / "done").touch()
    while not (folder / "done").exists():  # the second reads what the first has saved
        pass
    found["read"] = checkpoint.restore(folder / "0", payload).payload["w"].tolist()
    print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_of_several_processes_the_first_saves_alone_and_all_restore_alone(tmp_path):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    command = [sys.executable, "-c", textwrap.dedent(SECOND), str(tmp_path), address]
    processes = [
        subprocess.Popen([*command, str(index)], cwd=ROOT, stdout=subprocess.PIPE)
        for index in range(2)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    first, second = (json.loads(text.splitlines()[-1]) for text in said)
    assert first == {"restored": [2, 0, 1, 2], "read": [0, 1, 2]}
    assert second["read"] == [0, 1, 2]
    assert "only in process 0" in second["refused"]
    # If this fails, Orbax has changed: remove `_arrays.check_process`.
    assert second["files"] == 0


def test_orbax_keeps_its_own_types_and_leaves_no_thread(tmp_path):
    before = ocp.type_handlers.get_type_handler(np.ndarray)
    threads = threading.active_count()
    for step in range(3):
        checkpoint.save(tmp_path, step, {"w": np.arange(3.0)})
    assert ocp.type_handlers.get_type_handler(np.ndarray) is before
    assert threading.active_count() == threads


def test_arrays_without_axes_and_of_every_kind_keep_shape_and_dtype(tmp_path):
    kinds = ["?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16", jnp.bfloat16]
    arrays = {
        f"{np.dtype(kind).name} {shape}": np.ones(shape, kind)
        for kind in kinds
        for shape in ((), (1,), (2, 3))
    }
    _arrays.write(tmp_path / "some", arrays)
    found = _arrays.read(tmp_path / "some")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert type(found[name]) is np.ndarray
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
