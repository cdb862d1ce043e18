"""Linear-cost attentions of published packages; heads and projections are inline."""

import jax
import jax.numpy as jnp

import opjax
from opjax.attention.performer import orthogonal_directions
from opjax.nn.attention.heads import merge_heads, split_heads
from tests.golden.adapters import Adapter


def _linear(params, name, x):
    y = x @ params[f"{name}.weight"].T
    return y + params[f"{name}.bias"][None, :] if f"{name}.bias" in params else y


def _performer(params, inputs, config):
    kernel = "relu" if config.get("generalized") else "softmax"

    def sample(x, context):
        q = _linear(params, "to_q", x)
        k, v = (_linear(params, name, context) for name in ("to_k", "to_v"))
        heads = [split_heads(a, config["heads"]) for a in (q, k, v)]

        def head(q, k, v):
            return opjax.performer_attention(
                q, k, v, projection_matrix=inputs["projection_matrix"], kernel=kernel
            )

        return _linear(params, "to_out", merge_heads(jax.vmap(head)(*heads)))

    return jax.vmap(sample)(inputs["x"], inputs.get("context", inputs["x"]))


def _orthogonal_features(inputs, config):
    blocks, rows = inputs["gauss_blocks"], config["nb_rows"]
    # Rows as long as Gaussian vectors, or all of their mean square length.
    norms = (
        jnp.full(rows, blocks.shape[-1] ** 0.5)
        if config["scaling"]
        else inputs["gauss_norms"]
    )
    # The reference leaves the signs of the factorisation as LAPACK returns them.
    _, r = jnp.linalg.qr(blocks)
    signs = jnp.sign(jnp.diagonal(r, axis1=1, axis2=2)).reshape(-1)[: len(norms)]
    return {"output": signs[:, None] * orthogonal_directions(blocks, norms)}


def _linformer(params, inputs, config):
    def sample(x):
        q, k = (_linear(params, name, x) for name in ("to_q", "to_k"))
        shared = config.get("share_kv", False)
        v = k if shared else _linear(params, "to_v", x)
        projections = {
            "key_projection": params["proj_k"][: len(x)],
            "value_projection": params["proj_k" if shared else "proj_v"][: len(x)],
        }
        one = config.get("one_kv_head", False)
        axis = None if one else 0
        k, v = (a if one else split_heads(a, config["heads"]) for a in (k, v))

        def head(q, k, v):
            return opjax.linformer_attention(q, k, v, **projections)

        heads = jax.vmap(head, in_axes=(0, axis, axis))
        merged = merge_heads(heads(split_heads(q, config["heads"]), k, v))
        return _linear(params, "to_out", merged)

    return jax.vmap(sample)(inputs["x"])


def _nystrom(params, inputs, config):
    x, num_landmarks = inputs["x"], config["landmarks"]
    n = x.shape[1]
    # The reference prepends zeros; they take part.
    x = jnp.pad(x, ((0, 0), (-n % num_landmarks, 0), (0, 0)))
    stacked = jnp.split(x @ params["to_qkv.weight"].T, 3, axis=2)
    q, k, v = (jax.vmap(lambda a: split_heads(a, config["heads"]))(a) for a in stacked)

    options = {
        "num_landmarks": num_landmarks,
        "num_iterations": config["iters"],
        "start_norm": _start_norm((q, k), num_landmarks),
    }

    def head(q, k, v):
        return opjax.nystrom_attention(q, k, v, **options)

    attended = jax.vmap(jax.vmap(head))(q, k, v)
    if config["residual"]:
        attended = attended + _depthwise(v, params["res_conv.weight"][:, 0, :, 0])
    merged = jax.vmap(merge_heads)(attended)[:, -n:]
    return merged @ params["to_out.0.weight"].T + params["to_out.0.bias"][None, None, :]


def _start_norm(heads, num_landmarks):
    """The largest row sum times the largest column sum of all samples and heads."""
    means = []
    for a in heads:
        b, h, n, d = a.shape
        segments = a.reshape(b, h, num_landmarks, n // num_landmarks, d)
        means.append(jnp.mean(segments, axis=3))
    scores = jnp.einsum("bhid,bhjd->bhij", *means) / means[0].shape[-1] ** 0.5
    between = jax.nn.softmax(scores, axis=-1)
    return jnp.max(jnp.sum(between, axis=-1)) * jnp.max(jnp.sum(between, axis=-2))


def _depthwise(value, filters):
    """Cross-correlates along the points, one filter per head, zeros beyond."""

    def channel(v, w):
        start = len(w) // 2
        return jnp.convolve(v, w[::-1], mode="full")[start : start + len(v)]

    head = jax.vmap(channel, in_axes=(1, None), out_axes=1)
    return jax.vmap(jax.vmap(head), in_axes=(0, None))(value, filters)


ADAPTERS = {
    "performer_attention": Adapter(
        _performer, reads="heads generalized", sizes="n ctx dim dim_head nb_features"
    ),
    "performer_orthogonal_features": Adapter(
        outputs=_orthogonal_features,
        reads="nb_rows",
        sizes="nb_columns",
        only={"scaling": (0, 1)},
        ignores={"gauss_norms": "without scaling"},
    ),
    "linformer_attention": Adapter(
        _linformer, reads="heads share_kv one_kv_head", sizes="n seq_len dim k"
    ),
    "nystrom_attention": Adapter(
        _nystrom,
        reads="heads landmarks iters residual",
        sizes="n dim dim_head kernel",
    ),
}
