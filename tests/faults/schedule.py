"""Kills at random moments, and whether what continues ends as if nothing had been."""

import json
import pathlib
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from opjax.learn.run import stopping
from tests.faults import content, server, subjects
from tests.faults.server import Ended, Moment

_LATEST = 0.03  # seconds after an event
_ALONE = 0.3  # share of kills by the clock alone
_TWICE = 0.2  # share of kills after which the continuation is killed, too


class Whole(NamedTuple):
    """An uninterrupted run of a subject."""

    content: dict[str, Any]
    phases: list[str]
    seconds: float


class Tally:
    """What was done and found."""

    def __init__(self) -> None:
        self.kills = self.identical = self.stops = self.saved = 0
        self.phases: Counter[str] = Counter()
        self.subjects: Counter[str] = Counter()
        self.problems: list[str] = []

    def result(self) -> dict[str, Any]:
        """For the last line."""
        return {
            "kills": self.kills,
            "identical": self.identical,
            "sigterms": self.stops,
            "sigterms_identical": self.saved,
            "phases": dict(sorted(self.phases.items())),
            "subjects": dict(self.subjects),
            "problems": self.problems,
        }


class Killing:
    """Kills subjects in a folder of its own, by a seed.

    Args:
      folder: for everything; emptied as it goes.
      seed: of all moments.
      names: subjects.
    """

    def __init__(self, folder: pathlib.Path, seed: int, names: list[str]):
        self._rng, self._names = np.random.default_rng(seed), names
        self._folder, self._given = folder, folder / "given"
        self._wholes: dict[str, Whole] = {}
        self._number = 0
        self.tally = Tally()
        server.prepare(folder / "compiled")
        subjects.inputs(self._given)

    def whole(self, name: str) -> Whole:
        """The uninterrupted run; the second one, which finds all programs compiled."""
        if name not in self._wholes:
            first, again = self._run(name), self._run(name)
            assert differing(first, again) == [], differing(first, again)
            self._wholes[name] = again
        return self._wholes[name]

    def _run(self, name: str) -> Whole:
        root = self._folder / "whole"
        ended = server.run(name, root, self._given)
        if ended.status:
            raise RuntimeError(f"{name} fails without any fault: {ended.text[-2000:]}")
        found = _content(root)
        shutil.rmtree(root)
        return Whole(found, ended.phases, ended.seconds)

    def once(self, *, term: bool = False) -> None:
        """Interrupts the next subject, lets it end, and compares."""
        name = self._names[self._number % len(self._names)]
        self._number += 1
        whole, rng = self.whole(name), self._rng
        times = 1 + int(rng.random() < _TWICE)
        number = signal.SIGTERM if term else signal.SIGKILL
        root, sent = self._folder / f"run{self._number}", []
        for _ in range(times):
            moment, phase = self._moment(whole, number)
            ended = server.run(name, root, self._given, moment)
            if ended.status == 0:
                continue  # it was quicker
            expected = {-signal.SIGKILL} if not term else {stopping.STATUS}
            if ended.status not in expected:
                self._problem(name, moment, f"status {ended.status}", ended)
            sent.append((moment, phase))
        ended = server.run(name, root, self._given)
        same = ended.status == 0
        if not same:
            self._problem(name, sent, f"status {ended.status} afterwards", ended)
        elif names := content.differences(_content(root), whole.content):
            same = False
            self._problem(name, sent, f"differs in {names}", ended)
        self._count(name, sent, same, term)
        if same:
            shutil.rmtree(root)

    def _moment(self, whole: Whole, number: int) -> tuple[Moment, str]:
        """A moment by the clock, or at or after an event of a phase drawn at random."""
        rng = self._rng
        if rng.random() < _ALONE:
            return Moment(None, rng.uniform(0.1, whole.seconds), number), "clock"
        phases = sorted(set(whole.phases))
        phase = phases[rng.integers(len(phases))]
        events = [i for i, found in enumerate(whole.phases) if found == phase]
        delay = rng.uniform(0, _LATEST) if rng.random() < 0.5 else 0.0
        return Moment(int(rng.choice(events)), delay, number), phase

    def _count(
        self, name: str, sent: list[tuple[Moment, str]], same: bool, term: bool
    ) -> None:
        tally = self.tally
        if term:
            tally.stops += len(sent)
            tally.saved += len(sent) * same
            return
        tally.kills += len(sent)
        tally.identical += len(sent) * same
        tally.subjects[name] += len(sent)
        tally.phases.update(phase for _, phase in sent)

    def _problem(self, name: str, moment: Any, what: str, ended: Ended) -> None:
        self.tally.problems.append(f"{name} {moment}: {what}; {ended.text[-600:]}")


def differing(one: Whole, other: Whole) -> list[str]:
    """What differs between two uninterrupted runs, which must be nothing."""
    return content.differences(one.content, other.content)


def _content(root: pathlib.Path) -> dict[str, Any]:
    return json.loads(root.with_suffix(".json").read_text())


def until(deadline: float, killing: Killing, kills: int) -> Iterator[Tally]:
    """Kills until there are so many, or the time is over; every sixth is a SIGTERM."""
    number = 0
    while killing.tally.kills < kills and time.monotonic() < deadline:
        number += 1
        killing.once(term=number % 6 == 0)
        yield killing.tally
