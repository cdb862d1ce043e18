"""The variants of the ablation program, and how small a ridge may be."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import opjax
from experiments import basis_choice, burgers, burgers_models, darcy
from opjax.learn import members

Variants = dict[tuple[str, int], Any]

# Table of the paper, what is varied, and on which problem.
STUDIES = {
    "bases": "001, Tables 6 and 11: number of basis functions, Darcy",
    "choice": "001, Table 7: basis and attention, Darcy",
    "projection": "001, Table 12: transpose and pseudo-inverse, Darcy",
    "ridge": "001, Table 13: initial ridge, Darcy",
    "initialization": "004, Table 8: initialisation and normalisation, Burgers",
}
RIDGE_LOGITS = (-16.0, -8.0, -4.0, 0.0, 3.0, 6.0)
# Gain of the initial maps, and what is added to their diagonal.
STARTS = {"xavier": (1.0, 0.0), "small": (1e-2, 0.0), "diagonal": (1e-2, 1e-2)}
# Below, the reference in float64 loses its digits too.
_BOUNDARY_LOGITS = (6, 3, 0, -2, -4, -6, -8, -10, -12, -16, -20)


def variants(config: Any) -> dict[str, Variants]:
    """Returns the configurations of all variants and seeds by study.

    Args:
      config: of `experiments.ablation`.

    Raises:
      ValueError: if a program refuses one.
    """
    builders = {
        "bases": _bases,
        "choice": _choice,
        "projection": _projection,
        "ridge": _ridge,
        "initialization": _initialization,
    }
    return {
        study: builders[study](config)
        for study in members.names(config.studies, "studies", STUDIES)
    }


def _darcy(config: Any, changes: dict[str, dict[str, Any]]) -> Variants:
    base = dataclasses.replace(
        darcy.PRESETS[config.base],
        num_train=config.num_train,
        num_validation=max(config.num_train // 10, 2),
        num_test=config.num_test,
        num_epochs=config.num_epochs,
        features=config.features,
        num_layers=config.num_layers,
        num_heads=4,
        num_basis=16,
    )
    return {
        (label, seed): dataclasses.replace(base, seed=seed, **change)
        for label, change in changes.items()
        for seed in members.seed_numbers(config.seeds)
    }


def _bases(config: Any) -> Variants:
    sizes = (4, 8, 16, 32, 64)
    return _darcy(config, {f"k_{k}": {"num_basis": k} for k in sizes})


def _choice(config: Any) -> Variants:
    pairs = (
        (basis, attention)
        for basis in basis_choice.BASES
        for attention in basis_choice.ATTENTIONS
    )
    names = [f"{basis}_{attention}" for basis, attention in pairs]
    # The real Fourier basis of 25 functions nearest to the learned ones' number.
    return _darcy(config, {name: {"model": name, "num_basis": 25} for name in names})


def _projection(config: Any) -> Variants:
    names = [f"projected_{name}" for name in basis_choice.PROJECTIONS]
    return _darcy(config, {name: {"model": name} for name in names})


def _ridge(config: Any) -> Variants:
    return _darcy(
        config, {f"logit_{logit:g}": {"ridge_logit": logit} for logit in RIDGE_LOGITS}
    )


def _initialization(config: Any) -> Variants:
    base = dataclasses.replace(
        burgers.PRESETS[config.base],
        models="galerkin",
        num_train=config.num_train,
        num_validation=max(config.num_train // 10, 2),
        num_epochs=config.num_epochs,
        num_points=config.num_points,
        test_points=f"{config.num_points},8192",
        features=config.features,
        num_heads=1,
        num_layers=config.num_layers,
    )
    return {
        (f"{normalization}_{label}", seed): dataclasses.replace(
            base,
            normalization=normalization,
            init_scale=scale,
            init_diagonal=diagonal,
            seeds=str(seed),
        )
        for normalization in burgers_models.NORMALIZATIONS
        for label, (scale, diagonal) in STARTS.items()
        for seed in members.seed_numbers(config.seeds)
    }


def ridge_boundary() -> list[dict[str, float]]:
    """Measures what float32 makes of smaller and smaller ridges.

    The coefficients of smooth functions, whose singular values fall fast, with twice as
    many basis functions as channels: without a ridge the system is singular. Nothing
    becomes NaN: where the ridge is below the rounding of the system, the solution of a
    singular system is noise, of an error above one. A ridge near one loses digits too,
    those of `1 - ridge`.

    Returns:
      For every logit, from large to small, the ridge, the condition number, and the
      relative errors of value and gradient in key coefficients against float64.
    """
    rows = []
    for logit in _BOUNDARY_LOGITS:
        with jax.enable_x64(True):
            exact = _value_and_gradient(logit, jnp.float64)
            single = _value_and_gradient(logit, jnp.float32)
            key = _coefficients(jnp.float64)[1]
            ridge = jax.nn.sigmoid(jnp.float64(logit))
            condition = opjax.condition_number(
                key, ridge=ridge, regularization="convex"
            )
        errors = [
            _relative_error(np.asarray(a), np.asarray(b))
            for a, b in zip(single, exact, strict=True)
        ]
        rows.append(
            {
                "logit": float(logit),
                "ridge": float(ridge),
                "condition": float(condition),
                "value_error": errors[0],
                "gradient_error": errors[1],
            }
        )
    return rows


def _relative_error(values: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(values - exact) / np.linalg.norm(exact))


def _coefficients(dtype: Any) -> list[jax.Array]:
    """Queries, keys and values, `(32, 16)`, of smooth functions of 256 points."""
    x = jnp.linspace(0, 1, 256, dtype=jnp.float64)[:, None]
    centres = jnp.linspace(0, 1, 32, dtype=jnp.float64)[None, :]
    basis = opjax.softmax_basis(-8 * (x - centres) ** 2)
    modes = opjax.fourier_basis(x, num_frequencies=3)
    mixing = jax.random.normal(jax.random.key(0), (3, 7, 16), jnp.float64)
    return [
        opjax.project(modes @ matrix, basis, method="mean").astype(dtype)
        for matrix in mixing
    ]


def _value_and_gradient(logit: float, dtype: Any) -> tuple[jax.Array, jax.Array]:
    query, key, value = _coefficients(dtype)
    ridge = jax.nn.sigmoid(jnp.asarray(logit, dtype))

    def moved(key):
        return opjax.transport(query, key, value, ridge=ridge, regularization="convex")

    def loss(key):
        return jnp.sum(moved(key) ** 2)

    return moved(key), jax.grad(loss)(key)
