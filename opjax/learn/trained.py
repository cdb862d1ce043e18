"""Operators trained on your own data, saved with all that predictions need."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import checkpoint
from opjax.datasets.samples import Sample
from opjax.learn import operators
from opjax.learn.folder import to_json
from opjax.normalize import Normalizer

_FOLDER = "operator"
_FIELDS = ("mesh_points", "features", "target")


class Trained(NamedTuple):
    """An operator with what belongs to it.

    Attributes:
      model: between encoded arrays.
      normalizers: of `mesh_points`, `features` and `target`, where there are any.
      description: as from `describe`, with the configuration under `config`.
      folder: where it was found.
    """

    model: Any
    normalizers: dict[str, Normalizer]
    description: dict[str, Any]
    folder: pathlib.Path


def describe(
    train: Sequence[Sample],
    *,
    grid_shape: tuple[int, ...] | None,
    names: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Says what an operator is for: channels and the ranges of the training samples.

    Args:
      train: training samples.
      grid_shape: the grid that the model belongs to, if it does.
      names: of the channels of `features` and `target`.

    Returns:
      JSON values: `channels` of the arrays (zero for none), their `names`, `weighted`,
      `grid_shape`, `num_points` (fewest, most), `num_train` and `ranges`, the smallest
      and the largest value of every channel.
    """
    arrays = {
        name: np.concatenate([getattr(sample, name) for sample in train])
        for name in _FIELDS
        if getattr(train[0], name) is not None
    }
    counts = [sample.num_points for sample in train]
    return to_json(
        {
            "channels": {
                name: arrays[name].shape[1] if name in arrays else 0 for name in _FIELDS
            },
            "names": {name: list(listed) for name, listed in names.items()},
            "weighted": train[0].quadrature_weights is not None,
            "grid_shape": grid_shape,
            "num_points": [min(counts), max(counts)],
            "num_train": len(train),
            "ranges": {
                name: [array.min(axis=0), array.max(axis=0)]
                for name, array in arrays.items()
            },
        }
    )


def save(
    folder: pathlib.Path,
    model: Any,
    normalizers: dict[str, Normalizer],
    description: dict[str, Any],
) -> None:
    """Saves an operator in the folder of its run.

    Args:
      folder: of a member, with `config.json`.
      model: the operator.
      normalizers: as in `Trained`.
      description: as from `describe`.
    """
    payload = {"model": model, "normalizers": normalizers}
    config = json.loads((folder / "config.json").read_text())
    metadata = description | {
        "config": config,
        "normalizers": sorted(normalizers),
    }
    checkpoint.save(folder / _FOLDER, 0, payload, metadata=metadata, keep=1)


def load(workdir: str | os.PathLike) -> Trained:
    """Reads the operator of a run, the one with the smallest validation error.

    Args:
      workdir: folder of the run, or of one of its members, `<model>-<seed>`.

    Raises:
      FileNotFoundError: if there is no finished run.
      opjax.checkpoint.CheckpointError: if the operator is damaged.
    """
    root = pathlib.Path(workdir).expanduser()
    folders = [root, *sorted(root.glob("*-*"))] if root.is_dir() else []
    finished = [
        folder
        for folder in folders
        if checkpoint.all_steps(folder / _FOLDER) and (folder / "result.json").is_file()
    ]
    if not finished:
        raise FileNotFoundError(
            f"{root} holds no trained operator; name the --workdir of a finished run "
            "of experiments.train."
        )
    folder = min(finished, key=_validation)
    manifest = folder / _FOLDER / f"step_{0:010d}" / "opjax_manifest.json"
    description = json.loads(manifest.read_text())["metadata"]
    (description["config"]["models"],) = description["config"]["models"]
    found = checkpoint.restore(folder / _FOLDER, _template(description))
    assert found is not None
    return Trained(
        found.payload["model"], found.payload["normalizers"], description, folder
    )


def _validation(folder: pathlib.Path) -> float:
    return json.loads((folder / "result.json").read_text())["validation"]


def _template(description: dict[str, Any]) -> dict[str, Any]:
    """Shapes of all that `save` saved."""
    channels = description["channels"]
    grid_shape = description["grid_shape"]

    def build(key: jax.Array) -> nnx.Module:
        return operators.build(
            _Config(description["config"]),
            point_dim=channels["mesh_points"],
            feature_dim=channels["features"],
            out_features=channels["target"],
            grid_shape=None if grid_shape is None else tuple(grid_shape),
            rngs=nnx.Rngs(key),
        )

    def normalizer(name: str) -> Normalizer:
        shape = jax.ShapeDtypeStruct((channels[name],), jnp.float32)
        return Normalizer(shape, shape)  # pyright: ignore

    names = description["normalizers"]
    return {
        "model": jax.eval_shape(build, jax.random.key(0)),
        "normalizers": {name: normalizer(name) for name in names},
    }


class _Config:
    """A stored configuration, with its values as attributes."""

    def __init__(self, values: dict[str, Any]):
        self.__dict__.update(values)
