"""The Galerkin transformer on a grid in PyTorch, as in its author's program for Darcy.

Attention on the grid of the data, which ours are coarse enough for, without the
convolutions that bring finer ones down and up: a linear map of values and coordinates,

    x <- x + W [q (k^T v) / n],    x <- x + MLP(x),

with layer normalisation of keys and values in every head, to which the coordinates are
prepended, then two spectral layers and a perceptron. Names are the author's.

References:
  Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Sec. 4, App. B and C.
"""

import torch
import torch.nn.functional as F
from torch import nn

_EPSILON = 1e-7
_POINT_DIM = 2


class Attention(nn.Module):
    """Attention without a softmax, linear in the number of points."""

    def __init__(self, features, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.linears = nn.ModuleList(nn.Linear(features, features) for _ in range(3))
        for linear in self.linears:  # nearly zero, and keys are their inputs
            nn.init.xavier_uniform_(linear.weight, gain=1e-2)
            linear.weight.data += 1e-2 * torch.eye(features)
            nn.init.zeros_(linear.bias)
        norms = [
            nn.ModuleList(
                nn.LayerNorm(features // num_heads, eps=_EPSILON)
                for _ in range(num_heads)
            )
            for _ in range(2)
        ]
        self.norm_K, self.norm_V = norms
        self.fc = nn.Linear(features + num_heads * _POINT_DIM, features)

    def forward(self, x, points):
        """Maps features (b, n, c) at points (b, n, 2) to the same shape."""
        q, k, v = (
            linear(x).unflatten(2, (self.num_heads, -1)) for linear in self.linears
        )
        k = torch.stack([f(k[:, :, h]) for h, f in enumerate(self.norm_K)], 1)
        v = torch.stack([f(v[:, :, h]) for h, f in enumerate(self.norm_V)], 1)
        where = points.unsqueeze(1).expand(-1, self.num_heads, -1, -1)
        q, k, v = (torch.cat([where, a], -1) for a in (q.transpose(1, 2), k, v))
        found = q @ (k.mT @ v / x.shape[1])
        return self.fc(found.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two Linear layers with a ReLU in between."""

    def __init__(self, features, hidden):
        super().__init__()
        self.lr1, self.lr2 = (
            nn.Linear(features, hidden),
            nn.Linear(hidden, features),
        )

    def forward(self, x):
        """Maps the last axis of `x` to the same size."""
        return self.lr2(F.relu(self.lr1(x)))


class Layer(nn.Module):
    """Attention and perceptron, each added to what it is given."""

    def __init__(self, features, num_heads, hidden):
        super().__init__()
        self.attn = Attention(features, num_heads)
        self.ff = FeedForward(features, hidden)

    def forward(self, x, points):
        """Maps features (b, n, c) at points (b, n, 2) to the same shape."""
        x = x + self.attn(x, points)
        return x + self.ff(x)


class SpectralConvolution(nn.Module):
    """A complex matrix for each low wave number, and a linear map of every point."""

    def __init__(self, features, modes):
        super().__init__()
        self.modes = modes
        self.linear = nn.Linear(features, features)
        shape = (features, features, modes, modes, 2)  # for both signs of the rows'
        scale = 1.0 / features**2
        self.fourier_weight = nn.ParameterList(torch.empty(shape) for _ in range(2))
        for weight in self.fourier_weight:
            nn.init.xavier_normal_(weight, gain=scale)

    def forward(self, x):
        """Maps (b, rows, columns, c) to the same shape."""
        m = self.modes
        spectrum = torch.fft.rfft2(x, dim=(1, 2))
        found = torch.zeros_like(spectrum)
        rows = slice(m), slice(-m, None)
        for weight, part in zip(self.fourier_weight, rows, strict=True):
            matrix = torch.view_as_complex(weight)
            block = spectrum[:, part, :m]
            found[:, part, :m] = torch.einsum("bxyi,ioxy->bxyo", block, matrix)
        found = torch.fft.irfft2(found, s=x.shape[1:3], dim=(1, 2))
        return F.silu(found + self.linear(x))


class SpectralRegressor(nn.Module):
    """Reads the output function off the features."""

    def __init__(self, features, channels, modes, outputs):
        super().__init__()
        self.fc = nn.Linear(features + _POINT_DIM, channels)
        self.spectral_conv = nn.ModuleList(
            SpectralConvolution(channels, modes) for _ in range(2)
        )
        self.regressor = nn.Sequential(
            nn.Linear(channels, 4 * channels),
            nn.SiLU(),
            nn.Linear(4 * channels, outputs),
        )

    def forward(self, x, points):
        """Maps features and points (b, rows, columns, .) to outputs there."""
        x = self.fc(torch.cat([x, points], -1))
        for layer in self.spectral_conv:
            x = layer(x)
        return self.regressor(x)


class GalerkinTransformer(nn.Module):
    """Features at the points of a grid to outputs at the same points.

    The sizes are the author's for Darcy flow; wave numbers that a small grid does not
    have are left out. With `boundary` the outputs on the boundary are that number.
    """

    def __init__(
        self,
        inputs,
        outputs,
        grid_shape,
        *,
        features=128,
        num_layers=6,
        num_heads=4,
        hidden=256,
        channels=32,
        modes=12,
        boundary=None,
    ):
        super().__init__()
        self.grid_shape, self.boundary = grid_shape, boundary
        kept = min(modes, grid_shape[0] // 2, grid_shape[1] // 2 + 1)
        self.downscaler = nn.ModuleDict({"id": nn.Linear(inputs, features)})
        self.encoder_layers = nn.ModuleList(
            Layer(features, num_heads, hidden) for _ in range(num_layers)
        )
        self.regressor = SpectralRegressor(features, channels, kept, outputs)

    def forward(self, mesh_points, features=None):
        """Maps points (b, n, 2) and features (b, n, c) to outputs (b, n, out)."""
        x = mesh_points if features is None else torch.cat([features, mesh_points], -1)
        x = self.downscaler["id"](x)
        for layer in self.encoder_layers:
            x = layer(x, mesh_points)
        image, points = (a.unflatten(1, self.grid_shape) for a in (x, mesh_points))
        x = self.regressor(image, points)
        if self.boundary is not None:
            x = F.pad(x[:, 1:-1, 1:-1], (0, 0, 1, 1, 1, 1), value=self.boundary)
        return x.flatten(1, 2)
