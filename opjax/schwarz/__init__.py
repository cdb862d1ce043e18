r"""Overlapping Schwarz decompositions: covers, coarse spaces, two-level attention.

A `Cover` contains subdomains with a partition of unity. A coarse space is a `Cover`
too: its weights are the values of its functions. Operators take local and coarse
solvers as callables; the only built-in one is low-rank attention, `Q (K^T f)`.

`split_cover` splits subdomains over the devices of an axis of `jax.shard_map`.
Operators are then called in the same way; they exchange overlaps and add up coarse
values.

Scope. Mathematical: subdomains and coarse functions are fixed sets of points, so they
do not change if a mesh point moves. Convenience: covers are built with NumPy on the
host.
"""

from opjax.schwarz.boxes import (
    box_cover,
    interface_hats,
    partition_hats,
    uniform_hats,
)
from opjax.schwarz.coarse_spaces import (
    coarse_space_of,
    harmonic_hats,
    smoothed_aggregates,
)
from opjax.schwarz.covers import Cover, Exchange, cover, prolong, restrict
from opjax.schwarz.meshes import partition_cover
from opjax.schwarz.operators import (
    additive,
    coarse_prolong,
    coarse_restrict,
    low_rank_attention,
    matrix_of,
    two_level_attention,
)
from opjax.schwarz.partitions import partition_graph, partition_points
from opjax.schwarz.splitting import (
    SplitCover,
    order_by_subdomain,
    split_coarse_space,
    split_cover,
)

__all__ = [
    "Cover",
    "Exchange",
    "SplitCover",
    "additive",
    "box_cover",
    "coarse_prolong",
    "coarse_restrict",
    "coarse_space_of",
    "cover",
    "harmonic_hats",
    "interface_hats",
    "low_rank_attention",
    "matrix_of",
    "order_by_subdomain",
    "partition_cover",
    "partition_graph",
    "partition_hats",
    "partition_points",
    "prolong",
    "restrict",
    "smoothed_aggregates",
    "split_coarse_space",
    "split_cover",
    "two_level_attention",
    "uniform_hats",
]
