"""What a folder holds, as JSON values that are equal for equal runs."""

import hashlib
import json
import pathlib
import re
from typing import Any

import h5py
import numpy as np

from opjax.training import _arrays, checkpoint

_DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
_STEP = re.compile(r"step_\d{10}")


def of(root: pathlib.Path, said: str = "") -> dict[str, Any]:
    """Names all files, with checksums of what they hold but for places and dates.

    Of a checkpoint these are its arrays and metadata, since its files have names by
    chance; of what was printed, the lines of JSON.
    """
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if _STEP.fullmatch(path.name):
            found[name] = _checkpoint(path)
        elif path.is_file() and not _STEP.search(name):
            found[name] = _file(path, root)
    lines = [line for line in said.splitlines() if line.startswith("{")]
    return found | {"printed": _plain("\n".join(lines), root)}


def _file(path: pathlib.Path, root: pathlib.Path) -> Any:
    if path.name == ".lock" or path.suffix == ".lock":
        return "a lock"
    if path.name == "environment.json":
        values = json.loads(path.read_text())
        return _plain(json.dumps({**values, "starts": 0}), root)
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: _array(file[name]) for name in file.files}
    if path.suffix == ".h5":
        arrays: dict[str, str] = {}
        with h5py.File(path) as file:
            file.visititems(lambda name, item: _visited(arrays, name, item))
        return arrays
    if path.suffix in (".json", ".jsonl", ".md", ".html"):
        return _plain(path.read_text(), root)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _visited(arrays: dict[str, str], name: str, item: Any) -> None:
    if isinstance(item, h5py.Dataset):
        arrays[name] = _array(np.asarray(item))


def _checkpoint(path: pathlib.Path) -> dict[str, Any]:
    arrays = {name: _array(array) for name, array in _arrays.read(path).items()}
    step = int(path.name.removeprefix("step_"))
    return {"arrays": arrays, "metadata": checkpoint.read_metadata(path.parent, step)}


def _array(array: np.ndarray) -> str:
    head = f"{array.dtype.str} {array.shape} "
    return head + hashlib.sha256(array.tobytes()).hexdigest()[:16]


def _plain(text: str, root: pathlib.Path) -> str:
    text = _DATE.sub("DATE", text.replace(str(root), "ROOT"))
    return text if len(text) < 2000 else hashlib.sha256(text.encode()).hexdigest()


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of what differs."""
    names = sorted(one.keys() | other.keys())
    return [name for name in names if one.get(name) != other.get(name)]
