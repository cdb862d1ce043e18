"""Pages that are made when the site is built, so that they cannot fall behind.

The API from the lists of public names, programs from their flags, results, changelog
and reliability from the files of the repository.
"""

import ast
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(pathlib.Path(__file__).parent)]

import models  # noqa: E402
import programs  # noqa: E402

import notebooks  # noqa: E402

_PROBLEMS = [
    "darcy",
    "burgers",
    "navier_stokes",
    "elasticity",
    "plasticity",
    "pipe",
    "airfoil",
    "bodies",
    "darcy_notch",
    "poisson",
    "poisson_mesh",
    "advection",
    "sinusoid",
    "random_fields",
]
# Pages of the API: title, and packages or modules whose public names they show. What
# most users call comes first.
API = {
    "learn": ("Learning", ["opjax.learn"]),
    "data": (
        "Files and data sets",
        ["opjax.files", "opjax.samples", "opjax.datasets.cache"],
    ),
    "nn-models": ("Modules: models", ["opjax.nn.models"]),
    "nn-attention": ("Modules: attention", ["opjax.nn.attention", "opjax.nn.schwarz"]),
    "nn-bases": ("Modules: bases and maps", ["opjax.nn.bases", "opjax.nn.mixers"]),
    "nn-layers": (
        "Modules: layers",
        ["opjax.nn.layers", "opjax.nn:layers.position", "opjax.precision"],
    ),
    "attention": ("Attention", ["opjax.attention"]),
    "bases": (
        "Bases and projections",
        ["opjax.basis", "opjax.projection", "opjax.eigenfunctions"],
    ),
    "schwarz": ("Domain decomposition", ["opjax.schwarz"]),
    "numerics": (
        "Solves, weights, grids",
        [
            "opjax.linalg",
            "opjax.adaptive_ridge",
            "opjax.quadrature",
            "opjax.geometry",
            "opjax.quantities",
            "opjax.interpolation",
            "opjax.spectral",
        ],
    ),
    "metrics": (
        "Metrics and normalisers",
        ["opjax.metrics", "opjax.normalize", "opjax.point_clouds"],
    ),
    "uncertainty": ("Error bars", ["opjax.uncertainty"]),
    "design": ("Design", ["opjax.design"]),
    "time": ("Time", ["opjax.rollouts", "opjax.metrics_time", "opjax.files.series"]),
    "training": (
        "Training",
        [
            "opjax.training",
            "opjax.training.optimizers",
            "opjax.training.matrix_optimizers",
            "opjax.training.tuning",
            "opjax.training.averages",
            "opjax.training.replicas",
            "opjax.training.checkpoint",
        ],
    ),
    "scale": (
        "Devices, streaming, export",
        [
            "opjax.training.sharding",
            "opjax.streaming",
            "opjax.export",
            "opjax.onnx_files",
        ],
    ),
    "problems": (
        "Problems",
        [f"opjax.problems.{name}" for name in _PROBLEMS],
    ),
}
# Pages of results in the order of the site: those with most to see first.
RESULTS = {
    "darcy": "Darcy flow",
    "benchmarks": "Benchmarks",
    "few_cases": "Few cases",
    "fine_tuning": "Fine-tuning",
    "schwarz": "Schwarz attention",
    "sinusoid": "Few observations",
    "burgers": "Burgers",
    "darcy_inverse": "Inverse Darcy",
    "lift": "Lift of airfoils",
    "design": "Design with a guard",
    "next_case": "Which case next",
    "sensitivity": "Sensitivities",
    "bodies": "Bodies in space",
    "time": "Rollouts in time",
    "uncertainty": "Error bars",
    "unlike": "Out of distribution",
    "recipes": "Recipes",
    "ablation": "Ablations",
    "scaling": "Cost of layers",
    "stability": "Inf-sup constants",
    "preconditioner": "Trained preconditioner",
    "adaptivity": "Adaptive points",
    "num_functions": "How many functions",
    "domain_maps": "Maps between domains",
    "ridge": "Ridge of the map",
    "fields": "Losses of several fields",
    "scale": "Large meshes",
    "device": "On an H200",
    "speed": "Speed",
    "benchmark_schwarz": "Schwarz: speed",
    "published": "Published set-ups",
}
# The search shows what a user looks for before numbers and diaries.
# A word of a heading counts a thousand times one of the text.
_BOOST = {
    "models.md": 8.0,
    "api": 1.5,
    "programs": 2.0,
    "results": 0.002,
    "changelog.md": 0.001,
}


def public(package: str) -> dict[str, str]:
    """Public names of a module, and the modules they are defined in, unimported."""
    path = ROOT / package.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(path.read_text()).body
    found = {
        alias.asname or alias.name: node.module
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for node in body:
        if (
            isinstance(node, ast.Assign)
            and getattr(node.targets[0], "id", "") == "__all__"
        ):
            return {
                name: found.get(name, package) for name in ast.literal_eval(node.value)
            }
    kinds = (ast.FunctionDef, ast.ClassDef)
    own = [n.name for n in body if isinstance(n, kinds) and not n.name.startswith("_")]
    return dict.fromkeys(own, package)


def _documentation(module: str) -> str:
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.get_docstring(ast.parse(path.read_text())) or ""


# What most users need, in this order, before the alphabet.
_FIRST = [
    "train",
    "load",
    "Trained",
    "read",
    "ReadOptions",
    "Sample",
    "OperatorTransformer",
    "FunctionalAttention",
    "functional_attention",
    "BasisAttention",
    "SubdomainAttention",
    "two_level_attention",
    "fit",
]


def _rank(item: tuple[str, str]) -> tuple[bool, int, str]:
    """By importance, then the alphabet; classes of options, long lists, are last."""
    name = item[0]
    place = _FIRST.index(name) if name in _FIRST else len(_FIRST)
    options = name.endswith("Options") and name not in _FIRST
    return options, place, name.lower()


def _api_page(title: str, modules: list[str]) -> str:
    lines = [f"# {title}\n"]
    for given in modules:
        module, _, part = given.partition(":")
        first = _documentation(module).split("\n\n")[0].replace("\n", " ")
        lines.append(f"*`{module}`*: {first}\n" if not part else "")
        for name, where in sorted(public(module).items(), key=_rank):
            submodule = (ROOT / where.replace(".", "/") / f"{name}.py").is_file()
            if (part and not where.startswith(f"{module}.{part}")) or submodule:
                continue
            lines.append(f"::: {module}.{name}\n")
    return "\n".join(lines)


def api_pages() -> Iterator[tuple[str, str, str]]:
    """Address, title and text of the pages of the API."""
    yield "api/index.md", "", _api_index()
    for name, (title, modules) in API.items():
        yield f"api/{name}.md", title, _api_page(title, modules)


def pages() -> Iterator[tuple[str, str, str]]:
    """Address, title and text of every generated page."""
    yield from api_pages()
    yield "models.md", "Models", models.page()
    yield from notebooks.pages()
    yield from programs.pages()
    others = sorted(path.stem for path in (ROOT / "results").glob("*.md"))
    for name in [*RESULTS, *(name for name in others if name not in RESULTS)]:
        text = (ROOT / "results" / f"{name}.md").read_text()
        title = RESULTS.get(name) or text.partition("\n")[0].removeprefix("# ")
        yield f"results/{name}.md", title, text.replace("<!-- tables -->", "")
    yield "changelog.md", "Changelog", (ROOT / "CHANGELOG.md").read_text()


def _api_index() -> str:
    rows = []
    for name, (title, modules) in API.items():
        packages = dict.fromkeys(f"`{m.partition(':')[0]}`" for m in modules)
        rows.append(f"| [{title}]({name}.md) | {', '.join(packages)} |")
    head = (ROOT / "docs" / "hooks" / "api.md").read_text()
    return head + "\n".join(["", "| page | of |", "| --- | --- |", *rows, ""])


def on_config(config: Any, **_: Any) -> Any:
    """Lists the generated pages where the navigation names them."""
    listing = [(uri, title) for uri, title, _ in pages()]

    def listed(section: str) -> list:
        index = [f"{section}/index.md"]
        titles = [(uri, t) for uri, t in listing if uri.startswith(f"{section}/") and t]
        if section != "results":
            return index + [{title: uri} for uri, title in titles]
        parts: dict[bool, list] = {True: [], False: []}
        for uri, title in titles:
            parts[pathlib.Path(uri).stem in RESULTS].append({title: uri})
        return index + parts[True] + [{"Development": parts[False]}]

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(item) for item in value]
        if isinstance(value, dict):
            (title, inner) = next(iter(value.items()))
            if inner in ("api", "programs", "results", "notebooks"):
                return {title: listed(inner)}
            return {title: filled(inner)}
        return value

    config.nav = filled(config.nav)
    return config


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Adds the generated pages, and the figures of the results."""
    from mkdocs.structure.files import File

    for uri, _title, text in pages():
        boost = _BOOST.get(uri.partition("/")[0], 1.0)
        head = f"---\nsearch:\n  boost: {boost}\n---\n\n"
        files.append(File.generated(config, uri, content=head + text))
    text = (ROOT / "docs" / "llms.md").read_text()
    files.append(File.generated(config, "llms.txt", content=text))
    for uri, content in notebooks.files():
        files.append(File.generated(config, uri, content=content))
    for figure in sorted((ROOT / "results").rglob("*.png")):
        uri = figure.relative_to(ROOT).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Includes files of the repository, or a section of one, if they are there.

    `{{ results/page.md }}` or `{{ results/page.md#Heading }}`, on lines of their own.
    """

    def included(found: re.Match) -> str:
        path, _, section = found[1].partition("#")
        if not (ROOT / path).is_file():
            return ""
        text = re.sub(r"\A# .*\n", "", (ROOT / path).read_text())  # the page has one
        if section:
            text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
        return text

    return re.sub(r"^\{\{ (.+) \}\}$", included, markdown, flags=re.MULTILINE)
