"""Public classes and functions have an example with imports, and all examples run."""

import ast
import doctest
import importlib
import inspect
import io
import sys
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[1]
# Where examples compile for longer than the day has time for.
NIGHTLY = ("attention/", "metrics", "nn/", "point_clouds", "precision", "training/")
NIGHTLY += ("learn/cli/train_samples", "learn/predict/", "learn/run/")
NIGHTLY += ("export", "schwarz/operators", "streaming/", "uncertainty/")
NIGHTLY += ("problems/airfoil", "problems/burgers", "problems/darcy.", "problems/nav")
NIGHTLY += ("problems/plast", "problems/poisson.", "problems/random", "problems/sin")


def documented(path):
    """Names, docstrings and lines of the classes and functions of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, ast.get_docstring(node) or "", node.lineno


def files():
    for path in sorted((ROOT / "opjax").rglob("*.py")):
        if ">>> " in path.read_text():
            name = path.relative_to(ROOT / "opjax").as_posix()
            marks = pytest.mark.nightly if name.startswith(NIGHTLY) else ()
            yield pytest.param(path, id=name, marks=marks)


@pytest.mark.parametrize("path", list(files()))
def test_examples_run(path):
    """Each in a session of its own, with the settings of a user, not of the tests."""
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    report = io.StringIO()
    for name, text, line in documented(path):
        names = {"__name__": "__main__"}
        example = parser.get_doctest(text, names, name, str(path), line)
        with (
            jax.enable_x64(False),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
        ):
            runner.run(example, out=report.write)
    assert runner.tries > 0
    assert runner.failures == 0, report.getvalue()


@pytest.fixture(scope="module")
def shown():
    """Modules and names of the pages of the API."""
    sys.path.insert(0, str(ROOT / "docs" / "hooks"))
    generated = importlib.import_module("generated")
    sys.path.remove(str(ROOT / "docs" / "hooks"))
    modules = [m.partition(":")[0] for _, ms in generated.API.values() for m in ms]
    return [(m, name) for m in dict.fromkeys(modules) for name in generated.public(m)]


def is_code(found):
    """Whether a public name is a class or a function of ours, jitted or not."""
    ours = getattr(found, "__module__", "").startswith("opjax")
    return ours and (
        inspect.isclass(found) or inspect.isfunction(inspect.unwrap(found))
    )


def test_every_public_class_and_function_has_an_example(shown):
    without = []
    for module, name in shown:
        found = getattr(importlib.import_module(module), name)
        has = "\nExamples:\n  >>> " in inspect.cleandoc(found.__doc__ or "")
        if is_code(found) and not has:
            without.append(f"{module}.{name}")
    assert not without, "Add a section Examples to the docstrings of these."
