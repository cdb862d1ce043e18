"""Muon for the (possibly stacked) matrices of a model, and AdamW for the rest."""

from typing import Any

import jax
import optax
from jax import Array
from jax.tree_util import Partial
from optax.contrib import MuonDimensionNumbers

from opjax._trees import PyTree
from opjax.training.optimizers import Schedule, adamw

# Updates of a matrix have this root mean square, about that of AdamW's, so that both
# take the same learning rates.
_RMS = 0.2
_MOMENTUM = 0.95


def muon(
    learning_rate: float | Schedule,
    *,
    weight_decay: float,
    b1: float | Schedule = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> optax.GradientTransformation:
    r"""Muon for the kernels of linear and convolutional maps, AdamW for the rest.

        p = p - r (0.2 max(m, n)^{1/2} U V^T + weight_decay p),

    for a kernel with `m` inputs and `n` outputs, where `U S V^T` is the momentum of its
    gradient (0.95, Nesterov), and five Newton-Schulz steps bring its singular values
    close to one. The last two axes are those of a matrix: every layer of a stack `(l,
    m, n)` and every point of a stencil `(3, 3, m, n)` has its own `U V^T`. The factor
    gives updates the same size as AdamW's, so learning rates are comparable.
    `is_matrix` defines which leaves are kernels.

    Args:
      learning_rate: number, or function of the step counted from zero.
      weight_decay: decoupled weight decay of all parameters, multiplied by the learning
        rate.
      b1: AdamW's decay of the mean of the gradient.
      b2: AdamW's decay of the mean of its square.
      eps: AdamW's offset of the root mean square.

    Returns:
      The gradient transformation.

    Raises:
      ValueError: as from `adamw`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> params = {"kernel": jnp.eye(2), "bias": jnp.ones(2)}
      >>> optimizer = training.muon(1e-3, weight_decay=0.0)
      >>> updates, _ = optimizer.update(params, optimizer.init(params), params)
      >>> updates["kernel"].shape
      (2, 2)

    References:
      Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024;
      Liu et al., "Muon is scalable for LLM training", 2025 (the factor);
      `optax.contrib.muon`.
    """
    rest = adamw(learning_rate, weight_decay=weight_decay, b1=b1, b2=b2, eps=eps)
    numbers = (learning_rate, weight_decay, rest)
    return optax.GradientTransformation(
        Partial(_init, numbers), Partial(_update, numbers)
    )


def _init(numbers: tuple[Any, ...], params: PyTree) -> Any:
    return _rule(*numbers).init(params)


def _update(
    numbers: tuple[Any, ...], updates: PyTree, state: PyTree, params: PyTree = None
) -> tuple[Any, Any]:
    return _rule(*numbers).update(updates, state, params)


def _rule(
    learning_rate: Any, weight_decay: Any, rest: optax.GradientTransformation
) -> optax.GradientTransformation:
    """The rule of numbers that may be arguments of a compiled program."""

    def names(params: PyTree) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: "matrices" if is_matrix(path, leaf) else "rest", params
        )

    matrices = optax.contrib.muon(
        learning_rate,
        beta=_MOMENTUM,
        weight_decay=weight_decay,
        consistent_rms=_RMS,
        muon_weight_dimension_numbers=lambda params: jax.tree.map(_axes, params),
    )
    return optax.partition({"matrices": _lenient(matrices), "rest": rest}, names)


def _lenient(rule: optax.GradientTransformation) -> optax.GradientTransformation:
    """Lets optax mix dtypes, in sessions where JAX refuses to."""

    def update(
        updates: PyTree, state: PyTree, params: PyTree = None
    ) -> tuple[Any, Any]:
        with jax.numpy_dtype_promotion("standard"):
            return rule.update(updates, state, params)

    return optax.GradientTransformation(rule.init, update)  # pyright: ignore[reportArgumentType]


def is_matrix(path: tuple[Any, ...], leaf: Array) -> bool:
    """Whether a leaf is a kernel, or a stack of kernels, for `muon`.

    Its name must end in `kernel`, and it must have at least two inputs and two outputs.
    Kernels with four or more axes whose last axis has length two are spectral kernels,
    with real and imaginary parts, and are excluded. Biases, scales, temperatures and
    leaves with other names are excluded too.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax.training.matrix_optimizers import is_matrix
      >>> params = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}
      >>> jax.tree_util.tree_map_with_path(is_matrix, params)
      {'bias': False, 'kernel': True}
    """
    return is_kernel(path, leaf) and min(leaf.shape[-2:]) >= 2


def is_kernel(path: tuple[Any, ...], leaf: Array) -> bool:
    """Whether a leaf is a kernel as for `is_matrix`, with any number of channels.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax.training.matrix_optimizers import is_kernel
      >>> params = {"kernel": jnp.ones((8, 1)), "bias": jnp.ones(1)}
      >>> jax.tree_util.tree_map_with_path(is_kernel, params)
      {'bias': False, 'kernel': True}
    """
    keys = [str(getattr(k, "name", getattr(k, "key", ""))) for k in path]
    names = [key for key in keys if key not in ("", "value")]
    spectral = leaf.ndim >= 4 and leaf.shape[-1] == 2
    return (
        bool(names) and names[-1].endswith("kernel") and leaf.ndim >= 2 and not spectral
    )


def _axes(_: Array) -> MuonDimensionNumbers:
    return MuonDimensionNumbers((-2,), (-1,))
