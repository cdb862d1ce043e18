import dataclasses
import json

import numpy as np
import pytest

from experiments import darcy_notch, elasticity
from opjax.datasets import darcy_notch as notch_data
from opjax.datasets import elasticity as elasticity_data

pytest.importorskip("skfem")
TINY = {"num_train": 4, "num_validation": 2, "num_test": 2, "features": 4}
TINY |= {"num_layers": 1, "num_epochs": 1, "num_heads": 1, "num_basis": 3}
PROGRAMS = {
    "elasticity": (elasticity, {"num_around": 8, "num_across": 1}),
    "darcy_notch": (darcy_notch, {"num_columns": 4, "num_points": 6, "stride": 1}),
}


def tiny(name, **changes):
    program, sizes = PROGRAMS[name]
    given = TINY | sizes | changes
    return program, dataclasses.replace(program.PRESETS["smoke"], **given)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_trains_evaluates_and_draws(name, tmp_path, capsys):
    program, config = tiny(name)
    folder = tmp_path / "run"
    result = program.run(config, workdir=folder, cache_dir=str(tmp_path))
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result
    assert 0 < result["relative_l2"] <= result["relative_l2_worst"]
    assert result["data"].startswith("own solver")
    assert (folder / "fields.png").stat().st_size > 1e3
    splits = program.load(config, cache_dir=str(tmp_path))
    stored = np.load(folder / "functional-0/predictions.npz")
    assert stored["0"].shape == splits.test[0].target.shape


@pytest.mark.parametrize("name", ["elasticity", "mesh", "grid"])
def test_published_files_give_the_same_splits_as_their_samples(name, tmp_path):
    if name == "elasticity":
        program, config = tiny(name)
        data = elasticity_data
    else:
        program, config = tiny("darcy_notch", layout=name)
        data = notch_data
    own = program.load(config, cache_dir=str(tmp_path))
    data.save(tmp_path, [*own.train, *own.validation, *own.test])
    config = dataclasses.replace(config, data_dir=str(tmp_path))
    read = program.load(config)
    assert "published" in read.source
    for part in ("train", "validation", "test"):
        for one, two in zip(getattr(own, part), getattr(read, part), strict=True):
            np.testing.assert_allclose(one.target, two.target, rtol=1e-6)
            np.testing.assert_allclose(one.mesh_points, two.mesh_points, rtol=1e-6)


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="num_around=6 must be a multiple of 4"):
        tiny("elasticity", num_around=6)
    with pytest.raises(ValueError, match="layout='cloud' is unknown"):
        tiny("darcy_notch", layout="cloud")
    with pytest.raises(ValueError, match="notch='none' is unknown"):
        tiny("darcy_notch", notch="none")


@pytest.mark.parametrize("name", PROGRAMS)
def test_paper_presets_are_those_of_its_table_10(name):
    paper = PROGRAMS[name][0].PRESETS["paper"]
    sizes = paper.num_layers, paper.num_heads, paper.features, paper.num_basis
    assert sizes == (8, 8, 128, 64)
    assert (paper.num_epochs, paper.learning_rate) == (500, 1e-3)
    assert paper.batch_size == {"elasticity": 1, "darcy_notch": 25}[name]
    count = paper.num_train + paper.num_validation, paper.num_test
    assert count == {"elasticity": (1000, 200), "darcy_notch": (1900, 100)}[name]
