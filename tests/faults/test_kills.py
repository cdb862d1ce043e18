"""Programs that are killed at random moments continue as if nothing had been."""

import json
import subprocess
import sys

import pytest

from tests.faults.__main__ import bad

FINE = {"kills": 3, "identical": 3, "sigterms": 1, "sigterms_identical": 1}
FINE |= {"files": 9, "escapes": 0, "problems": []}


@pytest.mark.slow
def test_killed_programs_end_with_the_bits_of_the_uninterrupted_one():
    command = [sys.executable, "-m", "tests.faults", "--seed=4", "--kills=6"]
    command += ["--minutes=20", "--share=1", "--subjects=drawn,two_seeds"]
    done = subprocess.run(command, capture_output=True, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert result["kills"] == result["identical"] >= 6
    assert result["sigterms"] == result["sigterms_identical"]
    assert len(result["phases"]) > 2


@pytest.mark.parametrize(
    "change",
    [
        {"identical": 2},
        {"kills": 0, "identical": 0},
        {"sigterms_identical": 0},
        {"files": 0},
        {"escapes": 1},
        {"problems": ["a status"]},
    ],
)
def test_whatever_is_bad_shows_in_the_status(change):
    assert not bad(FINE, files=True)
    assert bad(FINE | change, files=True)
