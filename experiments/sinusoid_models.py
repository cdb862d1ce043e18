"""Regressors of the sine waves, at the sizes and rates of the paper."""

import functools
from typing import Any, NamedTuple

from experiments import sinusoid_regressors


class Model(NamedTuple):
    """A regressor with the width and heads of the authors' script.

    Widths, heads and rates are those of the authors' program. Table 8 of the paper
    gives Transolver half of its width and Intention eight heads. `options` are fields
    of a configuration by argument.
    """

    label: str
    rate: float
    cls: Any
    features: int
    num_heads: int = 1
    options: dict[str, str] = {}  # noqa: RUF012 - never changed


_BASIS = {"num_basis": "num_basis"}
_RIDGE = {"ridge": "ridge"}
_LEARNED = functools.partial(sinusoid_regressors.FunctionalRegressor, learn_ridge=True)
MODELS = {
    "attention": Model(
        "softmax attention", 1e-3, sinusoid_regressors.SoftmaxAttentionRegressor, 256, 4
    ),
    "linear": Model(
        "linear attention", 1e-4, sinusoid_regressors.LinearAttentionRegressor, 128
    ),
    "transolver": Model(
        "Transolver", 1e-4, sinusoid_regressors.TransolverRegressor, 256, 8, _BASIS
    ),
    "intention": Model(
        "intention",
        3e-4,
        sinusoid_regressors.IntentionRegressor,
        1000,
        4,
        {"ridge": "intention_ridge"},
    ),
    "functional": Model(
        "functional attention",
        1e-4,
        sinusoid_regressors.FunctionalRegressor,
        128,
        1,
        _BASIS | _RIDGE,
    ),
    "functional_learned": Model(
        "functional, learned ridge", 1e-4, _LEARNED, 128, 1, _BASIS | _RIDGE
    ),
    "functional_gcv": Model(
        "functional, GCV",
        1e-4,
        sinusoid_regressors.CrossValidatedRegressor,
        128,
        1,
        _BASIS,
    ),
}
# The paper's, in its order.
PUBLISHED = ("attention", "linear", "transolver", "intention", "functional")


def has_ridges(found: Model) -> bool:
    """Whether the ridges of a sweep are a model's."""
    return found.options.get("ridge") == "ridge"
