"""Data sets, losses and normalisers of the Galerkin transformer."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from opjax import metrics, normalize
from opjax.datasets import darcy_inverse
from tests.golden.adapters import Adapter
from tests.golden.recorded import UnsupportedError


def _burgers_dataset(inputs, config):
    a, u = (np.asarray(inputs[name]) for name in ("a", "u"))
    stride = config["subsample"]
    u_x = _derivative(u)
    node = a[:, ::stride, None]
    target = np.stack([u, u_x], axis=-1)[:, ::stride]
    num_train = int(config["train_portion"] * len(a))
    pos = np.linspace(0, 1, node.shape[1])[:, None]
    out = {"out.central_diff_full": u_x}
    for name, chosen in (
        ("train", slice(num_train)),
        ("valid", slice(-config["valid_portion"], None)),
    ):
        arrays = {"node": node[chosen], "target": target[chosen]}
        for key, array in arrays.items():
            out[f"out.{name}.{key}"] = array
            out[f"out.{name}.item0_{key}_float32"] = array[0].astype(np.float32)
        out[f"out.{name}.pos"] = pos
        out[f"out.{name}.item0_pos_float32"] = pos.astype(np.float32)
    return out


def _derivative(values):
    """Central differences; the authors take the ends of the grid for one point."""
    extended = np.concatenate([values[:, [-2]], values, values[:, [1]]], axis=1)
    return (extended[:, 2:] - extended[:, :-2]) * (values.shape[1] / 2)


def _gradient(fields):
    """Central differences with zeros around the grid, as the authors take them."""
    padded = np.pad(np.asarray(fields, np.float64), [(0, 0), (1, 1), (1, 1)])
    rows = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    columns = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    return np.stack([rows, columns], axis=-1) * (fields.shape[-1] / 2)


def _burgers_loss(inputs, config):
    """The authors sum over all points, or the inner ones, where we take means."""
    n = config["N"]
    scale = math.sqrt(config["gamma"] * config["h"] * (n - 2) / n)

    def errors(p, t, g):
        penalty = scale * metrics.relative_flux_error(
            p, g[:, None], grid_shape=(n,), spacing=config["h"]
        )
        return metrics.relative_l2(p, t), penalty

    def per_sample(*fields):
        return jax.vmap(errors)(*fields)

    def total(*fields):
        loss, penalty = per_sample(*fields)
        return jnp.mean(loss) + jnp.mean(penalty)

    fields = tuple(inputs[name] for name in ("preds", "targets", "targets_prime"))
    loss, penalty = per_sample(*fields)
    gradients = jax.grad(total, argnums=(0, 1, 2))(*fields)
    unpenalised = jax.grad(lambda p: jnp.mean(per_sample(p, *fields[1:])[0]))(fields[0])
    return {
        "out.loss": jnp.mean(loss),
        "out.reg": jnp.mean(penalty),
        "out.total": total(*fields)[None],
        "out.metric": jnp.mean(loss),
        "out.metric_Linf": jnp.max(loss),
        "out.noreg_loss": jnp.mean(loss),
        "out.noreg_metric": jnp.mean(loss),
        "out.sq_loss": jnp.mean(loss**2),
        "out.sq_reg": jnp.mean(penalty**2),
        "out.sq_metric_L2": jnp.sqrt(jnp.mean(loss**2)),
        "grad_input.preds": gradients[0],
        "grad_input.targets": gradients[1],
        "grad_input.targets_prime": gradients[2],
        "grad_noreg.preds": unpenalised,
    }


def _weighted_loss(inputs, config):
    """The authors add 1e-10 to both denominators, which do not see the prediction."""
    num_points = config["n"] ** 2
    scale = math.sqrt(config["gamma"] * config["h"] / 2)
    inputs = {
        name: value.reshape(*value.shape[:1], num_points, *value.shape[3:])
        for name, value in inputs.items()
    }
    targets, slopes = inputs["targets"], inputs["targets_prime"]

    def guard(square, eps):
        return jnp.sqrt(square / (square + eps))

    def per_sample(predictions, coefficients):
        def errors(p, t, g, k):
            penalty = scale * metrics.relative_flux_error(
                p,
                g,
                grid_shape=(config["n"], config["n"]),
                spacing=config["h"],
                coefficient=k,
                relative_to="energy",
            )
            # Theirs is a sum over components, and so is ours, but without the factor.
            energy = jnp.sum(k[:, None] * g**2) / num_points
            penalty = penalty * guard(energy, config["eps"])
            loss = metrics.relative_l2(p, t) * guard(jnp.mean(t**2), config["eps"])
            return loss, penalty

        return jax.vmap(errors)(predictions, targets, slopes, coefficients)

    coefficients = inputs["K"][..., 0]
    predictions, ones = inputs["preds"], jnp.ones_like(coefficients)
    side = (-1, config["n"], config["n"])
    out = {}
    for prefix, k, power, weight in (
        ("", coefficients, 1, 1.0),
        ("noK_", ones, 1, 1.0),
        ("sq_", coefficients, 2, 1.0),
        ("noreg_", coefficients, 1, 0.0),
    ):

        def parts(predictions, k=k, power=power, weight=weight):
            loss, penalty = per_sample(predictions, k)
            return jnp.mean(loss**power), weight * jnp.mean(penalty**power)

        loss, penalty = parts(predictions)
        gradient = jax.grad(lambda p, parts=parts: sum(parts(p)))(predictions)
        out[f"out.{prefix}loss"] = loss
        out[f"out.{prefix}reg"] = penalty
        out[f"out.{prefix}metric"] = loss if power == 1 else jnp.sqrt(loss)
        out[f"out.{prefix}total"] = loss + penalty
        out[f"grad_{prefix}total.preds"] = gradient.reshape(side)
    return out


def _gaussian_normalizer(inputs, config):
    out = {}
    fitted = inputs["fit"].reshape(config["S"], -1)
    values = inputs["apply"].reshape(len(inputs["apply"]), -1)
    shape = (-1, config["n"], config["n"], config["C"])
    for kind, unbiased in (("numpy", False), ("torch", True)):
        normalizer = normalize.fit(fitted, pointwise=True, unbiased=unbiased)
        encoded = normalize.encode(normalizer, values)
        out |= {
            f"out.{kind}.mean": normalizer.mean.reshape(shape[1:]),
            # The reference keeps its offset out of the stored deviation.
            f"out.{kind}.std": (normalizer.std - config["eps"]).reshape(shape[1:]),
            f"out.{kind}.fit_transform": normalize.encode(normalizer, fitted).reshape(
                shape
            ),
            f"out.{kind}.transform": encoded.reshape(shape),
            # The reference decodes what was never encoded.
            f"out.{kind}.inverse": normalize.decode(normalizer, values).reshape(shape),
        }
    return out


def _darcy_dataset(inputs, config):
    coeff, sol = (np.asarray(inputs[name]) for name in ("coeff", "sol"))
    stride, num_train = config["s"], config["train_len"]
    if not math.isclose(config["h"] * coeff.shape[1], 1):
        raise UnsupportedError(f"option h={config['h']}, not 1 / {coeff.shape[1]}")
    if config["inverse"]:
        data = darcy_inverse.pairs(
            coeff, sol, stride=stride, target_stride=config["sa"]
        )
        node, target = data["measurement"], data["coefficient"]
        coefficient = darcy_inverse.block_mean(coeff, block=stride)
        slopes = np.zeros((len(coeff), 1, 1, 2))
    else:
        node, target = (field[:, ::stride, ::stride] for field in (coeff, sol))
        coefficient, slopes = node, _gradient(sol)[:, ::stride, ::stride]
    out = {}
    normalizers = [
        normalize.fit(field[:num_train].reshape(num_train, -1), **_POINTWISE)
        for field in (node, target)
    ]
    for name, normalizer, field in zip("xy", normalizers, (node, target), strict=True):
        shape = (*field.shape[1:], 1)
        out[f"out.normalizer_{name}.mean"] = normalizer.mean.reshape(shape)
        out[f"out.normalizer_{name}.std"] = (normalizer.std - 1e-5).reshape(shape)
    for name, chosen in (
        ("train", slice(num_train)),
        ("valid", slice(-config["valid_len"], None)),
    ):
        clean = jnp.asarray(node[chosen])
        encoded = normalize.encode(normalizers[0], clean.reshape(len(clean), -1))
        features = encoded.reshape(*clean.shape, 1)
        if config["noise"]:
            features = features + config["noise"] * inputs[f"noise_{name}"]
        out[f"out.{name}.coeff"] = coefficient[chosen][..., None]
        out[f"out.{name}.node_features"] = features
        out[f"out.{name}.target"] = target[chosen][..., None]
        out[f"out.{name}.target_grad"] = slopes[chosen]
        coarse = -(-node.shape[1] * stride // config["sa"])
        out[f"out.{name}.pos"] = _grid(coarse).reshape(-1, 2)
        out[f"out.{name}.pos_fine"] = _grid(target.shape[1])
    return out


def _grid(num_points):
    axis = np.linspace(0, 1, num_points)
    return np.stack(np.meshgrid(axis, axis), axis=-1)


def _scaler_sizes(inputs, config):
    """Sizes of the interpolations between a fine and a coarse grid, in two steps."""
    del inputs, config
    rows = []
    for stride, coarse_stride, fine, coarse in _SCALER_PAIRS:
        factor = round(math.sqrt(coarse / fine), 4)
        last_digit = int(str(factor)[-1])
        factor = np.round(factor, 3) + (0.005 if last_digit < 5 else 0)
        factor = math.floor(factor / 0.005 + 0.5) * 0.005
        first = math.floor(fine * factor)
        middle = round(fine * factor) - 1
        second = math.floor(first * factor)
        rows.append(
            [stride, coarse_stride, fine, coarse, factor, first, second, middle, fine]
        )
    return {"out.table": np.array(rows)}


_POINTWISE = {"pointwise": True, "unbiased": False}
# Stride of the fine and the coarse grid, 0 if none, and points of either.
_SCALER_PAIRS = [
    (fine, coarse, 420 // fine + 1, 420 // coarse + 1)
    for fine in (1, 2, 3, 5, 6, 7)
    for coarse in (5, 6, 7, 10, 12, 14, 15, 20, 21, 28, 30, 35, 42)
    if coarse > fine
]
_SCALER_PAIRS += [
    (0, 0, *sizes)
    for sizes in zip(
        (21, 17, 20, 25, 24, 19, 17, 18), (8, 6, 6, 9, 7, 9, 7, 7), strict=True
    )
]
ADAPTERS = {
    "burgers_dataset": Adapter(
        outputs=_burgers_dataset,
        reads="subsample train_portion valid_portion",
        sizes="samples n_grid_fine",
    ),
    "burgers_loss": Adapter(
        outputs=_burgers_loss,
        reads="N gamma h",
        only={"dilation": (2,)},
        # Zeros: the reference's regularisers of other problems, and its switched off.
        not_offered=frozenset({"out.ortho", "out.noreg_reg"}),
    ),
    "galerkin_wl2loss2d": Adapter(
        outputs=_weighted_loss,
        reads="n gamma h eps",
        only={"dilation": (2,)},
        # A term that no example of the authors switches on.
        ignores={"alpha_used": "of that term"},
        not_offered=frozenset(
            {f"out.alpha_{key}" for key in ("loss", "reg", "metric", "total")}
            | {"grad_alpha_total.preds"}
        ),
    ),
    "galerkin_gaussian_normalizer": Adapter(
        outputs=_gaussian_normalizer, reads="S n C", only={"eps": (1e-5,)}
    ),
    "galerkin_darcy_dataset": Adapter(
        outputs=_darcy_dataset,
        reads="s sa train_len valid_len inverse noise h",
        sizes="S nfine",
    ),
    "galerkin_scaler_sizes": Adapter(
        outputs=_scaler_sizes, only={"n_grid_fine": (421,)}
    ),
}
