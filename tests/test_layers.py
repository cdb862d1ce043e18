"""Imports point one way; the proof walks the syntax tree of every module."""

import ast
import functools
import graphlib
import pathlib
import re
import subprocess
import sys

import opjax

ROOT = pathlib.Path(opjax.__file__).parent

PURE = {"_checks", "_sequential", "linalg", "quadrature", "basis", "attention"}
PURE |= {"_winograd", "convolution", "schwarz", "spectral", "interpolation"}
PURE |= {"point_clouds", "projection", "eigenfunctions", "adaptive_ridge"}
PURE |= {"_stiffness", "_halo", "precision", "geometry", "rollouts"}
PURE |= {"quantities", "_jitted", "_explicit", "_elimination"}

ALL = PURE | {
    "metrics",
    "metrics_time",
    "normalize",
    "training",
    "export",
    "onnx_files",
    "streaming",
    "samples",
}
ALL |= {
    "_files",
    "_formats",
    "_trees",
    "files",
    "problems",
    "datasets",
    "nn",
    "uncertainty",
}
# and nothing imports `learn`

# Part of opjax (a module or a subpackage): the parts that it may import.
PARTS = {
    "_checks": set(),
    "_files": set(),
    "_formats": set(),
    "_export_apart": set(),
    "_trees": set(),
    "_sequential": set(),
    "_explicit": set(),
    "_jitted": {"_checks", "_explicit"},
    "_elimination": set(),
    "linalg": {"_checks", "_elimination", "_jitted", "_sequential"},
    "adaptive_ridge": {"_checks", "_jitted", "_sequential", "linalg"},
    "quadrature": {"_checks", "_explicit"},
    "_halo": set(),
    "_winograd": set(),
    "convolution": {"_checks", "_explicit", "_halo", "_sequential", "_winograd"},
    "precision": set(),
    "projection": {"_checks", "_jitted", "linalg", "precision", "quadrature"},
    "basis": {
        "_checks",
        "_elimination",
        "_jitted",
        "_sequential",
        "linalg",
        "projection",
        "quadrature",
    },
    "attention": {
        "_checks",
        "_jitted",
        "_sequential",
        "linalg",
        "basis",
        "projection",
        "quadrature",
    },
    "_stiffness": set(),
    "eigenfunctions": {"_checks", "_stiffness"},
    "schwarz": {"_checks", "_jitted", "linalg"},
    "spectral": {"_checks", "_jitted"},
    "interpolation": {"_checks", "_explicit"},
    "geometry": {"_checks"},
    "quantities": {"_checks", "_explicit"},
    "point_clouds": {"_checks", "_explicit", "_sequential", "quadrature"},
    "metrics": {"_checks", "_explicit", "_halo", "quadrature"},
    "metrics_time": {"_checks", "metrics", "quadrature"},
    "rollouts": {"_checks"},
    "normalize": {"_checks"},
    "uncertainty": {"_checks", "_explicit", "linalg", "quadrature"},
    "export": {"_checks", "_files", "_formats", "_trees", "normalize"},
    "_onnx": set(),
    "onnx_files": {"_files", "_formats", "_onnx", "_trees", "export", "normalize"},
    "training": {"_checks", "_files", "_formats", "_trees"},
    "streaming": {"_checks", "_trees", "nn", "precision", "quadrature", "training"},
    "samples": {"_checks", "normalize", "quadrature"},
    "files": {"_files", "geometry", "quadrature", "samples"},
    "problems": PURE,
    "datasets": PURE | {"_files", "files", "normalize", "problems", "samples"},
    "nn": PURE,
    "design": {"_checks", "_trees", "geometry"},
    "learn": ALL,
    "__init__": PURE | {"metrics", "metrics_time", "normalize", "uncertainty"},
}

# What a part may import from outside, beyond Python's library, JAX, jaxtyping, NumPy.
OUTSIDE = {
    "_onnx": {"onnx"},
    "training": {"optax", "orbax"},
    "streaming": {"optax"},
    "nn": {"flax"},
    "learn": {"absl", "flax", "jaxlib", "optax"},
}

# What it may import where it is used, inside functions.
NESTED = {
    "_stiffness": {"scipy"},
    "eigenfunctions": {"scipy"},
    "geometry": {"scipy"},  # trees
    "files": {"h5py", "scipy", "pyvista", "vtkmodules"},  # optional readers
    "datasets": {"h5py", "scipy", "pyvista", "vtkmodules"},
    "problems": {"skfem", "scipy"},  # finite elements
    "design": {"scipy"},  # JAX depends on it anyway
    # matplotlib depends on PIL
    "learn": {"PIL", "markdown_it", "matplotlib", "scipy", "tensorboardX", "tqdm"},
    "schwarz": {"scipy"},  # graphs and trees; JAX depends on it anyway
}

FILES = sorted(ROOT.rglob("*.py"))


def part_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


parsed = functools.cache(ast.parse)  # many tests read all files


@functools.cache
def import_nodes(source):
    kinds = (ast.Import, ast.ImportFrom)
    return [node for node in ast.walk(parsed(source)) if isinstance(node, kinds)]


def imported(tree):
    """Yields the dotted names that the nodes of a syntax tree import."""
    for node in tree:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inner_imports(source):
    """Returns the parts of opjax that a source imports, anywhere in it."""
    parts = set()
    for name in imported(import_nodes(source)):
        first, *rest = name.split(".")
        if first == "opjax":
            parts.add(rest[0] if rest and rest[0] in PARTS else "__init__")
    return parts


def outer_imports(source, *, nested):
    """Returns the packages outside opjax that a source imports."""
    nodes = import_nodes(source) if nested else _executed(parsed(source).body)
    return {name.split(".")[0] for name in imported(nodes)} - {"opjax"}


def _executed(statements):
    """Yields the statements that run on import: not the bodies of functions.

    Nor what is for the checker of types alone.
    """
    for node in statements:
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _executed(ast.iter_child_nodes(node))


def test_the_walk_finds_every_form_of_import():
    source = """
import opjax
import numpy as np, h5py.h5
from opjax import linalg as la, basis
from opjax.nn.layers import Linear
try:
    import scipy
except ImportError:
    pass
class A:
    import orbax
if TYPE_CHECKING:
    import vtkmodules
def function():
    import matplotlib.pyplot
    from opjax.training import fit
"""
    assert inner_imports(source) == {"__init__", "linalg", "basis", "nn", "training"}
    at_import = {"numpy", "h5py", "scipy", "orbax"}
    assert outer_imports(source, nested=False) == at_import
    assert outer_imports(source, nested=True) == at_import | {
        "matplotlib",
        "vtkmodules",
    }


def test_every_module_has_its_place():
    assert {part_of(path) for path in FILES} <= set(PARTS)
    order = tuple(graphlib.TopologicalSorter(PARTS).static_order())  # no cycle
    assert set(order) == set(PARTS)


def strays(find):
    """What files import and may not, by `find(part, source)`, for those that do."""
    found = {
        str(path.relative_to(ROOT)): find(part_of(path), path.read_text())
        for path in FILES
    }
    return {name: stray for name, stray in found.items() if stray}


def test_imports_inside_point_one_way():
    def inside(part, source):
        # `import opjax` for the pure functions
        whole = {"__init__"} if part in ("nn", "learn") else set()
        return inner_imports(source) - PARTS[part] - {part} - whole

    assert strays(inside) == {}


def test_imports_from_outside_are_those_of_the_layer():
    plain = {"jax", "jaxtyping", "numpy"} | set(sys.stdlib_module_names)

    def outside(part, source):
        allowed = plain | OUTSIDE.get(part, set())
        anywhere = allowed | NESTED.get(part, set())
        at_import = outer_imports(source, nested=False) - allowed
        return at_import | (outer_imports(source, nested=True) - anywhere)

    assert strays(outside) == {}


def module_of(path):
    """The dotted name of a module's file."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def modules_imported(source, known):
    """Returns the modules among the known ones that a source imports, anywhere in it.

    `from opjax.learn import config` is the module `opjax.learn.config`, and a name that
    is none belongs to the module it is imported from.
    """
    found = set()
    for name in imported(import_nodes(source)):
        while name and name not in known:
            name = name.rpartition(".")[0]
        found |= {name} - {""}
    return found


def test_the_modules_of_an_import_are_found():
    known = {"opjax", "opjax.nn", "opjax.nn.layers", "opjax.linalg"}
    source = """
from typing import TYPE_CHECKING
from opjax.nn import layers, Linear
if TYPE_CHECKING:
    import opjax.linalg
"""
    assert modules_imported(source, known) == {
        "opjax.nn",
        "opjax.nn.layers",
        "opjax.linalg",
    }
    inside = "def function():\n    from opjax.nn.layers.linear import Linear"
    assert modules_imported(inside, known) == {"opjax.nn.layers"}


def test_modules_do_not_import_each_other_in_circles():
    graph = {
        name: modules_imported(path.read_text(), MODULES) - {name}
        for name, path in MODULES.items()
    }
    tuple(graphlib.TopologicalSorter(graph).static_order())  # CycleError names them


# `jax._src.x`, `flax.core`, `orbax.checkpoint.experimental.v1._src` and the like.
PRIVATE = re.compile(r"\b(?:jax|flax|orbax)(?:\.\w+)*\._[a-z]\w*|\bflax\.core\b")


def test_what_is_private_is_recognised():
    for text in (
        "from jax._src.distributed import global_state",
        "import jax._src.core",
        "from flax.nnx._src import graph",
        "from flax.core import freeze",
        "from orbax.checkpoint.experimental.v1._src.saving import execution",
    ):
        assert PRIVATE.search(text), text
    for text in (
        "jax.core.Tracer",
        "jaxlib.version.__version__",
        "from flax import nnx",
    ):
        assert not PRIVATE.search(text), text


def test_no_private_interface_of_a_library_is_used():
    found = {
        name: PRIVATE.findall(path.read_text())
        for name, path in ((str(path.relative_to(ROOT)), path) for path in FILES)
    }
    assert {name: uses for name, uses in found.items() if uses} == {}


def test_importing_opjax_leaves_the_outer_layers_alone():
    program = """
import sys
import opjax
outer = {"absl", "chex", "flax", "optax", "orbax", "scipy", "h5py", "matplotlib"}
outer |= {"experiments"}
print(*sorted(outer & {name.split(".")[0] for name in sys.modules}))
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == ""


def test_the_public_names():
    assert opjax.__all__ == [
        "Additive",
        "Convex",
        "InnerProducts",
        "LeastSquares",
        "MapBetweenBases",
        "Means",
        "Moments",
        "attention",
        "basis",
        "basis_attention",
        "cell_weights",
        "condition_number",
        "feature_covariance",
        "flare_attention",
        "fourier_attention",
        "fourier_basis",
        "functional_attention",
        "functional_attention_map",
        "functional_map",
        "galerkin_attention",
        "gcv_ridge",
        "gram",
        "grid_eigenfunctions",
        "grid_weights",
        "hat_basis",
        "heat_kernel_signature",
        "indicator_basis",
        "inf_sup_constant",
        "intention",
        "interpolate_grid",
        "laplacian_eigenfunctions",
        "linalg",
        "linear_attention",
        "linformer_attention",
        "metrics",
        "metrics_time",
        "mode_gains",
        "moments",
        "normalize",
        "normalized_attention",
        "nystrom_attention",
        "orthogonal_attention",
        "orthogonal_random_features",
        "orthonormal_attention",
        "orthonormalize",
        "performer_attention",
        "physics_attention",
        "point_clouds",
        "project",
        "projection",
        "quadrature",
        "reconstruct",
        "ridge_solve",
        "rollout",
        "scattered_weights",
        "schwarz",
        "softmax_attention",
        "softmax_basis",
        "softmax_means",
        "spectral_convolution",
        "transport",
        "uncertainty",
    ]
    assert all(getattr(opjax, name).__doc__ for name in opjax.__all__)
