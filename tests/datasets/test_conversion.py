"""Advice in messages is code: every line that converts a file is run as it stands."""

import importlib
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax import files
from opjax.files import conversion
from opjax.files.series import read_series
from tests.datasets.reading import read_one
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista", reason="needs opjax[vtk]")
SOLVERS = Path(__file__).parent / "solvers"


def write(folder, name):
    """Writes a file of another format, as its own library does."""
    points = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    path, arrays = folder / name, {"u": np.arange(4.0), "mesh_points": points}
    suffix = path.suffix
    if suffix == ".obj":
        path.write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    elif suffix == ".csv":
        path.write_text("x,y,u\n0,0,1\n1,0,2\n0,1,3\n")
    elif suffix == ".txt":
        path.write_text("# x y u\n0 0 1\n1 0 2\n0 1 3\n")
    elif suffix == ".dat":
        path.write_text(
            'TITLE = "a"\nVARIABLES = "X", "Y", "p"\n'
            "ZONE N=3, E=1, F=FEPOINT, ET=TRIANGLE\n0 0 1\n1 0 2\n1 1 3\n1 2 3\n"
        )
    elif suffix in (".pvtp", ".pvti", ".vtmb"):
        mesh = pyvista.ImageData(dimensions=(3, 3, 1))
        modules = ["vtkIOXML", "vtkIOParallelXML"]  # vtk as a whole crashes XDMF
        kind = {".pvtp": "PPolyData", ".pvti": "PImageData", ".vtmb": "MultiBlockData"}
        if suffix != ".pvti":
            mesh = mesh.extract_surface(algorithm="dataset_surface")
        module = importlib.import_module(f"vtkmodules.{modules[suffix != '.vtmb']}")
        writer = getattr(module, f"vtkXML{kind[suffix]}Writer")()
        writer.SetFileName(str(path))
        writer.SetInputData(pyvista.MultiBlock([mesh]) if suffix == ".vtmb" else mesh)
        writer.Write()
    elif suffix == ".npy":
        np.save(path, np.zeros((3, 4)))
    elif suffix == ".mat" and path.stem == "new":
        with h5py.File(path, "w", userblock_size=512) as file:
            for key, array in arrays.items():
                file[key] = array.T
        with open(path, "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file")
    elif suffix == ".mat":
        pytest.importorskip("scipy.io").savemat(path, arrays)
    elif suffix == ".nc":
        pytest.importorskip("xarray").Dataset(
            {"u": ("i", arrays["u"]), "mesh_points": (("i", "p"), points)}
        ).to_netcdf(path)
    elif suffix == ".zarr":
        root = pytest.importorskip("zarr").open(path, mode="w")
        for key, array in arrays.items():
            root.create_array(key, data=array)
    elif suffix == ".pt":
        torch = pytest.importorskip("torch")
        torch.save({k: torch.tensor(a) for k, a in arrays.items()}, path)
    elif suffix in (".msh", ".inp", ".bdf", ".med", ".fem", ".mesh"):
        meshio = pytest.importorskip("meshio")
        cells = [("triangle", np.array([[0, 1, 2], [1, 3, 2]]))]
        known = {".msh": "gmsh", ".inp": "abaqus"}
        known |= dict.fromkeys((".bdf", ".fem"), "nastran")
        mesh = meshio.Mesh(np.pad(points, [(0, 0), (0, 1)]), cells)
        meshio.write(path, mesh, file_format=known.get(suffix))
    return path


def run(line, folder, monkeypatch):
    """Runs a line of a message as a shell would: of Python here, as it is faster."""
    monkeypatch.chdir(folder)
    line = re.sub(r"^pip install [\w -]+; ", "", line)
    patched = "threading" in line  # Python is changed, so it must be another process.
    if patched and importlib.util.find_spec("ccx2paraview") is None:
        pytest.skip("needs ccx2paraview")
    if (found := re.match(r'python -c "(.*?)"', line)) and not patched:
        missing = [
            name
            for name in re.findall(r"\b(?:xarray|zarr|torch)\b", found[1])
            if importlib.util.find_spec(name) is None
        ]
        if missing:
            pytest.skip(f"needs {missing[0]}")
        exec(compile(found[1], "<advice>", "exec"), {})
        return
    command = line.split()[0]
    if shutil.which(command) is None:
        pytest.skip(f"needs {command}")
    subprocess.run(line, shell=True, check=True, capture_output=True)


def advice(message):
    return re.search(r"To convert it: (.*?)\.?$", message)[1]  # pyright: ignore


NAMES = [
    "a.obj",
    "a.csv",
    "a.npy",
    "old.mat",
    "new.mat",
    "a.nc",
    "a.zarr",
    "a.pt",
    "a.msh",
    "a.inp",
]
NAMES += ["a.bdf", "a.med", "a.fem"]
WRITTEN = ["a.txt", "a.dat", "a.pvtp", "a.pvti", "a.vtmb", "a.mesh"]


@pytest.mark.parametrize("name", [*NAMES, *WRITTEN])
def test_the_line_that_converts_a_file_makes_one_that_is_read(
    name, tmp_path, monkeypatch
):
    path = write(tmp_path, name)
    with pytest.raises((ValueError, FileNotFoundError), match="To convert it") as said:
        files.read(path)
    run(advice(str(said.value)), tmp_path, monkeypatch)
    (converted,) = [*tmp_path.glob(f"{path.stem}.vtu"), *tmp_path.glob("*.npz")]
    sample = read_one(converted, grid_axes=2 * (name == "a.npy"))
    assert sample.num_points >= 3


@pytest.mark.parametrize(
    "name",
    [*NAMES, "a.frd", "a.odb", "a.rst", "a.op2", "a.foam"],
)
def test_a_folder_of_another_format_has_the_hint_that_a_file_has(name, tmp_path):
    path = tmp_path / "data" / name
    path.parent.mkdir()
    path.mkdir() if path.suffix == ".zarr" else path.write_bytes(b"")
    line = conversion.way(path)
    assert name in line or path.stem in line
    with pytest.raises(FileNotFoundError, match="has no .npz") as said:
        files.find(path.parent)
    assert line in str(said.value)


# Two points and the cells on both sides of each face of 2 x 2 squares, from one.
FACES = "1210 2320 4531 5642 8730 9840 4110 7430 5221 8543 3620 6940"


def save_of_fluent(folder):
    """Writes a file as VTK's reader of `.cas.h5` expects it; Fluent is not at hand."""
    faces = np.array([[*map(int, face)] for face in FACES.split()], np.uint32)

    def section(parent, name, values, last):
        parent.attrs["nSections"] = parent.attrs["nZones"] = np.uint64(1)
        parent[name] = values
        parent[name].attrs["minId"] = np.uint64(1)
        parent[name].attrs["maxId"] = np.uint64(last)

    with h5py.File(folder / "a.cas.h5", "w") as file:
        file.create_group("settings")
        mesh = file.create_group("meshes/1")
        mesh.attrs["dimension"] = np.int32(2)
        for name, count in (("node", 9), ("cell", 4), ("face", 12)):
            mesh.attrs[f"{name}Offset"] = np.uint64(1)
            mesh.attrs[f"{name}Count"] = np.uint64(count)
            zone = mesh.create_group(f"{name}s/zoneTopology")
            zone.attrs["nZones"] = np.uint64(1)
            zone["cellType"], zone["maxId"] = [3], [count]
            for key in ("minId", "id", "dimension", "zoneType", "faceType"):
                zone[key] = [1]
            for key in ("childZoneId", "shadowZoneId", "flags"):
                zone[key] = [0]
        points = np.stack(np.meshgrid([0.0, 1, 2], [0.0, 1, 2]), -1).reshape(9, 2)
        section(mesh.create_group("nodes/coords"), "1", points, 9)
        nodes = mesh.create_group("faces/nodes/1")
        nodes["nodes"], nodes["nnodes"] = faces[:, :2].ravel(), np.full(12, 2)
        nodes.attrs["minId"], nodes.attrs["maxId"] = np.uint64(1), np.uint64(12)
        nodes.parent.attrs["nSections"] = np.uint64(1)
        for side in (0, 1):
            section(mesh.create_group(f"faces/c{side}"), "1", faces[:, 2 + side], 12)
    with h5py.File(folder / "a.dat.h5", "w") as file:
        cells = file.create_group("results/1/phase-1/cells")
        cells["fields"] = np.array([b"SV_P;"], "S8")  # which ends with zeros
        section(cells.create_group("SV_P"), "1", np.arange(4.0), 4)


@pytest.mark.parametrize("name", ["a.cas.h5", "a.dat.h5", ""])
def test_both_files_of_fluent_are_converted_together(name, tmp_path, monkeypatch):
    save_of_fluent(tmp_path)
    with value_error("To convert it") as said:
        files.read(tmp_path / name)
    run(advice(str(said.value)), tmp_path, monkeypatch)
    options = files.ReadOptions(target="SV_P", location="cells")
    (sample,) = files.read(tmp_path / "a.vtu", options)
    assert sample.mesh_points.tolist() == [
        [0.5, 0.5],
        [1.5, 0.5],
        [0.5, 1.5],
        [1.5, 1.5],
    ]
    assert sample.target.ravel().tolist() == [0, 1, 2, 3]


def test_the_arrays_of_an_xdmf_file_are_not_taken_for_samples(tmp_path):
    for top in (True, False):  # as of meshio, and of FEniCS
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["data0" if top else "Mesh/mesh/geometry"] = np.zeros((4, 2))
        (tmp_path / "a.xdmf").write_text("<Xdmf>a.h5:/data0</Xdmf>")
        with value_error(r"holds the arrays of a\.xdmf; re") as said:
            files.read(tmp_path / "a.h5")
        assert "grid_axes" not in str(said.value)


def test_frames_of_calculix_are_converted_by_the_line_for_a_folder_of_cases(
    tmp_path, monkeypatch
):
    for case in ("case_1", "case_2"):
        (tmp_path / case).mkdir()
        shutil.copy(SOLVERS / "beam.frd", tmp_path / case)
    with pytest.raises(FileNotFoundError, match="such as case_1; in each: To") as said:
        files.find(tmp_path)
    for case in ("case_1", "case_2"):
        run(advice(str(said.value)), tmp_path / case, monkeypatch)
    options = files.ReadOptions(target="U,S_Mises")
    with pytest.warns(UserWarning, match="last time.*: 2 files of earlier times"):
        found = files.read(tmp_path, options)
    for sample in found:
        assert sample.name.endswith("beam.2.vtu")
        assert sample.num_points == 12
        # Four loads of 20 on a square of one: a stress of 80, and its strain.
        assert_allclose(sample.target[:, 3], 80, rtol=1e-4)
        assert_allclose(sample.target[:, 0].max(), 160 / 210000, rtol=1e-3)
    ((series, _), _) = read_series(tmp_path, options)
    assert series.times.tolist() == [1, 2]
    assert_allclose(series.values[1], found[0].target)
    # The first step has half the loads.
    assert_allclose(series.values[0] * 2, found[0].target, atol=1e-9)


# Headers of ParaView, Fluent, STAR-CCM+, COMSOL and a spreadsheet; names of the fields.
ROWS = ["0,0,5,1", "1,0,6,2", "0,1,7,3"]
TABLES = {
    "x,y,z,u": "u",
    '"Points:0","Points:1","Points:2","u [Pa]"': "u_Pa",
    " x-coordinate,  y-coordinate,  z-coordinate,  u": "u",
    '"X (m)","Y (m)","Z (m)","$(touch /tmp/no) u"': "touch_tmp_no_u",
    "% Model,plate.mph\n\n% x,y,z,T (K)": "T_K",
    "x;y;z;u": "u",
    "x\ty\tz\tu": "u",
    "# Position[X] (m),Position[Y] (m),Position[Z] (m),u": "u",
}


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("header", TABLES)
def test_tables_of_points_are_converted_by_their_own_headers(
    header, quoted, tmp_path, monkeypatch
):
    mark = next((mark for mark in ";\t" if mark in header), ",")
    rows = [row.replace(",", mark) for row in ROWS]
    rows += ["0,5;0,25;8;4"] if mark == ";" else [f"0.5{mark}0.25{mark}8{mark}4"]
    if quoted:
        rows = [mark.join(f'"{value}"' for value in row.split(mark)) for row in rows]
    (tmp_path / "a.csv").write_text("\n".join([header, *rows]))
    line = conversion.way(tmp_path / "a.csv")
    assert "touch /" not in line  # what a file holds is no code for a shell
    run(advice(line), tmp_path, monkeypatch)
    sample = read_one(tmp_path / "a.npz", target=TABLES[header])
    assert sample.mesh_points.tolist() == [
        [0, 0, 5],
        [1, 0, 6],
        [0, 1, 7],
        [0.5, 0.25, 8],
    ]
    assert sample.target.ravel().tolist() == [1, 2, 3, 4]


def test_vectors_and_planes_in_tables_and_what_to_change_in_others(
    tmp_path, monkeypatch
):
    path = tmp_path / "a.csv"
    path.write_text("z,U:0,U:1,name,y,x\n1,2,3,a,0,0\n1,4,5,b,0,1\n1,6,7,c,1,0\n")
    run(advice(conversion.way(path)), tmp_path, monkeypatch)
    sample = read_one(tmp_path / "a.npz", target="U")
    assert sample.mesh_points.tolist() == [[0, 0], [1, 0], [0, 1]]
    assert sample.target.tolist() == [[2, 3], [4, 5], [6, 7]]
    for text in ("", "1,2,3\n4,5,6\n", "lon,lat,u\n1,2,3\n", "x,y,u\na,b,c\n"):
        path.write_text(text)
        assert "write the names of the columns above" in conversion.way(path)
    path.write_text("x,y,u\n1,2,3\n4,5,6\n")  # as the message says
    assert "genfromtxt" in conversion.way(path)


@pytest.mark.parametrize("new", [False, True])
def test_arrays_in_one_struct_of_matlab_are_converted(new, tmp_path, monkeypatch):
    arrays = {"mesh_points": np.eye(3)[:, :2], "u": np.arange(3.0)[:, None]}
    path = tmp_path / "a.mat"
    if new:
        with h5py.File(path, "w", userblock_size=512) as file:
            for key, array in arrays.items():
                file[f"S/{key}"] = array.T
            file["#refs#/a"] = np.zeros(2)
        with open(path, "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file")
    else:
        pytest.importorskip("scipy.io").savemat(path, {"S": arrays, "load": 3.0})
    run(advice(conversion.way(path)), tmp_path, monkeypatch)
    sample = read_one(tmp_path / "a.npz", target="u")
    assert_allclose(sample.mesh_points, arrays["mesh_points"])
    assert_allclose(sample.target, arrays["u"])


def test_files_of_every_format_name_what_to_do(tmp_path):
    known = ["neu", "nas", "tec", "pvts", "xlsx", "parquet", "vtu.gz", "ugrid", "vtmb"]
    for suffix in known:
        assert "To convert it: " in conversion.way(tmp_path / f"a.{suffix}")
    for suffix in ("unv", "plt", "szplt", "gmv", "silo", "dat", "txt", "json"):
        (tmp_path / f"a.{suffix}").write_text("a note")
        assert not conversion.way(tmp_path / f"a.{suffix}")
        with value_error("To convert it: open it in the program that wrote it"):
            files.read(tmp_path / f"a.{suffix}")
    (tmp_path / "a.cas.h5").write_text("no HDF5")
    with value_error("seems damaged.*To convert it: pip install -U pyvista"):
        files.read(tmp_path / "a.cas.h5")


def test_pieces_of_one_grid_are_no_samples(tmp_path, monkeypatch):
    write(tmp_path, "a.pvti")
    assert (tmp_path / "a_0.vti").is_file()
    with value_error(r"a.pvti joins pieces in its folder.* To convert it") as said:
        files.find(tmp_path)
    run(advice(str(said.value)), tmp_path, monkeypatch)
    assert files.find(tmp_path) == [tmp_path / "a.vtu"]
    assert read_one(tmp_path).num_points == 9
