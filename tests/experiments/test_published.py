"""Published set-ups: their sizes, their hyper-parameters, and what they refuse."""

import dataclasses
import functools

import pytest

from experiments import (
    airfoil,
    darcy,
    darcy_inverse,
    darcy_notch,
    elasticity,
    navier_stokes,
    pipe,
    plasticity,
    published,
)
from opjax.learn.config import fields
from tests.refused import value_error
from tests.selection import by_day


def differences(one, other):
    """Fields of the one that the other has otherwise."""
    names = [field.name for field in dataclasses.fields(one) if field.name != "preset"]
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in names}
    return {name: mine for name, (mine, theirs) in pairs.items() if mine != theirs}


# Parameters of our models; the comments are those of the authors' programs, as counted
# there or in the papers. "Constant": a vector that our encoder's bias holds.
COUNTS = {
    "darcy/functional": 752_977,
    "elasticity/functional": 738_001 - 128,  # the constant
    "airfoil/functional": 736_977 - 128,  # the constant
    "pipe/functional": 2_811_337 - 128,  # a constant without effect
    "navier_stokes/functional": 11_232_329 - 256,  # likewise
    "plasticity/functional": 2_844_492 - 128,  # likewise
    "burgers/functional": 600_241,
    "rna/functional": 542_888 - 128,  # the constant
    "airfrans/functional": 3_893_580 - 256,  # the constant
    "darcy/galerkin2d": 2_220_829,
    "darcy/fourier2d": 2_220_829,
    "darcy/softmax2d": 2_220_829,
    "darcy/linear2d": 2_220_829,
    "darcy/fno": 2_372_449,  # 2.37 million
    "darcy_inverse/galerkin": 2_383_873,
    "darcy_inverse/fourier": 2_383_873,
    "darcy_inverse/fno": 2_372_449,  # 2.37 million
    "elasticity/flare": 592_641,
    "darcy/flare": 691_009,
    "airfoil/flare": 690_945,
    "pipe/flare": 625_409,
    "elasticity/gnot": 4_870_553 - 128,  # the constant
    "airfoil/gnot": 2_891_161 - 128,
    "darcy/gnot": 1_889_674 - 128,
    "navier_stokes/gnot": 1_891_978 - 128,
    "plasticity/gnot": 2_925_212 - 128,
    "elasticity/lno": 1_831_745,
    "darcy/lno": 762_113,
    "pipe/lno": 1_292_161,
    "navier_stokes/lno": 5_076_481,
    "sinusoid/functional": 50_825,
    "sinusoid/linear": 99_713,
    "sinusoid/transolver": 199_945,
    "sinusoid/attention": 593_409,
    "sinusoid/intention": 3_005_000,
    "burgers/galerkin": 530_305,  # 523 to 530 thousand
    "burgers/fno": 575_041,  # 550 thousand
    "burgers/transolver": 600_861,  # "similar"
}
SETUPS = {setup.name: setup for setup in published.SETUPS}
count = functools.cache(published.parameters)


@pytest.mark.nightly
@pytest.mark.parametrize("name", by_day(COUNTS, list(COUNTS)[::4]))
def test_models_have_the_published_number_of_parameters(name):
    assert count(SETUPS[name]) == COUNTS[name]


@pytest.mark.nightly
def test_every_set_up_is_a_command_of_its_own_program():
    assert len(SETUPS) == len(published.SETUPS)
    assert len({setup.command for setup in published.SETUPS}) == len(SETUPS)
    for setup in published.SETUPS:
        config = setup.config()
        assert config.preset.startswith("paper")
        assert setup.paper in published.PAPERS
        assert setup.name.startswith(f"{setup.module}/{config.model}")
        if setup.parameters and "fno" not in setup.name and "fine" not in setup.name:
            assert setup.parameters - count(setup) in (0, getattr(config, "width", 0))


# What the authors' scripts and programs set, where it is not a default of ours.
SCRIPTS = {
    "elasticity/functional": {"mlp_ratio": 2, "clip_norm": 0, "pct_start": 0.1}
    | {"batch_size": 1, "min_temperature": 0, "ridge_logit": 1e-3},
    "elasticity/transolver": {"mlp_ratio": 1, "clip_norm": 0.1, "pct_start": 0.3},
    "pipe/functional": {"shared_basis": False, "beta2": 0.95, "clip_norm": 1}
    | {"batch_size": 4, "split": "functional", "normalize_inputs": False}
    | {"normalize_target": False},
    "pipe/transolver": {"mlp_ratio": 2, "batch_size": 8, "split": "transolver"}
    | {"normalize_inputs": True, "clip_norm": 0.1, "beta2": 0.999},
    "elasticity/flare": {"width": 64, "num_basis": 64, "batch_size": 2}
    | {"clip_norm": 1, "pct_start": 0.1, "div_factor": 1e4, "mean_loss": True},
    "darcy/flare": {"num_heads": 16, "num_basis": 256, "gradient_weight": 0.1},
    "pipe/flare": {"num_basis": 128, "split": "transolver", "beta2": 0.999},
    "darcy/gnot": {"num_layers": 3, "mlp_ratio": 2, "weight_decay": 5e-5}
    | {"clip_norm": 0, "batch_size": 4, "gradient_weight": 0, "reference_points": 0},
    "darcy/ono_original": {"num_layers": 10, "num_basis": 32, "mlp_ratio": 2}
    | {"num_landmarks": 256, "clip_norm": 0.1, "gradient_weight": 0.1},
    "darcy/lno": {"num_points": 241, "stride": 1, "weight_decay": 5e-5, "beta2": 0.99}
    | {"pct_start": 0.2, "clip_norm": 1e3, "num_layers": 4, "gradient_weight": 0},
    "airfoil/functional": {"batch_size": 4, "clip_norm": 0.1, "shared_basis": True},
    "airfoil/transolver": {"normalize_target": False},
    "rna/functional": {"batch_size": 1, "clip_norm": 0, "final_div_factor": 1e3}
    | {"weight_decay": 0, "num_points": 4096, "orientation": "random"}
    | {"shared_basis": False, "mlp_ratio": 2, "num_basis": 128, "num_epochs": 200},
    "darcy/functional": {"reference_points": 8, "batch_size": 4, "clip_norm": 0.1}
    | {"gradient_weight": 0.1, "penalty": "gradient", "shared_basis": True},
    "navier_stokes/functional": {"shared_basis": False, "reference_points": 8}
    | {"final_div_factor": 1e3, "batch_size": 2, "width": 256, "num_basis": 32},
    "navier_stokes/transolver": {"clip_norm": 0, "final_div_factor": 1e4},
    "plasticity/functional": {"shared_basis": False, "final_div_factor": 1e3}
    | {"batch_size": 8, "normalize_target": False, "coordinates": "nodes"},
    "darcy_notch/functional": {"batch_size": 25, "layout": "grid"},
    "burgers/functional": {"width": 92, "feedforward": 200, "div_factor": 1e4}
    | {"weight_decay": 0, "clip_norm": 0.999, "num_epochs": 100, "batch_size": 8},
    "darcy/galerkin2d": {"num_layers": 6, "num_heads": 4, "coarse_points": 43}
    | {"stride": 3, "num_epochs": 100, "batch_size": 4, "weight_decay": 0}
    | {"mean_loss": True, "penalty": "flux", "gradient_weight": 0.5}
    | {"dropout": 0.05},
    "darcy_inverse/galerkin": {"learning_rate": 1e-3, "batch_size": 4, "stride": 3}
    | {"target_stride": 12, "num_epochs": 100, "clip_norm": 1, "dropout": 0.05},
    "darcy_inverse/softmax": {"learning_rate": 5e-4, "dropout": 0.1},
    "burgers/fourier": {"width": 96, "dropout": 0.05},
    "darcy_inverse/galerkin fine": {"stride": 2, "target_stride": 6, "batch_size": 4},
}
# Training and test samples, where they are not 1000 and 200.
SIZES = {"plasticity": (900, 80), "darcy_notch": (1900, 100), "burgers": (1024, 100)}
SIZES |= dict.fromkeys(("darcy_inverse", "darcy/galerkin2d", "darcy/fno"), (1024, 100))
SIZES |= {"darcy/lno": (1024, 1024), "elasticity/lno": (1000, 1000)}
SIZES |= {"rna": (547, 136)}


@pytest.mark.parametrize("name", SCRIPTS)
def test_hyper_parameters_are_those_of_the_authors(name):
    config, setup = SETUPS[name].config(), SETUPS[name]
    assert {key: getattr(config, key) for key in SCRIPTS[name]} == SCRIPTS[name]
    sizes = SIZES.get(name) or SIZES.get(setup.module, (1000, 200))
    assert (config.num_train, config.num_test) == sizes
    assert config.num_validation == 0
    if setup.paper in ("001", "T") and setup.module not in ("burgers", "rna"):
        # 001, Table 10
        table = config.learning_rate, config.num_epochs, config.weight_decay
        assert table == (1e-3, 500, 1e-5)
        assert (config.num_layers, config.num_heads) == (8, 8)
        assert not config.equal_parameters


def test_the_code_is_a_preset_where_the_text_says_otherwise():
    paper, code = (plasticity.PRESETS[name] for name in ("paper", "code"))
    assert differences(code, paper) == {"coordinates": "published"}
    paper, code = (darcy_inverse.PRESETS[name] for name in ("paper", "code"))
    assert differences(code, paper).keys() == {
        *("target_stride", "batch_size", "clip_norm", "final_div_factor")
    }
    paper, code = (darcy.PRESETS[f"{name}_galerkin2d"] for name in ("paper", "code"))
    assert differences(code, paper) == {
        "coarse_points": 71,
        "clip_norm": 0.999,
        "final_div_factor": 1e4,
    }


def test_a_model_with_a_published_set_up_of_its_own_gets_it():
    presets = darcy.PRESETS
    assert fields.preset_of(presets, "paper", ["fno"]).num_layers == 4
    assert fields.preset_of(presets, "paper", ["galerkin"]) == presets["paper"]
    assert fields.preset_of(presets, "paper", []) == presets["paper"]
    assert fields.preset_of(presets, "paper_fno", ["galerkin"]).width == 32
    with value_error("models=functional,fno, only paper_fno"):
        fields.preset_of(presets, "paper", ["functional", "fno"])


@pytest.mark.parametrize(
    ("program", "file", "source"),
    [
        (airfoil, "airfoil/naca/NACA_Cylinder_X.npy", "Geo-FNO"),
        (darcy, "piececonst_r421_N1024_smooth1.mat", "Fourier neural operator"),
        (darcy_notch, "Darcy_Triangular_FNO.mat", "WNO"),
        (elasticity, "elasticity/Meshes/Random_UnitCell_XY_10.npy", "Geo-FNO"),
        (navier_stokes, "NavierStokes_V1e-5_N1200_T20.mat", "Fourier neural operator"),
        (pipe, "pipe/Pipe_X.npy", "Geo-FNO"),
        (plasticity, "plas_N987_T20.mat", "Geo-FNO"),
    ],
)
def test_a_missing_published_file_is_named(program, file, source, tmp_path):
    config = dataclasses.replace(program.PRESETS["paper"], data_dir=str(tmp_path))
    with pytest.raises(FileNotFoundError) as caught:
        program.run(config, workdir=tmp_path / "run")
    for words in (str(tmp_path), f"\n  {file}", source, "--data_dir"):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("program", "changes"),
    [(elasticity, {}), (darcy_notch, {"layout": "mesh"})],
)
def test_a_model_that_needs_a_grid_is_refused_before_any_work(
    program, changes, tmp_path
):
    config = dataclasses.replace(
        program.PRESETS["paper"], models=("functional", "fno"), **changes
    )
    with value_error("'fno' needs .* grid of 1 or 2 axes.* on no"):
        program.run(config, workdir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
