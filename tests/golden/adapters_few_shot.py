"""Few-shot regressors from parameters under the original authors' names."""

import jax
from flax import nnx

from experiments import sinusoid_regressors
from tests.golden.adapters import Adapter, assign


def _assign_perceptron(perceptron, params, name):
    """Layers of the reference are numbered with the activations between them."""
    count = len(perceptron.hidden)
    names = {f"hidden.{i}": f"{2 * i}" for i in range(count)}
    assign(perceptron, params, names | {"out": f"{2 * count}"}, f"{name}.")


def _family(build, assign_parameters, **options):
    """A regressor from its configuration, with the authors' parameters."""

    def predict(params, inputs, config):
        model = build(config, nnx.Rngs(0))
        assign_parameters(model, params)
        return jax.vmap(model)(inputs["xc"], inputs["yc"], inputs["xq"])

    return Adapter(predict, sizes="K Q", **options)


def _tokens(model, params):
    _assign_perceptron(model.encoder, params, "to_q")
    assign(model, params, {"scores": "slice"})
    model.temperature = nnx.Param(params["temperature"].reshape(()))


def _functional(config, rngs):
    return sinusoid_regressors.FunctionalRegressor(
        config["latent_dim"],
        num_basis=config["num_groups"],
        ridge=config["ridge"],
        rngs=rngs,
    )


def _transolver(config, rngs):
    return sinusoid_regressors.TransolverRegressor(
        config["latent_dim"],
        num_basis=config["num_groups"],
        num_heads=config["num_heads"],
        rngs=rngs,
    )


def _intention(config, rngs):
    return sinusoid_regressors.IntentionRegressor(
        config["latent_dim"],
        num_heads=config["num_heads"],
        # The reference code adds this to its ridge.
        ridge=config["ridge"] + 1e-5,
        shared_encoder=config["shared_encoder"],
        rngs=rngs,
    )


def _encoders(model, params):
    _assign_perceptron(model.key, params, "enc_k")
    if model.query is not None:
        _assign_perceptron(model.query, params, "enc_q")


def _softmax_attention(config, rngs):
    return sinusoid_regressors.SoftmaxAttentionRegressor(
        config["d_model"], num_heads=config["num_heads"], rngs=rngs
    )


def _linear_attention(config, rngs):
    return sinusoid_regressors.LinearAttentionRegressor(config["d_model"], rngs=rngs)


def _decoded(model, params):
    _assign_perceptron(model.key, params, "enc_k.net")
    _assign_perceptron(model.value, params, "enc_v.net")
    _assign_perceptron(model.decoder, params, "dec.net")


def _attended(model, params):
    _decoded(model, params)
    model.kernel = nnx.Param(params["attn.in_proj_weight"].T)
    model.bias = nnx.Param(params["attn.in_proj_bias"])
    assign(model, params, {"out": "attn.out_proj"})


_UNUSED = {"num_heads": "unused by the reference"}
ADAPTERS = {
    "fewshot_attention": _family(
        _softmax_attention, _attended, reads="d_model num_heads"
    ),
    "fewshot_funcattn": _family(
        _functional, _tokens, reads="latent_dim num_groups ridge", ignores=_UNUSED
    ),
    "fewshot_intention": _family(
        _intention, _encoders, reads="latent_dim num_heads ridge shared_encoder"
    ),
    "fewshot_linear_attention": _family(
        _linear_attention, _decoded, reads="d_model", ignores=_UNUSED
    ),
    "fewshot_transolver": _family(
        _transolver, _tokens, reads="latent_dim num_groups num_heads"
    ),
}
