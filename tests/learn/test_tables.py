"""Tables for a terminal: aligned, in parts that fit, and nothing lost."""

from opjax.learn import tables

HEAD = ["model", "parameters", "relative l2"]
ROWS = [["functional", "145,321", "0.01465"], ["a|b", "9", "0.5 [0.4, 0.6]"]]
PAGE = f"# Title\n\nText | with a bar.\n\n{tables.table(HEAD, ROWS)}\n- a note\n"


def test_columns_are_below_each_other():
    assert tables.plain(PAGE, 80).splitlines() == [
        "model       parameters     relative l2",
        "functional     145,321         0.01465",
        "a|b                  9  0.5 [0.4, 0.6]",
    ]


def test_columns_that_do_not_fit_are_shown_below():
    lines = tables.plain(PAGE, 27).splitlines()
    assert max(map(len, lines)) <= 27
    assert [line.split()[0] for line in lines if line] == 2 * [
        "model",
        "functional",
        "a|b",
    ]
    words = " ".join(lines).split()
    assert set(words) == set(" ".join([*HEAD, *ROWS[0], *ROWS[1]]).split())


def test_long_tables_say_how_much_is_left_out():
    page = tables.table(["n"], [[str(i)] for i in range(40)])
    lines = tables.plain(page + "\n" + PAGE, 80, max_rows=30).splitlines()
    assert lines[30:32] == ["29", "... 10 more rows"] or "... 10 more rows" in lines
    assert "a|b                  9  0.5 [0.4, 0.6]" in lines
