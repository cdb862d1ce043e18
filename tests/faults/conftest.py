"""A file system that can be filled."""

import subprocess

import pytest


@pytest.fixture
def small(tmp_path):
    """A file system of 512 KiB of its own."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"no file systems can be mounted here: {error}")
    if done.returncode:
        pytest.skip(f"no file systems can be mounted here: {done.stderr}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
