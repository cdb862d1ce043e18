"""The benchmark of an accelerator goes on where it stopped; failures cost one case."""

import json
import sys
import time

import pytest

from benchmarks import device, device_cases, device_page
from benchmarks.device_cases import SMALL, Case, Sizes


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def cases(*names):
    return [Case(name, name[0], dict) for name in names]


def test_cases_have_names_of_their_own_and_groups_in_one_piece():
    for sizes in (Sizes(), SMALL):
        found = device_cases.cases(sizes)
        names = [case.name for case in found]
        assert len(set(names)) == len(names)
        assert not any("," in name for name in names)  # they are a flag
        changes = [a.group != b.group for a, b in zip(found, found[1:], strict=False)]
        assert sum(changes) + 1 == len({case.group for case in found})


def test_cases_with_numbers_are_not_measured_again(tmp_path, monkeypatch):
    path, asked = tmp_path / "device.jsonl", []

    def measured(group, *_):
        for case in group:
            asked.append(case.name)
            failed = case.name == "a2" and asked.count("a2") == 1
            yield {"case": case.name, **({"error": "no"} if failed else {"ms": 1.0})}

    monkeypatch.setattr(device, "_measured", measured)
    for _ in range(3):
        device.run(cases("a1", "a2", "b1"), path, 60.0, False)
    assert asked == ["a1", "a2", "b1", "a2"]
    assert [row["case"] for row in lines(path)] == asked


def test_an_exception_costs_one_case(capsys):
    def fail():
        raise ZeroDivisionError("one by none")

    device.measure([Case("a", "g", fail), Case("b", "g", lambda: {"ms": 1.0})])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["error"] == "ZeroDivisionError: one by none"
    assert second["ms"] == 1.0


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("import time; time.sleep(60)", "no answer in 1 s"),
        ("raise SystemExit('full')", "ended with status 1: full"),
    ],
)
def test_a_process_that_hangs_or_ends_costs_one_case(
    program, error, tmp_path, monkeypatch
):
    start = 'print(\'{"case": "a"}\', flush=True); '
    monkeypatch.setattr(
        device, "_command", lambda *_: [sys.executable, "-c", start + program]
    )
    monkeypatch.setattr(device, "_START", 30)
    group = [Case(name, "g", dict, seconds=1) for name in "abc"]
    rows = list(device._measured(group, tmp_path / "log", time.monotonic() + 60, True))
    assert rows == [{"case": "a"}, {"case": "b", "error": error}]


def test_the_page_has_numbers_ratios_and_failures():
    times = {"ms": 2.0, "ms_low": 1.5, "ms_high": 2.5, "ms_waited": 3.0}
    rows = [
        {"case": "machine", "device": "gpu, some card", "commit": "abc"},
        {"case": "step/darcy_b4/opjax", "error": "first"},
        {"case": "step/darcy_b4/opjax", **times, "compile_s": 20.0},
        {"case": "step/darcy_b4/torch high", **times, "ms": 5.0, "compile_s": 1.0},
        {"case": "paper/darcy/paper", **times, "steps": 125000, "hours": 0.07},
        {"case": "kernel/whiten", "error": "ValueError: no"},
    ]
    text = device_page.page(rows)
    assert "- device: `gpu, some card`" in text
    assert "| darcy_b4 | – | 2.50 | – |" in text
    assert "| darcy_b4 | opjax | 2.00 (1.50–2.50) | 3.00 | 20.0 |" in text
    assert "| paper | 2.00 (1.50–2.50) | 125,000 | 0.070 |" in text
    assert "- kernel/whiten: ValueError: no" in text
    assert "first" not in text.replace("first step", "")
