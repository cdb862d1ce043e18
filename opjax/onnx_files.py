"""Trained operators as ONNX files, which run without JAX: in C++, C#, a browser.

    import onnxruntime

    session = onnxruntime.InferenceSession("operator.onnx")
    inputs = {"mesh_points": mesh_points, "features": features}
    (values,) = session.run(["values"], inputs)

with float32 arrays in physical units, as for the files of `opjax.export`, for any
number of points. The file names inputs and outputs; its metadata describe them, see
`metadata_of`. Writing needs the package onnx: `pip install "opjax[onnx]"`.

The last entry of the metadata is a checksum of everything in front of it, which
`metadata_of` verifies. ONNX Runtime ignores it: it refuses files that it cannot parse,
but not every damaged number.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from opjax import _formats, export
from opjax._files import OnePath, replacing
from opjax._trees import Json
from opjax.normalize import Normalizer

_CHECKSUM = b"sha256"
_ENTRIES = {"opjax_version", "provenance", "signature"}


def save(
    path: OnePath,
    function: Callable[..., Any],
    inputs: export.Inputs,
    *,
    normalizers: Mapping[str, Normalizer] | None = None,
    about: Mapping[str, str] = MappingProxyType({}),
    provenance: Json = MappingProxyType({}),
) -> str:
    """Exports an operator to an ONNX file, written atomically.

    The same operators as in `export.save`. The linear systems of functional attention
    become loops over columns, because ONNX has no linear algebra, and Fourier
    transforms become products with cosines and sines: results agree with JAX to
    rounding. Calls have no derivatives.
    Indices by which the function gathers or scatters must be in range: ONNX Runtime
    does not clamp them as JAX does.

    Args:
      path: file to write.
      function: as in `export.save`.
      inputs: arguments of calls, which are the inputs of the file by name. Its outputs
        are `values` and, if the function returns a dictionary, its numbers.
      normalizers: as in `export.save`.
      about: what inputs and outputs hold, by name, for the signature in the file.
      provenance: origin of the operator, such as its data and ranges; JSON values by
        name.

    Returns:
      The signature: names and shapes of inputs and outputs.

    Raises:
      ImportError: if the package onnx is missing.
      OSError: if the file cannot be written.
      ValueError: if a size is out of range, a normaliser is unknown, ONNX has no
        counterpart of a part of the operator, the operator cannot be traced for any
        number of points, or its result is not `(n, q)`.

    Examples:
      >>> import tempfile
      >>> import jax.numpy as jnp
      >>> from opjax import export, onnx_files
      >>> def norm(mesh_points):
      ...     return jnp.sqrt(jnp.sum(mesh_points**2, axis=1, keepdims=True))
      >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
      ...     path = f"{folder}/norm.onnx"
      ...     text = onnx_files.save(path, norm, export.Inputs(point_dim=2))
      ...     len(onnx_files.metadata_of(path))
      4
    """
    convert = _converter().content
    operator = export._physical(function, inputs, normalizers or {})
    arguments = dict(zip(inputs.names(), inputs.shapes(), strict=True))

    def named(*arrays: jax.Array) -> dict[str, jax.Array]:
        return export._by_name(operator(*arrays))

    call = jax.vmap(named) if inputs.batched else named
    try:
        outputs = jax.eval_shape(call, *arguments.values())
    except Exception as error:  # shapes are compared all over a model
        if inputs.num_points is not None:
            raise
        raise export._not_any_number_of_points(error) from error
    outputs = export._by_name(outputs)
    export._check_outputs(arguments["mesh_points"].shape[:-1], outputs)
    if alike := sorted(arguments.keys() & outputs.keys()):
        raise ValueError(
            f"The operator returns {alike[0]!r}, which is also the name of an input; "
            "names in an ONNX file are unique. Rename the output."
        )
    text = export._signature(arguments, outputs, about)
    stored = {
        "opjax_format": str(_formats.ONNX),
        "opjax_version": metadata.version("opjax"),
        "provenance": json.dumps(dict(provenance)),
        "signature": text,
    }
    try:
        content = convert(call, arguments, list(outputs), stored)
    except NotImplementedError as error:
        raise ValueError(
            f"The operator cannot be exported to ONNX: {error} has no counterpart "
            "there. Export it for JAX, to a file that ends in .jax."
        ) from error
    path = Path(path).expanduser()
    with replacing(path) as temporary:
        temporary.write_bytes(content + _end(content))
    return text


def metadata_of(path: OnePath) -> dict[str, str]:
    """Verifies the checksum of an ONNX file of opjax and returns its metadata.

    Args:
      path: file that `save` wrote.

    Returns:
      Texts by name: `opjax_format`, `opjax_version`, `provenance` (JSON) and
      `signature`.

    Raises:
      ImportError: if the package onnx is missing.
      OSError: if the file cannot be read.
      ValueError: if the file is damaged, incomplete, or was written by a later opjax.

    Examples:
      >>> from opjax import onnx_files
      >>> stored = onnx_files.metadata_of("operator.onnx")  # doctest: +SKIP
      >>> print(stored["signature"])  # doctest: +SKIP
    """
    whole = Path(path).expanduser().read_bytes()
    content = whole[: -len(_end(b""))]
    if whole != content + _end(content):
        raise ValueError(
            f"{path} ({len(whole)} bytes) does not end with a valid checksum: it is "
            "damaged, incomplete, or not an ONNX file of opjax. Get it again, or "
            "export it again."
        )
    read = _converter().metadata
    try:
        entries = read(content)
    except Exception as error:  # protocol buffers have errors of their own
        raise ValueError(f"{path} is damaged: it is not an ONNX file.") from error
    number = entries.get("opjax_format", "")
    format_number = int(number) if number.isdecimal() else number
    _formats.check(path, format_number, _formats.ONNX, what="ONNX files")
    if missing := sorted(_ENTRIES - entries.keys()):
        raise ValueError(f"{path} is damaged: its metadata have no {missing[0]}.")
    try:
        origin = json.loads(entries["provenance"])
    except (ValueError, RecursionError):
        origin = None
    if not isinstance(origin, dict):
        text = entries["provenance"][:40]
        raise ValueError(f"{path} is damaged: provenance={text!r} is no JSON object.")
    return entries


def _converter() -> Any:
    try:
        from opjax import _onnx
    except ImportError as error:
        raise ImportError(
            "ONNX files are written and read with the package onnx, which is not "
            'installed: pip install "opjax[onnx]".'
        ) from error
    return _onnx


def _end(content: bytes) -> bytes:
    """One more entry of the metadata, in the encoding of protocol buffers."""
    value = hashlib.sha256(content).hexdigest().encode()
    entry = b"".join(
        bytes([tag, len(text)]) + text for tag, text in ((10, _CHECKSUM), (18, value))
    )
    return bytes([14 << 3 | 2, len(entry)]) + entry
