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
    assert lines[:2] == ["n", "0"]
    assert lines.index("... 10 more rows") == lines.index("29") + 1
    assert "a|b                  9  0.5 [0.4, 0.6]" in lines


def test_what_is_no_table_is_left_out():
    assert tables.plain("# Title\n\n| a bar\n\n| one line |\n", 80) == ""
