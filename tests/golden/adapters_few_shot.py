"""Few-shot regressors from parameters under the original authors' names."""

import jax
from flax import nnx

from experiments import sinusoid_regressors
from tests.golden.adapters import Adapter, _assign_linear


def _assign_perceptron(perceptron, params, name):
    """Layers of the reference are numbered with the activations between them."""
    for i, layer in enumerate([*perceptron.hidden, perceptron.out]):
        _assign_linear(layer, params, f"{name}.{2 * i}")


def _predict(model, inputs):
    return jax.vmap(model)(inputs["xc"], inputs["yc"], inputs["xq"])


def _tokens(model, params):
    _assign_perceptron(model.encoder, params, "to_q")
    _assign_linear(model.scores, params, "slice")
    model.temperature = nnx.Param(params["temperature"].reshape(()))


def _functional(params, inputs, config):
    model = sinusoid_regressors.FunctionalRegressor(
        config["latent_dim"],
        num_basis=config["num_groups"],
        ridge=config["ridge"],
        rngs=nnx.Rngs(0),
    )
    _tokens(model, params)
    return _predict(model, inputs)


def _transolver(params, inputs, config):
    model = sinusoid_regressors.TransolverRegressor(
        config["latent_dim"],
        num_basis=config["num_groups"],
        num_heads=config["num_heads"],
        rngs=nnx.Rngs(0),
    )
    _tokens(model, params)
    return _predict(model, inputs)


def _intention(params, inputs, config):
    model = sinusoid_regressors.IntentionRegressor(
        config["latent_dim"],
        num_heads=config["num_heads"],
        # The reference code adds this to its ridge.
        ridge=config["ridge"] + 1e-5,
        shared_encoder=config["shared_encoder"],
        rngs=nnx.Rngs(0),
    )
    _assign_perceptron(model.key, params, "enc_k")
    if not config["shared_encoder"]:
        _assign_perceptron(model.query, params, "enc_q")
    return _predict(model, inputs)


def _assign_decoded(model, params):
    _assign_perceptron(model.key, params, "enc_k.net")
    _assign_perceptron(model.value, params, "enc_v.net")
    _assign_perceptron(model.decoder, params, "dec.net")


def _softmax_attention(params, inputs, config):
    model = sinusoid_regressors.SoftmaxAttentionRegressor(
        config["d_model"], num_heads=config["num_heads"], rngs=nnx.Rngs(0)
    )
    _assign_decoded(model, params)
    model.kernel = nnx.Param(params["attn.in_proj_weight"].T)
    model.bias = nnx.Param(params["attn.in_proj_bias"])
    _assign_linear(model.out, params, "attn.out_proj")
    return _predict(model, inputs)


def _linear_attention(params, inputs, config):
    model = sinusoid_regressors.LinearAttentionRegressor(
        config["d_model"], rngs=nnx.Rngs(0)
    )
    _assign_decoded(model, params)
    return _predict(model, inputs)


_UNUSED = {"num_heads": "unused by the reference"}
ADAPTERS = {
    "fewshot_attention": Adapter(
        _softmax_attention, reads="d_model num_heads", sizes="K Q"
    ),
    "fewshot_funcattn": Adapter(
        _functional,
        reads="latent_dim num_groups ridge",
        sizes="K Q",
        ignores=_UNUSED,
    ),
    "fewshot_intention": Adapter(
        _intention, reads="latent_dim num_heads ridge shared_encoder", sizes="K Q"
    ),
    "fewshot_linear_attention": Adapter(
        _linear_attention, reads="d_model", sizes="K Q", ignores=_UNUSED
    ),
    "fewshot_transolver": Adapter(
        _transolver, reads="latent_dim num_groups num_heads", sizes="K Q"
    ),
}
