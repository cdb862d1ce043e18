"""The site as a reader has it: opened from a file, in a browser without a network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import browser

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.nightly
if not browser.CHROMIUM:
    pytest.skip("no Chromium here", allow_module_level=True)
pytest.importorskip("material", reason="the site is made with `opjax[docs]`")

# What readers look for, and pages that answer it, one of the first three.
WANTED = {
    "openfoam": {"how-to/openfoam.html"},
    "transolver": {"which.html", "models.html"},
    "learning rate": {"questions.html", "programs/opjax-train.html"},
    "nan": {"questions.html"},
}
NUMBERS = ("results/", "changelog.html")  # come after API, programs and how-to
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
MISSING = "[...document.images].filter(i => i.complete && !i.naturalWidth).length"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict"]
    subprocess.run(
        [*command, "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser.started(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def searched(page, words):
    """Addresses that the search box lists for words."""
    page.run("document.querySelector('[data-md-component=search-query]').focus()")
    page.call("Input.insertText", text=words)
    page.call("Input.dispatchKeyEvent", type="keyUp", key=words[-1])
    links = "document.querySelectorAll('.md-search-result__item > a')"
    page.wait(f"{links}.length && {links}[0].href.includes('?h=')")
    return page.run(f"[...{links}].map(a => a.href)")


@pytest.mark.parametrize("words", WANTED)
def test_search_in_a_file_finds_the_page_that_answers(site, page, words):
    page.open(f"{site.as_uri()}/index.html")
    root = f"{site.as_uri()}/"
    found = [url.removeprefix(root).split("?")[0] for url in searched(page, words)]
    assert WANTED[words] & set(list(dict.fromkeys(found))[:3]), found
    assert not any(name.startswith(NUMBERS) for name in found[:4]), found


def test_every_page_fits_a_screen_and_a_phone(site, page):
    page.call("Network.enable")
    page.call("Network.setBlockedURLs", urls=["*/search_index.js"])  # not needed here
    for path in sorted(site.rglob("*.html")):
        page.open(path.as_uri(), width=1280)
        assert page.run(FITS), path
        assert page.run(MISSING) == 0, path
        page.resize(width=400)
        assert page.run(FITS), path
    page.call("Network.setBlockedURLs", urls=[])
