"""What matters in functional and Galerkin-type attention, one choice at a time.

    python -m experiments.ablation --preset=quick
    python -m experiments.ablation --studies=projection --problem=elasticity

Small models of Darcy flow, or of another benchmark, and of Burgers' equation that
differ in one choice. Every variant and seed has a folder in that of its study.
"""

import dataclasses
import functools
import math
import pathlib
from dataclasses import replace
from typing import Any

import jax

from experiments import (
    ablation_cost,
    ablation_report,
    airfoil,
    burgers,
    darcy,
    elasticity,
)
from opjax import learn
from opjax.learn import SizeOptions, option

# Table of the paper, and what is varied.
STUDIES = {
    "bases": "001, Tables 6 and 11: number of basis functions",
    "choice": "001, Table 7: basis and attention",
    "projection": "001, Table 12: transpose and pseudo-inverse",
    "ridge": "001, Table 13: initial ridge",
    "sharing": "001, App. C.2: one basis for all blocks",
    "adaptive": "Ridges: learned, fixed, cross-validated",
    "initialization": "004, Table 8: initialisation and normalisation",
}
_ALL = ("smoke", "quick", "paper")  # presets of all programs
# What 001's studies may be on; 004's is on Burgers' equation.
PROBLEMS = {"darcy": darcy, "elasticity": elasticity, "airfoil": airfoil}
TASKS = {m.Config: m.PROGRAM.make_task for m in (burgers, *PROBLEMS.values())}
BASES = {"fourier": "fourier", "orthonormal": "orthonormal", "learned": "softmax"}
MIXERS = ("galerkin", "softmax", "functional")
PROJECTIONS = ("mean", "transpose", "pseudo_inverse")
RIDGE_LOGITS = (-16.0, -8.0, -4.0, 0.0, 3.0, 6.0)
STARTS = {
    "xavier": {"init_scale": 1.0, "init_diagonal": 0.0},
    "small": {"init_scale": 1e-2, "init_diagonal": 0.0},
    "diagonal": {"init_scale": 1e-2, "init_diagonal": 1e-2},
}


@dataclasses.dataclass(frozen=True)
class Config(SizeOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option("quick", "Values of all flags that are not given")
    studies: tuple[str, ...] = option(
        tuple(STUDIES), "What is varied", choices=STUDIES, members=True
    )
    seeds: tuple[int, ...] = option(
        (0, 1, 2), "Seeds of parameters and sample order", minimum=0, members=True
    )
    problem: str = option("darcy", "What 001's studies are on", choices=PROBLEMS)
    data_dir: str = option("", "Folder of the published files; empty: own solver")
    base: str = option("quick", "Preset of the programs that vary", choices=_ALL)
    num_train: int = option(200, "Training samples", minimum=8)
    num_test: int = option(100, "Test samples of 001's studies", minimum=1)
    num_epochs: int = option(10, "Passes over the training samples", minimum=1)
    features: int = option(32, "Channels", minimum=1)
    num_layers: int = option(2, "Layers", minimum=1)
    num_heads: int = option(4, "Heads in 001's studies", minimum=1)
    num_basis: int = option(16, "Basis functions, where they do not vary", minimum=1)
    bases: tuple[int, ...] = option(
        (4, 8, 16, 32, 64), "Numbers of basis functions, where they do", minimum=1
    )
    num_points: int = option(512, "Points of Burgers' equation", minimum=64)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.data_dir and {"initialization"} < set(self.studies):
            raise ValueError(
                f"data_dir={self.data_dir!r} is of one problem, but the study "
                "initialization is on Burgers' equation; run it by itself."
            )
        self.members()  # refuses what a program refuses

    def members(self) -> dict[tuple[str, int], Any]:
        """Configurations of other programs by `<study>/<variant>` and seed."""
        return {
            (f"{study}/{label}", seed): replace(variant, seeds=(seed,))
            for study in self.studies
            for label, variant in variants(self, study).items()
            for seed in self.seeds
        }


def variants(config: Config, study: str) -> dict[str, Any]:
    """Returns the configurations of a study by what they vary."""
    names = ["num_train", "num_epochs", "features", "num_layers", "data_dir"]
    given: dict[str, Any] = {}
    if study == "initialization":
        base: Any = burgers.PRESETS[config.base]
        names.append("num_points")
        given |= {"models": ("galerkin",), "num_heads": 1}
        given["test_points"] = (config.num_points, 8192)
    else:
        base = PROBLEMS[config.problem].PRESETS[config.base]
        names += ["num_test", "num_heads", "num_basis"]
        given |= {"equal_parameters": False, "models": ("functional",)}
    if base.num_validation:  # published runs have none
        given["num_validation"] = max(config.num_train // 10, 2)
    base = replace(base, **given, **{name: getattr(config, name) for name in names})
    changes = _changes(config, study)
    return {label: replace(base, **change) for label, change in changes.items()}


def _changes(config: Config, study: str) -> dict[str, dict[str, Any]]:
    """What the variants of a study change, by their labels."""
    match study:
        case "bases":
            return {f"k_{k}": {"num_basis": k} for k in config.bases}
        case "choice":
            # At least as many real waves in the plane as there are learned functions.
            side = math.isqrt(config.num_basis - 1) + 1
            own = {"num_basis": (side + 1 - side % 2) ** 2, "shared_basis": False}
            return {
                f"{label}_{mixer}": {"models": (f"{basis}:{mixer}",), **own}
                for label, basis in BASES.items()
                for mixer in MIXERS
            }
        case "projection":
            return {
                f"projected_{name}": {"projection": name, "shared_basis": False}
                for name in PROJECTIONS
            }
        case "ridge":
            return {f"logit_{x:g}": {"ridge_logit": x} for x in RIDGE_LOGITS}
        case "sharing":
            return {
                f"{label}_{'shared' if shared else 'own'}": change
                for label in ("functional", "transolver")
                for shared in (True, False)
                for change in [_sharing(config, label, shared)]
            }
        case "adaptive":
            fixed = {"models": ("softmax:functional_fixed",)}
            return {
                "learned": {},
                "gcv": {"models": ("softmax:functional_gcv",)},
                **{
                    f"fixed_{jax.nn.sigmoid(x):.3g}": {**fixed, "ridge_logit": x}
                    for x in RIDGE_LOGITS
                },
            }
    return {
        f"{name}_{label}": {"normalization": name, **start}
        for name in burgers.NORMALIZATIONS
        for label, start in STARTS.items()
    }


def _sharing(config: Config, label: str, shared: bool) -> dict[str, Any]:
    """One basis for all blocks, or one for each, of Transolver too.

    Transolver leaves temperatures free where there is no grid; so does the same
    attention in one basis.
    """
    if label == "functional":
        return {"shared_basis": shared}
    if not shared:
        return {"models": ("transolver",)}
    free = {"min_temperature": 0.0} if config.problem == "elasticity" else {}
    return {"models": ("softmax:softmax",), "shared_basis": True, **free}


PRESETS = {
    "smoke": Config(
        preset="smoke",
        studies=("projection",),
        seeds=(0,),
        base="smoke",
        num_train=16,
        num_test=4,
        num_epochs=2,
        features=8,
        num_layers=1,
        num_points=64,
    ),
    "quick": Config(),
    # 001, Tables 6 and 7 and App. D, on Darcy flow.
    "paper": Config(
        preset="paper",
        studies=("bases", "choice", "projection", "ridge", "sharing", "adaptive"),
        base="paper",
        num_train=1000,
        num_test=200,
        num_epochs=500,
        features=128,
        num_layers=8,
        num_heads=8,
        num_basis=64,
        bases=(16, 32, 64, 128, 256, 512),
    ),
    # 004, Table 8.
    "paper_004": Config(
        preset="paper_004",
        studies=("initialization",),
        base="paper",
        num_train=1000,
        num_epochs=100,
        features=96,
        num_layers=4,
        num_points=2048,
    ),
}


def make_task(config: Any, cache_dir: str | None) -> learn.Task:
    """The task of a program, its headline named `error`; a divergence is a result."""
    task = TASKS[type(config)](config, cache_dir)
    look = task.evaluate
    assert look is not None

    def evaluate(model: Any, folder: pathlib.Path) -> dict[str, float]:
        found = look(model, folder)
        cost = {}
        if folder.parent.name == "bases":  # the study of a member is its folder
            cost = ablation_cost.measure(task, config)
        return {"error": next(iter(found.values())), **found, **cost}

    probe = None if isinstance(config, burgers.Config) else darcy.probe(task)
    return task._replace(evaluate=evaluate, diverge=True, probe=probe)


report = functools.partial(ablation_report.report, titles=STUDIES, variants=variants)
_TITLE = "What matters, one choice at a time"
PROGRAM = learn.Program("ablation", PRESETS, make_task, title=_TITLE, report=report)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
