"""Executes the notebooks: `python -m tests.notebooks [SOURCE ...]`.

A notebook is a jupytext file `notebooks/NAME.py`; this program runs it and writes
`NAME.ipynb`, with its outputs, next to it.
"""

import base64
import io
import pathlib
import sys

import jupytext
import nbclient
import nbformat
from PIL import Image

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))


def execute(source: pathlib.Path) -> nbformat.NotebookNode:
    """Runs a notebook in a fresh kernel; raises `CellExecutionError` if a cell does."""
    notebook = jupytext.read(source)
    resources = {"metadata": {"path": str(source.parent)}}
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources=resources
    ).execute()
    return notebook


def shrink(notebook: nbformat.NotebookNode) -> None:
    """Leaves out execution times and stores figures in 128 colours."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = _in_few_colours(data["image/png"])


def _in_few_colours(png: str) -> str:
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    stream = io.BytesIO()
    image.quantize(128).save(stream, "png", optimize=True)
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
