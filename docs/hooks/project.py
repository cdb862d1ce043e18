"""Authors and addresses of the site, from pyproject.toml."""

import pathlib
import tomllib
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
PLACEHOLDER = "https://example.org"


def on_config(config: Any, **_: Any) -> Any:
    """Sets author and addresses, unless they are placeholders."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config["site_author"] = "; ".join(author["name"] for author in project["authors"])
    urls = project["urls"]
    if not urls["Repository"].startswith(PLACEHOLDER):
        config["repo_url"] = urls["Repository"]
    if not urls["Documentation"].startswith(PLACEHOLDER):
        config["site_url"] = urls["Documentation"]
    return config
