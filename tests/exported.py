"""Calls exported files by the names of their inputs."""

import importlib.util
import pathlib

import jax
import numpy as np
import pytest

_HAS_ONNX = all(map(importlib.util.find_spec, ("onnx", "onnxruntime")))
# Names of files for JAX and for ONNX Runtime.
FILES = [
    "operator.jax",
    pytest.param(
        "operator.onnx",
        marks=pytest.mark.skipif(not _HAS_ONNX, reason="an extra, opjax[onnx]"),
    ),
]


def session(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def results_of(path, inputs):
    """Results of a file by name; `inputs` are in the order of the file."""
    inputs = {name: np.float32(array) for name, array in inputs.items()}
    if pathlib.Path(path).suffix == ".onnx":
        found = session(path)
        names = [each.name for each in found.get_outputs()]
        return dict(zip(names, found.run(names, inputs), strict=True))
    operator = jax.export.deserialize(bytearray(pathlib.Path(path).read_bytes()))
    found = operator.call(*inputs.values())
    found = found if isinstance(found, dict) else {"values": found}
    return {name: np.asarray(array) for name, array in found.items()}
