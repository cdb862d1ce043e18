"""A process that parses files with libraries that do not validate them.

    python -P _parse_apart.py

VTK and SciPy follow offsets and sizes without checking them. A damaged file may crash
this process, fill its memory or keep it busy. `opjax.files.apart` starts it, sends
requests, and survives all of that. The process ends when its standard input ends.

A message is a line of JSON, followed by the values of the arrays that the line
describes. The process does not import opjax, because that would start JAX.
"""

import contextlib
import importlib
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, NamedTuple

import numpy as np

# The longest line of JSON.
_LINE = 2**24
# Kinds of NumPy's types that are sent: numbers and texts, never Python objects.
_KINDS = "fiubcSU"


class Message(NamedTuple):
    """A request or a response: JSON values, and arrays by name."""

    values: dict[str, Any]
    arrays: dict[str, np.ndarray]


class TooLargeError(ValueError):
    """A message declares more bytes than the receiver accepts."""

    def __init__(self, size: int):
        super().__init__(f"{size} bytes")
        self.size = size


def send(file: IO[bytes], message: Message) -> None:
    """Writes a message."""
    arrays = {k: np.ascontiguousarray(a) for k, a in message.arrays.items()}
    described = [[k, a.dtype.str, a.shape] for k, a in arrays.items()]
    line = json.dumps({"values": message.values, "arrays": described})
    file.write(line.encode() + b"\n")
    for array in arrays.values():
        if array.size:
            file.write(array.reshape(-1).view(np.uint8).data)
    file.flush()


def receive(file: IO[bytes], max_bytes: int) -> Message | None:
    """Reads a message.

    Args:
      file: stream to read from.
      max_bytes: maximum size of all arrays together.

    Returns:
      The message; None at the end of the stream.

    Raises:
      TooLargeError: if the arrays are larger.
      ValueError: if the message is malformed or incomplete.
    """
    line = file.readline(_LINE)
    if not line:
        return None
    header = json.loads(line)
    described = [
        (str(name), np.dtype(str(kind)), tuple(map(int, shape)))
        for name, kind, shape in header["arrays"]
    ]
    if not all(d.kind in _KINDS and min(s, default=0) >= 0 for _, d, s in described):
        raise ValueError("a message with arrays that contain neither numbers nor text")
    total = sum(math.prod(s) * d.itemsize for _, d, s in described)
    if total > max_bytes:
        raise TooLargeError(total)
    arrays: dict[str, np.ndarray] = {}
    for name, dtype, shape in described:
        arrays[name] = np.empty(shape, dtype)
        if not arrays[name].size:
            continue
        view = arrays[name].reshape(-1).view(np.uint8).data
        while len(view):
            count = file.readinto(view)  # pyright: ignore[reportAttributeAccessIssue]
            if not count:
                raise ValueError("a message without its end")
            view = view[count:]
    return Message(header["values"], arrays)


def _read_matlab(path: str, request: Message) -> Message:
    """Reads the variable `key` of a file of MATLAB 4 to 7."""
    from scipy import io

    names = [name for name, *_ in io.whosmat(path)]
    key = request.values["key"]
    if key not in names:
        return Message({"names": names}, {})
    variable = io.loadmat(path, variable_names=[key], mat_dtype=True)[key]
    if not isinstance(variable, np.ndarray) or variable.dtype.kind not in "fiub":
        raise ValueError(f"{key!r} is not an array of real numbers")
    native = variable.astype(variable.dtype.newbyteorder("="), copy=False)
    return Message({"names": names}, {key: native})


def _read_vtk(path: str, request: Message) -> Message:
    """Reads a file of VTK's legacy format as an unstructured grid."""
    mesh = _legacy(path)
    active = mesh.GetPointData().GetScalars()
    values = {"scalars": active.GetName() if active is not None else None}
    return Message(values, _arrays_of(mesh))


def _arrays_of(mesh: Any) -> dict[str, np.ndarray]:
    """The cells of a mesh of any kind as an unstructured grid, and its fields."""
    from vtkmodules.vtkCommonExecutionModel import vtkAlgorithm
    from vtkmodules.vtkFiltersCore import vtkAppendFilter

    data, whole = mesh.GetPointData(), mesh.GetFieldData()
    if not mesh.IsA("vtkUnstructuredGrid"):
        append = vtkAppendFilter()
        append.SetInputData(mesh)
        if not mesh.IsA("vtkPointSet"):  # whose coordinates are computed in float64
            append.SetOutputPointsPrecision(vtkAlgorithm.DOUBLE_PRECISION)
        append.Update()
        mesh = append.GetOutput()
    arrays = _geometry(mesh)
    places = {"point": data, "cell": mesh.GetCellData(), "field": whole}
    for place, attributes in places.items():
        arrays |= {
            f"{place} {name}": array for name, array in _fields(attributes).items()
        }
    return arrays


def _read_blocks(path: str, request: Message) -> Message:
    """Reads the blocks of a file by the reader `module.name`, of the frame `step`.

    Arrays are those of `_read_vtk`, behind the number of the block. The last frame is
    read if `step` is negative.
    """
    from vtkmodules.vtkCommonCore import vtkOutputWindow, vtkStringOutputWindow
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline

    window = vtkStringOutputWindow()
    vtkOutputWindow.SetInstance(window)
    module, name = request.values["reader"].rsplit(".", 1)
    reader = getattr(importlib.import_module(module), name)()
    named = [n for n in ("SetFileName", "SetCaseFileName") if hasattr(reader, n)]
    getattr(reader, named[-1])(path)
    reader.UpdateInformation()
    _enable(reader)
    about = reader.GetOutputInformation(0)
    key = vtkStreamingDemandDrivenPipeline.TIME_STEPS()
    times = [float(time) for time in about.Get(key) or ()] if about.Has(key) else []
    if request.values["times_only"]:
        return Message({"times": times}, {})
    step = request.values["step"]
    if times:
        about.Set(vtkStreamingDemandDrivenPipeline.UPDATE_TIME_STEP(), times[step])
    reader.Update()
    # Readers of VTK go on after errors, with noise.
    said = window.GetOutput().strip()
    if "ERR" in said or reader.GetErrorCode():
        raise ValueError(said.split("): ")[min(1, said.count("): "))] or "no mesh")
    arrays: dict[str, np.ndarray] = {}
    names: list[str] = []
    for label, mesh in _leaves(reader.GetOutputDataObject(0), ""):
        arrays |= {f"{len(names)} {k}": a for k, a in _arrays_of(mesh).items()}
        names.append(label)
    return Message({"times": times, "names": names}, arrays)


def _enable(reader: Any) -> None:
    """Switches on the fields of a reader that reads none by default."""
    if hasattr(reader, "SetAllArrayStatus"):  # of Exodus
        for kind in ("NODAL", "ELEM_BLOCK", "GLOBAL"):
            reader.SetAllArrayStatus(getattr(reader, kind), 1)
        reader.GenerateObjectIdCellArrayOff()


def _leaves(data: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The meshes of a tree of blocks, with the name of each."""
    if data is None:
        return
    if not data.IsA("vtkCompositeDataSet"):
        if data.IsA("vtkDataSet") and data.GetNumberOfPoints():
            yield name, data
        return
    several = data.IsA("vtkMultiBlockDataSet")
    count = data.GetNumberOfBlocks() if several else data.GetNumberOfPartitions()
    for i in range(count):
        about = data.GetMetaData(i) if several and data.HasMetaData(i) else None
        own = about.Get(data.NAME()) if about is not None else None
        part = data.GetBlock(i) if several else data.GetPartitionAsDataObject(i)
        yield from _leaves(part, own or name)


def _legacy(path: str) -> Any:
    from vtkmodules.vtkCommonCore import vtkOutputWindow, vtkStringOutputWindow
    from vtkmodules.vtkIOLegacy import vtkDataSetReader

    window = vtkStringOutputWindow()  # which keeps what VTK would print
    vtkOutputWindow.SetInstance(window)
    reader = vtkDataSetReader()
    reader.SetFileName(path)
    for kind in ("Scalars", "Vectors", "Normals", "Tensors", "ColorScalars"):
        getattr(reader, f"ReadAll{kind}On")()
    reader.ReadAllTCoordsOn()
    reader.ReadAllFieldsOn()
    reader.Update()
    said = window.GetOutput()
    mesh = reader.GetOutput()
    # That binary values end early is a warning of VTK, which then returns noise.
    if said or reader.GetErrorCode() or mesh is None:
        reasons = said.strip().split("): ")  # behind the place in VTK's code
        raise ValueError(reasons[min(1, len(reasons) - 1)] or "no VTK mesh")
    return mesh


_POLYHEDRON = 42


def _geometry(grid: Any) -> dict[str, np.ndarray]:
    from vtkmodules.util.numpy_support import vtk_to_numpy

    cells, empty = grid.GetCells(), np.zeros(0, np.int64)
    arrays: dict[str, np.ndarray] = {
        "points": np.zeros((0, 3)),
        "offsets": np.zeros(1, np.int64),
        "corners": empty,
        "types": empty,
    }
    if grid.GetPoints() is not None and grid.GetNumberOfPoints():
        arrays["points"] = vtk_to_numpy(grid.GetPoints().GetData())
    if grid.GetNumberOfCells():
        arrays["offsets"] = vtk_to_numpy(cells.GetOffsetsArray())
        arrays["corners"] = vtk_to_numpy(cells.GetConnectivityArray())
        kinds, count = grid.GetCellTypesArray(), grid.GetNumberOfCells()
        if kinds is None:  # VTK keeps none where all cells are of one kind
            each = (grid.GetCellType(i) for i in range(count))
            arrays["types"] = np.fromiter(each, np.uint8, count)
        else:
            arrays["types"] = vtk_to_numpy(kinds)
    if (arrays["types"] == _POLYHEDRON).any():
        if not hasattr(grid, "GetPolyhedronFaces"):
            raise ValueError("polyhedra of .vtk files need VTK 9.4: save a .vtu file")
        faces, solids = grid.GetPolyhedronFaces(), grid.GetPolyhedronFaceLocations()
        arrays |= {
            "face_connectivity": vtk_to_numpy(faces.GetConnectivityArray()),
            "face_offsets": vtk_to_numpy(faces.GetOffsetsArray())[1:],
            "polyhedron_to_faces": vtk_to_numpy(solids.GetConnectivityArray()),
            "polyhedron_offsets": vtk_to_numpy(solids.GetOffsetsArray())[1:],
        }
    return arrays


def _fields(data: Any) -> dict[str, np.ndarray]:
    from vtkmodules.util.numpy_support import vtk_to_numpy

    fields: dict[str, np.ndarray] = {}
    for i in range(data.GetNumberOfArrays()):
        array = data.GetAbstractArray(i)
        name = array.GetName() or f"Unnamed_{i}"
        if array.IsA("vtkStringArray"):
            texts = [array.GetValue(j) for j in range(array.GetNumberOfValues())]
            fields[name] = np.array(texts, np.str_)
        else:
            fields[name] = vtk_to_numpy(array)
    return fields


def _write_vtk(path: str, request: Message) -> Message:
    """Adds the arrays of a request to the points or cells of a mesh; writes `output`.

    The mesh is that of the file, or of the request, where it has `points`.
    """
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkIOLegacy import vtkDataSetWriter

    mesh = _grid(request) if "points" in request.arrays else _legacy(path)
    for name, array in request.arrays.items():
        place, _, key = name.partition(" ")
        if place not in ("point", "cell"):
            continue
        at_points = place == "point"
        count = mesh.GetNumberOfPoints() if at_points else mesh.GetNumberOfCells()
        if len(array) != count:
            raise ValueError(f"{len(array)} rows for {count} {place}s")
        held = numpy_to_vtk(array, deep=True)
        held.SetName(key)
        data = mesh.GetPointData() if at_points else mesh.GetCellData()
        data.AddArray(held)
    writer = vtkDataSetWriter()
    writer.SetInputData(mesh)
    writer.SetFileName(request.values["output"])
    writer.SetFileTypeToBinary()
    if not writer.Write():
        raise OSError(f"VTK cannot write {request.values['output']}")
    return Message({}, {})


def _grid(request: Message) -> Any:
    from vtkmodules.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray
    from vtkmodules.vtkCommonCore import vtkPoints
    from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkUnstructuredGrid

    arrays = request.arrays
    points, cells, grid = vtkPoints(), vtkCellArray(), vtkUnstructuredGrid()
    points.SetData(numpy_to_vtk(arrays["points"], deep=True))
    cells.SetData(
        *(numpy_to_vtkIdTypeArray(arrays[k], deep=True) for k in ("offsets", "corners"))
    )
    grid.SetPoints(points)
    grid.SetCells(numpy_to_vtk(arrays["types"].astype(np.uint8), deep=True), cells)
    return grid


class _Operation(NamedTuple):
    """What a request asks for, and the modules that it needs."""

    run: Callable[[str, Message], Message]
    modules: tuple[str, ...]


_VTK = ("vtkmodules.util.numpy_support", "vtkmodules.vtkIOLegacy")
_OPERATIONS: Mapping[str, _Operation] = {
    "read_matlab": _Operation(_read_matlab, ("scipy.io",)),
    "read_vtk": _Operation(_read_vtk, (*_VTK, "vtkmodules.vtkFiltersCore")),
    "read_blocks": _Operation(_read_blocks, (_VTK[0], "vtkmodules.vtkFiltersCore")),
    "write_vtk": _Operation(_write_vtk, _VTK),
}


def _limit(seconds: int, num_bytes: int) -> None:
    """Bounds what the next request may use, where the system has such limits.

    Args:
      seconds: of processor time.
      num_bytes: of memory, beside what the process has already.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = math.ceil(used.ru_utime + used.ru_stime)
    present = 0
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        present = int(file.read().split()[5]) * resource.getpagesize()
    for kind, value in (
        (resource.RLIMIT_CPU, spent + seconds),
        (resource.RLIMIT_DATA, present + num_bytes),
    ):
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, hard))


def _answer(request: Message) -> Message:
    operation = _OPERATIONS[request.values["do"]]
    try:
        for module in operation.modules:
            importlib.import_module(module)
        _limit(request.values["seconds"], request.values["memory"])
        return operation.run(request.values["path"], request)
    except MemoryError:
        return Message({"error": "it needs too much memory"}, {})
    except Exception as error:  # a damaged file can raise any kind of error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Message({"error": lines[0][:300] or type(error).__name__}, {})


def main() -> None:
    """Responds to requests from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is meant for the parent
    requests, answers = (os.fdopen(os.dup(stream), mode) for stream, mode in _PIPES)
    with open(os.devnull, "r+b") as nowhere:  # libraries may print
        for stream in (0, 1, 2):
            os.dup2(nowhere.fileno(), stream)
    while (request := receive(requests, sys.maxsize)) is not None:
        send(answers, _answer(request))


_PIPES = ((0, "rb"), (1, "wb"))


if __name__ == "__main__":
    main()
