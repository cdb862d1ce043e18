"""Executes the notebooks: `python -m tests.notebooks [SOURCE ...]`.

A notebook is a jupytext file `notebooks/NAME.py`; this program runs it and writes
`NAME.ipynb`, with its outputs and the seconds of the processor, next to it.
"""

import base64
import importlib.util
import io
import pathlib
import resource
import sys
import types
from collections.abc import Mapping

import jupytext
import nbclient
import nbformat
from PIL import Image

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))


def execute(
    source: pathlib.Path, changes: Mapping[str, str] | None = None
) -> nbformat.NotebookNode:
    """Runs a notebook in a fresh kernel; raises `CellExecutionError` if a cell does.

    Args:
      source: the jupytext file.
      changes: words of the source, each there once, and what is run in their place.

    Returns:
      The notebook with its outputs.

    Raises:
      ValueError: if words to be changed are not there once.
    """
    text = source.read_text()
    for old, new in (changes or {}).items():
        if text.count(old) != 1:
            raise ValueError(f"{source.name} must have {old!r} once, not otherwise.")
        text = text.replace(old, new)
    notebook = jupytext.reads(text, fmt="py:percent")
    resources = {"metadata": {"path": str(source.parent)}}
    before = _seconds_of_children()
    nbclient.NotebookClient(
        notebook, timeout=1800, kernel_name="python3", resources=resources
    ).execute()
    notebook.metadata["cpu_seconds"] = round(_seconds_of_children() - before)
    return notebook


def _seconds_of_children() -> float:
    """Processor seconds of the kernels that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def gallery() -> types.ModuleType:
    """The module that makes the pages of the site."""
    path = FOLDER.parent / "docs" / "hooks" / "notebooks.py"
    spec = importlib.util.spec_from_file_location("gallery", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shrink(notebook: nbformat.NotebookNode) -> None:
    """Leaves out execution times and stores figures in 256 colours."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = _in_few_colours(data["image/png"])


def _in_few_colours(png: str) -> str:
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    stream = io.BytesIO()
    image.quantize(256).save(stream, "png", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()


def main(argv: list[str]) -> None:
    for source in map(pathlib.Path, argv[1:] or SOURCES):
        notebook = execute(source.resolve())
        shrink(notebook)
        target = source.with_suffix(".ipynb")
        nbformat.write(notebook, target)
        print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv)
