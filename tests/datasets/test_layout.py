"""Modules that hold samples, files and data sets import each other without circles."""

import ast
import functools
import graphlib
from pathlib import Path

import pytest

import opjax

ROOT = Path(opjax.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    ): path
    for path in ROOT.rglob("*.py")
}


@functools.cache
def imported(name):
    """Returns the modules of opjax that a module imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom):
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {n if n in MODULES else str(node.module) for n in full}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module in MODULES} - {name}


@pytest.mark.parametrize("package", ["samples", "files", "datasets"])
def test_no_module_imports_itself_through_others(package):
    prefix = f"opjax.{package}"
    graph = {name: imported(name) for name in MODULES if name.startswith(prefix)}
    assert len(graph) > 5
    tuple(graphlib.TopologicalSorter(graph).static_order())


def test_files_know_nothing_of_data_sets_and_samples_nothing_of_files():
    for name in MODULES:
        if name.startswith("opjax.files"):
            assert not any(n.startswith("opjax.datasets") for n in imported(name))
        if name.startswith("opjax.samples"):
            assert not any(n.startswith("opjax.files") for n in imported(name))
