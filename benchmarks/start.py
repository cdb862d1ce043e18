"""Functional attention at initialisation, layer by layer.

    python -m benchmarks.start --program=elasticity --preset=fast

Examines the model before its first step, on the first training sample of a program. If
the ridge is larger than the eigenvalues of `K K^T`, the map is small. If the map and
the kernels are small, attention adds little to the residual stream, and the gradients
of its queries and keys are small.
"""

import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from absl import app, flags
from flax import nnx

from opjax.learn.tables import number, table
from opjax.nn.models import Points

_PROGRAM = flags.DEFINE_string(
    "program", "elasticity", "Program of experiments to examine"
)
_PRESET = flags.DEFINE_string("preset", "quick", "Preset of the program")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the initial parameters")

HEADINGS = {
    "eigenvalue": "mean eigenvalue of K K^T",
    "largest": "largest",
    "ridge": "ridge",
    "map": "norm of the map",
    "spread": "deviation of coefficients over their size",
    "attention": "attention over residual stream",
    "varying": "of which varies over the points",
    "gradient": "gradient of Q, K over perceptron's",
}


def measure(model: Any, loss: Any, sample: dict[str, jax.Array]) -> list[dict]:
    """Returns a row for every layer of an operator transformer, see `HEADINGS`.

    Args:
      model: with functional attention in a basis.
      loss: `loss(model, batch)`, of a batch of samples.
      sample: arrays of one sample.
    """
    points = sample["mesh_points"]
    z, there = model.encode(points, sample.get("features")), model.told(Points())
    if getattr(model.basis, "point_dim", 0):
        there = model.told(Points(points))
    batch = jax.tree.map(lambda x: x[None], sample)
    slopes = jax.grad(lambda blocks: loss(_with(model, blocks), batch))(model.blocks)
    rows = []
    for layer in range(len(model.blocks.attention_norm.scale[...])):
        block, slope = (
            jax.tree.map(lambda x, i=layer: x[i], tree)
            for tree in (model.blocks, slopes)
        )
        normed = block.attention_norm(z)
        y = there.attended(block.attention, normed)
        mixer, first = slope.attention.mixer, slope.mlp.hidden[0].kernel[...]
        row = _of_heads(block.attention, normed, there)
        row |= {
            "attention": _size(y) / _size(z),
            "varying": _size(y - jnp.mean(y, axis=0, keepdims=True)) / _size(y),
            "gradient": (_size(mixer.query.kernel[...]) + _size(mixer.key.kernel[...]))
            / (2 * _size(first)),
        }
        rows.append({name: float(row[name]) for name in HEADINGS})
        z = block(z, there)
    return rows


def _of_heads(attention: Any, x: jax.Array, there: Points) -> dict[str, jax.Array]:
    """What depends on the coefficients, means over the heads."""
    mixer, basis = attention.mixer, attention.choose_basis(there.basis)
    values, phi = basis(x, mesh_points=there.mesh_points)
    projected = attention.projection_in(basis)

    def head(values: jax.Array, phi: jax.Array) -> dict[str, jax.Array]:
        found = projected(attention.moments(basis, values, phi, None))
        key = mixer.key(found)
        eigenvalues = jnp.linalg.eigvalsh(key @ key.T)
        unit = jnp.mean(eigenvalues) if mixer.ridge_unit == "mean" else 1.0
        return {
            "eigenvalue": jnp.mean(eigenvalues),
            "largest": eigenvalues[-1],
            "ridge": mixer.ridge * unit,
            "map": jnp.linalg.norm(mixer.matrix(found)),
            "spread": _size(found - jnp.mean(found, axis=0, keepdims=True))
            / _size(found),
        }

    return jax.tree.map(jnp.mean, jax.vmap(head)(values, phi))


def _with(model: Any, blocks: Any) -> Any:
    changed = nnx.clone(model)
    changed.blocks = blocks
    return changed


def _size(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.mean(x**2))


def main(argv: Sequence[str]) -> None:
    """Prints a Markdown table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    program = importlib.import_module(f"experiments.{_PROGRAM.value}").PROGRAM
    preset = program.presets[_PRESET.value]
    config = dataclasses.replace(preset, models=("functional",), seeds=(_SEED.value,))
    task = program.make_task(config, None)
    sample = {name: jnp.asarray(array[0]) for name, array in task.train[0].items()}
    model = task.build(config, nnx.Rngs(_SEED.value))
    rows = measure(model, task.loss, sample)
    lines = [[str(layer), *map(number, row.values())] for layer, row in enumerate(rows)]
    print(table(["layer", *HEADINGS.values()], lines))


if __name__ == "__main__":
    app.run(main)
