"""Progress of a training, for people: a bar or lines."""

import contextlib
import sys
from typing import Any


class Progress:
    """A bar on a terminal, one line per report elsewhere; both on stderr."""

    def __init__(self, name: str, total: int, step: int):
        self._bar, self._name, self._total = None, name, total
        if sys.stderr.isatty():
            with contextlib.suppress(ImportError):
                import tqdm

                self._bar = tqdm.tqdm(total=total, initial=step, unit="step", desc=name)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, step: int) -> None:
        """Shows how many steps are done."""
        if self._bar is not None:
            self._bar.update(step - self._bar.n)

    def report(self, row: dict[str, Any], left: float) -> None:
        """Shows a row of metrics and the seconds that are left."""
        text = f"loss {row['train_loss']:.4g}"
        if "validation" in row:
            text += f" validation {row['validation']:.4g}"
        if row.get("diverged"):
            text += f", {row['diverged']} diverged"
        if self._bar is not None:
            self._bar.set_postfix_str(text)
        else:
            done = f"epoch {row['epoch']} step {row['step']}/{self._total}"
            spent = f"{row['seconds']:.0f} s, {left:.0f} s left"
            print(f"{self._name} {done} {text} ({spent})", file=sys.stderr, flush=True)
