"""Operator transformers on meshes that do not fit into memory.

The mesh is read from a source in chunks, in several passes. Only sums are stored, and
the features before some layers, in memory, on disk or not at all:

    mesh = {"mesh_points": np.load("points.npy", mmap_mode="r"), "target": ...}
    chunks = streaming.Chunks(2048)
    loss, gradients = streaming.value_and_grad(model, mesh, chunks)

`loss` and `gradients` are those of the whole mesh. It supports the models that support
chunks, see `nn.OperatorTransformer`.
"""

from opjax.streaming.evaluation import coefficients, evaluate, predict
from opjax.streaming.gradients import (
    InputCotangents,
    input_cotangents,
    value_and_grad,
    value_and_grads,
)
from opjax.streaming.losses import MEAN_SQUARED_ERROR, RELATIVE_L2, SumLoss
from opjax.streaming.plan import Chunks, advice, needed_bytes
from opjax.streaming.step import make_step, make_update

__all__ = [
    "Chunks",
    "InputCotangents",
    "MEAN_SQUARED_ERROR",
    "RELATIVE_L2",
    "SumLoss",
    "advice",
    "coefficients",
    "evaluate",
    "input_cotangents",
    "make_step",
    "make_update",
    "needed_bytes",
    "predict",
    "value_and_grad",
    "value_and_grads",
]
