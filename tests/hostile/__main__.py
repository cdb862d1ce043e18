"""Reads mutated files of every format; the last line is JSON."""

import argparse
import json
import sys

from tests.hostile import readers, supervisor


def main() -> int:
    """Runs on the flags; returns 1 if a file escaped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, default=2000, help="of each format")
    parser.add_argument("--formats", default=",".join(readers.FORMATS))
    given = parser.parse_args()
    names = given.formats.split(",")
    found = []
    print("| format | files | read | refused | escapes | slowest, s | peak, MiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in names:
        (tally,) = supervisor.run(given.seed, files=given.files, names=[name])
        found.append(tally)
        numbers = f"{tally.files} | {tally.ok} | {tally.refused} | {len(tally.escapes)}"
        last = f"{tally.slowest:.2f} | {tally.peak / 2**20:.0f}"
        print(f"| {name} | {numbers} | {last} |", flush=True)
        for escape in tally.escapes:
            print(f"{name} {escape}", file=sys.stderr, flush=True)
    result = {"files": sum(t.files for t in found), "seed": given.seed}
    result["escapes"] = sum(len(t.escapes) for t in found)
    print(json.dumps(result))
    return int(result["escapes"] > 0)


if __name__ == "__main__":
    sys.exit(main())
