"""Compares opjax with golden files: `python -m tests.golden DIRECTORY`."""

import sys
from pathlib import Path

import jax


def main(argv: list[str]) -> int:
    if len(argv) != 2 or not Path(argv[1]).is_dir():
        print("usage: python -m tests.golden DIRECTORY_OF_NPZ_FILES", file=sys.stderr)
        return 2
    jax.config.update("jax_enable_x64", True)
    from tests.golden import compare

    files = sorted(Path(argv[1]).glob("*.npz"))
    reports = []
    for file in files:
        reports.append(compare.compare(file))
        print(reports[-1], flush=True)
    counts = {
        status: sum(report.status == status for report in reports)
        for status in ("ok", "FAIL", "ERROR", "UNSUPPORTED")
    }
    print(", ".join(f"{count} {status}" for status, count in counts.items()))
    return 1 if counts["FAIL"] or counts["ERROR"] or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
