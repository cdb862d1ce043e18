"""Attentions, each on one head of one sample.

Queries are features at `m` points, keys and values at `n` points; heads and batches are
`jax.vmap`.
"""

from opjax.attention.functional import (
    Transport,
    functional_attention,
    functional_map,
    intention,
    transport,
)
from opjax.attention.pairwise import softmax_attention

__all__ = [
    "Transport",
    "functional_attention",
    "functional_map",
    "intention",
    "softmax_attention",
    "transport",
]
