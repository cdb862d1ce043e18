"""The README's example does what it says."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp

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
