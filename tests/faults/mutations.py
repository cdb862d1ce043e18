"""Breaks what protects runs and the numerics, and shows which tests see it.

    python -m tests.faults.mutations

Each mutation is made in a copy of the repository, where its tests have to fail; in the
copy as it is they have to pass. The last line is JSON, the lines before are the rows of
a table; the status is 1 if a mutation was not seen.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import sys
import tempfile

import flax.nnx
import jax
import optax
import orbax.checkpoint as ocp
import pytest

from tests.faults.mutations_numerics import NUMERICS, Mutation

_ROOT = pathlib.Path(__file__).parents[2]
_FAULTS = "tests/faults/"
_OWN = ("opjax", "tests", "experiments")
_READY = (flax.nnx, jax, ocp, optax)  # imported once, before the forks
_BROKEN = 70  # EX_SOFTWARE
_KILLS = "tests/faults/test_kills.py -k killed_programs"


RUNS = (
    Mutation(
        "files are written in their place",
        "opjax/_files.py",
        "    try:\n        yield temporary\n        sync(",
        "    yield path\n    return\n    try:\n        yield temporary\n        sync(",
        f"{_FAULTS}test_disks.py -k replaced",
    ),
    Mutation(
        "renamed before it is on the disk",
        "opjax/_files.py",
        "        sync(temporary)\n",
        "",
        f"{_FAULTS}test_disks.py -k replaced",
    ),
    Mutation(
        "fsync that fails is ignored",
        "opjax/_files.py",
        "        if error.errno not in _UNABLE:\n            raise\n",
        "        pass\n",
        f"{_FAULTS}test_disks.py -k fsync",
    ),
    Mutation(
        "checkpoints without a manifest count",
        "opjax/training/checkpoint.py",
        'p.parent.name for p in directory.glob(f"step_*/{_manifest.NAME}")',
        'p.name for p in directory.glob("step_*")',
        "tests/test_checkpoint.py -k killed_while_saving",
    ),
    Mutation(
        "no checksum of the files",
        "opjax/training/checkpoint.py",
        '    if info["crc32"] != _manifest.checksums(path):\n',
        "    if False:\n",
        f"{_FAULTS}test_disks.py -k flips",
    ),
    Mutation(
        "no checksum of the manifest",
        "opjax/training/_manifest.py",
        'values.pop("own", None) not in (None, own(values))',
        'values.pop("own", None) and False',
        f"{_FAULTS}test_disks.py -k manifest_of",
    ),
    Mutation(
        "no checksums of the files of published operators",
        "opjax/learn/predict/published.py",
        "if (stamp := _stamp(path)) != stamps.get(name):",
        "if (stamp := None) is not None:",
        f"{_FAULTS}test_published.py -k bit_flips",
    ),
    Mutation(
        "no checksum of the description of published operators",
        "opjax/learn/predict/published.py",
        'changed = config.pop("own", None) != _manifest.own(config)',
        'changed = config.pop("own", None) is False',
        f"{_FAULTS}test_published.py -k bit_flips",
    ),
    Mutation(
        "tensors of any type",
        "opjax/learn/predict/published.py",
        "if (array.shape, array.dtype) != (shape.shape, kind):",
        "if array.shape != shape.shape:",
        f"{_FAULTS}test_published.py -k tensors",
    ),
    Mutation(
        "what a failed save leaves stays",
        "opjax/training/checkpoint.py",
        "        if begun:  # what",
        "        if False:  # what",
        f"{_FAULTS}test_disks.py -k full_disk",
    ),
    Mutation(
        "old checkpoints stay",
        "opjax/training/checkpoint.py",
        "if one <= step][:-keep]:\n",
        "if one <= step][:0]:\n",
        f"{_FAULTS}test_long.py -k checkpoints",
    ),
    Mutation(
        "later checkpoints stay",
        "opjax/training/checkpoint.py",
        "        if later > step:\n",
        "        if False:\n",
        f"{_FAULTS}test_disks.py -k went_back",
    ),
    Mutation(
        "the lock is not taken",
        "opjax/learn/run/folder.py",
        "            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        f"{_FAULTS}test_folders.py -k second_process",
    ),
    Mutation(
        "the lock is the file, not who holds it",
        "opjax/learn/run/folder.py",
        "            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            if (path / '.lock').stat().st_size:\n"
        "                raise BlockingIOError\n",
        f"{_FAULTS}test_folders.py -k second_process",
    ),
    Mutation(
        "rows after the checkpoint stay",
        "opjax/learn/run/metrics_file.py",
        "            self._file.truncate(self._size)\n            _files",
        "            _files",
        "tests/learn/test_fitting.py -k drop_the_rows",
    ),
    Mutation(
        "a full disk ends the metrics",
        "opjax/learn/run/metrics_file.py",
        "        except OSError as error:\n            with contextlib",
        "        except KeyError as error:\n            with contextlib",
        "tests/learn/test_fitting.py -k rows_wait",
    ),
    Mutation(
        "SIGTERM outside of training has no handler",
        "opjax/learn/run/stopping.py",
        "    with _handled(end):\n",
        "    with contextlib.nullcontext():\n",
        f"{_FAULTS}test_folders.py -k sigterm",
    ),
    Mutation(
        "SIGTERM in training does not save",
        "opjax/learn/run/fitting.py",
        "            loop.save_if_due(now=stop or old)\n",
        "            loop.save_if_due(now=old)\n",
        "tests/learn/test_fitting.py -k told_to_stop",
    ),
    Mutation(
        "leftovers of killed processes stay",
        "opjax/learn/run/folder.py",
        "            remove_leftovers(folder)\n",
        "            pass\n",
        f"{_FAULTS}test_folders.py -k killed_process_left",
    ),
    Mutation(
        "the mask: points that fill up a mesh have weight",
        "opjax/samples/padding.py",
        '    padded["quadrature_weights"][sample.num_points :] = 0\n',
        "",
        "tests/datasets/test_samples.py -k padding",
    ),
    Mutation(
        "the mask: attention does not look at weights",
        "opjax/attention/pairwise.py",
        "query.shape[1] ** -0.5 * scores + log_weights(weights, dtype)",
        "query.shape[1] ** -0.5 * scores",
        "tests/test_attention.py -k padded_points_do_not",
    ),
    Mutation(
        "kills: a run goes on with the first weights",
        "opjax/learn/run/loop.py",
        '            rows = restored.metadata["rows"]\n',
        "            self.progress = self._first(model)\n"
        '            rows = restored.metadata["rows"]\n',
        _KILLS,
    ),
    Mutation(
        "kills: a run does not know how many rows it had",
        "opjax/learn/run/loop.py",
        '            rows = restored.metadata["rows"]\n',
        "            rows = 10**9\n",
        _KILLS,
    ),
    Mutation(
        "kills: temporary files stay",
        "opjax/learn/run/folder.py",
        "            remove_leftovers(folder)\n",
        "            pass\n",
        _KILLS,
    ),
)
MUTATIONS = (*RUNS, *NUMERICS)
_TABLES = {"runs": RUNS, "numerics": NUMERICS}


def copied(folder: pathlib.Path) -> None:
    """Copies what tests need."""
    for name in ("opjax", "tests", "experiments"):
        junk = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_ROOT / name, folder / name, ignore=junk)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(_ROOT / name, folder / name)


def tested(folder: pathlib.Path, tests: str) -> tuple[bool, str]:
    """Whether the tests pass in a copy, and which one fails first.

    In a forked process, for which all but the copy is imported.
    """
    log = folder.with_suffix(".log")
    child = os.fork()
    if not child:
        status = _BROKEN
        try:
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.chdir(folder)
            sys.path.insert(0, str(folder))
            os.environ["PYTHONPATH"] = str(folder)
            for name in [n for n in sys.modules if n.partition(".")[0] in _OWN]:
                del sys.modules[name]
            given = ["-n", "0", "-m", "", "-x", "-q"]
            status = int(pytest.main([*given, *shlex.split(tests)]))
        finally:
            sys.stdout.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = log.read_text()
    failed = re.search(r"^(?:FAILED|ERROR) \S*::(\w+)", text, re.MULTILINE)
    if bool(status) != bool(failed):  # others than 1 for what tests leave open, too
        raise RuntimeError(f"{tests}: {text[-3000:]}")
    return status == 0, failed[1] if failed else ""


def seen(mutation: Mutation, folder: pathlib.Path) -> str:
    """The test that fails because of a mutation; empty if none does."""
    file = folder / mutation.file
    text = file.read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.file} has not one place of {mutation.name!r}.")
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        return tested(folder, mutation.tests)[1]
    finally:
        file.write_text(text)


def main() -> int:
    """Runs on the flags; returns the status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="with these words in name or file")
    parser.add_argument("--table", choices=_TABLES, help="one of the two tables")
    given = parser.parse_args()
    table = _TABLES.get(given.table, MUTATIONS)
    chosen = [m for m in table if given.only in f"{m.name} {m.file}"]
    with tempfile.TemporaryDirectory(prefix="opjax-mutations-") as place:
        folder = pathlib.Path(place) / "opjax-copy"
        copied(folder)
        for tests in dict.fromkeys(m.tests for m in chosen):
            passed, failed = tested(folder, tests)
            if not passed:
                raise RuntimeError(f"{tests}: {failed} fails without any mutation.")
        found = {}
        for mutation in chosen:
            found[mutation.name] = seen(mutation, folder)
            shown = found[mutation.name].removeprefix("test_").replace("_", " ")
            row = f"| {mutation.name} | `{mutation.file}` | {shown or '**none**'} |"
            print(row, flush=True)
    missed = [name for name, test in found.items() if not test]
    print(json.dumps({"mutations": len(found), "missed": missed}))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
