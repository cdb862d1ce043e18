"""Operator transformers in PyTorch, the baselines that opjax is timed against.

Functional attention (one basis for all blocks, as its authors have it) and Transolver
(a basis for every block), on a grid (Darcy: 85 x 85 points) or on scattered points
(elasticity: 972), batch first, with the names of the authors' layers:

    Phi = softmax_k(Linear(heads(P_x(u))) / tau)                basis, (b, h, n, k)
    S   = diag(sum_n Phi + 1e-5)^{-1} Phi^T heads(P_f(u))       tokens, (b, h, k, d)
    Q, K, V = S Wq^T, S Wk^T, S Wv^T
    O   = Q [(1 - a) K^T K + a I]^{-1} K^T V,  a = sigmoid(alpha)      functional
    O   = softmax(Q K^T / sqrt(d)) V                                   Transolver
    u  -> u + Linear(merge(Phi O))

The association of the functional map avoids the k x k map: one d x d solve with d
right-hand sides. Written for speed where that costs no clarity: token-major features
are a channels-last image without a copy, the distances to the reference grid are
computed once.

References:
  Xiao et al., "Functional Attention", ICML 2026 (arXiv:2605.31559).
  Wu et al., "Transolver", ICML 2024 (arXiv:2402.02366).
"""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    """Two Linear layers with an exact GELU in between."""

    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.linear_pre = nn.Sequential(nn.Linear(inputs, hidden), nn.GELU())
        self.linear_post = nn.Linear(hidden, outputs)

    def forward(self, x):
        """Maps the last axis of `x` to the outputs."""
        return self.linear_post(self.linear_pre(x))


class Attention(nn.Module):
    """Attention among the tokens of a given basis, applied to the points."""

    def __init__(self, features, num_heads, functional):
        super().__init__()
        head_dim = features // num_heads
        if functional:
            self.alpha = nn.Parameter(torch.zeros(()))
        self.functional = functional
        self.to_q = nn.Linear(head_dim, head_dim, bias=False)
        self.to_k = nn.Linear(head_dim, head_dim, bias=False)
        self.to_v = nn.Linear(head_dim, head_dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(features, features))

    def forward(self, tokens, basis):
        """Maps tokens (b, h, k, d) and their basis (b, h, n, k) to (b, n, h * d)."""
        q, k, v = self.to_q(tokens), self.to_k(tokens), self.to_v(tokens)
        if self.functional:
            a = torch.sigmoid(self.alpha)
            eye = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
            gram = (1 - a) * (k.mT @ k) + a * eye
            tokens = q @ torch.linalg.solve(gram, k.mT @ v)
        else:
            tokens = F.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1) @ v
        return self.to_out((basis @ tokens).transpose(1, 2).flatten(2))


class Basis(nn.Module):
    """Projections of the features, and softmax basis functions of one of them."""

    def __init__(self, features, num_heads, num_basis, grid_shape):
        super().__init__()
        self.grid_shape, self.num_heads = grid_shape, num_heads
        self.temperature = nn.Parameter(torch.full((1, num_heads, 1, 1), 0.5))
        self.in_project_slice = nn.Linear(features // num_heads, num_basis)
        nn.init.orthogonal_(self.in_project_slice.weight)
        for name in ("in_project_x", "in_project_fx"):
            if grid_shape is None:
                setattr(self, name, nn.Linear(features, features))
            else:
                setattr(self, name, nn.Conv2d(features, features, 3, padding=1))

    def heads(self, project, x):
        """Projects (b, n, c) and splits the channels into heads: (b, h, n, d)."""
        if self.grid_shape is not None:  # both reshapes are views: channels last
            image = x.transpose(1, 2).unflatten(2, self.grid_shape)
            x = project(image).flatten(2).transpose(1, 2)
        else:
            x = project(x)
        return x.unflatten(2, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x):
        """Returns the tokens (b, h, k, d) and the basis (b, h, n, k) of features."""
        temperature = self.temperature
        if self.grid_shape is not None:
            temperature = temperature.clamp(0.1, 5.0)
        logits = self.in_project_slice(self.heads(self.in_project_x, x))
        basis = F.softmax(logits / temperature, dim=-1)
        tokens = basis.mT @ self.heads(self.in_project_fx, x)
        return tokens / (basis.sum(2) + 1e-5).unsqueeze(-1), basis


class Block(nn.Module):
    """Pre-norm attention and MLP; the last block also projects to the outputs."""

    def __init__(self, features, num_heads, mlp_ratio, functional, out_features=None):
        super().__init__()
        self.ln_1 = nn.LayerNorm(features)
        self.Attn = Attention(features, num_heads, functional)
        self.ln_2 = nn.LayerNorm(features)
        self.mlp = MLP(features, mlp_ratio * features, features)
        self.is_last = out_features is not None
        if self.is_last:
            self.ln_3 = nn.LayerNorm(features)
            self.mlp2 = nn.Linear(features, out_features)

    def forward(self, x, basis):
        """Updates features (b, n, c); `basis` maps features to tokens and basis."""
        x = x + self.Attn(*basis(self.ln_1(x)))
        x = x + self.mlp(self.ln_2(x))
        return self.mlp2(self.ln_3(x)) if self.is_last else x


class OperatorTransformer(nn.Module):
    """The operator model; `grid_shape` selects the grid or the irregular variant.

    On a grid the input and basis projections are 3 x 3 convolutions and the temperature
    is clipped to [0.1, 5]; on scattered points they are Linear and it is used raw.
    `reference_points` replaces the coordinates by the distances to a regular grid of
    that many points per axis on the unit square. The model has torch's default dtype at
    construction.
    """

    def __init__(
        self,
        *,
        functional=True,
        grid_shape=None,
        feature_dim=0,
        out_features=1,
        features=128,
        num_layers=8,
        num_heads=8,
        num_basis=64,
        mlp_ratio=1,
        reference_points=None,
    ):
        super().__init__()
        self.use_placeholder = grid_shape is None or feature_dim == 0
        reference = positions = None
        if reference_points is not None:
            reference = unit_grid(reference_points, reference_points)
            if grid_shape is not None:
                positions = distances(unit_grid(*grid_shape), reference)
        self.register_buffer("reference", reference, persistent=False)
        self.register_buffer("positions", positions, persistent=False)

        point_dim = 2 if reference_points is None else reference_points**2
        self.preprocess = MLP(point_dim + feature_dim, 2 * features, features)
        outs = [None] * (num_layers - 1) + [out_features]
        self.blocks = nn.ModuleList(
            Block(features, num_heads, mlp_ratio, functional, out) for out in outs
        )
        self.apply(init_trunk)  # before the bases, which keep their own
        self.placeholder = nn.Parameter(torch.rand(features) / features)
        self.bases = nn.ModuleList(
            Basis(features, num_heads, num_basis, grid_shape)
            for _ in range(1 if functional else num_layers)
        )

    def forward(self, mesh_points, features=None):
        """Maps points (b, n, 2) and features (b, n, c) to outputs (b, n, out)."""
        if self.positions is not None:
            x = self.positions.expand(len(mesh_points), -1, -1)
        elif self.reference is not None:
            x = distances(mesh_points, self.reference)
        else:
            x = mesh_points
        x = self.preprocess(x if features is None else torch.cat([x, features], -1))
        if self.use_placeholder:
            x = x + self.placeholder
        for number, block in enumerate(self.blocks):
            x = block(x, self.bases[min(number, len(self.bases) - 1)])
        return x


def unit_grid(*shape):
    """Returns the nodes of a regular grid on the unit square, row-major, (n, 2)."""
    axes = [torch.linspace(0, 1, size) for size in shape]
    return torch.cartesian_prod(*axes)


def distances(points, reference):
    """Returns the Euclidean distances (..., n, r) between points and references."""
    return torch.linalg.vector_norm(points.unsqueeze(-2) - reference, dim=-1)


def init_trunk(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def relative_l2(prediction, target):
    """Returns the relative L2 errors of a batch, summed over the samples."""
    error = torch.linalg.vector_norm((prediction - target).flatten(1), dim=1)
    return (error / torch.linalg.vector_norm(target.flatten(1), dim=1)).sum()
