"""Published operators: folders that anyone can load, checked file by file.

    config.json         description, format number, checksums, provenance and errors
    model.safetensors   parameters and normalisers
    example.npz         a test case with its target
    baselines.npz       the baseline that the operator adds to, if any
    README.md           the model card, with picture.png

`config.json` has the SHA-256 checksum of every other file that is read, and its own
checksum. The card and the picture are for people and are not checked.
"""

import hashlib
import importlib
import json
import pathlib
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from opjax import _formats
from opjax._trees import Json, PyTree
from opjax.files import npz
from opjax.learn.json_files import replacing, to_json, write_text
from opjax.learn.named_types import HostArrays
from opjax.samples import Sample
from opjax.samples.flat import flatten, unflatten
from opjax.training import _leaves, _manifest
from opjax.training.checkpoint import CheckpointError

CONFIG, WEIGHTS, EXAMPLE = "config.json", "model.safetensors", "example.npz"
BASELINES, CARD, PICTURE = "baselines.npz", "README.md", "picture.png"
FILES = (CONFIG, WEIGHTS, EXAMPLE, BASELINES, CARD, PICTURE)

_CHECKED = (WEIGHTS, EXAMPLE, BASELINES)
_KEYS = {"format", "operator", "precision", "files"}
_PRECISIONS = ("single", "half")
_MODEL = "['model']"  # at the start of the names of parameters
_NUMBERS = ("numbers_names", "numbers_values")
_MAX_BYTES = 2**32


class Published(NamedTuple):
    """The checked content of a folder.

    Attributes:
      folder: the folder.
      config: content of `config.json`.
      arrays: parameters and normalisers by name.
    """

    folder: pathlib.Path
    config: Json
    arrays: HostArrays

    def payload(self, like: PyTree) -> Any:
        """Returns parameters and normalisers in the structure of a template.

        Raises:
          CheckpointError: if a name, shape or dtype differs from the template.
        """
        expected, missing, extra = _leaves.compared(self.arrays, like)
        if missing or extra:
            _refuse(
                self.folder / WEIGHTS,
                f"it lacks the tensors {missing[:3]} and has the tensors {extra[:3]} "
                "that do not belong to the model",
            )
        arrays: HostArrays = {}
        for name, shape in expected.items():
            array = self.arrays[name]
            half = self.config["precision"] == "half" and _is_narrowed(name, shape)
            kind = np.dtype(np.float16) if half else shape.dtype
            if (array.shape, array.dtype) != (shape.shape, kind):
                _refuse(
                    self.folder / WEIGHTS,
                    f"{name} has shape {array.shape} and dtype {array.dtype}, "
                    f"expected {shape.shape} and {kind}",
                )
            arrays[name] = array.astype(shape.dtype)
        return _leaves.rebuild(arrays, like)


def is_published(folder: pathlib.Path) -> bool:
    """Whether a folder contains a published operator, which may be damaged."""
    if (folder / WEIGHTS).exists():
        return True
    try:
        return '"operator": {' in (folder / CONFIG).read_text()
    except (OSError, ValueError):
        return False


def halved(model: PyTree) -> PyTree:
    """Returns a model whose parameters are rounded to half precision."""
    return jax.tree.map(
        lambda a: a.astype(np.float16).astype(a.dtype) if a.dtype == np.float32 else a,
        model,
    )


def write(
    folder: pathlib.Path,
    payload: PyTree,
    config: Json,
    *,
    half: bool,
    example: Sample | None,
) -> Json:
    """Writes weights, example and `config.json`; the baselines must be there.

    Args:
      folder: existing folder.
      payload: `model` and `normalizers`.
      config: `operator`, the description, and all that the card reports.
      half: store parameters in half precision; normalisers keep theirs.
      example: test case with its target.

    Returns:
      The content of `config.json`.
    """
    tensors = {name: a for name, a in _leaves.arrays(payload).items() if a.size}
    if half:
        tensors = {
            name: a.astype(np.float16) if _is_narrowed(name, a) else a
            for name, a in tensors.items()
        }
    with replacing(folder / WEIGHTS) as path:
        path.write_bytes(_safetensors(folder / WEIGHTS).save(tensors))
    if example is not None:
        with replacing(folder / EXAMPLE) as path:
            npz.add(path, _columns(example))
    written = {
        "library": "opjax",
        "format": _formats.PUBLISHED,
        **config,
        "precision": _PRECISIONS[half],
        "files": {n: _stamp(folder / n) for n in _CHECKED if (folder / n).exists()},
    }
    stored = to_json(written)
    write_text(folder / CONFIG, _manifest.signed(stored) + "\n")
    return stored


def read_config(folder: pathlib.Path) -> Json:
    """Reads `config.json` and checks its own checksum and its format number.

    Raises:
      CheckpointError: if it is damaged or missing.
      ValueError: if a later opjax wrote it.
    """
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text())
        changed = config.pop("own", None) != _manifest.own(config)
    except FileNotFoundError:
        _refuse(path, "it is missing")
    except (ValueError, TypeError, RecursionError, AttributeError) as error:
        _refuse(path, str(error))
    if changed:
        _refuse(path, "its content does not match its checksum")
    version = config.get("format")
    _formats.check(path, version, _formats.PUBLISHED, what="published operators")
    kinds = {"operator": dict, "files": dict}
    if not config.keys() >= _KEYS or config["precision"] not in _PRECISIONS:
        _refuse(path, f"it lacks one of {', '.join(sorted(_KEYS))}")
    for name, kind in kinds.items():
        if not isinstance(config[name], kind):
            _refuse(path, f"{name} is not an object")
    return config


def read(folder: pathlib.Path) -> Published:
    """Reads a folder after all its checksums have been compared.

    Raises:
      CheckpointError: if a file is missing or damaged.
      ImportError: if safetensors is not installed.
      ValueError: if a later opjax wrote it.
    """
    config = read_config(folder)
    stamps = config["files"]
    if unknown := sorted(stamps.keys() - set(_CHECKED)):
        _refuse(folder / CONFIG, f"it lists the unknown files {unknown[:3]}")
    for name in dict.fromkeys((WEIGHTS, *stamps)):
        path = folder / name
        if not path.is_file():
            _refuse(path, "it is missing")
        if (stamp := _stamp(path)) != stamps.get(name):
            _refuse(
                path,
                f"its size and SHA-256 checksum are {stamp}, but {CONFIG} has "
                f"{stamps.get(name)}",
            )
    library = _safetensors(folder / WEIGHTS)
    try:
        arrays = library.load((folder / WEIGHTS).read_bytes())
    except Exception as error:  # of safetensors' own, and what else it may lead to
        _refuse(folder / WEIGHTS, str(error))
    return Published(folder, config, arrays)


def read_example(folder: pathlib.Path) -> Sample:
    """Reads the test case of a published operator.

    Raises:
      CheckpointError: if it is damaged.
      FileNotFoundError: if there is none.
    """
    path = folder / EXAMPLE
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} has no {EXAMPLE}; only operators of opjax-publish have one."
        )
    if is_published(folder):
        stamp = read_config(folder)["files"].get(EXAMPLE)
        if stamp != _stamp(path):
            _refuse(path, "it does not match its checksum")
    with npz.open_npz(path, _MAX_BYTES) as groups:
        arrays = dict(groups[""].items())
    numbers = None
    if _NUMBERS[0] in arrays:
        pair = (arrays[name].tolist() for name in _NUMBERS)
        numbers = dict(zip(*pair, strict=True))
    sample = unflatten(arrays, f"{folder.name}/{EXAMPLE}")
    return sample._replace(numbers=numbers)


def _columns(sample: Sample) -> HostArrays:
    """The arrays of a sample, as `read_example` reads them."""
    arrays = flatten(sample)
    if sample.numbers:
        pair = list(sample.numbers), list(sample.numbers.values())
        arrays |= zip(_NUMBERS, map(np.asarray, pair), strict=True)
    return arrays


def _is_narrowed(name: str, array: Any) -> bool:
    """Whether half precision applies to an array."""
    return name.startswith(_MODEL) and array.dtype == np.float32


def _stamp(path: pathlib.Path) -> Json:
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _safetensors(path: pathlib.Path) -> Any:
    try:
        return importlib.import_module("safetensors.numpy")
    except ImportError as error:
        raise ImportError(
            f'{path} needs safetensors, which is not installed: pip install "opjax'
            '[learn]".'
        ) from error


def _refuse(path: pathlib.Path, reason: str) -> NoReturn:
    raise CheckpointError(
        f"{path} of a published operator is damaged: {reason[:300]}. Download or copy "
        "the folder again, or run opjax-publish again."
    )
