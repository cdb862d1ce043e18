"""Fourier neural operator on a grid in PyTorch, as in its authors' Darcy program.

    u -> gelu(F^{-1}(R F(u)) + W u),

four times, the last one without gelu, on values padded by zeros behind the last row and
column, with a linear map in front and a perceptron behind, both for every point.

References:
  Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), Fig. 2, Sec. 5.2.
"""

import torch
import torch.nn.functional as F
from torch import nn

_PADDING = 9


class SpectralConvolution(nn.Module):
    """A complex matrix for each of the lowest wave numbers, `modes` along each axis."""

    def __init__(self, features, modes):
        super().__init__()
        self.modes = modes
        shape = (2, features, features, *modes, 2)  # both signs along the first axis
        self.weight = nn.Parameter(torch.rand(shape) / features**2)

    def forward(self, x):
        """Maps (b, c, rows, columns) to the same shape."""
        rows, columns = self.modes
        spectrum = torch.fft.rfft2(x)
        low, high = torch.view_as_complex(self.weight)
        found = torch.zeros_like(spectrum)
        for weight, part in ((low, slice(rows)), (high, slice(-rows, None))):
            block = spectrum[:, :, part, :columns]
            found[:, :, part, :columns] = torch.einsum("bixy,ioxy->boxy", block, weight)
        return torch.fft.irfft2(found, s=x.shape[-2:])


class FNO(nn.Module):
    """Features at the points of a grid to outputs at the same points.

    Wave numbers that a small grid does not have are left out.
    """

    def __init__(
        self, inputs, outputs, grid_shape, *, features=32, num_layers=4, modes=12
    ):
        super().__init__()
        self.grid_shape = grid_shape
        rows, columns = (size + _PADDING for size in grid_shape)
        kept = min(modes, rows // 2), min(modes, columns // 2 + 1)
        self.lift = nn.Linear(inputs, features)
        self.spectral = nn.ModuleList(
            SpectralConvolution(features, kept) for _ in range(num_layers)
        )
        self.pointwise = nn.ModuleList(
            nn.Conv2d(features, features, 1) for _ in range(num_layers)
        )
        self.head = nn.Sequential(
            nn.Linear(features, 128), nn.GELU(), nn.Linear(128, outputs)
        )

    def forward(self, mesh_points, features=None):
        """Maps points (b, n, 2) and features (b, n, c) to outputs (b, n, out)."""
        x = mesh_points if features is None else torch.cat([features, mesh_points], -1)
        x = self.lift(x).transpose(1, 2).unflatten(2, self.grid_shape)
        x = F.pad(x, (0, _PADDING, 0, _PADDING))
        for number, (spectral, pointwise) in enumerate(
            zip(self.spectral, self.pointwise, strict=True)
        ):
            x = spectral(x) + pointwise(x)
            x = F.gelu(x) if number + 1 < len(self.spectral) else x
        rows, columns = self.grid_shape
        return self.head(x[..., :rows, :columns].flatten(2).transpose(1, 2))
