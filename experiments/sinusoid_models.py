"""Regressors that the sinusoid program compares, and how it trains them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from experiments import sinusoid_decoded, sinusoid_regressors


@dataclasses.dataclass(frozen=True)
class Setup:
    """Structure of the models.

    Attributes:
      num_basis: basis functions of functional attention, tokens of Transolver.
      ridge: weight of functional attention, between zero and one.
      intention_ridge: weight of intention.
      shrink: divides the width of every head, and of models without heads.
    """

    num_basis: int = 8
    ridge: float = 1e-7
    intention_ridge: float = 1e-4
    shrink: int = 1

    def width(self, features: int, num_heads: int = 1) -> int:
        """Width in place of the published one."""
        return max(features // num_heads // self.shrink, 1) * num_heads


@dataclasses.dataclass(frozen=True)
class Method:
    """A regressor of the paper.

    Attributes:
      label: for tables and figures.
      rate: learning rate of the paper; of linear attention, which it has not, ours.
      build: model from a setup and a source of random numbers.
    """

    label: str
    rate: float
    build: Callable[[Setup, nnx.Rngs], Any]


def _softmax(setup: Setup, rngs: nnx.Rngs) -> Any:
    return sinusoid_decoded.SoftmaxAttentionRegressor(
        setup.width(256, 4), num_heads=4, rngs=rngs
    )


def _linear(setup: Setup, rngs: nnx.Rngs) -> Any:
    return sinusoid_decoded.LinearAttentionRegressor(setup.width(128), rngs=rngs)


def _transolver(setup: Setup, rngs: nnx.Rngs) -> Any:
    return sinusoid_regressors.TransolverRegressor(
        setup.width(256, 8), num_basis=setup.num_basis, num_heads=8, rngs=rngs
    )


def _intention(setup: Setup, rngs: nnx.Rngs) -> Any:
    return sinusoid_regressors.IntentionRegressor(
        setup.width(1000, 8), num_heads=8, ridge=setup.intention_ridge, rngs=rngs
    )


def _functional(setup: Setup, rngs: nnx.Rngs) -> Any:
    return sinusoid_regressors.FunctionalRegressor(
        setup.width(128), num_basis=setup.num_basis, ridge=setup.ridge, rngs=rngs
    )


# Widths of the authors' scripts: Table 8 gives Transolver half of its width. Rates of
# Table 8.
METHODS = {
    "attention": Method("softmax attention", 1e-3, _softmax),
    "linear": Method("linear attention", 1e-3, _linear),
    "transolver": Method("Transolver", 1e-4, _transolver),
    "intention": Method("intention", 3e-4, _intention),
    "functional": Method("functional attention", 1e-4, _functional),
}


@dataclasses.dataclass(frozen=True)
class Study:
    """One method trained from one seed.

    Attributes:
      method: key of `METHODS`.
      seed: of parameters and tasks; all methods meet the same tasks.
      setup: structure of the model.
      rate: learning rate.
      num_steps: optimizer steps.
      batch_size: tasks of a step.
      num_context: observations of a task.
      num_query: queries of a task.
    """

    method: str
    seed: int
    setup: Setup
    rate: float
    num_steps: int
    batch_size: int
    num_context: int
    num_query: int

    @property
    def name(self) -> str:
        """Name of the study and of its folder."""
        return f"{self.method}-{self.seed}"


def build(study: Study, seed: Any) -> Any:
    """Builds a model at the start of its training."""
    key = jax.random.fold_in(jax.random.key(seed), 0)
    return METHODS[study.method].build(study.setup, nnx.Rngs(key))


def num_parameters(study: Study) -> int:
    """Numbers that are trained."""
    model = jax.eval_shape(lambda: build(study, 0))
    return sum(leaf.size for leaf in jax.tree.leaves(model))
