"""Compiled programs that are kept on disk."""

import os
import subprocess
import sys

import jax
import pytest

from opjax.learn.cli import compiled

PROGRAM = """
import jax, sys
from opjax.learn.cli import compiled
compiled._SHORTEST = 0
compiled.keep()
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
print(jax.jit(lambda x: 2 * x + 1)(3.0), jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.nightly
def test_programs_are_kept_in_the_cache_folder_and_found_again(tmp_path):
    given = {"OPJAX_CACHE": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    environment = {k: v for k, v in os.environ.items() if "COMPILATION" not in k}
    kept = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment | given,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("7.0 ")
        assert done.stderr == ""
        found = sorted((tmp_path / "compiled").rglob("jit__lambda*-cache"))
        kept.append([(path, path.stat().st_mtime_ns) for path in found])
    assert len(kept[0]) == 1
    assert kept[0] == kept[1]


@pytest.mark.parametrize("given", ["", "elsewhere"])
def test_a_folder_that_jax_was_told_of_stays(given, monkeypatch, tmp_path):
    monkeypatch.setenv("OPJAX_CACHE", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", given)
        compiled.keep()
        assert jax.config.jax_compilation_cache_dir == given
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert not list(tmp_path.iterdir())


def test_the_oldest_are_deleted_until_the_rest_fits(tmp_path):
    for age, name in enumerate(["a/new", "b/middle", "old", "oldest"]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 10)
        os.utime(path, (1e9 - age, 1e9 - age))
    compiled.prune(tmp_path, 25)
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"new", "middle"}
    compiled.prune(tmp_path / "missing", 0)
