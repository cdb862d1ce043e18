"""Models of the inverse Laplacian and how their training starts."""

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx

from opjax import nn, schwarz


@dataclasses.dataclass(frozen=True)
class Start:
    """Starting factors and optimizer.

    Attributes:
      scale: standard deviation of the factors.
      learning_rate: rate, the largest one with a cosine.
      cosine: 5 % warm-up and cosine decay to zero rather than a constant rate.
      beta1: decay of the optimizer's mean.
      beta2: decay of its mean square.
      principal: keys from principal components, see `nn.principal_keys`.
      whitening: of the coarse keys, see `nn.principal_keys`.
      calibrated: scale and rate of every level from a batch, see `nn.calibrate`; the
        learning rate is relative to them.
    """

    scale: float = 0.02
    learning_rate: float = 1e-2
    cosine: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    principal: bool = False
    whitening: float | None = 1e-2
    calibrated: bool = False


STARTS = {
    "paper": Start(),
    "small": Start(scale=2e-3, learning_rate=2e-3, cosine=True),
    # Our default, whatever the problem and its size.
    "whitened": Start(
        learning_rate=0.1,
        cosine=True,
        beta1=0.95,
        beta2=0.98,
        principal=True,
        calibrated=True,
    ),
}


COARSE_SPACES = ("interface", "uniform", "partition", "none")


@dataclasses.dataclass(frozen=True)
class Setup:
    """A domain and the structure of a model on it.

    Attributes:
      grid_shape: interior points per axis.
      num_boxes: subdomains per axis.
      overlap: points by which they grow.
      local_rank: columns of local factors.
      coarse_rank: columns of the coarsest factors, cut to the coarse dimension.
      coarse_space: one of `COARSE_SPACES`.
      coarse_hats: uniform hats per axis.
      levels: two, or more with a hierarchy of subdomains in the coarse block.
      coarse_boxes: subdomains per axis of coarse blocks with levels of their own.
      global_rank: columns of a global model in place of the Schwarz model, if positive.
    """

    grid_shape: tuple[int, ...] = (256,)
    num_boxes: int = 8
    overlap: int = 2
    local_rank: int = 4
    coarse_rank: int = 8
    coarse_space: str = "interface"
    coarse_hats: int = 7
    levels: int = 2
    coarse_boxes: int = 4
    global_rank: int = 0

    @property
    def num_points(self) -> int:
        """Interior points of the domain."""
        return math.prod(self.grid_shape)


@dataclasses.dataclass(frozen=True)
class Study:
    """One model trained for all rates and seeds.

    Attributes:
      name: of the study, and of its folder.
      setup: domain and model.
      start: starting factors and optimizer.
      rates: learning rates.
      seeds: seeds of factors and right-hand sides.
      rate: the one of them that is shown.
      num_modes: sine and cosine modes per axis.
      decay: damping exponent of random combinations.
      num_steps: optimizer steps.
      batch_size: right-hand sides of a step.
    """

    name: str
    setup: Setup
    start: Start
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    rate: float
    num_modes: int = 16
    decay: float = 1.5
    num_steps: int = 2000
    batch_size: int = 256

    @property
    def seed(self) -> int:
        """The first seed."""
        return self.seeds[0]

    def num_parameters(self) -> int:
        """Trainable numbers of one model, without padding."""
        model: Any = jax.eval_shape(
            lambda key: build(self.setup, self.start, key), jax.random.key(0)
        )
        return model.num_parameters


def domain(setup: Setup) -> tuple[schwarz.Cover, schwarz.Cover | None]:
    """Returns the subdomains and the coarse space of a setup."""
    axes = len(setup.grid_shape)
    boxes, hats = (setup.num_boxes,) * axes, (setup.coarse_hats,) * axes
    cover = schwarz.box_cover(setup.grid_shape, boxes, overlap=setup.overlap)
    if setup.coarse_space == "interface":
        return cover, schwarz.interface_hats(setup.grid_shape, boxes)
    if setup.coarse_space == "uniform":
        return cover, schwarz.uniform_hats(setup.grid_shape, hats)
    return cover, cover if setup.coarse_space == "partition" else None


def build(setup: Setup, start: Start, key: jax.Array) -> Any:
    """Builds a model with random factors."""
    options: dict[str, Any] = {
        "factor_init": jax.nn.initializers.normal(start.scale),
        "rngs": nnx.Rngs(key),
    }
    if setup.global_rank:
        return nn.LowRankAttention(setup.num_points, rank=setup.global_rank, **options)
    cover, space = domain(setup)
    coarse = None
    if space is not None and setup.levels > 2:
        coarse = build(_coarse_setup(setup), start, jax.random.fold_in(key, 1))
    elif space is not None:
        coarse = nn.LowRankAttention(
            space.num_subdomains, rank=setup.coarse_rank, **options
        )
    return nn.SchwarzAttention(
        cover, rank=setup.local_rank, coarse_space=space, coarse=coarse, **options
    )


def _coarse_setup(setup: Setup) -> Setup:
    """The same structure on the grid of coarse functions, one level less."""
    lengths = {
        "interface": setup.num_boxes - 1,
        "uniform": setup.coarse_hats,
        "partition": setup.num_boxes,
    }
    return dataclasses.replace(
        setup,
        grid_shape=(lengths[setup.coarse_space],) * len(setup.grid_shape),
        num_boxes=setup.coarse_boxes,
        levels=setup.levels - 1,
        coarse_space="interface",
    )


def closed_form(setup: Setup, inputs: np.ndarray) -> Any:
    r"""Returns a model whose factors are computed instead of learned, in 1-D.

    Between the maxima of interface hats the exact inverse splits: the Galerkin solution
    in the coarse space is exact at the maxima, and what remains are Dirichlet problems
    between them,

        A^{-1} = Phi (Phi^T A Phi)^{-1} Phi^T + sum_i S_i^T B_i S_i,
        B_i = (S_i A S_i^T)^{-1}.

    The images of the inputs under `B_i` are truncated to the local rank: with left
    singular vectors `U` of `B_i S_i inputs`, `B_i` becomes `U U^T B_i`.

    Args:
      setup: one axis, interface hats, two levels, coarse rank at least that dimension.
      inputs: columns whose mean square error counts, shape `(n, k)`.

    Returns:
      The model, in float64.
    """
    model = build(setup, Start(), jax.random.key(0))
    (size,), cover = setup.grid_shape, model.cover
    scale = float(size + 1) ** 2
    hats = schwarz.assemble(
        partial(schwarz.coarse_prolong, model.coarse_space), setup.num_boxes - 1
    )
    hats = np.asarray(hats, np.float64)
    peaks = [-1, *np.argmax(hats, axis=0), size]
    shape: Any = np.shape(model.query[...])
    query, key = np.zeros(shape), np.zeros(shape)
    rank = shape[-1]
    for i, (left, right) in enumerate(zip(peaks, peaks[1:], strict=False)):
        inside = np.arange(left + 1, right)
        if not inside.size:
            continue
        inverse = np.linalg.inv(_second_difference(len(inside)) * scale)
        vectors, _, _ = np.linalg.svd(inverse @ inputs[inside], full_matrices=False)
        vectors = vectors[:, :rank]
        rows = np.searchsorted(np.asarray(cover.indices)[i, : cover.sizes[i]], inside)
        roots = np.sqrt(np.asarray(cover.weights)[i, rows])[:, None]
        query[i, rows, : vectors.shape[1]] = vectors / roots
        key[i, rows, : vectors.shape[1]] = inverse @ vectors / roots
    galerkin = hats.T @ (_second_difference(size) * scale) @ hats
    vectors, values, _ = np.linalg.svd(np.linalg.inv(galerkin))
    rank = model.coarse.query.shape[1]
    model.query, model.key = nnx.Param(query), nnx.Param(key)
    model.coarse.query = nnx.Param(vectors[:, :rank] * values[:rank])
    model.coarse.key = nnx.Param(vectors[:, :rank])
    return model


def _second_difference(size: int) -> np.ndarray:
    return 2 * np.eye(size) - np.eye(size, k=1) - np.eye(size, k=-1)
