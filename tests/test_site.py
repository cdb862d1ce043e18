"""The site as a reader has it: opened from a file, in a browser without a network."""

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import pytest

from opjax.problems import darcy
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


# The page to try an operator: docs/try.md, docs/try, docs/scripts/try_it.py.
READY = "document.getElementById('try').dataset.ready"
NOTE = "document.getElementById('try-note').innerText"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """ONNX Runtime and the operator as the script of the page."""
    if not shutil.which("npm"):
        pytest.skip("no npm here")
    path = tmp_path_factory.mktemp("runtime") / "runtime.js"
    command = [sys.executable, ROOT / "docs" / "scripts" / "try_it.py", path]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "npm error" in made.stderr:
        pytest.skip(f"npm fetches no onnxruntime-web here: {made.stderr[:200]}")
    assert made.returncode == 0, made.stderr
    assert path.stat().st_size < 15e6
    return path


def try_page(page, url, *, state, width=1280):
    """Opens the page to try an operator and waits until it has drawn its fields."""
    page.open(f"{url}/try.html", width=width)
    page.wait(READY)
    assert page.run(READY) == state, page.run(NOTE)


def test_without_a_runtime_the_page_solves_and_names_the_command(site, page):
    (site / "try" / "runtime.js").unlink(missing_ok=True)  # of who built one
    try_page(page, site.as_uri(), state="solver")
    assert "python docs/scripts/try_it.py" in page.run(NOTE)
    solved = page.run("Array.from(tryIt.latest().truth.field)")
    assert 0.006 < max(solved) < 0.025  # between those of the uniform squares


def test_solver_of_the_page_is_that_of_the_problem(site, page):
    cells = np.where(np.random.default_rng(0).random((12, 12)) < 0.5, 3.0, 12.0)
    cells = np.kron(cells, np.ones((3, 3)))
    page.open(f"{site.as_uri()}/try.html")
    solve = f"darcy.solve(Float64Array.from({cells.ravel().tolist()}), 36)"
    found = page.run(f"Array.from({solve}.solution)")
    with jax.enable_x64(True):
        expected = np.ravel(darcy.solve(cells, tolerance=1e-12).solution)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("from_server", [False, True])
def test_page_predicts_what_python_predicts(site, page, runtime, from_server, width):
    there = site / "try" / "runtime.js"
    shutil.copy(runtime, there)
    handler = functools.partial(QuietHandler, directory=site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}" if from_server else site.as_uri()
    try:
        try_page(page, url, state="operator", width=width)
        page.run("tryIt.draw('channel')")
    finally:
        server.shutdown()
        there.unlink()
    card = json.loads((ROOT / "docs" / "try" / "operator.json").read_text())
    predicted = "tryIt.latest().predicted"
    column = card["channel"].pop("values")
    found = np.reshape(page.run(f"Array.from({predicted}.values)"), (-1, 2))
    np.testing.assert_allclose(found[::29].ravel(), column, rtol=1e-4)
    for name, (expected,) in card["channel"].items():
        assert page.run(f"{predicted}.{name}") == pytest.approx(expected, rel=1e-4)
    seconds = [
        page.run(f"tryIt.refresh().then(() => {predicted}.seconds)") for _ in range(3)
    ]
    assert min(seconds) < 1
    assert page.run(FITS)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_):
        """Says nothing."""
