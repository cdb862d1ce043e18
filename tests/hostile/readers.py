"""What reads each format, and the errors it may raise: as documented, from opjax."""

import dataclasses
import json
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import opjax
from opjax import files
from opjax._files import REFUSALS
from opjax.datasets import _airfrans_files, _arrays, _off
from opjax.files import ReadOptions, checking, mapped
from opjax.files.series import read_series
from opjax.files.vtk import vtu_write
from opjax.files.vtk.mesh import VtkMesh
from tests.hostile import crafted, mutations, originals

MAX_BYTES = 2**24
_HOME = str(Path(opjax.__file__).parent)
_SOLVERS = Path(__file__).parents[1] / "datasets/solvers"


class Format(NamedTuple):
    """How a format is broken and read.

    Attributes:
      name: of the file.
      original: `original(seed)`, the bytes of a valid file.
      mutations: ways to break it.
      read: ways to read it, which take turns; each gets the path.
      crafted: `crafted(rng)`, files that no mutation would find.
      seal: makes checksums right again.
      prepare: `prepare(path)`, which puts a file and others there, once.
    """

    name: str
    original: Callable[[int], bytes]
    mutations: tuple[mutations.Mutation, ...]
    read: tuple[Callable[[Path], Any], ...]
    crafted: Callable[[np.random.Generator], bytes] | None = None
    seal: Callable[[bytes, Path], bytes] | None = None
    prepare: Callable[[Path], None] | None = None


def verdict(error: BaseException, path: Path) -> str:
    """Says why an error is none of the documented ones; empty if it is."""
    if not isinstance(error, REFUSALS):
        return f"{type(error).__name__}: {str(error)[:200]}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    if not last.filename.startswith(_HOME):
        return f"{type(error).__name__} from {last.filename}:{last.lineno}: {error}"
    if not any(str(place) in str(error) for place in _places(path)):
        return f"a message without the file: {error}"
    return ""


def _places(path: Path) -> list[Path]:
    """A file, its folder, and that of the run that it belongs to."""
    return [path, path.parent, *list(path.parents)[2:3]]


def _reads(**options: Any) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        files.read([path], ReadOptions(max_bytes=MAX_BYTES, **options))

    return read


_own = _reads()
_own_weights = _reads(quadrature=True, point_dim=2)
_own_cells = _reads(location="cells", need_target=False)
_own_geometry = _reads(boundary_names="wall", geometry="normals,distance")
_own_stacked = _reads(stacked=True)


def _own_patches(path: Path) -> None:
    """Integrates over a boundary by a condition, and computes a component."""
    for location in ("points", "cells"):
        _reads(
            location=location,
            target="features_x",
            boundary="all: x < 1e30",
            facets=True,
            need_target=False,
        )(path)


def _own_surface(path: Path) -> None:
    """Reads a surface, and writes a field beside it."""
    copy = path.with_name("copy.vtp")
    options = ReadOptions(max_bytes=MAX_BYTES, need_target=False)
    try:
        with files.extended(path, copy, options) as samples:
            for each in samples:
                each.add(np.zeros((each.sample.num_points, 1), np.float32))
    finally:
        copy.unlink(missing_ok=True)


def _own_folder(path: Path) -> None:
    _own_stacked(path.parent)


def _own_stored(path: Path) -> None:
    found = files.stored([path], ReadOptions(max_bytes=MAX_BYTES))
    assert all(sample.num_points for sample in found)


def _mapped(path: Path) -> None:
    """Reads slices of a file, and writes a field beside them into a copy."""
    copy = path.with_name(f"copy{path.suffix}")
    try:
        with mapped.copied(path, copy) as samples:
            for sample in samples:
                added = sample.add(["prediction"])
                for array in sample.arrays.values():
                    array[0:5]
                count = len(sample.arrays["mesh_points"])
                if count < 2**16:
                    added.put(0, np.zeros((count, 1), np.float32))
    finally:
        copy.unlink(missing_ok=True)


def _published(key: str, rank: int) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        _arrays.read(path, key, shape=(None,) * rank, source="its authors")

    return read


def _vtp(path: Path) -> None:
    mesh = _airfrans_files.open_mesh(path, "its authors")
    assert mesh.points.size


def _off_file(path: Path) -> None:
    _off.read_vertices(path)
    _off.read_triangles(path)


def _labels(path: Path) -> None:
    _off.read_labels(path, lowest=0, highest=6)


def _config(path: Path) -> None:
    from opjax.learn.cli import train
    from opjax.learn.run import folder

    folder.read_config(path.parent, train.Config)


def _exported(path: Path) -> None:
    from opjax import export

    export.load(path, max_bytes=MAX_BYTES)


def _operator(seed: int) -> bytes:
    import tempfile

    import jax.numpy as jnp

    from opjax import export

    matrix = np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32)

    def function(points, features):
        return jnp.tanh(points @ matrix) + features[:, :1]

    inputs = export.Inputs(2, 2, num_points=5 if seed % 2 else None)
    with tempfile.TemporaryDirectory() as folder:
        export.save(Path(folder, "operator"), function, inputs)
        return Path(folder, "operator").read_bytes()


def _seal_operator(data: bytes, original: bytes) -> bytes:
    """Gives a broken operator the right checksum."""
    from opjax import export

    content = data[: len(data) - len(export._end(b""))]
    return content + export._end(content)


def _trained(path: Path) -> None:
    from opjax.learn.predict import trained

    trained.load(path.parents[2])


def _save_trained(path: Path) -> None:
    """Puts an operator there, whose manifest is the file to break."""
    from flax import nnx

    from opjax.learn.cli import train
    from opjax.learn.json_files import write_json
    from opjax.learn.predict import trained
    from opjax.learn.predict.description import describe
    from opjax.learn.registry import operators
    from opjax.samples import Sample

    given = originals.arrays(0)
    given["target"] = given["target"][:, None].astype(np.float32)
    del given["cells"]
    samples = [Sample(**given, name="a")]  # pyright: ignore
    root = path.parents[2]
    shutil.rmtree(path.parent)  # which is to appear when complete
    config = train.Config(
        models=("functional",), width=4, num_heads=1, num_layers=1, num_basis=2
    )
    config = dataclasses.replace(config, convolution=False, equal_parameters=False)
    write_json(root / "config.json", dataclasses.asdict(config))
    write_json(root / "result.json", {"validation": 1.0})
    sizes = operators.sizes(samples)
    model = operators.build(config, sizes, rngs=nnx.Rngs(0))
    trained.save(root, model, {}, describe(samples, sizes=sizes))


def _save_blocks(path: Path) -> None:
    """Puts a mesh and a boundary there, and the list of both, which is to break."""
    (path.parent / "blocks").mkdir()
    (path.parent / "blocks/mesh.vtu").write_bytes(originals.vtu(0))
    points = np.pad(originals.arrays(0)["mesh_points"], ((0, 0), (0, 1)))
    lines = np.stack([np.arange(3), np.arange(1, 4)], axis=1).reshape(-1)
    wall = VtkMesh(points, np.arange(0, 7, 2), lines, np.full(3, 3))
    vtu_write.write(path.parent / "blocks/wall.vtp", wall, {})
    kind = "vtkMultiBlockDataSet"
    rows = [
        f'<VTKFile type="{kind}" version="1.0"><{kind}>',
        '<DataSet index="0" name="mesh" file="blocks/mesh.vtu"/>',
        '<Block index="1" name="boundaries">',
        '<DataSet index="0" name="other" file="blocks/wall.vtp"/>',
        f"</Block></{kind}></VTKFile>",
    ]
    path.write_text("\n".join(rows))


def _save_pieces(path: Path) -> None:
    """Puts two pieces there, and the list of both, which is to break."""
    for number in range(2):
        (path.parent / f"piece_{number}.vtu").write_bytes(originals.vtu(3 * number))
    kind = "PUnstructuredGrid"
    rows = [f'<Piece Source="piece_{number}.vtu"/>' for number in range(2)]
    head = f'<VTKFile type="{kind}" version="1.0"><{kind} GhostLevel="0">'
    path.write_text("\n".join([head, *rows, f"</{kind}></VTKFile>"]))


def _save_frames(path: Path) -> None:
    """Puts frames there, and the list of all, which is to break."""
    rows = [(f"a_{number}.vtu", number / 4) for number in range(3)]
    for name, _ in rows:
        (path.parent / name).write_bytes(originals.vtu(0))
    if path.suffix == ".series":
        files_of = [{"name": name, "time": time} for name, time in rows]
        path.write_text(json.dumps({"file-series-version": "1.0", "files": files_of}))
        return
    sets = [
        f'<DataSet timestep="{time}" part="{part}" file="{name}"/>'
        for name, time in rows
        for part in range(2)
    ]
    head = '<VTKFile type="Collection" version="0.1"><Collection>'
    path.write_text("\n".join([head, *sets, "</Collection></VTKFile>"]))


def _save_ensight(path: Path) -> None:
    """Puts frames of Ensight there, and their list, which is to break."""
    there = _SOLVERS / "times/EnSight"
    shutil.copytree(there, path.parent, dirs_exist_ok=True)
    (path.parent / "cavity.case").rename(path)


def _reads_series(**options: Any) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        read_series([str(path)], ReadOptions(max_bytes=MAX_BYTES, **options))

    return read


_series_of_u = _reads_series(target="u")
_series_of_cells = _reads_series(target="p", location="cells")


def _series(path: Path) -> None:
    read_series([str(path)], ReadOptions(max_bytes=MAX_BYTES), min_frames=1)


def _copies(*names: str) -> Callable[[Path], None]:
    """Puts files of solvers there."""

    def copy(path: Path) -> None:
        for name in names:
            shutil.copy(_SOLVERS / name, path.parent)

    return copy


_save_square = _copies("square.xdmf", "square.h5")
_save_box = _copies("box.cas", "box.dat")


def _own_fluent(path: Path) -> None:
    _own_cells(path.with_suffix(".cas"))


def _check(path: Path) -> None:
    """Looks at a folder, whatever is in it."""
    found = checking.check([str(path.parent)])
    text = json.dumps(dataclasses.asdict(found))
    assert found.looked_at or found.refused, text


def _manifest(seed: int) -> bytes:
    del seed
    return b""  # read from the folder that `_save_trained` makes


def _seal_manifest(data: bytes, original: bytes) -> bytes:
    """Gives a manifest the checksum of its own values, where manifests have one."""
    from opjax.training import _manifest as manifest

    try:
        found = json.loads(data)
        return manifest.signed({k: v for k, v in found.items() if k != "own"}).encode()
    except (AttributeError, ValueError, TypeError, RecursionError):
        return data


FORMATS: dict[str, Format] = {
    "npz": Format(
        "a.npz",
        originals.npz,
        mutations.BYTES,
        (
            _own,
            _own_weights,
            _published("target", 1),
            _own_cells,
            _own_geometry,
            _own_patches,
            _check,
        ),
        crafted.npz,
    ),
    "npy": Format(
        "target.npy",
        originals.npy,
        mutations.BYTES,
        (_published("", 3), _own_folder),
        crafted.npy,
    ),
    "mat v5": Format(
        "a.mat",
        originals.mat5,
        (mutations.deflated, *mutations.BYTES),
        (_published("u", 3),),
        crafted.mat5,
    ),
    "mat v7.3": Format(
        "a.mat",
        originals.mat73,
        mutations.BYTES,
        (_published("u", 3),),
        crafted.mat73,
    ),
    "h5": Format(
        "a.h5",
        originals.h5,
        mutations.BYTES,
        (
            *(_own, _mapped, _own_weights, _own_stacked, _own_stored),
            *(_own_cells, _own_geometry, _own_patches),
        ),
        crafted.h5,
    ),
    "vtu": Format(
        "a.vtu",
        originals.vtu,
        mutations.TEXT,
        (_own, _mapped, _own_weights, _own_cells, _own_geometry, _own_patches, _check),
        crafted.xml,
    ),
    "polyhedra": Format(
        "a.vtu",
        originals.polyhedra,
        mutations.TEXT,
        (_own, _own_cells, _own_geometry),
        crafted.xml,
    ),
    "vtp": Format(
        "a.vtp",
        originals.vtp,
        mutations.TEXT,
        (_vtp, _own, _own_weights, _own_cells, _own_geometry, _own_patches),
        crafted.xml,
    ),
    "cgns": Format(
        "a.cgns",
        originals.cgns,
        mutations.BYTES,
        (_own, _own_cells, _own_geometry, _own_patches),
    ),
    "vtm": Format(
        "a.vtm",
        _manifest,
        mutations.TEXT,
        (_own, _own_cells, _own_geometry, _own_patches),
        prepare=_save_blocks,
    ),
    "pvtu": Format(
        "a.pvtu", _manifest, mutations.TEXT, (_own, _own_cells), prepare=_save_pieces
    ),
    "pvd": Format(
        "a.pvd", _manifest, mutations.TEXT, (_own, _series), prepare=_save_frames
    ),
    "series": Format(
        "a.vtu.series", _manifest, mutations.JSON, (_own, _series), prepare=_save_frames
    ),
    **{
        kind: Format(
            f"a.{kind}", originals.of_vtk(kind), mutations.TEXT, (_own, _own_cells)
        )
        for kind in ("vti", "vtr", "vts")
    },
    **{
        kind: Format(
            f"a.{kind}", originals.of_vtk(kind), mutations.BYTES, (_own, _series)
        )
        for kind in ("vtkhdf", "exo")
    },
    "case": Format(
        "a.case",
        _manifest,
        mutations.TEXT,
        (_series_of_cells,),
        prepare=_save_ensight,
    ),
    "xdmf": Format(
        "square.xdmf",
        _manifest,
        mutations.TEXT,
        (_series_of_u,),
        prepare=_save_square,
    ),
    "cas": Format(
        "box.cas",
        lambda _: (_SOLVERS / "box.cas").read_bytes(),
        mutations.TEXT,
        (_own_cells,),
        crafted.fluent,
    ),
    "dat": Format(
        "box.dat",
        _manifest,
        mutations.TEXT,
        (_own_fluent,),
        prepare=_save_box,
    ),
    "stl": Format(
        "a.stl",
        originals.stl,
        mutations.BYTES,
        (_own_surface, _own_cells, _own_weights),
    ),
    "ply": Format(
        "a.ply",
        originals.ply,
        mutations.TEXT,
        (_own_surface, _own_cells, _own, _own_weights),
    ),
    "vtk": Format(
        "a.vtk",
        originals.vtk,
        mutations.TEXT,
        (_own, _own_weights, _own_cells, _own_geometry, _own_patches),
        crafted.legacy,
    ),
    "off": Format("a.off", originals.off, mutations.TEXT, (_off_file,), crafted.off),
    "labels": Format(
        "a.txt", originals.labels, mutations.TEXT, (_labels,), crafted.labels
    ),
    "config": Format(
        "config.json", originals.config, mutations.JSON, (_config,), crafted.config
    ),
    "checkpoint": Format(
        "run/operator/step_0000000000/opjax_manifest.json",
        _manifest,
        mutations.JSON,
        (_trained,),
        seal=_seal_manifest,
        prepare=_save_trained,
    ),
    "exported": Format(
        "operator.jax",
        _operator,
        mutations.BYTES,
        (_exported,),
        seal=_seal_operator,
    ),
}
