"""Regressors of the sine waves, at the sizes and rates of the paper."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from experiments import sinusoid_regressors as regressors

if TYPE_CHECKING:
    from experiments.sinusoid import Config


class Model(NamedTuple):
    """A regressor with the width and heads of the authors' script.

    Widths, heads and rates are those of the authors' program. Table 8 of the paper
    gives Transolver half of its width and Intention eight heads. `build` makes of the
    configuration the constructor of a regressor; a model that `has_ridges` is trained
    with each of the configuration.
    """

    label: str
    rate: float
    build: "Callable[[Config], Callable[..., regressors.Regressor]]"
    features: int
    num_heads: int = 1
    has_ridges: bool = False


MODELS = {
    "attention": Model(
        "softmax attention",
        1e-3,
        lambda config: partial(regressors.SoftmaxAttentionRegressor, num_heads=4),
        256,
        4,
    ),
    "linear": Model(
        "linear attention",
        1e-4,
        lambda config: regressors.LinearAttentionRegressor,
        128,
    ),
    "transolver": Model(
        "Transolver",
        1e-4,
        lambda config: partial(
            regressors.TransolverRegressor, num_basis=config.num_basis, num_heads=8
        ),
        256,
        8,
    ),
    "intention": Model(
        "intention",
        3e-4,
        lambda config: partial(
            regressors.IntentionRegressor, num_heads=4, ridge=config.intention_ridge
        ),
        1000,
        4,
    ),
    "functional": Model(
        "functional attention",
        1e-4,
        lambda config: partial(
            regressors.FunctionalRegressor,
            num_basis=config.num_basis,
            ridge=config.ridge,
        ),
        128,
        has_ridges=True,
    ),
    "functional_learned": Model(
        "functional, learned ridge",
        1e-4,
        lambda config: partial(
            regressors.FunctionalRegressor,
            num_basis=config.num_basis,
            ridge=config.ridge,
            learn_ridge=True,
        ),
        128,
        has_ridges=True,
    ),
    "functional_gcv": Model(
        "functional, GCV",
        1e-4,
        lambda config: partial(
            regressors.CrossValidatedRegressor, num_basis=config.num_basis
        ),
        128,
    ),
}
# The paper's, in its order.
PUBLISHED = ("attention", "linear", "transolver", "intention", "functional")
