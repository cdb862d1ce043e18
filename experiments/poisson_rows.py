"""Finished studies of the Poisson program, beside the paper's figures."""

import dataclasses
from typing import Any

import jax
import numpy as np

from experiments.poisson_models import Study
from experiments.poisson_training import Outcome

# Table 1 of the paper: final weighted MSE, mean and maximum relative L2 error of 16
# right-hand sides, relative Frobenius error; by model and learning rate.
PAPER = {
    "global": (
        (4.760e-1, 7.280e-1, 9.755e-1, 5.500),
        (1.208e-1, 2.785e-1, 7.486e-1, 5.452),
        (1.256e-2, 6.334e-2, 2.231e-1, 3.676),
        (1.669e-2, 4.427e-2, 1.339e-1, 1.581),
        (1.842e-2, 1.586e-1, 1.141, 3.069),
        (6.157e-1, 7.965e-1, 9.058e-1, 10.27),
    ),
    "schwarz": (
        (2.085e-2, 1.241e-1, 3.323e-1, 6.394e-1),
        (2.481e-3, 4.241e-2, 1.114e-1, 6.063e-1),
        (8.319e-4, 2.172e-2, 6.142e-2, 4.995e-1),
        (3.177e-4, 9.978e-3, 2.818e-2, 3.124e-1),
        (2.085e-4, 1.158e-2, 3.881e-2, 2.868e-1),
        (1.513e-3, 1.775e-2, 5.676e-2, 6.779e-1),
    ),
}
# Section 7 and Fig. 7: final weighted MSE.
PAPER_FINAL = {"paper_512": 1.339e-3, "paper_1024": 1.631e-2, "global_matched": 3.41e-1}

LABELS = {
    "schwarz": "Schwarz, as configured",
    "global": "global, as configured",
    "global_matched": "global, about as many parameters",
    "global_small": "global, small start (2e-4), tuned",
    "global_whitened": "global, our default start",
    "schwarz_default": "Schwarz, our default start",
}
COLUMNS = {
    "weighted_mse": "weighted MSE (population)",
    "relative_l2": "mean rel. L2",
    "operator_frobenius": "operator Frobenius",
    "unseen_l2": "rel. L2, unseen modes",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A finished study with what its tables need."""

    study: Study
    parameters: int
    outcome: Outcome
    closed_form: dict[str, float] | None

    @property
    def seconds(self) -> float:
        """Seconds of training, of all rates and seeds."""
        return self.outcome.seconds

    def values(self, name: str, rate: float) -> np.ndarray:
        """An error of every seed at a rate; `final` is the loss of the last batch."""
        index = self.study.rates.index(rate)
        if name in ("initial", "final"):
            return self.outcome.losses[index, :, 0 if name == "initial" else -1]
        return self.outcome.errors[name][index]

    def summary(self, rate: float) -> dict[str, Any]:
        """Medians over the seeds, with extremes of the first."""
        values = {name: self.values(name, rate) for name in COLUMNS}
        return {
            **{name: float(np.median(value)) for name, value in values.items()},
            "weighted_mse_min": float(np.min(values["weighted_mse"])),
            "weighted_mse_max": float(np.max(values["weighted_mse"])),
            "relative_l2_16": float(np.median(self.values("mean_16", rate))),
            "initial_loss": float(np.median(self.values("initial", rate))),
            "final_loss": float(np.median(self.values("final", rate))),
        }

    def as_json(self) -> dict[str, Any]:
        """All rates of the study."""
        rates = {f"{rate:g}": self.summary(rate) for rate in self.study.rates}
        return {
            "parameters": self.parameters,
            "train_seconds": self.seconds,
            "compile_seconds": self.outcome.compile_seconds,
            "rates": rates,
            "closed_form": self.closed_form,
        }

    def model(self, rate: float) -> Any:
        """The model of the first seed."""
        index = self.study.rates.index(rate)
        return jax.tree.map(lambda leaf: leaf[index, 0], self.outcome.models)
