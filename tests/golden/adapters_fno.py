"""Adapters of spectral convolutions and Fourier neural operators.

The authors' arrays are channels first, `(B, c, n_1, ..., n_p)`, ours are `(n, c)`.
"""

import functools
import itertools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import opjax
from opjax import nn
from tests.golden.adapters import TIME, Adapter, _nodes, assign, evaluated, stacked
from tests.golden.recorded import UnsupportedError

# Kernels: `(in, out, ..., 2)` there, `(..., in, out, 2)` here.


def signed_kernel(blocks, grid_shape):
    """Returns our kernel of the original code's blocks, for one grid.

    Blocks `(in, out, m_1, ..., m_p, 2)` are written over the spectrum of the grid one
    after the other, at the start or the end of every leading axis; the first axis
    varies fastest. Where `2 m > n` later blocks overwrite earlier ones.
    """
    sizes = blocks[0].shape[2:-1]
    leading = range(len(sizes) - 1)
    # Rows of the spectrum in signed order, and the index in each block.
    rows = []
    for axis in leading:
        n, m = grid_shape[axis], sizes[axis]
        count = min(2 * m, n)
        rows.append((np.arange(count) - count // 2) % n)
    shape = (*blocks[0].shape[:2], *(len(r) for r in rows), sizes[-1], 2)
    kernel = jnp.zeros(shape, blocks[0].dtype)
    corners = [c[::-1] for c in itertools.product((False, True), repeat=len(rows))]
    for block, corner in zip(blocks, corners, strict=True):
        places, sources = [], []
        for axis, at_end in zip(leading, corner, strict=True):
            n, m = grid_shape[axis], sizes[axis]
            source = rows[axis] - (n - m if at_end else 0)
            inside = (source >= 0) & (source < m)
            places.append(np.flatnonzero(inside))
            sources.append(source[inside])
        written = block[(..., *np.ix_(*sources), slice(None), slice(None))]
        place = (..., *np.ix_(*places), slice(None), slice(None))
        kernel = kernel.at[place].set(written) if rows else block
    return channels_last(kernel)


def channels_last(kernel):
    """Maps kernels `(in, out, ..., 2)` to `(..., in, out, 2)`."""
    return jnp.moveaxis(kernel, (0, 1), (-3, -2))


def _tokens(field):
    """Maps `(c, n_1, ...)` to `(n, c)`."""
    return field.reshape(field.shape[0], -1).T


def _field(tokens, grid_shape):
    """Maps `(n, c)` to `(c, n_1, ...)`."""
    return tokens.T.reshape(-1, *grid_shape)


def package_kernel(kernel, grid_shape):
    """Returns our kernel of the package's, for one grid.

    Where the package clips an even number of frequencies to an odd number of points, it
    keeps the middle of the array, in which frequency zero is not in the middle: all
    weights move by one frequency.
    """
    kernel = channels_last(kernel)
    for axis, n in enumerate(grid_shape[:-1]):
        m = kernel.shape[axis]
        if n < m and n % 2 == 1 and m % 2 == 0:
            kernel = jnp.roll(kernel, 1, axis)
    return kernel


# The convolutions alone.


def _nsl_blocks(params, prefix=""):
    numbers = range(1, 5)
    names = [f"{prefix}weights{i}" for i in numbers if f"{prefix}weights{i}" in params]
    return [params[name] for name in names]


def _convolve_fields(x, kernel, grid_shape):
    def sample(field):
        y = opjax.spectral_convolution(_tokens(field), kernel, grid_shape=grid_shape)
        return _field(y, grid_shape)

    return jax.vmap(sample)(x)


def _nsl_convolution(params, inputs, config):
    grid_shape = tuple(config["n"])
    kernel = signed_kernel(_nsl_blocks(params), grid_shape)
    return _convolve_fields(inputs["x"], kernel, grid_shape)


def _neuralop_convolution(params, inputs, config):
    kernel = package_kernel(params["weight.tensor"], tuple(config["n"]))
    y = _convolve_fields(inputs["x"], kernel, tuple(config["n"]))
    return y + params["bias"][None] if "bias" in params else y


def _neuralop_release_convolution(params, inputs, config):
    """The 2.0.0 release, which shifts back the wrong way; fixed in its repository.

    On leading axes of odd length the filtered spectrum lands one frequency too low.
    That is no convolution, so nothing of opjax computes it: the file is reproduced here
    with transforms of its own, to show that this is all that differs.
    """
    grid_shape = tuple(config["n"])
    kernel = params["weight.tensor"]
    matrices = jax.lax.complex(kernel[..., 0], kernel[..., 1])
    *leading, last = grid_shape
    modes = matrices.shape[2:]
    if any(m > n for m, n in zip(modes, (*leading, last // 2 + 1), strict=True)):
        raise UnsupportedError(f"more modes than frequencies of n={config['n']}")
    axes = tuple(range(2, 2 + len(grid_shape)))
    spectrum = jnp.fft.rfftn(inputs["x"], axes=axes)
    signed = [np.arange(m) - m // 2 for m in modes[:-1]] + [np.arange(modes[-1])]
    place = np.ix_(*signed)
    kept = spectrum[(..., *place)]
    filtered = jnp.einsum("bi...,io...->bo...", kept, matrices)
    shape = (*filtered.shape[:2], *spectrum.shape[2:])
    out = jnp.zeros(shape, filtered.dtype).at[(..., *place)].set(filtered)
    for axis, n in enumerate(leading, start=2):
        if n % 2:
            out = jnp.roll(out, -1, axis)
    out = jnp.fft.ifftn(out, axes=axes[:-1])
    return jnp.fft.irfft(out, n=last) + params["bias"][None]


def _pointwise(x, params, name):
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"][None, :]


def _burgers_convolution(params, inputs, config):
    grid_shape = (config["N"],)
    kernel = channels_last(params["fourier_weight"])

    def sample(x):
        y = opjax.spectral_convolution(x, kernel, grid_shape=grid_shape)
        return jax.nn.silu(y + _pointwise(x, params, "linear"))

    return jax.vmap(sample)(inputs["x"])


def _galerkin_convolution(params, inputs, config):
    grid_shape = (config["n"], config["n"])
    blocks = [params["fourier_weight.0"], params["fourier_weight.1"]]
    kernel = signed_kernel(blocks, grid_shape)
    activation = {"silu": jax.nn.silu, "relu": jax.nn.relu}[config["act"]]

    def sample(x):
        tokens = x.reshape(-1, x.shape[-1])
        y = opjax.spectral_convolution(tokens, kernel, grid_shape=grid_shape)
        y = activation(y + _pointwise(tokens, params, "linear"))
        return y.reshape(*x.shape[:-1], -1)

    return jax.vmap(sample)(inputs["x"])


# The models.


def _nsl_model(params, inputs, config):
    grid_shape = tuple(config["sl"])
    p, modes = len(grid_shape), config["modes"]
    multiple = 1 if p == 1 else 16
    padded = tuple(n + -n % multiple for n in grid_shape)
    if padded != grid_shape and any(map(operator.eq, padded, grid_shape)):
        raise UnsupportedError(f"sl={config['sl']}: the reference crops everything")
    model = nn.FourierNeuralOperator(
        grid_shape=grid_shape,
        feature_dim=config["fx"],
        out_features=config["out"],
        modes=modes,
        features=config["hid"],
        block=functools.partial(
            nn.models.FourierBlock,
            channel_mlp_ratio=None,
            kernel_init=nn.layers.initializers.spectral_uniform,
        ),
        projection_ratio=1,
        position=functools.partial(nn.ReferenceDistances, num_reference=config["ref"])
        if config["uni"]
        else nn.Coordinates,
        pad_multiple=multiple,
        time_embedding=config["T"],
        rngs=nnx.Rngs(0),
    )
    names = {"lifting": "preprocess"} | (TIME if config["T"] else {})
    names |= {"projection.hidden.0": "fc1", "projection.out": "fc2"}
    assign(model, params, names)

    def assign_block(block, i):
        kernel = signed_kernel(_nsl_blocks(params, f"conv{i}."), padded)
        block.convolution.kernel = nnx.Param(kernel)
        weight = params[f"w{i}.weight"]
        block.skip.kernel = nnx.Param(weight.reshape(weight.shape[:2]).T)
        block.skip.bias = nnx.Param(params[f"w{i}.bias"])

    model.blocks = stacked(model.blocks, 4, assign_block)
    mesh_points = inputs["x"]
    if config["uni"]:
        nodes = _nodes(grid_shape)
        mesh_points = jnp.broadcast_to(nodes[None], (len(mesh_points), *nodes.shape))
    return evaluated(model, mesh_points, inputs, config)


def _neuralop_model(params, inputs, config):
    """The repository's model; without a channel MLP it still activates twice."""
    given = inputs["x"].shape[2:]
    use_mlp = config.get("use_channel_mlp", True)
    positions = config.get("positional_embedding", "grid") is not None
    *leading, last = config["n_modes"]
    model = nn.FourierNeuralOperator(
        # Frequencies that the sample's grid does not resolve are left out.
        grid_shape=tuple(map(max, config["n"], config["n_modes"])),
        feature_dim=config["cin"],
        out_features=config["cout"],
        modes=(*leading, last // 2 + 1),
        features=config["hid"],
        num_layers=config["layers"],
        block=functools.partial(
            nn.models.FourierBlock,
            channel_mlp_ratio=0.5 if use_mlp else None,
            instance_norm=config.get("norm") == "instance_norm",
        ),
        position=nn.Coordinates if positions else None,
        padding=config.get("domain_padding") or 0.0,
        rngs=nnx.Rngs(0),
    )
    _assign_pointwise_mlp(model.lifting, params, "lifting")
    # Positions come first here, after the data there.
    kernel = model.lifting.hidden[0].kernel[...]
    model.lifting.hidden[0].kernel = nnx.Param(jnp.roll(kernel, -config["cin"], axis=0))
    _assign_pointwise_mlp(model.projection, params, "projection")
    blocks = []

    def assign_block(block, i):
        _neuralop_block(block, params, i, model.padded_shape(given), use_mlp)
        blocks.append(block)

    model.blocks = stacked(model.blocks, config["layers"], assign_block)
    nodes = [[i / n for i in range(n)] for n in given]
    mesh_points = jnp.asarray(list(itertools.product(*nodes))) if positions else None

    def sample(field):
        x = _tokens(field)
        if use_mlp:
            return _field(model(mesh_points, x, grid_shape=given), given)
        z = model.lift(mesh_points, x, time=None, grid_shape=given)
        for block in blocks[:-1]:
            z = jax.nn.gelu(block(z, grid_shape=given), approximate=False)
        z = blocks[-1](z, activate=False, grid_shape=given)
        return _field(model.projection(z), given)

    return jax.vmap(sample)(inputs["x"])


def _neuralop_block(block, params, i, padded_shape, use_mlp):
    prefix = "fno_blocks."
    weight = params[f"{prefix}convs.{i}.weight.tensor"]
    kernel = package_kernel(weight, padded_shape)
    block.convolution.kernel = nnx.Param(kernel)
    block.skip.kernel = nnx.Param(
        params[f"{prefix}fno_skips.{i}.conv.weight"][..., 0].T
    )
    # Their bias belongs to the convolution; a norm after it cancels it.
    bias = params[f"{prefix}convs.{i}.bias"].reshape(-1)
    block.skip.bias = nnx.Param(0 * bias if block.instance_norm else bias)
    if use_mlp:
        _assign_pointwise_mlp(block.channel_mlp, params, f"{prefix}channel_mlp.{i}")
        gate = params[f"{prefix}channel_mlp_skips.{i}.weight"]
        block.gate = nnx.Param(gate.reshape(-1))


def _assign_pointwise_mlp(mlp, params, name):
    for layer, key in ((mlp.hidden[0], "fcs.0"), (mlp.out, "fcs.1")):
        weight = params[f"{name}.{key}.weight"]
        layer.kernel = nnx.Param(weight.reshape(weight.shape[:2]).T)
        layer.bias = nnx.Param(params[f"{name}.{key}.bias"])


_ACTIVATIONS = {"act": ("relu", "silu")}
_UNUSED = dict.fromkeys(
    ("L", "h", "mr", "n_layers", "n_heads", "mlp_ratio"), "unused by the reference"
)
ADAPTERS = {
    "spectral_conv1d": Adapter(
        _burgers_convolution, reads="N", sizes="in_dim out_dim modes"
    ),
    "galerkin_spectral_conv2d": Adapter(
        _galerkin_convolution,
        reads="n",
        sizes="in_dim out_dim modes tokens",
        only=_ACTIVATIONS,
    ),
    "fno_nsl_spectral_conv": Adapter(
        _nsl_convolution, reads="n", sizes="cin cout modes"
    ),
    "fno_nsl_model": Adapter(
        _nsl_model,
        reads="sl modes fx out hid uni T",
        sizes="sd",
        ignores=_UNUSED
        | {"ref": "without unified position", "x": "the nodes of the mesh"},
    ),
    "fno_neuralop_spectral_conv": Adapter(
        _neuralop_convolution, reads="n", sizes="cin cout n_modes"
    ),
    "fno_neuralop_pypi200_spectral_conv": Adapter(
        _neuralop_release_convolution, reads="n", sizes="cin cout n_modes"
    ),
    "fno_neuralop_model": Adapter(
        _neuralop_model,
        reads="n cin cout hid layers n_modes use_channel_mlp domain_padding",
        sizes="n2",
        only={"norm": (None, "instance_norm"), "positional_embedding": (None, "grid")},
    ),
}
