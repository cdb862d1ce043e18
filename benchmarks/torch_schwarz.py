"""Two-level Schwarz attention in PyTorch, the baselines opjax is timed against.

Two versions of the same training run, from the same starting factors:

- `PlainSchwarz` with `plain_batch`: a loop over subdomains with one parameter for each
  factor, as one would write it after reading the paper. Samples are rows, as in the
  paper's listing, whose sines and cosines are tabulated once; solutions are a product
  with the dense inverse.
- `BatchedSchwarz` with `batched_batch`: padded factors in batched products and samples
  as columns, with the partition of unity folded into the factors; right-hand sides and
  solutions are one product of the tabulated modes and their solutions with random
  coefficients. Trained by the fused AdamW.

References:
  Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026
  (arXiv:2606.18525), sections 4 and 5.
"""

import torch
from torch import nn


class PlainSchwarz(nn.Module):
    """A loop over subdomains `[start, end)`; functions are rows `(b, n)`."""

    def __init__(
        self, subdomains, weights, hats, queries, keys, coarse_query, coarse_key
    ):
        super().__init__()
        self.subdomains = subdomains
        self.roots = [weight.sqrt() for weight in weights]
        self.hats = hats  # (n, n0)
        self.queries = nn.ParameterList(queries)
        self.keys = nn.ParameterList(keys)
        self.coarse_query = nn.Parameter(coarse_query)
        self.coarse_key = nn.Parameter(coarse_key)

    def forward(self, f):
        """Maps `(b, n)` to `(b, n)`."""
        coarse = ((f @ self.hats) @ self.coarse_key) @ self.coarse_query.T
        out = coarse @ self.hats.T
        for i, (start, end) in enumerate(self.subdomains):
            local = self.roots[i] * f[:, start:end]
            local = (local @ self.keys[i]) @ self.queries[i].T
            out[:, start:end] += self.roots[i] * local
        return out


class BatchedSchwarz(nn.Module):
    """All subdomains in batched products; functions are columns `(n, b)`."""

    def __init__(self, indices, weights, hats, query, key, coarse_query, coarse_key):
        super().__init__()
        self.indices = indices.reshape(-1)
        self.roots = weights.sqrt().unsqueeze(-1)  # zero on padding
        self.hats = hats
        self.query, self.key = nn.Parameter(query), nn.Parameter(key)
        self.coarse_query = nn.Parameter(coarse_query)
        self.coarse_key = nn.Parameter(coarse_key)

    def forward(self, f):
        """Maps `(n, b)` to `(n, b)`."""
        coarse = self.coarse_query @ (self.coarse_key.T @ (self.hats.T @ f))
        local = f.index_select(0, self.indices).view(*self.roots.shape[:2], -1)
        scores = torch.bmm((self.roots * self.key).mT, local)
        local = torch.bmm(self.roots * self.query, scores)
        return (self.hats @ coarse).index_add(0, self.indices, local.flatten(0, 1))


def plain_batch(batch, modes, damping, inverse):
    """Returns right-hand sides and solutions, one a row: the paper's generator.

    Args:
      batch: number of samples.
      modes: normalised sines and cosines, one a row, shape `(k, n)`.
      damping: amplitudes of the modes in random combinations, shape `(k,)`.
      inverse: dense inverse of the operator, shape `(n, n)`.
    """
    num_pure = batch // 2
    chosen = torch.randint(0, len(modes), (num_pure,))
    signs = 2.0 * torch.randint(0, 2, (num_pure, 1)) - 1.0
    coefficients = torch.randn(batch - num_pure, len(modes)) * damping
    f = torch.cat([signs * modes[chosen], coefficients @ modes])
    f = f[torch.randperm(batch)]
    f = f / (f.norm(dim=-1, keepdim=True) + 1e-12)
    return f, f @ inverse.T


def batched_batch(batch, pairs, damping):
    """Returns right-hand sides and solutions, one a column, from one product.

    Args:
      batch: number of samples.
      pairs: modes on top of their solutions, shape `(2 n, k)`.
      damping: amplitudes of the modes in random combinations, shape `(k, 1)`.
    """
    num_modes, num_pure = pairs.shape[1], batch // 2
    coefficients = torch.zeros(num_modes, batch)
    coefficients[:, num_pure:] = torch.randn(num_modes, batch - num_pure) * damping
    # A number below 2 k chooses mode and sign; the order in a batch does not matter.
    chosen = torch.randint(0, 2 * num_modes, (1, num_pure))
    coefficients.scatter_(0, chosen // 2, 1.0 - 2.0 * (chosen % 2))
    both = pairs @ coefficients
    f, u = both.chunk(2)
    scale = 1 / torch.linalg.vector_norm(f, dim=0)
    return f * scale, u * scale


def weighted_mse(prediction, solution, dim):
    """Mean over samples of the squared relative error; `dim` counts points."""
    error = (prediction - solution).square().sum(dim)
    return (error / solution.square().sum(dim).clamp_min(1e-30)).mean()


def train(model, sample, *, dim, steps, rate, fused):
    """Trains in place; `sample` draws a batch. Returns the last loss."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rate, weight_decay=0.0, fused=fused
    )
    loss = torch.zeros(())
    for _ in range(steps):
        with torch.no_grad():
            f, u = sample()
        optimizer.zero_grad(set_to_none=True)
        loss = weighted_mse(model(f), u, dim)
        loss.backward()
        optimizer.step()
    return loss.item()
