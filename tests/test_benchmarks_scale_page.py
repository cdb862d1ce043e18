"""The page of large meshes has a row for every mode of every run."""

import json

import pytest

from benchmarks import scale_page

ROW = {"microseconds_per_point": 70.4, "bytes_per_point": 31_623.6, "peak_mib": 1228.2}


def line(points, **changes):
    modes = {"dense": ROW, "sharded": {**ROW, "bytes_exchanged": 3_412_272}}
    return json.dumps({"points": points, "devices": 2, "modes": modes, **changes})


def test_rows_are_in_the_order_of_points_and_say_what_features_are_kept_in(tmp_path):
    lines = [line(4096, storage_dtype="bfloat16"), "", line(1024)]
    rows = scale_page.measured(lines)
    text = scale_page.markdown(rows).splitlines()
    assert text[2] == "| 1,024 | dense | 70 | 31,624 | 1,228 | 0 |"
    assert text[3].startswith("| 1,024 | sharded, 2 devices | 70 |")
    assert text[3].endswith("| 3,412 |")
    assert [part.split(" | ")[1] for part in text[4:]] == [
        "dense",
        "sharded, bfloat16, 2 devices",
    ]
    scale_page.draw(rows, tmp_path / "scale.png")
    assert (tmp_path / "scale.png").stat().st_size > 1e3


def test_other_lines_are_refused():
    with pytest.raises(ValueError, match="Line 2 is no last line"):
        scale_page.measured([line(1024), "step 3"])
