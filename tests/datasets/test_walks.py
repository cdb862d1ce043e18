"""The pages about solvers: their commands, in order, in an empty folder, on tiny cases.

Training is cut short. Where a solver or a converter is not installed, its page is left
out.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tests.test_docs import BLOCK, DOCS, ROOT

SOLVERS = Path(__file__).parent / "solvers"
SHORT = ["--num_steps=4", "--seeds=0"]
PLAIN = ["--preset=smoke", "--num_epochs=2"]  # of a page without a preset
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        importlib.util.find_spec("pyvista") is None, reason="no pyvista here"
    ),
]


def shown(page, language):
    """The blocks of a page in one language."""
    found = BLOCK.findall((DOCS / "how-to" / page).read_text())
    return [text for _, info, text in found if info.strip(" {}.").startswith(language)]


def run(command, folder):
    """Runs a command; those of opjax as modules of this checkout."""
    place = {"WM_PROJECT_DIR": "/usr/share/openfoam", "JAX_PLATFORMS": "cpu"}
    if Path("/usr/lib/freefem++").is_dir():  # of Debian, which does not say so
        place["FF_LOADPATH"] = "/usr/lib/freefem++"
    place |= os.environ
    place["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=folder, env=place, capture_output=True, text=True
    )
    assert not done.returncode, f"{command}: {done.stderr[-2000:]}"
    return done.stdout


def walk(page, folder):
    """Runs the commands of opjax on a page; returns the last line of the training."""
    trained = ""
    for block in shown(page, "bash"):
        for line in block.replace("\\\n", "").splitlines():
            program, *given = shlex.split(line)
            name = program.removeprefix("opjax-")
            if name == "train":
                given += SHORT if "--preset=small" in given else PLAIN
            module = [sys.executable, "-m", f"opjax.learn.cli.{name}"]
            said = run([*module, *given], folder)
            trained = said if name == "train" else trained
    return json.loads(trained.splitlines()[-1])


def make(script, folder):
    """Solves six cases to learn from and two new ones."""
    for name, first, last in (("cases", 0, 6), ("new", 6, 8)):
        made = [sys.executable, str(SOLVERS / script)]
        run([*made, str(folder / name), str(first), str(last)], folder)


@pytest.mark.skipif(shutil.which("simpleFoam") is None, reason="no OpenFOAM here")
def test_openfoam(tmp_path):
    make("make_flows.py", tmp_path)
    convert, *_ = shown("openfoam.md", "text")
    for case in tmp_path.glob("*/case_*"):
        run(shlex.split(convert), case)
    result = walk("openfoam.md", tmp_path)
    assert {"relative_l2_p", "relative_l2_U"} <= result.keys()
    assert result["baselines"]
    assert len([*(tmp_path / "predicted").rglob("*.vtu")]) == 2
    page = (tmp_path / "cylinder.md").read_text()
    assert "force_x:p@cylinder" in page


@pytest.mark.skipif(shutil.which("ccx") is None, reason="no CalculiX here")
@pytest.mark.skipif(
    importlib.util.find_spec("ccx2paraview") is None, reason="no ccx2paraview here"
)
def test_calculix(tmp_path):
    make("make_holes.py", tmp_path)
    convert, *_ = shown("calculix.md", "text")
    code = re.search(r'python -c "(.*?)"', convert, re.DOTALL)[1]  # pyright: ignore
    for name in ("cases", "new"):
        run([sys.executable, "-c", code.replace("cases/", f"{name}/")], tmp_path)
    result = walk("calculix.md", tmp_path)
    assert {"relative_l2_U", "relative_l2_S_Mises"} <= result.keys()
    assert len([*(tmp_path / "predicted").rglob("*.vtu")]) == 2


def saves(word):
    """The lines of the page on finite elements that have a word: they save a case."""
    (block,) = (b for b in shown("fenics.md", "python") if word in b)
    return block


def trained_on_ten(solve, suffix, folder):
    """Walks along the page on finite elements.

    Args:
      solve: `solve(name, i)` saves case `i` in the folder `name`.
      suffix: of its files.
      folder: the place of all.
    """
    for name, first, last in (("cases", 0, 10), ("new", 10, 12)):
        (folder / name).mkdir()
        for i in range(first, last):
            solve(name, i)
        assert len([*(folder / name).glob(f"*{suffix}")]) == last - first
    result = walk("fenics.md", folder)
    assert "relative_l2" in result
    assert len([*(folder / "predicted").rglob("*.vtu")]) == 2


@pytest.mark.skipif(shutil.which("FreeFem++") is None, reason="no FreeFEM here")
def test_freefem(tmp_path):
    loads, _, rest = saves("savevtk").partition("\n")

    def solve(name, i):
        before = "mesh Th = square(6, 6); fespace Vh(Th, P1); "
        before += f"Vh k = 1 + {i} * x, u = sin(k * y);"
        saved = rest.replace("cases/case_000", f"{name}/case_{i:03d}")
        script = tmp_path / f"{name}_{i}.edp"
        script.write_text(f"{loads}\n{before}\n{saved}")
        run(["FreeFem++", "-nw", "-v", "0", script.name], tmp_path)

    trained_on_ten(solve, ".vtu", tmp_path)


DOLFINX = """
from dolfinx import fem, mesh as meshes
from mpi4py import MPI
import numpy as np

mesh = meshes.create_unit_square(MPI.COMM_WORLD, 6, 6)
spaces = getattr(fem, "functionspace", None) or fem.FunctionSpace
V = spaces(mesh, ("CG", 1))
k, u = fem.Function(V, name="k"), fem.Function(V, name="u")
for i in [{number}]:
    k.interpolate(lambda x: 1 + i * x[0])
    u.interpolate(lambda x: np.sin((1 + i * x[0]) * x[1]))
"""


def test_dolfinx(tmp_path):
    pythons = [sys.executable, "/usr/bin/python3"]  # Debian has its own
    for python in filter(os.path.exists, pythons):
        asked = [python, "-c", "import dolfinx"]
        if not subprocess.run(asked, capture_output=True).returncode:
            break
    else:
        pytest.skip("no dolfinx here")
    block = textwrap.indent(saves("XDMFFile"), "    ")

    def solve(name, i):
        script = DOLFINX.format(number=i) + block
        run([python, "-c", script.replace("cases/", f"{name}/")], tmp_path)

    trained_on_ten(solve, ".xdmf", tmp_path)


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("skfem", "meshio"))),
    reason="no scikit-fem with meshio here",
)
def test_scikit_fem(tmp_path, monkeypatch):
    skfem = importlib.import_module("skfem")
    monkeypatch.chdir(tmp_path)
    code = saves("point_data")

    def solve(name, i):
        mesh = skfem.MeshTri().refined(3)
        x, y = mesh.p
        k = 1 + i * x
        given = {"mesh": mesh, "i": i, "k": k, "u": np.sin(k * y)}
        exec(code.replace("cases/", f"{name}/"), given)

    trained_on_ten(solve, ".vtu", tmp_path)
