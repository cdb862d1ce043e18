"""Baselines: exact where the answer is of their kind, measured as operators are."""

import dataclasses
import functools
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.interpolate import RBFInterpolator

from opjax import learn
from opjax.learn.baselines import fits
from opjax.learn.baselines.fitted import (
    BEST,
    FILE,
    MEAN,
    NEAREST,
    POD,
    Baselines,
    obstacle,
)
from opjax.learn.baselines.inputs import Inputs
from opjax.learn.baselines.meshes import CommonMesh, interpolated
from opjax.learn.cli import predict, report, train
from opjax.learn.predict.beside import Beside
from opjax.learn.predict.prediction import Limits
from opjax.learn.registry import operators
from opjax.learn.tasks import compared
from opjax.learn.tasks.differences import Decision, Difference
from opjax.normalize import Normalizer
from opjax.samples import Sample, Splits
from opjax.samples.fields import Field, Fields
from opjax.samples.mirror import Mirror, mirrored
from opjax.samples.stored import Stored
from opjax.training.checkpoint import CheckpointError
from tests.learn.tiny import QUICK, TINY, filled
from tests.refused import value_error

FIELDS = Fields((Field("u", (0,), 2.0), Field("v", (1, 2), 3.0)))


def case(rng, scalars, *, points=None, number=60, name=""):
    """A case whose three channels are polynomials of its two scalars."""
    if points is None:
        points = np.random.default_rng(0).uniform(size=(number, 2))
        points = points * (1 + 0.2 * scalars[0]) + 0.05 * np.sin(3 * points + scalars)
    x, y = points.T
    a, b = scalars
    target = np.stack([1 + a * x + b**2 * y, a * b * x, 2 + y * a], axis=1)
    weights = 0.1 + np.abs(np.sin(np.arange(len(points))))
    return Sample(
        points,
        target=target,
        scalars=np.array(scalars),
        quadrature_weights=weights,
        target_scalars=np.array([a + b, 3.0]),
        name=name,
    )


def drawn(rng, **given):
    """A case of random scalars."""
    return case(rng, rng.uniform(-1, 1, size=2), **given)


def relative(one, predicted, channels=slice(None)):
    """The weighted relative error of some channels of a prediction."""
    roots = np.sqrt(one.quadrature_weights)[:, None]
    parts = (roots * values for values in (predicted - one.target, one.target))
    return np.divide(*(np.linalg.norm(part[:, channels]) for part in parts))


def compare(cases, measure):
    """Baselines that are fitted to twenty cases, tested on the others."""
    return compared.compare(Splits(cases[:20], [], cases[20:], source=""), measure)


@pytest.fixture
def cases(rng):
    return [drawn(rng) for _ in range(24)]


def test_meshes_of_one_topology_correspond_and_others_do_not(cases, rng):
    assert CommonMesh.of(cases)[1] == ""
    shuffled = cases[1]._replace(
        mesh_points=rng.permutation(cases[1].mesh_points), name="a/b.vtu"
    )
    assert (
        "other neighbours of points in the first case and b.vtu"
        in (CommonMesh.of([cases[0], shuffled])[1])
    )
    fewer = case(rng, (0.1, 0.2), number=50)
    assert CommonMesh.of([cases[0], fewer])[1].startswith("60 and 50 points in")
    cells = np.arange(60).reshape(-1, 3)
    one, same, other = (
        cases[0]._replace(cells=c) for c in (cells, cells.copy(), cells[::-1])
    )
    moved = same._replace(mesh_points=shuffled.mesh_points)
    assert CommonMesh.of([one, moved])[1] == ""  # the cells say so
    assert "other cells" in CommonMesh.of([one, other])[1]


def test_interpolated_values_are_kept_at_points_that_have_some(rng):
    points, values = rng.uniform(size=(30, 2)), rng.normal(size=(30, 2))
    assert_allclose(interpolated(points, values, points), values)
    between = interpolated(points, values, rng.uniform(size=(9, 2)))
    assert (between <= values.max(axis=0)).all()
    constant = interpolated(points, np.ones((30, 1)), rng.normal(size=(5, 2)))
    assert_allclose(constant, 1)


def test_pod_is_exact_where_fields_are_polynomials_of_the_scalars(rng):
    points = rng.uniform(size=(40, 2))
    cases = [drawn(rng, points=points) for _ in range(24)]
    found = Baselines.fit(cases[:20], FIELDS)
    assert found.names == [MEAN, NEAREST, POD]
    assert {one.radial.kernel for one in found.choices[:2]} == {"quintic"}
    for one in cases[20:]:
        assert_allclose(found.predict(POD, one), one.target, atol=1e-8)
        assert_allclose(found.predict(BEST, one), one.target, atol=1e-8)
        assert_allclose(found.predict_scalars(POD, one), one.target_scalars, atol=1e-8)
    assert found.best == [POD, POD]
    assert "the scalars" in found.words(POD)


def test_scalars_that_follow_from_others_or_are_twice_there_do_no_harm(cases):
    def further(one):
        a, b = one.scalars
        return one._replace(scalars=np.array([a, 2 * a - b, 7.0, b]))

    more = [further(one) for one in cases]
    plain = Baselines.fit(cases[:20], FIELDS)
    found = Baselines.fit([*more[:20], more[3]], FIELDS)
    assert POD in found.names
    for one, other in zip(cases[20:], more[20:], strict=True):
        exact = plain.predict(POD, one)
        assert_allclose(found.predict(POD, other), exact, atol=0.1)


def test_the_mean_field_and_the_nearest_case_are_those_of_numpy(cases):
    found, asked = Baselines.fit(cases[:20], FIELDS), cases[20]
    mean = np.mean([one.target for one in cases[:20]], axis=0)
    assert_allclose(found.predict(MEAN, asked), mean)
    scalars = np.stack([one.scalars for one in cases[:20]])
    far = np.linalg.norm((scalars - asked.scalars) / scalars.std(axis=0), axis=1)
    assert found.nearest.inputs == "scalars"
    nearest = cases[int(np.argmin(far))]
    assert_array_equal(found.predict(NEAREST, asked), nearest.target)
    assert_array_equal(found.predict_scalars(NEAREST, asked), nearest.target_scalars)


def test_left_out_cases_are_predicted_by_the_others_alone(cases):
    inputs = np.stack([one.scalars for one in cases])
    fields = np.stack([one.target.ravel() for one in cases])
    modes = fits.Modes.of(fields[:, :, None], np.ones(fields.shape[1]))
    radial = fits.Radial("cubic", 0.0, "scalars")
    known = Inputs(inputs, np.zeros((24, 0)), np.zeros(0), np.arange(24))
    found = fits.left_out(radial, known, modes.coefficients)
    for row in range(3):
        rest = np.arange(len(cases)) != row
        direct = RBFInterpolator(inputs[rest], fields[rest], kernel="cubic", degree=1)
        assert_allclose(
            modes.field(found[row]), direct(inputs[row : row + 1])[0], atol=1e-8
        )


def test_left_out_fields_have_the_errors_that_choose(cases):
    found = Baselines.fit(cases, FIELDS)
    predicted = found.left_out()
    roots = np.sqrt(
        np.mean([c.quadrature_weights / c.quadrature_weights.sum() for c in cases], 0)
    )
    for place, field in enumerate(FIELDS.varying):
        channels = list(field.channels)
        errors = [
            np.linalg.norm(roots[:, None] * (p - c.target)[:, channels])
            / np.linalg.norm(roots[:, None] * c.target[:, channels])
            for p, c in zip(predicted, cases, strict=True)
        ]
        best = found.errors[found.best[place]][place]
        assert_allclose(np.mean(errors), best, rtol=1e-6)


def test_more_than_a_few_cases_are_left_out_in_folds():
    assert len(list(fits.folds(np.arange(20)))) == 20
    masks = np.stack(list(fits.folds(np.arange(200))))
    assert len(masks) == 10
    assert (masks.sum(axis=0) == 1).all()


NAMES = {"target": ("u", "v", "v"), "scalars": ("a", "b")}


def named(cases):
    return [one._replace(name=f"case {row}") for row, one in enumerate(cases)]


def test_a_case_is_left_out_with_its_mirrored_copies(rng):
    masks = list(fits.folds(np.tile(np.arange(9), 2)))
    assert len(masks) == 9
    assert all((mask[:9] == mask[9:]).all() for mask in masks)
    cases = named(drawn(rng, points=rng.random((50 + row, 2))) for row in range(8))
    twice = [*cases, *mirrored(cases, Mirror("y", ("b",)), NAMES)]
    found = Baselines.fit(twice, FIELDS)
    assert not found.correspond
    copy = found.nearest.places(found._inputs, found._inputs, own=True)
    assert (copy % 8 != np.arange(16) % 8).all()


def test_mirrored_copies_have_no_part_where_meshes_correspond(cases, rng):
    cases = named(cases)
    twice = [*cases, *mirrored(cases, Mirror("y", ("b",)), NAMES)]
    once, found = Baselines.fit(cases, FIELDS), Baselines.fit(twice, FIELDS)
    asked = case(rng, (0.3, -0.2))
    assert found.rows == list(range(24))
    assert_array_equal(found.predict(POD, asked), once.predict(POD, asked))
    splits = Splits(twice, cases[:3], cases[:3], "cases")
    normalizer = Normalizer(np.zeros(3), np.ones(3))
    with value_error("omit one of them"):
        Difference.fit(splits, FIELDS, normalizer)


def test_without_scalars_the_shape_tells_cases_apart(rng):
    cases = [drawn(rng) for _ in range(20)]
    bare = [one._replace(scalars=None, target_scalars=None) for one in cases]
    found = Baselines.fit(bare[:16], FIELDS)
    assert found.nearest.inputs == "shape"
    assert "shape" in found.words(POD)
    assert found.errors[POD][0] < 0.2 * found.errors[MEAN][0]


def test_where_nothing_tells_cases_apart_there_is_the_mean_field_alone(rng):
    points = rng.uniform(size=(12, 2))
    cases = [Sample(points, target=rng.normal(size=(12, 1))) for _ in range(6)]
    found = Baselines.fit(cases)
    assert found.names == [MEAN]
    assert "the cases have no scalars" in found.notes[0]


def test_on_meshes_of_their_own_values_are_interpolated_between_boxes(rng):
    def plate(a, number):
        points = np.random.default_rng(number).uniform(size=(number, 2))
        points[:4] = [[0, 0], [1, 0], [0, 1], [1, 1]]
        field = (a * points[:, :1]).astype(np.float32)
        return Sample(points * [2, 1], target=field, scalars=np.array([a]))

    cases = [plate(a, 300 + i) for i, a in enumerate(np.linspace(1, 2, 12))]
    found, asked = Baselines.fit(cases), plate(1.41, 500)
    assert "do not correspond (300 and 301 points" in found.notes[0]
    error = {
        name: np.linalg.norm(found.predict(name, asked) - asked.target)
        / np.linalg.norm(asked.target)
        for name in found.names
    }
    assert error[POD] < 0.03
    assert error[POD] < error[NEAREST] < error[MEAN]
    known = cases[3]
    assert_allclose(found.predict(NEAREST, known), known.target, atol=1e-6)


@pytest.mark.parametrize("differing", [False, True])
def test_what_is_saved_predicts_the_same(tmp_path, cases, rng, differing):
    if differing:
        cases = [case(rng, (0.1 * i, 0.2), number=50 + i) for i in range(8)]
    found = Baselines.fit(cases[:-1], FIELDS)
    found.save(tmp_path)
    again = Baselines.load(tmp_path)
    assert again.names == found.names
    assert again.notes == found.notes
    for name in [*found.names, BEST]:
        assert_allclose(
            again.predict(name, cases[-1]), found.predict(name, cases[-1]), rtol=1e-12
        )
    for name in found.names:
        assert_array_equal(
            again.predict_scalars(name, cases[-1]),
            found.predict_scalars(name, cases[-1]),
        )


def test_a_damaged_file_is_refused_by_name(tmp_path, cases):
    Baselines.fit(cases).save(tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    with np.load(tmp_path / FILE) as file:
        arrays = dict(file)
    for text in ("{}", "[]", "no JSON"):
        np.savez(tmp_path / FILE, **arrays | {"text": np.asarray(text)})
        with value_error(r"baselines.npz is damaged"):
            Baselines.load(tmp_path)
    for name in ("weights", "target", "scalars", "shape", "size", "shape_modes"):
        np.savez(tmp_path / FILE, **arrays | {name: arrays[name][1:]})
        with value_error(r"baselines.npz is damaged"):
            Baselines.load(tmp_path)
        np.savez(tmp_path / FILE, **arrays | {name: np.nan * arrays[name]})
        with value_error(rf"damaged: {name} has shape"):
            Baselines.load(tmp_path)
    (tmp_path / FILE).write_bytes(whole[: len(whole) // 2])
    with value_error(r"baselines.npz is damaged"):
        Baselines.load(tmp_path)


def test_of_many_values_a_part_of_the_cases_is_fitted_to(cases, monkeypatch):
    from opjax.learn.baselines import fitted

    monkeypatch.setattr(fitted, "_MOST_VALUES", 10 * 60 * 5)
    found = Baselines.fit(cases, FIELDS)
    assert found.notes == ["Fitted to 10 of the 24 training cases, to take seconds."]


def test_what_has_no_baselines_says_why(cases):
    assert obstacle(cases) == ""
    assert "disk" in obstacle(Stored([], [], None))
    assert "one training case" in obstacle(cases[:1])
    labels = cases[0]._replace(target=np.zeros(60, int))
    assert "classes" in obstacle([labels, labels])
    found = compared.compare(
        Splits(cases[:1], [], cases[1:2], source=""), compared.Measure(FIELDS)
    )
    assert found.sentences({}) == "\nNo baselines: there is one training case.\n"


def test_numbers_are_those_of_operators(cases):
    measure = compared.Measure(FIELDS, scalars=("s", "t"))
    found = compare(cases, measure)
    mean = np.mean([one.target for one in cases[:20]], axis=0)
    errors = [relative(one, mean, slice(1, None)) for one in cases[20:]]
    numbers = found.numbers[MEAN]
    assert_allclose(numbers["relative_l2_v"], np.mean(errors))
    assert_allclose(numbers["relative_l2_worst_v"], np.max(errors))
    s = np.array([one.target_scalars[0] for one in cases])
    assert_allclose(numbers["s_error"], np.abs(s[:20].mean() - s[20:]).mean())


def test_the_page_says_who_wins_and_what_follows(cases):
    found = compare(cases, compared.Measure(FIELDS))
    best = found.numbers[POD]
    models = {"functional": {"relative_l2_u": best["relative_l2_u"] / 2}}
    models["functional"]["relative_l2_v"] = 3 * best["relative_l2_v"]
    assert found.wins(models) == {"v": POD}
    text = found.sentences(models)
    assert "**A baseline wins** on v (error" in text
    assert "`--baseline=pod_rbf`" in text
    assert "u: POD with RBF, 2 times the error of functional." in text
    assert found.wins({"functional": dict.fromkeys(models["functional"], 0.0)}) == {}


def test_errors_of_all_channels_together_are_those_of_papers(cases):
    measure = compared.Measure(joint=lambda errors: {"relative_l2": errors.mean()})
    found = compare(cases, measure).numbers[MEAN]
    mean = np.mean([one.target for one in cases[:20]], axis=0)
    errors = [relative(one, mean) for one in cases[20:]]
    assert_allclose(found["relative_l2"], np.mean(errors))
    assert measure.decisive == {"target": "relative_l2"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on files with scalars, and the folder of the files."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp("run")
    (folder / "data").mkdir()
    (folder / "new").mkdir()
    for number in range(36):
        one = drawn(rng)
        np.savez(
            folder / ("data" if number < 34 else "new") / f"case_{number:02d}.npz",
            mesh_points=one.mesh_points,
            u=one.target[:, :1],
            v=one.target[:, 1:],
            a=one.scalars[0],
            b=one.scalars[1],
        )
    config = dataclasses.replace(
        TINY,
        train=str(folder / "data"),
        target_names="u,v",
        quantities="max:u",
        scalar_names="a,b",
        num_epochs=1,
        batch_size=4,
        models=(QUICK,),
    )
    result = train.run(config, workdir=folder / "run")
    return folder, result


def test_tables_and_the_last_line_of_training_have_baselines(run):
    folder, result = run
    assert list(result["baselines"]) == [MEAN, NEAREST, POD]
    assert result["baselines"][POD]["relative_l2_u"] < 1e-2
    assert result["baselines"][MEAN].keys() <= result.keys()
    assert result["baselines"][POD]["r2_max_u"] > 0.99
    assert result["baseline_wins"] == {"u": POD, "v": POD}
    page = (folder / "run" / "tables.md").read_text()
    assert "| POD with RBF | – | – |" in page
    assert "| nearest case | v |" in page
    assert "**A baseline wins** on u (error" in page
    assert (folder / "run" / FILE).is_file()
    report.report(folder / "page.md", [folder / "run"], html=True)
    shown = (folder / "page.html").read_text()
    assert "<td>POD with RBF</td>" in shown
    assert "<strong>A baseline wins</strong>" in shown


def test_predictions_have_the_errors_of_baselines_and_one_predicts(run, capsys):
    folder, _ = run
    options = predict.PredictOptions(
        *(str(folder / "run"), (str(folder / "new"),), folder / "a"),
        own_model=QUICK,
    )
    result = predict.run(options)
    assert list(result["baselines"]) == [MEAN, NEAREST, POD]
    assert "POD with RBF" in capsys.readouterr().err
    rows = json.loads((folder / "a" / "report.json").read_text())
    each = [row["baselines"][POD]["fields"]["u"]["relative_l2"] for row in rows]
    assert_allclose(result["baselines"][POD]["relative_l2_u"], np.mean(each))
    instead = dataclasses.replace(options, output=folder / "b", baseline=POD)
    other = predict.run(instead)
    assert other["baseline"] == POD
    assert other["relative_l2_u"] == result["baselines"][POD]["relative_l2_u"]
    with np.load(folder / "b" / "case_35.npz") as file:
        assert_allclose(file["prediction_u"][:, None], file["u"], atol=0.05)


def test_a_baseline_that_is_not_there_is_refused(run, tmp_path):
    folder, _ = run
    found = learn.load(folder / "run", own_model=QUICK)
    assert Beside.of(found, POD).instead == POD
    apart = found._replace(folder=tmp_path / "member")
    assert Beside.of(apart) is None
    with value_error(r"there is no baselines.npz"):
        Beside.of(apart, POD)
    few = Baselines.fit([case(None, (0.1 * i, 0.0)) for i in range(2)])
    with value_error(r"only has mean_field, nearest_case"):
        Beside(few, POD).check(tmp_path)
    with value_error(r"--stream has no effect with --baseline"):
        predict.PredictOptions(
            workdir="w", input=("i",), output="o", stream=True, baseline=POD
        )


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A run that uses a baseline, its training cases, and other ones."""
    rng = np.random.default_rng(2)
    cases = [drawn(rng) for _ in range(24)]
    cases = [one._replace(target_scalars=None) for one in cases]
    splits = Splits(cases[:16], cases[16:20], cases[20:], source="")
    names = {"target": ("u", "v", "v"), "scalars": ("a", "b")}
    folder = tmp_path_factory.mktemp("started") / "run"
    trained = learn.train(
        splits._replace(channels=names),
        config=dataclasses.replace(TINY, num_epochs=1, batch_size=4, models=(QUICK,)),
        start_from="baseline",
        workdir=folder,
    )
    return trained, splits, folder


def test_an_operator_that_starts_from_a_baseline_adds_to_it(started):
    trained, splits, _ = started
    shares = np.array([0.0, 0.5, 1.0])
    found = trained._replace(start=trained.start._replace(shares=shares))
    one = splits.test[0]
    plain = trained._replace(start=None)(one)  # mean + std * model
    mean, std = trained.normalizers["target"]
    change = np.asarray(plain, float) - mean
    expected = trained.start.baselines.predict(BEST, one) + shares * change
    assert_allclose(found(one), expected, rtol=1e-5, atol=1e-5)
    assert (np.asarray(std) > 0).all()


def test_chunks_of_an_operator_that_starts_from_a_baseline_add_to_it(started):
    trained, splits, _ = started
    config = dataclasses.replace(TINY, models=("functional",))
    build = functools.partial(operators.build, config, trained.description.sizes)
    found = trained._replace(model=filled(build))
    parts, whole = (found(splits.test[0], limits=Limits(size)) for size in (16, 1000))
    assert_allclose(parts, whole, rtol=1e-4, atol=1e-4)


def test_the_difference_is_that_of_cases_left_out(started):
    trained, splits, _ = started
    made = Baselines.fit(splits.train, trained.fields)
    left = [
        one.target - values
        for one, values in zip(splits.train, made.left_out(), strict=True)
    ]
    std = np.sqrt(np.mean([np.mean(one**2, axis=0) for one in left], axis=0))
    assert_allclose(trained.normalizers["target"].std, std, rtol=1e-5)


def test_numbers_of_a_run_that_starts_from_a_baseline_are_those_of_the_sum(started):
    trained, splits, folder = started
    result = json.loads((folder / "result.json").read_text())
    errors = [relative(one, trained(one), slice(1, None)) for one in splits.test]
    assert_allclose(result["relative_l2_v"], np.mean(errors), rtol=1e-3)
    assert result["share_of_model_u"] == trained.start.shares[0]
    assert result["relative_l2_u"] <= 1.1 * result["baselines"][POD]["relative_l2_u"]


def test_what_an_operator_starts_from_is_saved_with_it(started, tmp_path):
    trained, splits, folder = started
    trained.save(tmp_path / "copy")
    again = learn.load(tmp_path / "copy", own_model=QUICK)
    assert_array_equal(again(splits.test[0]), trained(splits.test[0]))
    (tmp_path / "copy" / FILE).unlink()
    with pytest.raises(CheckpointError, match="its baseline is invalid"):
        learn.load(tmp_path / "copy", own_model=QUICK)


def test_what_cannot_start_from_a_baseline_is_refused(started, tmp_path):
    trained, splits, folder = started
    one = splits.test[0]
    arrays = {"mesh_points": one.mesh_points, "scalars": one.scalars}
    for refused in (
        lambda: trained.field(one),
        lambda: list(trained.stream(arrays)),
        lambda: predict.run(
            predict.PredictOptions(
                folder, export=str(tmp_path / "op.jax"), own_model=QUICK
            )
        ),
        lambda: train.start_of(
            dataclasses.replace(train.Config(), models=(QUICK,), init_from=str(folder))
        ),
    ):
        with value_error("uses a baseline"):
            refused()
    for options in (
        {"time": "unrolled"},
        {"stream_points": 64},
        {"stream_samples": True},
        {"loss": "joint"},
        {"init_from": "runs/a"},
    ):
        with value_error("start_from=baseline has no effect with"):
            dataclasses.replace(train.Config(), start_from="baseline", **options)
    none = splits._replace(validation=[])
    with value_error("there are no validation samples"):
        Difference.fit(none, FIELDS, trained.normalizers["target"])


class Validation:
    """Validation cases, and what a model adds to them."""

    def __init__(self, samples, changes):
        self.samples, self.changes = samples, changes

    def change(self, model, row):
        return self.changes[row]


def test_validation_weighs_the_model_by_least_squares_or_leaves_it_out(cases, rng):
    few = cases[:6]
    left = [rng.normal(size=one.target.shape) for one in few]
    starts = [one.target - part for one, part in zip(few, left, strict=True)]
    normalizer = Normalizer(np.zeros(3), np.ones(3))
    difference = Difference(None, ([], starts, []), normalizer)

    def shares(changes):
        decision = Decision(difference, Validation(few, changes), None, None)
        return decision.shares(None, FIELDS)

    assert_allclose(shares([2 * part for part in left]), 0.5)
    assert_allclose(shares([part / 3 for part in left]), 1)
    assert_allclose(shares([-part for part in left]), 0)
    only_v = [part * [-1, 1, 1] for part in left]
    assert_allclose(shares(only_v), [0, 1, 1])
    noise = [rng.normal(size=part.shape) for part in left]
    assert (shares(noise) < 0.2).all()
    # Better in four of six cases only: the mean falls, by 1.6 standard errors.
    factors = (1.0, 1.0, 1.0, 1.0, -1.0, 0.2)
    mixed = [one * part for one, part in zip(factors, left, strict=True)]
    assert_allclose(shares(mixed), 0)
