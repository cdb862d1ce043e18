"""Trained operators as single files that need only JAX, not opjax, to run.

The file contains StableHLO with the parameters and normalisers, for any number of
points:

    import jax

    operator = jax.export.deserialize(bytearray(open("operator.jax", "rb").read()))
    values = operator.call(mesh_points, features)

with float32 arrays `(n, p)` and `(n, c)` in physical units, and values `(n, q)`; an
operator with scalar inputs takes these next, `(s,)`. `print(operator.fun_name)` lists
all inputs and outputs. With quantities, a call returns a dictionary, with the field as
`"values"`. Calls process one sample, or a batch of equal meshes if exported with
`batched` (`jax.vmap` is not supported). With `derivatives=1` they support `jax.grad`.
JAX reads such files for at least six months of later releases. Reading and writing
them needs flatbuffers: `pip install "opjax[export]"`.

If opjax is installed, `load` reads files and checks them first. The file ends with a
checksum of its content, which detects damage, but does not identify the author. An
operator is a program for the XLA compiler. It computes with arrays and has no access to
files, network or Python, except through external functions that it may name: `load`
rejects all of them except the linear algebra and sorting functions that JAX itself
exports. A malicious file with a valid checksum and a broken program attacks the parser
of XLA, which may crash the process, hang or fill the memory. Therefore a separate
process with limits parses a file first, which takes a second. `trusted=True` skips this
for your own files.

The author of a file decides what it computes, how long that takes and how much memory
it needs, and `call` passes it to the XLA compiler. So run the operator of an unknown
author like any untrusted program: in a separate process with limits.
"""

import dataclasses
import hashlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import export

from opjax import _checks, _formats, normalize
from opjax._files import OnePath, replacing
from opjax._trees import Json
from opjax.normalize import Normalizer

PLATFORMS = ("cpu", "cuda", "tpu")
VALUES = "values"  # the field, among named outputs
# What a file ends with: its format, unless that is 0, and the SHA-256 of all in front
# of that, of the number, too. So it is in every format.
_END = re.compile(rb"opjax operator(?: ([1-9]\d{0,8}))?, SHA-256 ([0-9a-f]{64})")
_LONGEST_END = 100
# What the process that parses a file first may take: seconds of a processor and bytes,
# and more of both for every byte of the file.
_SECONDS, _SECONDS_PER_BYTE = 10, 2e-7
_MEMORY, _MEMORY_PER_BYTE = 2**31, 16
_PATIENCE = 20  # times as long on the clock, where many share a processor
# Functions that programs may name: what JAX exports for linear algebra, and marks.
_CALLS = re.compile(
    r"Sharding|SPMDFullToShardShape|SPMDShardToFullShape|annotate_device_placement|"
    r"shape_assertion|stablehlo\.dynamic_\w+|mhlo\.\w+|tf\.\w+|TopK|ApproxTopK|"
    r"Qr|Eigh|LuDecomposition|ProductOfElementaryHouseholderReflectors|"
    r"lapack_\w+|cu(solver|blas)_\w+|cu_(threefry2x32|lu_\w+)\w*|__gpu\$\w+"
)
_NAMED = re.compile(r'custom_call @(?:"((?:[^"\\]|\\.)*)"|([\w.$-]+))')
_NAMED_GENERIC = re.compile(r'call_target_name\s*=\s*"((?:[^"\\]|\\.)*)"')
_NORMALIZED = ("mesh_points", "features", "scalars", "target")


class Inputs(NamedTuple):
    """Arguments of an exported operator, for one sample.

    Attributes:
      point_dim: dimension `p` of space.
      feature_dim: number `c` of channels of the input function; with zero, calls take
        no features.
      scalar_dim: number `s` of scalars of a sample. The function receives them as
        additional channels of its features, constant over the points; calls take them
        after the features, shape `(s,)`.
      weighted: whether calls take `quadrature_weights`, shape `(n,)`, next.
      num_points: number of points of calls; None for any number.
      min_points: minimum number of points, if any.
      batched: whether every argument and the result have a leading batch axis, for any
        number of samples.
      others: further arguments of calls, which the function takes as keywords, and
        their numbers of channels: `(n, channels)`, or `(n,)` for zero.

    Examples:
      >>> from opjax import export
      >>> inputs = export.Inputs(point_dim=2, feature_dim=1)
      >>> [shape.shape[1] for shape in inputs.shapes()]  # any number of points
      [2, 1]
    """

    point_dim: int
    feature_dim: int = 0
    scalar_dim: int = 0
    weighted: bool = False
    num_points: int | None = None
    min_points: int = 1
    batched: bool = False
    others: Mapping[str, int] = MappingProxyType({})

    def names(self) -> list[str]:
        """Returns the names of the arguments of a call, in order."""
        optional = {
            "features": self.feature_dim,
            "scalars": self.scalar_dim,
            "quadrature_weights": self.weighted,
        }
        used = [name for name, is_used in optional.items() if is_used]
        return ["mesh_points", *used, *self.others]

    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """Returns the shapes of the arguments of a call.

        Raises:
          ValueError: if a size is out of range.
        """
        _checks.positive(point_dim=self.point_dim, min_points=self.min_points)
        _checks.non_negative(feature_dim=self.feature_dim, scalar_dim=self.scalar_dim)
        n: Any = self.num_points
        if n is not None:
            _checks.positive(num_points=n)
        sizes = {"n": self.min_points} if n is None else {}
        sizes |= {"b": 1} if self.batched else {}
        limits = [f"{size} >= {least}" for size, least in sizes.items()]
        symbols = export.symbolic_shape(", ".join(sizes), constraints=limits)
        symbolic = dict(zip(sizes, symbols, strict=True))
        n, front = symbolic.get("n", n), symbols[len(sizes) - self.batched :]
        shapes: list[tuple[Any, ...]] = [(n, self.point_dim)]
        shapes += [(n, self.feature_dim)] if self.feature_dim else []
        shapes += [(self.scalar_dim,)] if self.scalar_dim else []
        shapes += [(n,)] if self.weighted else []
        shapes += [(n, count) if count else (n,) for count in self.others.values()]
        return [jax.ShapeDtypeStruct((*front, *s), jnp.float32) for s in shapes]


def save(
    path: OnePath,
    function: Callable[..., jax.Array],
    inputs: Inputs,
    *,
    normalizers: Mapping[str, Normalizer] | None = None,
    derivatives: int = 0,
    platforms: Sequence[str] = PLATFORMS,
    about: Mapping[str, str] = MappingProxyType({}),
) -> export.Exported:
    """Exports an operator to a file, written atomically.

    All operators of `opjax.nn` for any mesh can be exported for any number of points,
    orthogonal attention for at least `num_basis` points. Convolutions and Fourier
    operators support only one grid: pass its `num_points`. Attention on subdomains
    needs the subdomains of a mesh: wrap the model in a function that contains them, and
    pass that mesh's `num_points`.

    Args:
      path: file to write.
      function: a model, or a function with the interface of `nn.OperatorTransformer`:
        `function(mesh_points, features, quadrature_weights=...)`, without unused
        arguments. It returns the field, or a dictionary of the field, as `"values"`,
        and numbers by name, or of numbers alone.
      inputs: arguments of calls.
      normalizers: normalisers of `"mesh_points"`, `"features"` and `"scalars"`, which
        encode arguments, and of `"target"`, which decodes the result.
      derivatives: how many times calls can be differentiated, in reverse mode; with
        one, a file is about three times as large as with none.
      platforms: platforms on which the file can run.
      about: what inputs and outputs hold, by name, for the signature in the file.

    Returns:
      The operator as in the file; `fun_name` is its signature.

    Raises:
      ImportError: if flatbuffers is missing.
      OSError: if the file cannot be written.
      ValueError: if a size is out of range, a normaliser is unknown, the operator
        cannot be traced for any number of points, or its result is not `(n, q)`.

    Examples:
      >>> import tempfile
      >>> import jax.numpy as jnp
      >>> from opjax import export
      >>> def norm(mesh_points, features):
      ...     return jnp.linalg.norm(mesh_points, axis=1, keepdims=True) * features
      >>> inputs = export.Inputs(point_dim=2, feature_dim=1)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     saved = export.save(f"{folder}/norm.bin", norm, inputs)
      ...     operator = export.load(f"{folder}/norm.bin")
      >>> operator.call(jnp.ones((9, 2)), jnp.ones((9, 1))).shape
      (9, 1)
    """
    _checks.non_negative(derivatives=derivatives)
    operator = _physical(function, inputs, normalizers or {})
    operator = jax.vmap(operator) if inputs.batched else operator
    exported = _export(operator, inputs.shapes(), platforms)
    arguments = dict(zip(inputs.names(), exported.in_avals, strict=True))
    text = _signature(arguments, _outputs(exported), about)
    exported = dataclasses.replace(exported, fun_name=text)
    content = bytes(exported.serialize(vjp_order=derivatives))
    path = Path(path).expanduser()
    with replacing(path) as temporary:
        temporary.write_bytes(content + _end(content))
    return exported


def load(
    path: OnePath, *, max_bytes: int = 2**33, trusted: bool = False
) -> export.Exported:
    """Reads an exported operator and checks it, without running it.

    A damaged file may crash the process that parses it, so a separate process parses it
    first. This takes about a second, and for large files as long as reading them.

    Args:
      path: file that `save` wrote.
      max_bytes: maximum size of the file.
      trusted: whether you know the author of the file. Then no other process parses it
        first, and files of early opjax versions without checksums are read, too.

    Returns:
      The operator; its method `call` takes the arguments that it was exported with.

    Raises:
      ImportError: if flatbuffers is missing.
      OSError: if the file cannot be read.
      ValueError: if it is damaged, incomplete or too large, was written by a later
        opjax, takes or returns anything but float32 arrays, or names unknown external
        functions.

    Examples:
      >>> import tempfile
      >>> import jax.numpy as jnp
      >>> from opjax import export
      >>> def norm(mesh_points, features):
      ...     return jnp.linalg.norm(mesh_points, axis=1, keepdims=True) * features
      >>> inputs = export.Inputs(point_dim=2, feature_dim=1)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     saved = export.save(f"{folder}/norm.bin", norm, inputs)
      ...     operator = export.load(f"{folder}/norm.bin")
      >>> operator.call(jnp.ones((5, 2)), jnp.ones((5, 1))).shape
      (5, 1)
    """
    _require_flatbuffers()
    path = Path(path).expanduser()
    content = _content(path, max_bytes, trusted)
    if not trusted and (reason := _parsed_apart(content)):
        raise _unreadable(path, reason)
    try:
        exported = export.deserialize(bytearray(content))
        text = exported.mlir_module()
    except MemoryError:
        raise
    except Exception as error:  # nobody checks offsets before they are followed
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise _unreadable(path, reason[0][:200]) from error
    _check(path, exported, text)
    return exported


def compile_seconds(
    exported: export.Exported, num_points: int, *, derivatives: bool = False
) -> float:
    """Compiles a call on this machine and returns the seconds that it takes.

    Args:
      exported: the operator, from `save` or `load`.
      num_points: number of points of the call, if it takes any number.
      derivatives: also compile the gradient of a sum of the field.

    Examples:
      >>> import tempfile
      >>> from opjax import export
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = f"{folder}/half.bin"
      ...     half = export.save(path, lambda x: x / 2, export.Inputs(point_dim=2))
      >>> export.compile_seconds(half, 10) > 0
      True
    """

    def total(*arrays: jax.Array) -> jax.Array:
        return jnp.sum(next(iter(_by_name(exported.call(*arrays)).values())))

    sizes = {"n": num_points, "b": 1}
    arrays = [
        jax.ShapeDtypeStruct(
            [d if isinstance(d, int) else sizes[str(d)] for d in aval.shape],
            aval.dtype,
        )
        for aval in exported.in_avals
    ]
    begin = time.perf_counter()
    call = jax.value_and_grad(total) if derivatives else exported.call
    jax.jit(call).lower(*arrays).compile()
    return time.perf_counter() - begin


def _unreadable(path: Path, reason: str) -> ValueError:
    return ValueError(
        f"{path} holds no operator that this JAX reads: {reason}. Export it again."
    )


def _parsed_apart(content: bytes) -> str:
    """Lets another process parse an operator; says why it did not, if so."""
    seconds = _SECONDS + int(_SECONDS_PER_BYTE * len(content))
    memory = _MEMORY + _MEMORY_PER_BYTE * len(content)
    program = str(Path(__file__).with_name("_export_apart.py"))
    command = [sys.executable, "-P", program, str(seconds), str(memory)]
    try:
        ended = subprocess.run(
            command,
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            timeout=_PATIENCE * seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {_PATIENCE * seconds} s to parse"
    return _reason(ended.returncode, ended.stdout)


def _reason(status: int, said: bytes) -> str:
    """Why a process that ended so did not parse an operator; empty if it did."""
    if status < 0:
        return f"it ends the process that parses it, by {signal.Signals(-status).name}"
    if status or not said.endswith(b"\n"):
        return f"the process that parses it ends with status {status}"
    return said.decode("utf-8", "replace").strip()


def _content(path: Path, max_bytes: int, trusted: bool) -> bytes:
    """What is in front of the checksum, if it is right; or all, if there is none."""
    size = path.stat().st_size
    if size > max_bytes:
        raise ValueError(
            f"{path} has {size} bytes, above the limit of {max_bytes}; if you trust "
            "it, raise max_bytes."
        )
    whole = path.read_bytes()
    start = max(whole.rfind(b"opjax operator"), len(whole) - _LONGEST_END, 0)
    content, end = whole[:start], _END.fullmatch(whole, start)
    number = int(end[1] or 0) if end else 0
    if trusted and b"opjax operator" not in whole[-_LONGEST_END:]:
        return whole
    if not end or whole[start:] != _end(content, number):
        raise ValueError(
            f"{path} ({size} bytes) does not end with a valid checksum: it is "
            "damaged, incomplete, or not an operator exported by opjax. Get it "
            "again, or export it again."
        )
    _formats.check(path, number, _formats.OPERATOR, what="operators")
    return content


def _end(content: bytes, number: int = _formats.OPERATOR) -> bytes:
    """What belongs behind a content."""
    shown = b" %d" % number if number else b""
    signed = hashlib.sha256(content + shown).hexdigest().encode()
    return b"opjax operator" + shown + b", SHA-256 " + signed


def _check(path: Path, exported: export.Exported, text: str) -> None:
    """Raises ValueError unless a program is one of ours."""
    called = [a or b for a, b in _NAMED.findall(text)] + _NAMED_GENERIC.findall(text)
    unknown = sorted({name for name in called if not _CALLS.fullmatch(name)})
    if unknown:
        raise ValueError(
            f"{path} calls functions that no operator needs: {unknown[:5]}. They "
            "may execute arbitrary code; do not run it."
        )
    avals = [*exported.in_avals, *exported.out_avals]
    types = sorted({str(aval.dtype) for aval in avals})
    rank = len(exported.in_avals[0].shape) if exported.in_avals else 0
    effects = [*exported.ordered_effects, *exported.unordered_effects]
    outputs = sorted(len(aval.shape) for aval in exported.out_avals)
    numbers = [rank - 2] * (len(outputs) - 1)
    fits = outputs in ([*numbers, rank], [*numbers, rank - 2]) and rank in (2, 3)
    fits = fits and exported.nr_devices == 1 and not effects
    if types != ["float32"] or not fits:
        raise ValueError(
            f"{path} is not an exported operator: it takes and returns "
            f"{[a.str_short() for a in avals]} on {exported.nr_devices} devices, "
            f"with effects {effects}. An operator takes float32 points (n, p) as "
            "its first argument and returns values (n, q), perhaps with numbers, or "
            "batches of these, on one device."
        )
    if set(exported.platforms) - set(PLATFORMS):
        raise ValueError(
            f"{path} was exported for {exported.platforms}; supported "
            f"platforms are {PLATFORMS}."
        )


def _physical(
    function: Callable[..., jax.Array],
    inputs: Inputs,
    normalizers: Mapping[str, Normalizer],
) -> Callable[..., Any]:
    """Wraps an operator between normalised values into one between physical ones."""
    for name in normalizers:
        _checks.option("normalizers", name, _NORMALIZED)

    def encode(name: str, values: jax.Array) -> jax.Array:
        if name not in normalizers:
            return values
        return normalize.encode(normalizers[name], values)

    def operator(mesh_points: jax.Array, *others: jax.Array) -> Any:
        rest = list(others)
        arguments = [encode("mesh_points", mesh_points)]
        features: list[jax.Array] = []
        if inputs.feature_dim:
            features.append(encode("features", rest.pop(0)))
        if inputs.scalar_dim:
            scalars = encode("scalars", rest.pop(0))
            shape = mesh_points.shape[0], inputs.scalar_dim
            features.append(jnp.broadcast_to(scalars, shape))
        if features:
            arguments.append(jnp.concatenate(features, axis=1))
        named = ("quadrature_weights",) if inputs.weighted else ()
        values = function(
            *arguments, **dict(zip((*named, *inputs.others), rest, strict=True))
        )
        alone = isinstance(values, dict) and VALUES not in values  # numbers
        if alone or "target" not in normalizers:
            return values
        if isinstance(values, dict):
            field = normalize.decode(normalizers["target"], values[VALUES])
            return values | {VALUES: field}
        return normalize.decode(normalizers["target"], values)

    return operator


def _export(
    operator: Callable[..., jax.Array],
    arguments: Sequence[jax.ShapeDtypeStruct],
    platforms: Sequence[str],
) -> export.Exported:
    _require_flatbuffers()
    rows = arguments[0].shape[:-1]
    n = rows[-1]
    try:
        exported = export.export(jax.jit(operator), platforms=platforms)(*arguments)
    except Exception as error:  # shapes are compared all over a model
        if isinstance(n, int):
            raise
        raise _not_any_number_of_points(error) from error
    _check_outputs(rows, _outputs(exported))
    return exported


def _not_any_number_of_points(error: Exception) -> ValueError:
    """The error for an operator whose tracing failed with symbolic sizes."""
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return ValueError(
        "The operator cannot be exported for any number of points: "
        f"{reason[0].rstrip('.')}. "
        "If it is tied to one grid, pass num_points; if it needs a minimum number "
        "of points, pass min_points."
    )


def _check_outputs(rows: Sequence[Any], outputs: Json) -> None:
    """Raises ValueError unless results are a field, numbers, or both.

    Args:
      rows: axes of the points, without the channels.
      outputs: the results of a call by name, with shapes.
    """
    shapes = {name: tuple(aval.shape) for name, aval in outputs.items()}
    rows, own = tuple(rows), list(shapes.values())
    field = shapes.pop(VALUES, None)
    fits = bool(own) and (field is None or field[:-1] == rows)
    if not fits or any(shape != rows[:-1] for shape in shapes.values()):
        raise ValueError(
            f"The operator returns arrays of shapes {own}, expected one of shape "
            f"({rows[-1]}, channels), or a dictionary of it and numbers, or of numbers."
        )
    if types := sorted({str(aval.dtype) for aval in outputs.values()} - {"float32"}):
        raise ValueError(
            f"The operator returns {', '.join(types)}, expected float32. Convert "
            "them, and save float64 without jax_enable_x64."
        )


def _outputs(exported: export.Exported) -> dict[str, Any]:
    return _by_name(jax.tree.unflatten(exported.out_tree, exported.out_avals))


def _by_name(results: Any) -> dict[str, Any]:
    """Results of a call by name, the field first."""
    named = dict(results) if isinstance(results, dict) else {VALUES: results}
    return {VALUES: named.pop(VALUES), **named} if VALUES in named else named


def _signature(inputs: Json, outputs: Json, about: Mapping[str, str]) -> str:
    """Names and shapes of inputs and outputs, a line for each.

    Args:
      inputs: types of the arguments by name.
      outputs: types of the results by name.
      about: what they hold, by name.
    """
    groups = {"inputs": inputs, "outputs": outputs}
    width = max(len(name) for group in groups.values() for name in group)
    lines: list[str] = []
    for title, group in groups.items():
        lines.append(f"{title}, float32:")
        for name, aval in group.items():
            shape = f"({', '.join(map(str, aval.shape))}{',' * (len(aval.shape) == 1)})"
            line = f"  {name:{width}}  {shape:12} {about.get(name, '')}"
            lines.append(line.rstrip())
    return "\n".join(lines)


def _require_flatbuffers() -> None:
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError(
            "Exported operators are stored with flatbuffers, which is not installed: "
            'pip install "opjax[export]".'
        )
