"""The README's examples do what they say."""

import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax import nn

README = Path(__file__).parents[1] / "README.md"


def test_the_example_transports_a_function_between_meshes():
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names = {}
    # A user's session is neither strict nor in double precision.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(example.group(1), names)
        error = jnp.max(jnp.abs(names["output"] - jnp.exp(names["queries"])))
    assert names["output"].shape == (1000, 1)
    assert float(error) < 2e-3


def test_the_examples_of_modules_run(monkeypatch):
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    small = partial(nn.OperatorTransformer, features=16, num_layers=1)
    monkeypatch.setattr(nn, "OperatorTransformer", small)
    names = {"opjax": opjax, "jax": jax}
    names["mesh_points"] = jnp.linspace(0, 1, 20, dtype=jnp.float32).reshape(10, 2)
    names["coefficient"] = jnp.ones((10, 1), jnp.float32)
    names["coefficients"] = jnp.ones((3, 10, 1), jnp.float32)
    # A user's session is neither strict nor in double precision.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for example in examples[1:3]:
            exec(example, names)
        layer = names["two_level"](16, rngs=nnx.Rngs(0))
        grid = jnp.zeros((85 * 85, 2), jnp.float32)
        output = jax.eval_shape(
            lambda x: layer(x, mesh_points=grid), jnp.ones((85 * 85, 16))
        )
    assert names["batch"].shape == (3, 10, 1)
    assert output.shape == (85 * 85, 16)
