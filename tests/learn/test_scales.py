"""Physical scales: fields over formulas of the scalars of their case."""

import dataclasses
import functools
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, learn
from opjax.learn.cli import predict as predicting
from opjax.learn.cli import train as program
from opjax.learn.config.scales import Angle, numbers_of, parse_angles, parse_scales
from opjax.learn.predict import likeness, widths
from opjax.learn.predict.scaling import Scaling
from opjax.learn.registry import operators
from opjax.samples import Sample, Splits, from_arrays
from tests.exported import FILES, results_of
from tests.learn.tiny import QUICK, TINY, filled
from tests.refused import value_error

SCALES = {"U": "load / (modulus * t)", "S": "load", "tip": "load / modulus"}
NAMES = {
    "target": ("U", "U", "S"),
    "scalars": ("alpha", "t"),
    "target_scalars": ("tip",),
}


def plate(seed, **numbers):
    rng = np.random.default_rng(seed)
    points = rng.random((20, 2))
    alpha, t = rng.uniform(-60, 60), rng.uniform(1, 2)
    given = {"load": 10 ** rng.uniform(2, 3), "modulus": rng.uniform(1e5, 2e5)}
    given |= numbers
    turned = np.sin(3 * points + np.radians(alpha))
    displacement = turned * given["load"] / given["modulus"] / t
    stress = given["load"] * np.cos(2 * points[:, :1] - np.radians(alpha))
    return Sample(
        points,
        target=np.hstack([displacement, stress]),
        scalars=np.array([alpha, t]),
        target_scalars=displacement[:1, 0] * t,
        numbers=given,
        name=f"plate {seed}",
    )


def scaling(scales=SCALES, angles="alpha", names=NAMES):
    flag = ", ".join(f"{name}: {formula}" for name, formula in scales.items())
    found = Scaling.of({"scales": flag, "angles": angles}, names)
    assert found is not None
    return found


def test_reduced_fields_do_not_depend_on_units():
    newton, kilo = plate(1), plate(1, load=1e3, modulus=1e5)
    one, other = (scaling().reduce(sample) for sample in (newton, kilo))
    assert_allclose(one.target, other.target, rtol=1e-12)
    assert_allclose(one.target_scalars, other.target_scalars, rtol=1e-12)
    assert one.mesh_points is newton.mesh_points


def test_restoring_undoes_reducing():
    sample = plate(2)
    found = scaling()
    reduced = found.reduce(sample)
    assert_allclose(found.physical(reduced.target, sample), sample.target)
    assert_allclose(
        found.physical(reduced.target_scalars, sample, "target_scalars"),
        sample.target_scalars,
    )
    assert_allclose(found.reduced_values(sample.target, sample), reduced.target)


def test_an_angle_becomes_its_direction():
    sample = plate(3)
    alpha, t = sample.scalars
    cosine, sine, kept = scaling().reduce(sample).scalars
    assert_allclose(
        [cosine, sine], [np.cos(np.radians(alpha)), np.sin(np.radians(alpha))]
    )
    assert kept == t
    assert scaling().reduced_names()["scalars"] == ["cos(alpha)", "sin(alpha)", "t"]
    radians = scaling(angles="alpha:rad").reduce(sample).scalars
    assert_allclose(radians[0], np.cos(alpha))


def test_coordinates_are_scaled_together_or_one_by_one():
    sample = plate(4)
    both = scaling({"points": "2 * t"}, "").reduce(sample).mesh_points
    assert_allclose(both, sample.mesh_points / (2 * sample.scalars[1]))
    one = scaling({"y": "load"}, "").reduce(sample).mesh_points
    assert_array_equal(one[:, 0], sample.mesh_points[:, 0])
    assert_allclose(one[:, 1], sample.mesh_points[:, 1] / sample.numbers["load"])
    with value_error("its points have 2 coordinates"):
        scaling({"z": "load"}, "").reduce(sample)


def test_arrays_without_names_are_scaled_by_their_own():
    found = scaling({"target": "load"}, "", {})
    sample = plate(5)
    assert_allclose(found.reduce(sample).target, sample.target / sample.numbers["load"])


@pytest.mark.parametrize("load", [0.0, -3.0])
def test_a_scale_that_is_not_positive_names_the_case(load):
    with value_error("plate 7.*scale of U.*load = .*expected a pos"):
        scaling().reduce(plate(7, load=load))


def test_a_division_by_zero_and_an_unknown_scalar_name_the_case():
    case = plate(8)
    case = case._replace(numbers=case.numbers | {"modulus": 0.0})
    with value_error(r"plate 8: the scale of U.*divides by zero"):
        scaling().reduce(case)
    with value_error("plate 9.*'force', which is unknown"):
        scaling({"U": "force"}).reduce(plate(9))


def test_names_that_nothing_has_are_refused():
    with value_error("'V' is the name of 0 arrays; use one of U"):
        scaling({"V": "load"})
    with value_error("'beta' is not an input scalar"):
        scaling(angles="beta")
    with value_error("alpha is an angle, which cannot be scaled"):
        scaling({"alpha": "load"})


def test_flags_that_say_nothing_are_refused():
    with value_error("the same for all cases"):
        parse_scales("U: 2 * pi")
    with value_error("scales: .*no name followed by a colon"):
        parse_scales("load")
    with value_error("a unit other than deg or rad"):
        parse_angles("alpha:turns")
    with value_error("twice"):
        parse_angles("alpha, alpha:rad")
    assert parse_angles("alpha, b:rad") == (Angle("alpha"), Angle("b", degrees=False))
    assert numbers_of({"scales": "U: F/(E*t)", "scalar_names": "t"}) == ("F", "E")
    assert numbers_of({}) == ()


@pytest.mark.parametrize(
    "others",
    [{"loss": "joint"}, {"stream_samples": True}, {"stream_points": 64}],
)
def test_options_that_scales_exclude_are_refused(others):
    with value_error("scales has no effect with"):
        dataclasses.replace(TINY, train="data", scales="U: load", **others)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plates")
    rows = ["file,load,modulus,alpha,t,tip"]
    for i in range(14):
        one = plate(i)
        arrays = {"mesh_points": one.mesh_points, "U": one.target[:, :2]}
        np.savez(folder / f"c{i:02}.npz", **arrays, S=one.target[:, 2])
        numbers = *one.numbers.values(), *one.scalars, *one.target_scalars
        rows.append(f"c{i:02}.npz," + ",".join(map(repr, map(float, numbers))))
    (folder / "cases.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def config(folder):
    return dataclasses.replace(
        TINY,
        models=(QUICK,),
        train=str(folder / "c0*.npz"),
        test=str(folder / "c1*.npz"),
        target_names="U,S",
        scalar_names="alpha,t",
        target_scalars="tip",
        scales=", ".join(f"{name}: {formula}" for name, formula in SCALES.items()),
        angles="alpha",
        quantities="max:S",
    )


@pytest.fixture(scope="module")
def workdir(config, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "run"
    program.run(config, workdir=workdir)
    return workdir


@pytest.fixture(scope="module")
def trained(workdir):
    return learn.load(workdir, own_model=QUICK)


def test_predictions_of_other_loads_are_multiples(trained):
    case = plate(11)
    double = case._replace(numbers=case.numbers | {"load": 2 * case.numbers["load"]})
    one, other = trained.both(case), trained.both(double)
    assert_allclose(other.values, 2 * one.values, rtol=1e-6)
    assert_allclose(other.scalars, 2 * one.scalars, rtol=1e-6)
    values = trained(
        case.mesh_points, scalars=dict(case.numbers) | {"alpha": 10, "t": 1}
    )
    assert values.shape == (20, 3)
    with value_error("scalars have no 't'"):
        trained(case.mesh_points, scalars={"alpha": 1.0})


def test_fields_and_chunks_are_in_physical_units(trained):
    sizes = trained.description.sizes._replace(target_scalars=0)
    functional = dataclasses.replace(TINY, models=("functional",))
    build = functools.partial(operators.build, functional, sizes)
    trained = trained._replace(model=filled(build))
    case = plate(11)
    values = trained(case)
    chunked = trained(case, limits=learn.Limits(chunk_size=7))
    assert_allclose(chunked, values, rtol=1e-4)
    found = trained.field(case)
    assert_allclose(found.at(case.mesh_points), values, rtol=1e-4)
    with value_error("omit --stream"):
        list(trained.stream({"mesh_points": case.mesh_points, "scalars": case.scalars}))


def test_a_number_in_other_units_is_told(trained):
    case = plate(11)
    other = case._replace(numbers=case.numbers | {"modulus": 150.0})
    with pytest.warns(UserWarning, match="modulus is 150, but .* Check its units"):
        trained(other)


def test_files_reports_and_errors_are_in_physical_units(
    folder, workdir, trained, tmp_path
):
    options = predicting.PredictOptions(
        workdir, input=str(folder / "c11.npz"), output=tmp_path, own_model=QUICK
    )
    result = predicting.run(options)
    (row,) = json.loads((tmp_path / "report.json").read_text())
    (case,) = trained.read(str(folder / "c11.npz"))
    assert case.numbers.keys() == {"load", "modulus"}
    both = trained.both(case)
    truth = plate(11)
    assert_allclose(row["quantities"]["max:S"], both.values[:, 2].max(), rtol=1e-5)
    assert_allclose(
        row["true_quantities"]["max:S"], truth.target[:, 2].max(), rtol=1e-5
    )
    error = np.linalg.norm(both.values[:, 2] - truth.target[:, 2])
    expected = error / np.linalg.norm(truth.target[:, 2])
    assert_allclose(result["relative_l2_S"], expected, rtol=1e-5)
    assert row["predicted_scalars"]["tip"] == pytest.approx(float(both.scalars[0]))
    written = np.load(tmp_path / "c11.npz")
    assert_allclose(written["prediction_S"].ravel(), both.values[:, 2])


@pytest.mark.nightly
def test_the_mean_of_seeds_is_predicted(folder, config, tmp_path):
    workdir = tmp_path / "run"
    program.run(dataclasses.replace(config, seeds=(0, 1)), workdir=workdir)
    options = predicting.PredictOptions(
        *(workdir, str(folder / "c11.npz"), tmp_path),
        own_model=QUICK,
        mean_of_seeds=True,
    )
    assert predicting.run(options)["seeds"] == 2
    names = [f"{operators.slug(QUICK)}-{seed}" for seed in (0, 1)]
    found = [learn.load(workdir / name, own_model=QUICK) for name in names]
    (case,) = found[0].read(str(folder / "c11.npz"))
    expected = np.mean([one(case)[:, 2] for one in found], axis=0)
    written = np.load(tmp_path / "c11.npz")
    assert_allclose(written["prediction_S"].ravel(), expected, rtol=1e-6)
    (tmp_path / "one").mkdir()
    found[0].save(tmp_path / "one" / names[0])
    with value_error("is the only seed of its run"):
        predicting.run(
            dataclasses.replace(options, workdir=tmp_path / "one" / names[0])
        )
    with value_error("--stream has no effect with --mean_of_seeds"):
        dataclasses.replace(options, stream=True)


def test_the_test_errors_of_training_are_those_of_predictions(folder, trained):
    stored = json.loads((trained.folder / "result.json").read_text())
    found = []
    for i in (10, 11, 12, 13):
        (case,) = trained.read(str(folder / f"c{i}.npz"))
        error = trained(case)[:, 2] - plate(i).target[:, 2]
        found.append(np.linalg.norm(error) / np.linalg.norm(plate(i).target[:, 2]))
    assert_allclose(stored["relative_l2_S"], np.mean(found), rtol=1e-4)


def test_bands_are_multiples_of_the_scales_of_a_case(trained, monkeypatch):
    monkeypatch.setattr(likeness.Reference, "detectable", lambda *_: None)
    case = plate(11)
    cases = [plate(100 + i) for i in range(12)]
    found = learn.calibrate(trained, cases)
    double = case._replace(numbers=case.numbers | {"load": 2 * case.numbers["load"]})
    one, other = found.band(case), found.band(double)
    assert_allclose((other.upper - other.lower), 2 * (one.upper - one.lower), rtol=1e-4)
    features = [likeness.features_of(trained, c, trained(c)) for c in (case, double)]
    assert_allclose(*features, atol=1e-5)
    residual = widths.fit_residual(trained, cases, [trained(c) for c in cases])
    assert_allclose(
        residual(double, trained(double)), 2 * residual(case, trained(case)), rtol=1e-4
    )


@pytest.mark.nightly
def test_arrays_are_trained_on_by_names():
    cases = [plate(i) for i in range(8)]
    data = {
        "mesh_points": np.stack([c.mesh_points for c in cases]),
        "target": {"U": np.stack([c.target[:, :2] for c in cases])},
        "scalars": {"alpha": np.array([c.scalars[0] for c in cases])},
        "numbers": {
            "load": np.array([c.numbers["load"] for c in cases]),
            "E": np.array([c.numbers["modulus"] for c in cases]),
        },
    }
    trained = learn.train(
        data,
        config=dataclasses.replace(TINY, num_epochs=1),
        scales={"U": "load / E"},
        angles=["alpha"],
    )
    assert trained.scaling is not None
    assert trained.description.channels.scalars == 1
    assert trained.description.numbers.keys() == {"load", "E"}
    with value_error("'V' is the name of 0 arrays"):
        learn.train(data, config=TINY, scales={"V": "load"})


def test_numbers_are_one_for_each_sample():
    with value_error(r"numbers load have shape \(2,\)"):
        from_arrays(
            mesh_points=np.zeros((3, 4, 2)),
            target=np.zeros((3, 4)),
            numbers={"load": [1.0, 2.0]},
        )
    with value_error("in scalars and in numbers"):
        files.ReadOptions(scalars="load", numbers="load")


@pytest.mark.nightly
@pytest.mark.parametrize("file", FILES)
def test_exported_operators_take_and_return_physical_units(file, folder, tmp_path):
    case = plate(11)
    data = [plate(i)._replace(target_scalars=None) for i in range(8)]
    splits = Splits(data[:5], data[5:6], data[6:], "plates", channels=NAMES)
    scales = {key: SCALES[key] for key in ("U", "S")} | {"t": "load/modulus"}
    scales |= {"y": "max(2, sqrt(load))"}
    config = dataclasses.replace(TINY, num_epochs=1)
    trained = learn.train(splits, config=config, scales=scales, angles=["alpha"])
    folder = tmp_path / "operator"
    trained.save(folder)
    path = tmp_path / file
    predicting.run(predicting.PredictOptions(folder, export=path))
    scalars = [*case.scalars, *(case.numbers[name] for name in ("load", "modulus"))]
    inputs = {"mesh_points": case.mesh_points, "scalars": scalars}
    values = results_of(path, inputs)["values"]
    expected = trained(case)
    assert_allclose(values / expected.std(0), expected / expected.std(0), atol=1e-4)


def test_scaled_coordinates_are_those_along_an_axis_of_space():
    names = {"target": ("u",), "scalars": ("L",)}
    points = np.ones((3, 2))
    sample = Sample(points, points[:, :1], scalars=np.array([2.0]), axes=(0, 2))
    found = Scaling.of({"scales": "z: L"}, names, sample.axes)
    assert_array_equal(found.reduce(sample).mesh_points, points * [1, 0.5])
    with value_error("contains y, but points vary along x and z"):
        Scaling.of({"scales": "y: L"}, names, sample.axes)
    former = Scaling.of({"scales": "y: L"}, names)  # of a run without axes
    assert_array_equal(former.reduce(sample).mesh_points, points * [1, 0.5])
