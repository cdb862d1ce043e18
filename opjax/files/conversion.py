"""Instructions to convert files of other formats; every command runs as printed."""

import re
from pathlib import Path

from opjax.files import columns, limits
from opjax.files.vtk import xdmf

_MESHIO = "pip install meshio; meshio convert {name} {stem}.vtu"
_GRID = "pyvista.read({name!r}).cast_to_unstructured_grid().save('{stem}.vtu')"
_CGNS = (
    "r = pyvista.get_reader({name!r}); r.enable_all_point_arrays(); "
    "r.enable_all_cell_arrays(); r.read().combine(merge_points=True)"
    ".save('{stem}.vtu')"
)
_CFF = (
    "pyvista.FLUENTCFFReader('{stem}.cas.h5').read().combine(merge_points=True)"
    ".save('{stem}.vtu')"
)
_BLOCKS = "pyvista.read({name!r}).combine(merge_points=True).save('{stem}.vtu')"
_PIECES = (
    "from vtkmodules.vtkIOXML import vtkXMLGenericDataObjectReader as Reader; "
    "r = Reader(); r.SetFileName({name!r}); "
    "r.Update(); pyvista.wrap(r.GetOutput()).cast_to_unstructured_grid()"
    ".save('{stem}.vtu')"
)
_PYVISTA = 'python -c "import pyvista; {code}"'
_SAVE = "numpy.savez('{stem}.npz', **{arrays})"
_FOAM = "foamToVTK -latestTime in the folder of the case"
_MATLAB = (
    'python -c "import numpy, scipy.io; d = scipy.io.loadmat({name!r}); '
    "d |= {{n: v[n].item() for v in [*d.values()] for n in "
    "numpy.asarray(v).dtype.names or () if v.size == 1}}; "
    "numpy.savez('{stem}.npz', **{{k: v for k, v in d.items() if "
    "numpy.asarray(v).dtype.kind not in 'OV'}})\""
)
_MATLAB_73 = (
    "python -c \"import h5py, numpy; f = h5py.File({name!r}); numpy.savez('{stem}.npz',"
    " **{{k: g[k][()].T for g in [f, *(f[k] for k in f if k[0] != '#')] if hasattr(g, "
    "'keys') for k in g if hasattr(g[k], 'shape') and g[k].dtype.kind in 'fiub'}})\""
)
_NETCDF = (
    'pip install xarray netCDF4; python -c "import numpy, xarray; d = '
    "xarray.open_dataset({name!r}); numpy.savez('{stem}.npz', "
    '**{{k: v.values for k, v in d.variables.items()}})"'
)
_ZARR = (
    "python -c \"import numpy, zarr; numpy.savez('{stem}.npz', **{{k: v[:] for k, v in "
    "zarr.open({name!r}, mode='r').arrays()}})\""
)
_TORCH = (
    "python -c \"import numpy, torch; numpy.savez('{stem}.npz', "
    '**torch.load({name!r}))", of a dictionary of arrays'
)
_ARRAY = (
    "python -c \"import numpy; numpy.savez('{stem}.npz', target=numpy.load({name!r}))\""
    ", with mesh_points= beside it unless it is on a grid"
)
_PANDAS = (
    'pip install pandas openpyxl pyarrow; python -c "import pandas; '
    "pandas.{reader}({{name!r}}).to_csv('{{stem}}.csv', index=False)\", and read the "
    ".csv file for the next command"
)
_RST = (
    'pip install ansys-mapdl-reader; python -c "from ansys.mapdl import reader; '
    "reader.read_binary({name!r}).save_as_vtk('{stem}.vtu')\""
)
# Its own converter needs an interface and a VTK of before 9.4; cells are left out.
_OP2 = (
    'pip install pyNastran; python -c "import numpy; from pyNastran.bdf.bdf import '
    "read_bdf; from pyNastran.op2.op2 import read_op2; m = read_bdf('{stem}.bdf').nodes"
    "; d = [*read_op2({name!r}).displacements.values()][-1]; "
    "g = d.node_gridtype[:, 0]; k = [i for i in range(len(g)) if g[i] in m]; "
    "numpy.savez('{stem}.npz', mesh_points=[m[g[i]].get_position() for i in k], "
    'displacement=d.data[-1, k, :3])"'
)
_ODB = (
    "only Abaqus' own Python (odbAccess) opens it; there, save .vtu files with the "
    "script of github.com/Arris-Composites/ODB2VTK, or points and fields as columns of "
    "a .csv file"
)
# Of version 3.2, a thread writes a step while the next is read into the same arrays.
_FRD = (
    'pip install ccx2paraview vtk; python -c "import ccx2paraview, threading; '
    "t = threading.Thread; s = t.start; t.start = lambda w: (s(w), w.join()); "
    "ccx2paraview.Converter({name!r}, ['vtu']).run()\""
)
JOINED = (".pvtp", ".pvti", ".pvtr", ".pvts")  # list pieces of one mesh
_WAYS = {
    **dict.fromkeys((".msh", ".inp", ".bdf", ".nas", ".med", ".su2"), _MESHIO),
    **dict.fromkeys((".mesh", ".meshb", ".ugrid", ".vol", ".f3grid", ".avs"), _MESHIO),
    ".fem": _MESHIO.replace("convert", "convert --input-format nastran"),
    ".obj": _PYVISTA.format(code=_GRID),
    ".neu": _PYVISTA.format(code=_GRID),
    ".cgns": _PYVISTA.format(code=_CGNS),
    ".vtmb": _PYVISTA.format(code=_BLOCKS),
    ".tec": _PYVISTA.format(code=_BLOCKS),
    ".dat": _PYVISTA.format(code=_BLOCKS),
    **dict.fromkeys(JOINED, _PYVISTA.format(code=_PIECES)),
    ".xlsx": _PANDAS.format(reader="read_excel"),
    ".parquet": _PANDAS.format(reader="read_parquet"),
    ".foam": _FOAM,
    ".frd": _FRD,
    ".odb": _ODB,
    ".rst": _RST,
    ".op2": _OP2,
    ".mat": _MATLAB,
    ".nc": _NETCDF,
    ".zarr": _ZARR,
    ".npy": _ARRAY,
    ".pt": _TORCH,
}
_TABLES = (".csv", ".txt")
_FLUENT = (".cas.h5", ".dat.h5")  # of one case, read together
_TECPLOT = re.compile(rb"\s*(#[^\n]*\n\s*)*(title|variables|zone)\b", re.IGNORECASE)
_NO_COLUMNS = (
    "write the names of the columns above the numbers of {name}, with commas between "
    "columns, and call the coordinates x, y (and z); then this message has the command"
)
OTHERWISE = (
    " To convert it: open it in the program that wrote it or in ParaView and save it "
    "as .vtu, or save points and fields as columns of a .csv file."
)
_SERIES = (
    " It lists the frames of a series: give --time=one_step or another way to learn "
    "series, or name files of single frames."
)


def way(path: Path) -> str:
    """Instructions to convert a file of another format; empty if unknown.

    Args:
      path: the file or, for Zarr, the folder.

    Returns:
      A sentence after a space, with a command if there is one.
    """
    suffix = path.suffix.lower()
    if suffix in (".pvd", ".series"):
        return _SERIES
    if path.name == "cases.csv":
        return ""
    if path.name.lower().endswith(_FLUENT):
        line = _PYVISTA.format(code=_CFF.format(stem=path.name[: -len(_FLUENT[0])]))
        return f" To convert it: pip install -U pyvista; {line}."
    line = _WAYS.get(suffix, "").format(name=path.name, stem=path.stem)
    if suffix in _TABLES:
        line = columns.line(path)
        if suffix == ".csv":
            line = line or _NO_COLUMNS.format(name=path.name)
    elif suffix == ".gz" and Path(path.stem).suffix:
        line = f"gunzip {path.name}"
    elif suffix == ".dat" and not _TECPLOT.match(limits.head(path)):
        line = ""
    elif suffix == ".mat" and path.is_file() and limits.is_hdf5(path):
        line = _MATLAB_73.format(name=path.name, stem=path.stem)
    return f" To convert it: {line}." if line else ""


def way_in(folder: Path, *, below: bool = True) -> str:
    """Instructions to convert the results in a folder.

    Args:
      folder: folder of a case, or of folders of cases.
      below: whether to search its subfolders.

    Returns:
      A sentence after a space, as from `way`; empty if there are no known results.
    """
    if (folder / "system" / "controlDict").is_file():
        return f" To convert it: {_FOAM}."
    inside = [path for path in sorted(folder.iterdir()) if path.name[0] != "."]
    tables = [path for path in inside if path.suffix.lower() in _TABLES]
    others = [path for path in inside if path not in tables]
    hint = next(filter(None, map(way, [folder, *others, *tables])), "")
    if hint or not below:
        return hint
    for case in inside:
        if case.is_dir() and (hint := way_in(case, below=False)):
            return f" There are cases in folders, such as {case.name}; in each:{hint}"
    return ""


def companion(path: Path) -> str:
    """Says whose arrays a `.h5` file holds, where it seems to be no sample's."""
    other = xdmf.companion_of(path)
    if other is None:
        return way(path)
    return f" It holds the arrays of {other.name}; read that."
