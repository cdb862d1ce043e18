"""The model card of a published operator, from its `config.json`."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from opjax._trees import Json
from opjax.learn.baselines.fitted import NAMES
from opjax.learn.tables import number, table
from opjax.samples.base import AXES

_ROLES = {
    "mesh_points": "coordinate",
    "features": "input field",
    "scalars": "input scalar",
    "target": "predicted field",
    "target_scalars": "predicted scalar",
}
# Options that a reader compares recipes by.
_RECIPE = (
    *("preset", "models", "width", "num_layers", "num_heads", "num_basis"),
    *("num_epochs", "num_steps", "batch_size", "optimizer", "learning_rate"),
    *("loss", "mirror", "start_from", "init_from", "train_only", "rank"),
)
_OTHERS = *(f"{name}_" for name in NAMES), "linear_lift_"
_NOT_SHOWN = "seconds", "parameters", "trained_parameters", "best_epoch", "epochs"
_USE = """```python
from opjax import learn

trained = learn.load({name})
case = trained.example()  # a test case with its target
values = trained(case)
```
"""


def of(config: Json, *, picture: bool, loaded_as: str) -> str:
    """Returns the text of the card.

    Args:
      config: content of `config.json`.
      picture: whether there is a picture.
      loaded_as: argument of `learn.load` in the example.
    """
    parts = [_header(config), f"# {config['name']}\n"]
    if config["summary"]:
        parts.append(config["summary"] + "\n")
    if picture:
        parts.append(
            "![Input, target, prediction and difference of the median test "
            "sample](picture.png)\n"
        )
    parts += ["## Use\n", _USE.format(name=json.dumps(loaded_as)), _precision(config)]
    parts += ["## Errors\n", _errors(config)]
    parts += ["## Inputs and outputs\n", _ranges(config)]
    parts += ["## Do not use it for\n", _not_for(config)]
    parts += ["## Training\n", _training(config)]
    parts += ["## Licence\n", (config["licence"] or "None stated") + ".\n"]
    return "\n".join(parts)


def _header(config: Json) -> str:
    """The YAML that the hub reads; JSON strings are YAML strings."""
    lines = ["library_name: opjax"]
    if config["licence"]:
        lines.append(f"license: {json.dumps(config['licence'].lower())}")
    lines += [
        "tags:",
        "- jax",
        "- operator-learning",
        "- partial-differential-equations",
    ]
    if errors := _published_row(config):
        name = json.dumps(config["name"])
        lines += ["model-index:", f"- name: {name}", "  results:"]
        lines += ["  - task: {type: other, name: operator learning}"]
        data = json.dumps(config["provenance"]["data"] or "test set")
        lines += [f"    dataset: {{type: other, name: {data}}}", "    metrics:"]
        lines += [
            f"    - {{type: {json.dumps(key)}, value: {value:.6g}}}"
            for key, value in errors.items()
            if not key.startswith(_OTHERS)  # numbers of baselines beside the model's
        ]
    return "\n".join(["---", *lines, "---", ""])


def _published_row(config: Json) -> dict[str, float]:
    """The numbers of the seed that is published."""
    errors = config["errors"]
    rows = [
        row for row in errors["seeds"] if row["seed"] == config["provenance"]["seed"]
    ]
    return {k: v for row in rows[:1] for k, v in _numbers(row).items()}


def _numbers(row: Json) -> dict[str, float]:
    return {
        key: value
        for key, value in row.items()
        if isinstance(value, int | float) and key not in (*_NOT_SHOWN, "seed")
    }


def _errors(config: Json) -> str:
    errors, seed = config["errors"], config["provenance"]["seed"]
    rows = errors["seeds"]
    text = ""
    if rows:
        keys = list(_numbers(rows[0]))
        others = errors["baselines"]
        columns = [f"seed {row['seed']}" for row in rows]
        columns = [
            f"{label} (this one)" if row["seed"] == seed else label
            for label, row in zip(columns, rows, strict=True)
        ]
        columns += [NAMES.get(name) or name for name in others]
        lines = [
            [
                key.replace("_", " "),
                *(_cell(row, key) for row in [*rows, *others.values()]),
            ]
            for key in keys
        ]
        text += "On the test set of the training run, in single precision:\n\n"
        text += table(["", *columns], lines)
        if len(rows) == 1:
            text += "\nThis is one seed, which is an indication and no range.\n"
        if wins := errors["baseline_wins"]:
            said = ", ".join(
                f"{field} ({NAMES.get(b, b)})" for field, b in wins.items()
            )
            text += f"\n**A baseline has a smaller error** on {said}.\n"
    if example := errors["example"]:
        said = ", ".join(f"{k.replace('_', ' ')} {v:.4g}" for k, v in example.items())
        text += f"\nOn the stored example, as published: {said}.\n"
    return text or "None are stored with the run.\n"


def _cell(row: Json, key: str) -> str:
    return number(row[key]) if isinstance(row.get(key), int | float) else "–"


def _precision(config: Json) -> str:
    size = config["files"]["model.safetensors"]["bytes"]
    checked = config["errors"]["precision"]
    if config["precision"] == "half":
        return (
            f"Parameters are in half precision, {size:,} bytes. The errors on "
            f"{checked['cases']} test cases differ from those in single precision by "
            f"at most {100 * checked['largest_change']:.2g} %.\n"
        )
    return f"Parameters are in single precision, {size:,} bytes.\n"


def _ranges(config: Json) -> str:
    """Channels with their training ranges; of scaled cases, after division."""
    operator, names, lines = config["operator"], config["channels"], list[list[str]]()
    ranges = operator["ranges"]
    for role, label in _ROLES.items():
        if role not in ranges:
            continue
        low, high = ranges[role]
        listed: Sequence[str] = names.get(role) or ()
        if role == "mesh_points":
            axes = operator.get("axes") or range(min(len(low), len(AXES)))
            listed = [AXES[axis] for axis in axes]
        for place, pair in enumerate(zip(low, high, strict=True)):
            name = listed[place] if len(listed) == len(low) else f"{role} {place}"
            lines.append([label, name, *(number(value + 0.0) for value in pair)])
    for name, (low, high) in operator.get("numbers", {}).items():
        lines.append(["number of the case", name, number(low), number(high)])
    fewest, most = operator["num_points"]
    text = table(["", "name", "minimum", "maximum"], lines)
    copies = ", mirrored copies included," if operator["config"].get("mirror") else ""
    text += (
        f"\nRanges are those of {operator['num_train']} training samples{copies} with "
    )
    text += f"{fewest} to {most} points.\n" if most > fewest else f"{most} points.\n"
    options = operator["config"]
    if scales := options.get("scales"):
        text += f"\nFields and inputs are divided by scales: `{scales}`. The ranges of "
        text += "scaled fields are those after the division.\n"
    if angles := options.get("angles"):
        text += f"\nAngles: `{angles}`. The model receives cosine and sine.\n"
    return text


def _not_for(config: Json) -> str:
    operator = config["operator"]
    lines = [
        "Inputs, scalars or shapes outside the ranges above. `opjax-predict` reports "
        "how far a case lies outside.",
        "Other equations, materials, boundary conditions or units than those of the "
        "training data.",
        "Decisions that nobody checks with the solver: a prediction has no guarantee "
        "beyond the test errors above.",
    ]
    if config["fixed_points"]:
        shape = operator["sizes"]["grid_shape"] or [operator["num_points"][1]]
        grid = " x ".join(map(str, shape))
        lines.append(f"Meshes other than {grid} points: the model is tied to them.")
    lines += [config["not_for"]] if config["not_for"] else []
    return "".join(f"- {line}\n" for line in lines)


def _training(config: Json) -> str:
    made, options = config["provenance"], dict(config["operator"]["config"])
    options["init_from"] = pathlib.PurePath(options.get("init_from", "")).name
    commit = made["commit"] or ""
    if commit and made["modified"]:
        commit += " with uncommitted changes"
    facts = {
        "data": made["data"],
        "command": f"`{made['command']}`" if made["command"] else "",
        "commit": commit,
        "date": made["date"],
        "hardware": made["hardware"],
        "software": made["software"],
        "seeds": ", ".join(map(str, made["seeds"]))
        + f"; published: {made['seed']}, "
        + made["chosen"],
        "parameters": f"{made['parameters']:,}",
        "recipe": ", ".join(
            f"{k} {_said(options[k])}"
            for k in _RECIPE
            if options.get(k) and options[k] != "nothing"
        ),
    }
    return "".join(f"- {name}: {said}\n" for name, said in facts.items() if said)


def _said(value: Any) -> str:
    return (
        ",".join(map(str, value))
        if isinstance(value, Sequence) and not isinstance(value, str)
        else str(value)
    )
