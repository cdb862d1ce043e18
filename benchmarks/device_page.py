"""The page of `benchmarks.device`, from its lines."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.device_cases import STEPS

Row = Mapping[str, Any]
Columns = dict[str, str | Callable[[Row], Any]]


def _span(key: str) -> Callable[[Row], str]:
    """A median with the range that it was taken from."""

    def text(row: Row) -> str:
        low, high = (_text(row[f"{key}_{end}"]) for end in ("low", "high"))
        return f"{_text(row[key])} ({low}–{high})"

    return text


def _part(*numbers: int) -> Callable[[Row], str]:
    return lambda row: " ".join(row["case"].split("/")[number] for number in numbers)


_STEPS: Columns = {
    "case": _part(1),
    "side": _part(2),
    "step, ms": _span("ms"),
    "with the wait, ms": "ms_waited",
    "temporary MiB": "temporary_mib",
    "peak MiB": "peak_mib",
    "first step or compilation, s": "compile_s",
}
_FUNCTIONS: Columns = {
    "function": _part(1),
    "points": _part(2),
    "forward, ms": "opjax_forward_ms",
    "plain": "plain_forward_ms",
    "ratio": "forward_ratio",
    "gradient, ms": "opjax_gradient_ms",
    "plain ": "plain_gradient_ms",
    "ratio ": "gradient_ratio",
    "difference": "difference",
    "eager, ms": "eager_ms",
}
_PAIRS: Columns = {
    "points": _part(1),
    "tile": _part(2),
    "forward, ms": "forward_ms",
    "gradient, ms": "gradient_ms",
    "forward MiB": "forward_mib",
    "gradient MiB": "gradient_mib",
}
_PRECISION: Columns = {
    "what": _part(1, 2),
    "default, ms": "default_ms",
    "error of values": "default_value_error",
    "of gradients": "default_gradient_error",
    "highest, ms": "highest_ms",
    "error of values ": "highest_value_error",
    "of gradients ": "highest_gradient_error",
}
_POINTS: Columns = {
    "points": _part(1),
    "mode": _part(2),
    "step, s": "step_seconds",
    "µs a point": "microseconds_per_point",
    "peak of the device, GiB": "device_peak_gib",
    "bytes a point": "bytes_per_point",
    "compilation, s": "compile_seconds",
    "loss": "loss",
}
_PAPER: Columns = {
    "preset": _part(2),
    "step, ms": _span("ms"),
    "steps": "steps",
    "hours": "hours",
}
_VALUES: Columns = {
    "function": _part(1),
    "oracle, float64 on the CPU": "oracle_error",
    "float64": "float64_value_error",
    "gradients": "float64_gradient_error",
    "float32": "float32_value_error",
    "gradients ": "float32_gradient_error",
}
_TESTS: Columns = {
    "file": lambda row: row["case"].removeprefix("tests/"),
    "summary": "summary",
}
_SECTIONS: dict[str, tuple[str, Columns]] = {
    "step": ("Training steps", _STEPS),
    "function": ("Pure functions and plain JAX", _FUNCTIONS),
    "pairwise": ("Tiles of softmax attention", _PAIRS),
    "precision": ("Precision of products", _PRECISION),
    "points": ("Exact gradients of many points", _POINTS),
    "paper": ("Hours of a published run", _PAPER),
    "value": ("Values and gradients against the CPU", _VALUES),
    "tests": ("Unit tests", _TESTS),
}


def page(rows: Sequence[Row]) -> str:
    """Returns the Markdown page of the lines; of a case the last one counts."""
    machines = [row for row in rows if row["case"] == "machine"]
    latest = {row["case"]: row for row in rows if row["case"] != "machine"}
    good = [row for row in latest.values() if "error" not in row]
    lines = ["# An accelerator", ""]
    for row in machines[-1:]:
        told = ((key, value) for key, value in row.items() if key != "case")
        lines += [f"- {key}: `{value}`" for key, value in told]
    lines.append("- parameters, features and points are drawn with seed 0")
    lines += ["- medians over windows of queued calls, with their range", ""]
    lines += _against_torch({row["case"]: row for row in good})
    for kind, (title, columns) in _SECTIONS.items():
        own = [row for row in good if row["case"].startswith(f"{kind}/")]
        lines += [f"## {title}", "", *table(own, columns), ""] if own else []
    own = [row for row in good if row["case"].startswith("kernel/")]
    lines += ["## Kernels", ""] if own else []
    for row in own:
        told = (f"{k} {_text(v)}" for k, v in row.items() if k not in _OWN)
        lines.append(f"- {_part(1)(row)}: {', '.join(told)}")
    failed = [row for row in latest.values() if "error" in row]
    lines += ["", "## What failed", ""] if failed else []
    lines += [f"- {row['case']}: {row['error']}" for row in failed]
    return "\n".join(lines).rstrip() + "\n"


_OWN = ("case", "seconds")
_RIVALS = ("torch highest", "torch high", "torch compiled")


def _against_torch(rows: Mapping[str, Row]) -> list[str]:
    """The time of PyTorch's steps over that of ours, by case."""
    heads = ["case", *(f"{name} /" for name in _RIVALS)]
    lines = []
    for case in STEPS:
        ours = rows.get(f"step/{case}/opjax")
        theirs = [rows.get(f"step/{case}/{name}") for name in _RIVALS]
        ratios = [ours and row and row["ms"] / ours["ms"] for row in theirs]
        if any(ratios):
            lines.append(_line([case, *(_text(ratio) for ratio in ratios)]))
    if not lines:
        return []
    text = "Time of a step in PyTorch divided by that of opjax with default precision:"
    return [text, "", _line(heads), _line(["---"] * len(heads)), *lines, ""]


def table(rows: Sequence[Row], columns: Columns) -> list[str]:
    """Returns the lines of a table, without the columns that are empty."""
    cells = {
        head: [
            _text(row.get(get) if isinstance(get, str) else get(row)) for row in rows
        ]
        for head, get in columns.items()
    }
    cells = {head: found for head, found in cells.items() if set(found) != {"–"}}
    heads = [head.strip() for head in cells]
    body = zip(*cells.values(), strict=True)
    return [_line(heads), _line(["---"] * len(heads)), *map(_line, body)]


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float) and value:
        small = 0 < abs(value) < 1e-3
        return f"{value:.1e}" if small else f"{value:.{_digits(value)}f}"
    return f"{value:,}" if isinstance(value, int) else f"{value or 0}"


def _digits(value: float) -> int:
    """Decimals of three significant digits."""
    return next((n for n, size in ((0, 100), (1, 10), (2, 1)) if abs(value) >= size), 3)
