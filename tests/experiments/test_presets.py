"""What every preset of every program is, as `presets.json` says.

    python -m tests.experiments.test_presets

writes that file anew, after a change of presets that is meant.
"""

import dataclasses
import importlib
import json
import pathlib

import pytest

from opjax.learn import SMOKE, recipe
from tests.experiments.test_smoke import PROGRAMS

FILE = pathlib.Path(__file__).parent / "presets.json"
MODULES = ("opjax.learn.cli.train", *(f"experiments.{name}" for name in PROGRAMS))


def presets_of(module):
    """What the presets of a program have otherwise than the defaults, as written."""
    presets = importlib.import_module(module).PRESETS
    return {
        name: {
            field.name: repr(getattr(preset, field.name))
            for field in dataclasses.fields(preset)
            if repr(getattr(preset, field.name)) != repr(field.default)
        }
        for name, preset in presets.items()
    }


@pytest.mark.parametrize("module", MODULES)
def test_presets_are_as_they_were(module):
    assert presets_of(module) == json.loads(FILE.read_text())[module]


def test_a_recipe_takes_named_options_only():
    config = importlib.import_module("experiments.darcy").Config
    with pytest.raises(TypeError, match="smoke"):
        recipe(config, "smoke")
    both = SMOKE | recipe(config, width=8)
    assert (both(config()).width, both(config()).preset) == (8, "smoke")
    assert SMOKE(config()).width == 16


if __name__ == "__main__":
    stored = {module: presets_of(module) for module in MODULES}
    FILE.write_text(json.dumps(stored, indent=1) + "\n")
