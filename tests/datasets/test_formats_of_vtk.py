"""Pieces of parallel solvers, images, and formats that hold several times."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from opjax.files import ReadOptions, frames
from opjax.files.series import read_series
from opjax.files.vtk import fields, joining
from opjax.files.vtk.mesh import NamedArrays, VtkMesh
from tests.datasets.reading import refused
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista", reason="needs opjax[vtk]")

OPTIONS = ReadOptions(target="u")
TIMES = (0.0, 0.5, 2.0)
SOLVERS = Path(__file__).parent / "solvers"


def grid(time=0.0):
    mesh = pyvista.ImageData(
        dimensions=(4, 3, 3), origin=(1, 2, 3), spacing=(0.5, 1, 2)
    )
    mesh["u"] = mesh.points[:, 0] + 10 * time
    mesh.cell_data["c"] = mesh.cell_centers().points[:, 1] + 10 * time
    return mesh


def pvtu(path, time=0.0, ghosts=False):
    """Writes two pieces with a common face, as dolfinx and ParaView do."""
    mesh = grid(time).cast_to_unstructured_grid()
    left = mesh.cell_centers().points[:, 0] < 2
    for part, chosen in enumerate((left, ~left)):
        piece = mesh.extract_cells(np.flatnonzero(chosen | ghosts))
        piece.clear_field_data()
        for data in (piece.point_data, piece.cell_data):
            for name in ("vtkOriginalPointIds", "vtkOriginalCellIds"):
                data.pop(name, None)
        if ghosts:
            piece.cell_data["vtkGhostType"] = (~chosen).astype(np.uint8)
        piece.save(path.with_name(f"{path.stem}_p{part}.vtu"))
    write_pieces(path)


def write_pieces(path):
    pieces = "".join(f'<Piece Source="{path.stem}_p{i}.vtu"/>' for i in range(2))
    path.write_text(
        "<VTKFile type='PUnstructuredGrid'><PUnstructuredGrid>"
        f"{pieces}</PUnstructuredGrid></VTKFile>"
    )


def check_sample(sample, options, time=0.0):
    points = sample.mesh_points
    if options.location == "cells":
        assert len(points) == 12
        assert_allclose(sample.target[:, 0], points[:, 1] + 10 * time)
        assert_allclose(sample.quadrature_weights, 1)
    else:
        assert len(points) == 36
        assert_allclose(sample.target[:, 0], points[:, 0] + 10 * time)


AT = [OPTIONS, ReadOptions(target="c", location="cells")]


@pytest.mark.parametrize("options", AT, ids=["points", "cells"])
@pytest.mark.parametrize("ghosts", [False, True])
def test_pieces_are_one_mesh_whose_common_points_are_one(ghosts, options, tmp_path):
    pvtu(tmp_path / "a.pvtu", ghosts=ghosts)
    (sample,) = files.read(tmp_path, options)
    check_sample(sample, options)
    with files.extended(
        tmp_path / "a.pvtu", tmp_path / "out" / "a.vtu", options
    ) as all:
        all[0].add(sample.target, ["again"])
    found = pyvista.read(tmp_path / "out" / "a.vtu")
    data = found.cell_data if options.location == "cells" else found.point_data
    assert_array_equal(data["again"], sample.target[:, 0])


@pytest.mark.parametrize("kind", ["pvtu", "parts"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_collections_of_pieces_are_series(kind, in_memory, tmp_path):
    rows = ""
    for number, time in enumerate(TIMES):
        pvtu(tmp_path / f"u_{number}.pvtu", time)
        names = [f"u_{number}.pvtu"]
        if kind == "parts":
            names = [f"u_{number}_p{i}.vtu" for i in range(2)]
        rows += "".join(
            f'<DataSet timestep="{time}" part="{i}" file="{name}"/>'
            for i, name in enumerate(names)
        )
    text = f"<VTKFile type='Collection'><Collection>{rows}</Collection></VTKFile>"
    (tmp_path / "u.pvd").write_text(text)
    for options in AT:
        ((series,), _) = read_series(tmp_path, options, in_memory=in_memory)
        assert_array_equal(series.times, TIMES)
        for frame, time in enumerate(TIMES):
            check_sample(
                series.seen([0])._replace(target=np.asarray(series.values[frame])),
                options,
                time,
            )
    with pytest.warns(UserWarning, match="Steady cases are read at their last time"):
        (sample,) = files.read(tmp_path / "u.pvd", OPTIONS)
    check_sample(sample, OPTIONS, TIMES[-1])


def test_points_that_a_piece_has_twice_stay_two():
    points = np.array([[0.0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 0, 0]])
    pieces = [
        VtkMesh(
            points + np.array([2.0 * i, 0, 0]),
            np.array([0, 2, 4]),
            np.array([0, 1, 2, 3]),
            np.array([3, 3]),
            NamedArrays({"u": np.arange(4.0) + 3 * i}),
        )
        for i in range(2)
    ]
    mesh = joining.joined("a.pvtu", pieces)  # pyright: ignore
    assert mesh.points[:, 0].tolist() == [0, 1, 1, 2, 3, 3, 4]
    assert mesh.point_data.arrays["u"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert mesh.corners.tolist() == [0, 1, 2, 3, 3, 4, 5, 6]


def test_pieces_of_polyhedra_are_joined_without_their_ghosts(tmp_path):
    whole = pyvista.read(SOLVERS / "dual" / "internal.vtu")
    whole.clear_field_data()
    left = whole.cell_centers().points[:, 0] < 1
    for part, chosen in enumerate((left, ~left)):
        piece = whole.copy()
        piece.cell_data["vtkGhostType"] = (~chosen).astype(np.uint8)
        piece.save(tmp_path / f"a_p{part}.vtu")
    write_pieces(tmp_path / "a.pvtu")
    options = ReadOptions(target="T", location="cells")
    (found,), (expected,) = (
        files.read(path, options)
        for path in (tmp_path / "a.pvtu", SOLVERS / "dual" / "internal.vtu")
    )
    order, other = (np.lexsort(np.round(s.mesh_points, 5).T) for s in (found, expected))
    for name in ("mesh_points", "quadrature_weights", "target"):
        values, known = getattr(found, name), getattr(expected, name)
        assert_allclose(values[order], known[other], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", AT, ids=["points", "cells"])
@pytest.mark.parametrize("suffix", [".vti", ".vtr", ".vts", ".vtkhdf", ".exo"])
def test_files_of_vtk_are_read(suffix, options, tmp_path):
    mesh = grid()
    if suffix == ".vtr":
        mesh = mesh.cast_to_rectilinear_grid()
    elif suffix == ".vts":
        mesh = mesh.cast_to_structured_grid()
    elif suffix != ".vti":
        mesh = mesh.cast_to_unstructured_grid()
    if suffix == ".exo":
        save_frames(tmp_path / "a.exo", [0.0])
    else:
        mesh.save(tmp_path / f"a{suffix}")
    (sample,) = files.read(tmp_path, options)
    check_sample(sample, options)
    assert files.formats.written_name(tmp_path / f"a{suffix}") == "a.vtu"


def save_frames(path, times):
    """Writes frames into one file."""
    from vtkmodules.util.vtkAlgorithm import VTKPythonAlgorithmBase
    from vtkmodules.vtkCommonDataModel import vtkDataObject
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline as p

    class Source(VTKPythonAlgorithmBase):
        def __init__(self):
            super().__init__(
                nInputPorts=0, nOutputPorts=1, outputType="vtkUnstructuredGrid"
            )

        def RequestInformation(self, request, before, after):
            about = after.GetInformationObject(0)
            about.Set(p.TIME_STEPS(), list(times), len(times))
            about.Set(p.TIME_RANGE(), [times[0], times[-1]], 2)
            return 1

        def RequestData(self, request, before, after):
            about = after.GetInformationObject(0)
            key = p.UPDATE_TIME_STEP()
            now = about.Get(key) if about.Has(key) else times[0]
            mesh = grid(now).cast_to_unstructured_grid()
            vtkDataObject.GetData(about).ShallowCopy(mesh)
            about.Get(vtkDataObject.DATA_OBJECT()).GetInformation().Set(
                vtkDataObject.DATA_TIME_STEP(), now
            )
            return 1

    source = Source()
    if path.suffix == ".exo":
        io = pytest.importorskip("vtkmodules.vtkIOExodus")
        writer = io.vtkExodusIIWriter()
        writer.WriteAllTimeStepsOn()
    else:
        io = pytest.importorskip("vtkmodules.vtkIOHDF")
        writer = io.vtkHDFWriter()
        writer.SetWriteAllTimeSteps(True)
    writer.SetInputConnection(source.GetOutputPort())
    writer.SetFileName(str(path))
    writer.Write()
    del writer, source


@pytest.mark.parametrize("suffix", [".vtkhdf", ".exo"])
def test_files_of_several_times_are_series_and_read_at_the_last_one(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    save_frames(path, TIMES)
    for options in AT:
        with pytest.warns(UserWarning, match=f"{suffix} files with several times"):
            (sample,) = files.read(path, options)
        check_sample(sample, options, TIMES[-1])
        for in_memory in (True, False):
            ((series,), _) = read_series(tmp_path, options, in_memory=in_memory)
            assert_array_equal(series.times, TIMES)
            for frame, time in enumerate(TIMES):
                values = np.asarray(series.values[frame])
                check_sample(series.seen([0])._replace(target=values), options, time)


@pytest.mark.parametrize("field", ["u", "d"])
def test_xdmf_of_fenics_is_a_series_and_its_last_time_a_sample(field, tmp_path):
    for name in ("square.xdmf", "square.h5"):
        shutil.copy(SOLVERS / name, tmp_path)
    at = files.ReadOptions(target=field, location="cells" if field == "d" else "points")
    with pytest.warns(UserWarning, match=r"\.xdmf files with several times"):
        (sample,) = files.read(tmp_path, at)
    x, y = sample.mesh_points.T
    expected = x + 10 * y + 100 if field == "u" else np.ones(12)
    assert_allclose(sample.target[:, 0], expected, rtol=1e-6)
    for in_memory in (True, False):
        ((series,), _) = read_series(tmp_path, at, in_memory=in_memory)
        assert series.times.tolist() == [0, 0.5, 1]
        assert_array_equal(series.values[2], sample.target)
    refused(tmp_path / "square.h5", r"square.h5/.*arrays of square\.xdmf; read")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("square.h5:", "gone.h5:"), "arrays in gone.h5, which is missing"),
        (("square.h5:", "../square.h5:"), "'../square.h5', which is not in its folder"),
        (("square.h5:", "/etc/a.h5:"), "'/etc/a.h5', which is not in its folder"),
        (("<xi:include ", "<xi:include href='b.xdmf' "), "includes other documents"),
        (('Xdmf.dtd" []', "Xdmf.dtd\" [<!ENTITY a 'b'>]"), "entities are not allowed"),
        (('Format="HDF"', 'Format="MySQL"'), "in the format MYSQL"),
        (('Dimensions="12 1"', 'Dimensions="11 1"'), "Cannot read"),
        (("</Xdmf>", ""), "Cannot read"),
        (("Xdmf", "Other"), "it is Other, not Xdmf"),
    ],
)
def test_xdmf_is_not_trusted(change, said, tmp_path):
    text = (SOLVERS / "square.xdmf").read_text()
    assert change[0] in text
    (tmp_path / "square.xdmf").write_text(text.replace(*change))
    shutil.copy(SOLVERS / "square.h5", tmp_path)
    refused(tmp_path / "square.xdmf", said, target="u")


def test_a_case_of_fluent_has_the_fields_of_its_cells():
    # Zones of faces, which VTK reads as solids, are left out.
    options = files.ReadOptions(target="PRESSURE", location="cells")
    (sample,) = files.read(SOLVERS / "box.cas", options)
    assert_array_equal(sample.target[:, 0], np.arange(12))
    x, y, z = np.meshgrid([0.5, 1.5, 2.5], [0.5, 1.5], [0.5, 1.5], indexing="ij")
    centres = np.stack([x, y, z], -1).transpose(2, 1, 0, 3).reshape(-1, 3)
    assert_allclose(sample.mesh_points, centres)
    assert_allclose(sample.quadrature_weights, 1)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("box.cas", lambda text: text[: len(text) // 2], "Cannot read"),
        ("box.cas", lambda text: "not a case\n" * 50, "Cannot read"),
        ("box.cas", lambda text: text.replace("1 24 1 3", "1 20 1 3"), "name points"),
        ("box.cas", lambda text: text.replace("1 24 0 3", "1 ffffffff 0 3"), "Cannot"),
        ("box.cas", lambda text: text.replace("4 2 6 12 e", "4 99 6 12 e"), "name poi"),
        ("box.cas", lambda text: text.replace("e 2 1\n", "e ff 1\n"), "Cannot read"),
        ("box.cas", lambda text: text.replace("(12 (", "(99 ("), "only points"),
        ("box.dat", lambda text: "", "in the .dat file of the same name"),
        ("box.dat", lambda text: text[: len(text) // 5], "Cannot read"),
        ("box.dat", lambda text: text.replace("0 1 12)", "0 1 6)"), "has 6 rows, not"),
        ("box.dat", lambda text: text.replace("\n1\n", "\n-nan\n"), "value '-nan'"),
        ("box.dat", lambda text: text.replace("\n1\n", "\nA\n"), "the value 'A'"),
    ],
)
def test_a_damaged_case_of_fluent_is_refused(name, change, said, tmp_path):
    for each in ("box.cas", "box.dat"):
        text = (SOLVERS / each).read_text()
        broken = change(text) if each == name else text
        assert (broken == text) == (each != name)
        (tmp_path / each).write_text(broken)
    options = files.ReadOptions(target="PRESSURE", location="cells")
    with value_error(said):
        files.read(tmp_path / "box.cas", options)


def test_own_formats_go_before_others_of_a_folder(tmp_path):
    grid().save(tmp_path / "a.vti")
    grid().cast_to_unstructured_grid().save(tmp_path / "b.vtu")
    assert files.find(tmp_path) == [tmp_path / "b.vtu"]
    assert frames.frames_in(tmp_path) == [tmp_path / "b.vtu"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.case", "FORMAT\ntype: ensight gold\nmodel: ../geo\n", "'../geo', which is"),
        (
            "a.case",
            "FORMAT\ntype: ensight gold\nmodel: /etc/passwd\n",
            "not in its fol",
        ),
        ("a.case", "nonsense", "Cannot read .*a.case"),
        ("a.exo", "CDF\x01 Created by meshio", "meshio convert a.exo a.vtu"),
        ("a.exo", "", "Cannot read .*a.exo"),
        ("a.vtkhdf", "\x89HDF", "Cannot read .*a.vtkhdf"),
        ("a.vti", "<VTKFile type='ImageData'>", "Cannot read .*a.vti"),
        ("a.pvtu", "<VTKFile type='PUnstructuredGrid'/>", "names 0 pieces"),
        (
            "a.pvtu",
            "<VTKFile type='PUnstructuredGrid'><PUnstructuredGrid><Piece Source="
            "'../b.vtu'/></PUnstructuredGrid></VTKFile>",
            "not in its folder",
        ),
        (
            "a.pvtu",
            "<VTKFile type='PUnstructuredGrid'><PUnstructuredGrid><Piece Source="
            "'b.vtu'/></PUnstructuredGrid></VTKFile>",
            "the piece 'b.vtu' is missing",
        ),
    ],
)
def test_bad_files_are_refused_by_name(name, text, said, tmp_path):
    (tmp_path / name).write_text(text)
    with value_error(said):
        fields.load(tmp_path / name, 2**30)


@pytest.mark.parametrize("options", AT, ids=["points", "cells"])
@pytest.mark.parametrize("suffix", [".vtu", ".vts", ".vtm"])
def test_ghost_cells_of_one_file_are_left_out(suffix, options, tmp_path):
    mesh = grid()
    away = mesh.cell_centers().points[:, 0] > 2
    mesh.cell_data["vtkGhostType"] = np.where(away, [1, 32] * 6, 0).astype(np.uint8)
    mesh = mesh.cast_to_structured_grid()
    if suffix != ".vts":
        mesh = mesh.cast_to_unstructured_grid()
    path = tmp_path / f"a{suffix}"
    (pyvista.MultiBlock([mesh]) if suffix == ".vtm" else mesh).save(path)
    whole = dataclasses.replace(options, quadrature=options.location == "points")
    (sample,) = files.read(path, whole)
    own = mesh.extract_cells(np.flatnonzero(~away))
    known = own.cell_centers() if options.location == "cells" else own
    assert_allclose(sample.mesh_points, known.points)
    assert sample.quadrature_weights.sum() == pytest.approx(own.volume)
    copy = tmp_path / "b.vtu"
    with files.extended(path, copy, options) as (each,):
        each.add(np.ones((sample.num_points, 1)))
    found = pyvista.read(copy)
    assert (found.n_points, found.n_cells) == (own.n_points, own.n_cells)


def test_ghost_cells_that_cannot_be_left_out_are_refused(tmp_path):
    mesh = grid().cast_to_unstructured_grid()
    mesh.cell_data["vtkGhostType"] = np.arange(mesh.n_cells).astype(np.uint8) < 2
    path = tmp_path / "a.vtk"
    mesh.save(path)
    with pytest.raises(ValueError, match=r"a.vtk has 2 ghost cells.*save pyvista.read"):
        files.read(path, OPTIONS)
    pyvista.read(path).save(tmp_path / "a.vtu")
    (sample,) = files.read(tmp_path / "a.vtu", OPTIONS)
    with pytest.raises(ValueError, match=r"a.vtu has 2 ghost .*RemoveGhostCells") as no:
        files.read_sliced(tmp_path / "a.vtu", OPTIONS)
    old, space = tmp_path / "a.vtu", {"pyvista": pyvista}
    advice = str(no.value).split(": ", 1)[1].rstrip(".")
    exec(advice.replace(", ", "; "), space | {"old": old}, space)  # noqa: S102
    space["mesh"].save(tmp_path / "b.vtu")
    sliced = files.read_sliced(tmp_path / "b.vtu", OPTIONS)
    with sliced.open(0) as columns:
        assert len(columns["mesh_points"]) == sample.num_points


XDMF = """<?xml version="1.0" ?><Xdmf Version="2.2"><Domain><Grid>
<Topology TopologyType="Triangle" NumberOfElements="2">
<DataItem Dimensions="2 3" NumberType="Int">0 1 2 0 2 3</DataItem></Topology>
<Geometry GeometryType="XY">
<DataItem Dimensions="4 2">0 0 1 0 1 1 0 1</DataItem></Geometry>
<Attribute Name="u" AttributeType="Scalar" Center="Node">
<DataItem Dimensions="4">1 2 3 4</DataItem></Attribute>
<Attribute Name="V" AttributeType="None" Center="Node">
<DataItem Dimensions="4 3">1 2 0 3 4 0 5 6 0 7 8 0</DataItem></Attribute>
</Grid></Domain></Xdmf>"""


def test_a_field_that_does_not_fit_is_refused_only_if_it_is_asked_for(tmp_path):
    """VTK writes vectors without their type, and reads them as so many scalars."""
    path = tmp_path / "a.xdmf"
    path.write_text(XDMF)
    (sample,) = files.read(path, OPTIONS)
    assert sample.target.ravel().tolist() == [1, 2, 3, 4]
    message = r"a.xdmf: 'V' has 12 rows, but there are 4 points.*must be Vector"
    for field in ("V", "V_x", "V:mag"):
        refused(path, message, target=field)
    path.write_text(XDMF.replace("None", "Vector"))
    (sample,) = files.read(path, ReadOptions(target="V"))
    assert sample.target[:, :2].ravel().tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
