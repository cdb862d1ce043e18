"""Softmax attention of PyTorch, which `scaling` measures beside ours as torch:softmax.

    Y = concat_h(softmax(Q_h K_h^T / sqrt(d)) V_h) W

with Q, K and V linear in the features, the softmax and its gradient in PyTorch's fused
kernel (`scaled_dot_product_attention`). Needs the extra `benchmark`.
"""

import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

NAME = "torch:softmax"


def check() -> None:
    """Raises ImportError without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        raise ImportError(
            f"models={NAME!r} needs PyTorch: pip install 'opjax[benchmark]', or leave "
            f"{NAME} out."
        )


def passes(
    batch_size: int, num_points: int, width: int, num_heads: int, seed: int
) -> dict[str, Callable[[], Any]]:
    """Returns the forward pass and the gradient in parameters and input, ready to call.

    Args:
      batch_size: samples.
      num_points: points n of a sample.
      width: channels c.
      num_heads: heads, which divide the channels.
      seed: of parameters and features.
    """
    torch = importlib.import_module("torch")  # an extra, which type checkers may lack
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(seed)
    maps = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
    x = torch.randn(batch_size, num_points, width, requires_grad=True)
    parameters = [p for layer in maps for p in layer.parameters()]

    def attend() -> Any:
        heads = maps[0](x).unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(*heads)
        return maps[1](y.transpose(1, 2).flatten(2))

    def forward() -> Any:
        with torch.inference_mode():
            return attend()

    def gradient() -> Any:
        return torch.autograd.grad(attend().square().mean(), [*parameters, x])

    return {"forward": forward, "gradient": gradient}


def flops(batch_size: int, num_points: int, width: int) -> dict[str, float]:
    """Returns operations of matrix products: two of n x n x c, and four of n x c x c.

    The gradient computes the scores again (five products of n x n x c in the backward
    pass) and takes two products for each linear map.
    """
    pairs = 2 * batch_size * num_points**2 * width
    linear = 2 * batch_size * num_points * 4 * width**2
    return {"forward": 2 * pairs + linear, "gradient": 7 * pairs + 3 * linear}
