"""Shapes in signatures: public functions get arrays of them, and return others.

The checker runs in this module alone: its errors would come before our own, which other
tests ask for.
"""

import inspect
import math
import re
import types
import typing

import beartype
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import opjax
from opjax import convolution, point_clouds, schwarz

# Letters of signatures, all different where they may be.
SIZES = {"n": 7, "m": 5, "p": 2, "d": 6, "c": 2, "o": 4, "k": 3, "kq": 4, "kk": 3}
SIZES |= {"r": 3, "s": 2, "n0": 3, "t": 4, "e": 6, "corners": 3, "dimension": 1}
SIZES |= {"b": 6, "f": 8, "*modes": 2, "*stencil": 3, "*shape": 3, "...": 2}

COVER = schwarz.box_cover(7, 2, overlap=1)
SPACE = schwarz.partition_hats(7, 3)
GRID = {"grid_shape": (7,)}
RIDGE = {"ridge": 0.1}

# What is no array; sizes of arrays that are others here; arrays of a special kind.
OPTIONS = {
    "band": {"factor": 1.5},
    "conformal_quantile": {"coverage": 0.5},
    "pointwise_quantile": {"coverage": 0.5},
    "ridge_variance": RIDGE,
    "additive": {"local": lambda f: f @ jnp.ones((2, 4)), "cover": COVER},
    "basis_attention": {"attention": opjax.softmax_attention},
    "coarse_prolong": {"coarse_space": SPACE},
    "coarse_restrict": {"coarse_space": SPACE},
    "condition_number": RIDGE,
    "decode": {"normalizer": opjax.normalize.Normalizer(jnp.ones(3), jnp.ones(3))},
    "encode": {"normalizer": opjax.normalize.Normalizer(jnp.ones(3), jnp.ones(3))},
    "farthest_points": {"num_samples": 3},
    "fourier_basis": {"num_frequencies": 1},
    "functional_attention": RIDGE,
    "greedy_choice": {"count": 2},
    "functional_attention_map": RIDGE,
    "functional_map": RIDGE,
    "grid_convolution": GRID,
    "grid_eigenfunctions": {"num_functions": 2, "boundary": "natural"},
    "harmonic_hats": {"num_boxes": 2},
    "hat_basis": {"num_nodes": 2},
    "intention": RIDGE,
    "interpolate_grid": {**GRID, "new_shape": (5,)},
    "laplacian_eigenfunctions": {
        "num_functions": 3,
        "num_neighbors": 3,
        "triangles": None,
    },
    "nystrom_attention": {"num_landmarks": 2},
    "partition_cover": {
        "labels": np.arange(7) // 4,
        "overlap": 1.0,
        "mesh_points": None,
    },
    "partition_graph": {"num_points": 7, "num_subdomains": 2},
    "partition_points": {"num_subdomains": 2},
    "prolong": {"cover": COVER, "m": 5},
    "relative_flux_error": {**GRID, "spacing": 0.1},
    "relative_gradient_error": GRID,
    "restrict": {"cover": COVER},
    "ridge_solve": RIDGE,
    "scattered_weights": {"num_neighbors": 2},
    "smoothed_aggregates": {
        "labels": np.arange(7) // 4,
        "matrix": 2 * np.eye(7) - np.eye(7, k=1) - np.eye(7, k=-1),
        "num_steps": 1,
    },
    "spectral_convolution": GRID,
    "transport": RIDGE,
    "two_level_attention": {"cover": COVER},
    "whiten": {"covariance": np.eye(3) + 1},
}

MODULES = (opjax, opjax.metrics, opjax.normalize, point_clouds, schwarz, convolution)
MODULES += (opjax.linalg, opjax.uncertainty)
FUNCTIONS = {
    name: function
    for module in MODULES
    for name, function in vars(module).items()
    if callable(function) and not name.startswith("_")
    if not inspect.isclass(function)
    if re.match(r"opjax\.[^_]", function.__module__)
}
WITHOUT_ARRAYS = {
    "check_ridge",
    "matrix_of",
    "box_cover",
    "cover",
    "fit",
    "interface_hats",
}
WITHOUT_ARRAYS |= {"orthogonal_random_features", "partition_hats", "random_rotation"}
WITHOUT_ARRAYS |= {"rollout", "check_cases", "least_cases", "likeness_of_groups"}
# On the host, in NumPy; `guard` and `power_below` are parts of metrics.
WITHOUT_ARRAYS |= {"decode_host", "encode_host", "is_constant", "is_single"}
WITHOUT_ARRAYS |= {"guard", "power_below", "detectable_shifts", "laplace"}
WITHOUT_ARRAYS |= {"alarm_margin"}
WITHOUT_ARRAYS |= {
    "grid_weights",
    "order_by_subdomain",
    "split_cover",
    "split_coarse_space",
    "uniform_hats",
}


def shaped(annotation):
    """Returns the alternative of an annotation that names axes, if there is one."""
    for alternative in (*typing.get_args(annotation), annotation):
        if hasattr(alternative, "dim_str"):
            return alternative
    return None


def array_of(annotation, sizes):
    axes = annotation.dim_str.split()
    shape = [int(axis) if axis.isdigit() else sizes[axis] for axis in axes]
    if "int32" in annotation.dtypes:
        return np.add.outer(np.arange(shape[0]), np.arange(shape[1])) % sizes["n"]
    rng = np.random.default_rng(math.prod(shape))
    return rng.uniform(0.1, 1, size=shape)


def arguments(name, **others):
    """Returns arrays as the signature has them, and what else the function needs."""
    given = {**OPTIONS.get(name, {}), **others}
    sizes = SIZES | {k: given.pop(k) for k in set(given) & set(SIZES)}
    for parameter in inspect.signature(FUNCTIONS[name]).parameters.values():
        annotation = shaped(parameter.annotation)
        if annotation is not None and parameter.name not in given:
            given[parameter.name] = array_of(annotation, sizes)
    return given


def checked(function):
    """The function, refusing what its annotations do not allow."""
    plain = inspect.unwrap(function)
    assert isinstance(plain, types.FunctionType)
    return jaxtyping.jaxtyped(typechecker=beartype.beartype)(plain)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - WITHOUT_ARRAYS))
def test_functions_take_and_return_what_their_signatures_say(name):
    given = arguments(name)
    function = checked(FUNCTIONS[name])
    # Shapes are seen without compiling anything.
    jax.eval_shape(lambda: function(**given))
    name = next(k for k, v in given.items() if isinstance(v, np.ndarray))
    spoilt = [given[name] > 0]
    if "*shape" not in str(inspect.signature(function)):
        spoilt.append(given[name][None])
    for array in spoilt:
        with pytest.raises(jaxtyping.TypeCheckError, match=name):
            function(**{**given, name: array})
