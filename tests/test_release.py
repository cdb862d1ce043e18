"""A release says the same everywhere, and its dependencies have bounds and hashes."""

import datetime
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEPENDENCIES = [Requirement(text) for text in PROJECT["dependencies"]]

if not (ROOT / "requirements").is_dir():
    pytest.skip("a source distribution has no lock", allow_module_level=True)


def pinned(name):
    text = (ROOT / "requirements" / name).read_text()
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


def test_version_and_date_are_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    version = re.search(r"^version: (\S+)$", citation, re.MULTILINE)[1]
    date = re.search(r"^date-released: (\S+)$", citation, re.MULTILINE)[1]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    released = [text for text in headings if not text.endswith("(unreleased)")]
    assert version == PROJECT["version"]
    assert headings[-len(released) :] == released  # at most the first is not
    assert released[0] == f"{version} ({date})"
    datetime.date.fromisoformat(date)


def test_authors_and_addresses_are_in_one_place():
    """CITATION.cff has those of pyproject.toml, by `.ci/identity`; nothing else has."""
    citation = (ROOT / "CITATION.cff").read_text()
    urls = PROJECT["urls"]
    assert f"\nrepository-code: {urls['Repository']}\n" in citation
    assert f"\nurl: {urls['Documentation']}\n" in citation
    names = [author["name"] for author in PROJECT["authors"]]
    for family, _, given in (name.partition(", ") for name in names):
        assert family in citation
        assert given in citation
    elsewhere = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "mkdocs.yml")]
    elsewhere += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "opjax").rglob("*.py")]
    for path in elsewhere:
        text = path.read_text()
        assert not any(word in text for word in (*urls.values(), *names)), path


def test_the_citation_names_all_works():
    citation = (ROOT / "CITATION.cff").read_text()
    for work in ("2605.31559", "2606.18525", "2105.14995", "nedtaylor/athena"):
        assert work in citation


def test_bounds_are_lower_and_upper():
    for dependency in DEPENDENCIES:
        assert sorted(s.operator for s in dependency.specifier) == ["<", ">="]


def test_the_lowest_versions_are_the_lower_bounds():
    lowest = pinned("lowest.txt")
    for dependency in DEPENDENCIES:
        bound = next(s.version for s in dependency.specifier if s.operator == ">=")
        assert Version(lowest[canonicalize_name(dependency.name)]) == Version(bound)


def test_the_lock_is_within_the_bounds():
    locked = pinned("ci.txt")
    for dependency in DEPENDENCIES:
        assert locked[canonicalize_name(dependency.name)] in dependency.specifier


def test_every_locked_package_has_hashes():
    text = (ROOT / "requirements" / "ci.txt").read_text()
    packages = re.split(r"\n(?=[\w.-]+==)", text)[1:]
    assert len(packages) == text.count("==")
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", part) for part in packages)
