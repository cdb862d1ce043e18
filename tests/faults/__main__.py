"""Kills programs and gives them broken files, for so many minutes.

    python -m tests.faults --minutes=30 --seed=0 --kills=50

The last line is JSON: `kills` and how many of them were `identical` to the
uninterrupted run when they had been continued, `files` that were mutated and how many
`escapes` there were. The status is 1 if any kill or file was bad, or none was made.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time
from typing import Any

from tests.faults import schedule, subjects


def main() -> int:
    """Runs on the flags; returns the status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="in all")
    parser.add_argument("--seed", type=int, default=0, help="of moments and files")
    parser.add_argument("--kills", type=int, default=10**6, help="at most")
    parser.add_argument("--share", type=float, default=0.5, help="of time for kills")
    parser.add_argument("--subjects", default=",".join(subjects.SUBJECTS))
    given = parser.parse_args()
    begin, seconds = time.monotonic(), 60 * given.minutes
    with tempfile.TemporaryDirectory(prefix="opjax-faults-") as folder:
        names = given.subjects.split(",")
        killing = schedule.Killing(pathlib.Path(folder), given.seed, names)
        deadline = begin + given.share * seconds
        for tally in schedule.until(deadline, killing, given.kills):
            line = f"{tally.kills} kills, {tally.identical} identical"
            print(f"{line}, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    result: dict[str, Any] = killing.tally.result()
    for problem in result["problems"]:
        print(problem, file=sys.stderr)
    result["files"], result["escapes"] = 0, 0
    if given.share < 1:
        result["files"], result["escapes"] = _files(given.seed, begin + seconds)
    result |= {"seed": given.seed, "seconds": round(time.monotonic() - begin)}
    print(json.dumps(result))
    return int(bad(result, files=given.share < 1))


def _files(seed: int, deadline: float) -> tuple[int, int]:
    """Mutated files of all formats until the deadline, and how many escaped."""
    from tests import hostile  # JAX's devices start here, after the last fork

    return hostile.run(seed, deadline)


def bad(result: dict[str, Any], *, files: bool) -> bool:
    """Whether anything was not as it has to be, or nothing was tried."""
    pairs = (("kills", "identical"), ("sigterms", "sigterms_identical"))
    unequal = any(result[one] != result[other] for one, other in pairs)
    nothing = not result["kills"] or (files and not result["files"])
    return bool(unequal or nothing or result["escapes"] or result["problems"])


if __name__ == "__main__":
    sys.exit(main())
