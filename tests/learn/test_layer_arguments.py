"""A new argument of a layer: where it is declared, as an option, and passed on."""

import pathlib
import shutil
import subprocess
import sys

import pytest

import opjax

# `gain` multiplies the values that a functional map carries.
PATCH = {
    "nn/mixers.py": {
        '        ridge_unit: str = "one",\n        ridge_per_head': (
            '        ridge_unit: str = "one",\n        gain: float = 1.0,\n'
            "        ridge_per_head"
        ),
        "        self.ridge_unit = ridge_unit\n": (
            "        self.ridge_unit = ridge_unit\n        self.gain = gain\n"
        ),
        "        query, key = self._in_units(query, key)\n"
        "        return opjax.transport(query, key, value,": (
            "        query, key = self._in_units(query, key)\n"
            "        return opjax.transport(query, key, self.gain * value,"
        ),
    },
    "learn/config/groups.py": {
        "    temperature: float = _of_single(": (
            '    gain: float = _of_single(1.0, "Factor of the values", above=0)\n'
            "    temperature: float = _of_single("
        ),
    },
    "learn/registry/attentions.py": {
        "        nn.mixers.FunctionalMap,\n": (
            "        nn.mixers.FunctionalMap,\n        gain=config.gain,\n"
        ),
        '    "functional": NamedMixer(_functional, _RIDGE),': (
            '    "functional": NamedMixer(_functional, (*_RIDGE, "gain")),'
        ),
    },
}
PROGRAM = """
import dataclasses
import sys

from opjax import learn
from opjax.learn.cli import train


def run(model, options):
    smoke = dataclasses.replace(train.PRESETS["smoke"], models=(model,), num_epochs=1)
    config = dataclasses.replace(smoke, model_options=options)
    train.run(config, workdir=f"{sys.argv[1]}/{options}")
    return learn.load(f"{sys.argv[1]}/{options}").model.blocks.attention.mixer


print("gain:", run("functional", "").gain, run("functional", "gain=3.0").gain)
try:
    run("galerkin", "gain=3.0")
except ValueError as error:
    print("error:", error)
"""


@pytest.mark.nightly
def test_a_new_argument_touches_three_files(tmp_path):
    tree = tmp_path / "tree" / "opjax"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(pathlib.Path(opjax.__file__).parent, tree, ignore=ignore)
    for name, changes in PATCH.items():
        text = (tree / name).read_text()
        for before, after in changes.items():
            assert text.count(before) == 1, (name, before)
            text = text.replace(before, after)
        (tree / name).write_text(text)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tree.parent), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    said = [line for line in run.stdout.splitlines() if line[:5] in ("gain:", "error")]
    assert said[0] == "gain: 1.0 3.0"
    assert said[1].startswith("error: model_options")
