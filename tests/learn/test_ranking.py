"""Rankings of candidates: their widths, what is left out, ranges, bad input."""

import csv
import dataclasses

import numpy as np
import pytest

from opjax import files, learn, uncertainty
from opjax.learn.cli import predict, predict_rank
from opjax.learn.predict import likeness, ranking, widths
from opjax.learn.predict.calibration import Calibration
from opjax.learn.predict.description import describe
from opjax.learn.predict.trained import Trained
from opjax.learn.registry import operators
from opjax.samples.normalizers import fit_normalizers
from tests import refused
from tests.learn.test_predict import TINY, build, make, operator, write
from tests.learn.tiny import QUICK
from tests.refused import value_error


class Twice:
    """A width that is a feature of the case."""

    def __call__(self, sample, prediction):
        return np.full(prediction.shape, np.mean(sample.features))

    def arrays(self):
        return {}


def banded(found, width, name="residual", reference=None):
    factors = {"whole_field": 2.0, "pointwise": 1.0}
    return Calibration(
        found, name, width, 0.9, factors, np.ones(9), reference=reference
    )


@pytest.fixture
def found(rng, tmp_path):
    return operator(rng, tmp_path / "run", QUICK)


@pytest.fixture
def cases(rng):
    several = [make(rng, 20 + 3 * i, name=f"case {i}") for i in range(6)]
    return [one._replace(target=None) for one in several]


def expected(found, cases, weights, known, count):
    features, solved = (
        np.asarray([likeness.features_of(found, one, found(one)) for one in some])
        for some in (cases, known)
    )
    chosen = uncertainty.greedy_choice(features, count, weights=weights, known=solved)
    return chosen.order.tolist()


def test_candidates_are_ranked_by_the_width_of_the_band_and_by_distance(
    found, cases, rng, capsys
):
    known = [make(rng, 25)]
    ranked = learn.rank(found, cases, 4, solved=known, found=banded(found, Twice()))
    means = np.asarray([np.mean(case.features) for case in cases])
    assert [one.place for one in ranked] == expected(found, cases, means, known, 4)
    assert [one.name for one in ranked] == [f"case {one.place}" for one in ranked]
    # Both ends are the factor times the width away from the prediction.
    over = [4 * means[one.place] / widths.scale_of(found)[0] for one in ranked]
    np.testing.assert_allclose([one.width for one in ranked], over, rtol=1e-4)
    for one in ranked:
        assert one.score == pytest.approx(one.width * one.distance)
    assert not capsys.readouterr().err


def test_without_a_band_the_difference_between_seeds_is_the_width(found, cases):
    def moved(factor):
        norm = found.normalizers["target"]
        others = {"target": norm._replace(std=factor * norm.std)}
        return found._replace(normalizers=found.normalizers | others)

    members = [moved(1.5), moved(0.75)]
    ranker = ranking.Ranker(found, members=members)
    statement = ranker.statement()
    assert "is not calibrated: candidates" in statement
    assert "between 3 seeds" in statement
    values = np.stack([one(cases[0]) for one in (found, *members)])
    width = np.sqrt((values / widths.scale_of(found)).var(axis=0).mean())
    assert ranker.measure(cases[0]).width == pytest.approx(width, rel=1e-5)
    same = banded(found, widths.Constant(np.ones(1), found), "constant")
    with_band = ranking.Ranker(found, same, members)
    assert with_band.statement().startswith("The band has the same width in all cases:")
    assert with_band.measure(cases[0]).width == pytest.approx(width, rel=1e-5)


def test_without_any_width_distance_alone_counts(found, cases):
    ranker = ranking.Ranker(found)
    assert "distance alone" in ranker.statement()
    ranked = learn.rank(found, cases, 3, solved=[cases[0]])
    assert [one.place for one in ranked] == [
        1 + i for i in expected(found, cases[1:], np.ones(5), cases[:1], 3)
    ]
    assert {one.width for one in ranked} == {1.0}


def test_calibration_cases_are_known(found, cases, rng, monkeypatch):
    monkeypatch.setattr(likeness.Reference, "detectable", lambda *_: None)
    known = [make(rng, 20) for _ in range(19)]
    values = [found(one) for one in known]
    reference = likeness.refer(found, known, values, false_alarms=None)
    constant = widths.Constant(np.ones(1), found)
    calibrated = banded(found, constant, "constant", reference)
    ranked = learn.rank(found, cases, 3, found=calibrated)
    places = [one.place for one in ranked]
    assert places == expected(found, cases, np.ones(6), known, 3)
    assert all("unlike" in one.row for one in ranked)


def test_solved_and_repeated_candidates_are_left_out_and_said(
    found, cases, rng, capsys
):
    seen = make(rng, 20, name="seen")
    digests = [ranking.digest(seen)]
    description = dataclasses.replace(found.description, seen=digests)
    found = found._replace(description=description)
    again = cases[2]._replace(name="again")
    solved = cases[0]._replace(target=np.zeros((cases[0].num_points, 1)))
    ranked = learn.rank(found, [*cases, seen, again], 5, solved=[solved])
    assert sorted(one.place for one in ranked) == [1, 2, 3, 4, 5]
    said = capsys.readouterr().err
    assert "2 of 8 candidates are solved already, for example case 0" in said
    assert "1 of 8 candidates have the inputs of another one" in said
    with value_error("6 cases are asked for, but there are 5 cand"):
        learn.rank(found, [*cases, seen, again], 6, solved=[solved])


def test_the_program_writes_the_order_and_knows_the_training_files(
    found, cases, tmp_path, capsys
):
    train, new = tmp_path / "train", tmp_path / "new"
    for folder, some in ((train, cases[:2]), (new, cases[1:])):
        folder.mkdir()
        for number, case in enumerate(some):
            files.write(folder / f"{number}.npz", case._replace(name=""))
    found.description.config["train"] = str(train)
    write(found, 0.5)
    options = predict.PredictOptions(
        *(found.folder, str(new), tmp_path / "out"), rank=3, own_model=QUICK
    )
    line = predict.run(options)
    said = capsys.readouterr().err
    assert "1 of 5 candidates are solved already" in said
    assert f"{found.folder} is not calibrated, and there are no other seeds" in said
    places = expected(found, cases[2:], np.ones(4), cases[:2], 3)
    names = [str(new / f"{1 + place}.npz") for place in places]
    assert line["ranking"] == names
    assert (line["candidates"], line["solved"], line["width_from"]) == (5, 2, "nothing")
    with (tmp_path / "out" / "ranking.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["file"] for row in table] == names
    assert [row["rank"] for row in table] == ["1", "2", "3"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["ranking.csv"]
    other = dataclasses.replace(options, solved=str(new / "0.npz"))
    assert predict.run(other)["solved"] == 1
    found.description.config["train"] = str(tmp_path / "gone")
    alone = predict_rank.rank(found, [str(new)], tmp_path / "alone", count=1)
    assert alone["solved"] == 0
    said = capsys.readouterr().err
    assert "gone, are in no files that exist" in said
    assert "compared only with each other" in said
    with pytest.raises(FileNotFoundError, match="nowhere"):
        predict_rank.rank(
            *(found, [str(new)], tmp_path / "alone"), count=1, solved=["nowhere"]
        )


@pytest.fixture
def with_scalars(rng, tmp_path):
    """Returns an operator that takes an angle and a load, and the folder of cases."""
    folder = tmp_path / "train"
    folder.mkdir()
    lines, cases = ["file,angle,load"], []
    for number, row in enumerate(rng.uniform(size=(8, 2))):
        case = make(rng, 9)._replace(scalars=row)
        cases.append(case)
        files.write(folder / f"{number}.npz", case._replace(scalars=None, name=""))
        lines.append(f"{number}.npz,{row[0]},{row[1]}")
    (folder / "cases.csv").write_text("\n".join(lines))
    normalizers = fit_normalizers(
        cases, points=True, features=True, target=True, scalars=True
    )
    names = {"features": ("k",), "target": ("u",), "scalars": ("angle", "load")}
    sizes = operators.sizes(cases, normalizers)
    given = {"train": str(folder), "scalar_names": "angle,load"}
    description = dataclasses.replace(
        describe(cases, sizes=sizes, names=names),
        config=operator(rng, tmp_path / "run").description.config | given,
    )
    config = dataclasses.replace(TINY, models=(QUICK,))
    found = Trained(build(config, sizes, None), normalizers, description, tmp_path)
    return found, folder


def test_candidates_are_drawn_from_ranges_of_scalars(with_scalars, tmp_path):
    found, folder = with_scalars
    mesh = tmp_path / "mesh.npz"
    case, *_ = found.read(str(folder / "0.npz"))
    files.write(mesh, case._replace(scalars=None, target=None, name=""))
    line = predict_rank.rank(
        found,
        [str(mesh)],
        tmp_path / "out",
        count=4,
        ranges="angle: 0..0.5, load: -2..2",
    )
    assert line["candidates"] == 128
    assert line["solved"] == 8
    with (tmp_path / "out" / "ranking.csv").open() as file:
        rows = list(csv.DictReader(file))
    numbers = np.asarray([[row["angle"], row["load"]] for row in rows], float)
    assert ((numbers >= [0, -2]) & (numbers <= [0.5, 2])).all()
    assert any("load" in row["outside_training"] for row in rows)
    with value_error("'mach' is not a scalar of the operator"):
        predict_rank.rank(
            *(found, [str(mesh)], tmp_path / "out"), count=4, ranges="mach: 0..1"
        )


test_ranges_that_are_none_are_refused = refused.values(
    predict_rank.parse_ranges,
    [
        ("angle 0..1", "'angle 0..1' is not a range, expected name: low..high"),
        ("angle: 0..x", "is not a range"),
        ("angle: 1..1", "is empty"),
        ("angle: 0..inf", "is empty"),
        ("angle: 0..1, angle: 0..2", "angle has two ranges"),
        ("", "is not a range"),
    ],
)


def test_ranges_of_several_scalars_are_read():
    found = predict_rank.parse_ranges("angle: 0..10, mach: -3e-1 .. 0.6")
    assert found == {"angle": (0, 10), "mach": (-0.3, 0.6)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ranges": "a: 0..1"}, "--ranges has no effect without --rank"),
        ({"solved": "train"}, "--solved has no effect without --rank"),
        ({"rank": 2, "strict": True}, "--strict has no effect with --rank"),
        ({"rank": 2, "quantities": "max:u"}, "--quantities has no effect with --rank"),
        ({"rank": 2, "baseline": "pod_rbf"}, "--rank has no effect with --baseline"),
        ({"rank": 2, "ranges": "a"}, "'a' is not a range"),
        ({"rank": -1}, "rank=-1"),
    ],
)
def test_options_that_mean_nothing_with_a_ranking_are_refused(options, words):
    with value_error(words):
        predict.PredictOptions("run", input="new", output="out", **options)
