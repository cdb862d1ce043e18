"""Programs of JAX as ONNX files."""

from opjax._onnx.graph import metadata
from opjax._onnx.programs import content

__all__ = ["content", "metadata"]
