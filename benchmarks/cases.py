"""Errors with and without the scalars of a case: `python -m benchmarks.cases`.

Two problems in which a number of the whole sample matters, each learned from the same
samples and seeds in several ways: without the number, with it as a constant feature of
every point, and with norms that it modulates besides.

- elasticity: unit cells with a random void under a random traction between 20 and 180;
  the von Mises stress at every third point of the mesh.
- decay: `u_t = a u_xx` on `[0, 1]` at time 0.01, from random sine series, with a random
  `a` between 0.1 and 10; the solution by its series.

The first argument names a problem, the second the ways, the third the epochs:
`python -m benchmarks.cases elasticity none,features 60`.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence

import jax
import numpy as np

from opjax import learn
from opjax.problems import elasticity
from opjax.samples import Sample, Splits

_SIZES = (200, 20, 40)  # samples for training, validation and tests
_EVERY = 3  # points of the elastic meshes that are learned


def elastic(count: int, seed: int) -> list[Sample]:
    """Cells under random traction, with the traction as their scalar."""
    mesh = elasticity.reference_mesh(num_around=16, num_across=2)
    rng, found = np.random.default_rng(seed), []
    for i in range(count):
        load = float(rng.uniform(20, 180))
        modes = np.asarray(elasticity.void_modes(jax.random.key(1000 * seed + i)))
        solved = elasticity.solve(elasticity.morphed_mesh(mesh, modes), traction=load)
        stress = elasticity.von_mises(solved.stress)
        found.append(
            Sample(
                solved.points[::_EVERY].astype(np.float32),
                np.asarray(stress, np.float32)[::_EVERY, None],
                scalars=np.array([load], np.float32),
                name=f"cell {i}",
            )
        )
    return found


def decay(count: int, seed: int) -> list[Sample]:
    """Heat on an interval with a random coefficient, its scalar."""
    rng, x = np.random.default_rng(seed), np.linspace(0, 1, 64)
    modes = np.arange(1, 6)
    waves, found = np.sin(np.pi * modes * x[:, None]), []
    for i in range(count):
        rate, c = 10 ** rng.uniform(-1, 1), rng.normal(size=5) / modes
        later = waves @ (c * np.exp(-rate * 0.01 * (np.pi * modes) ** 2))
        found.append(
            Sample(
                x[:, None].astype(np.float32),
                later[:, None].astype(np.float32),
                features=(waves @ c)[:, None].astype(np.float32),
                scalars=np.array([rate], np.float32),
                name=f"rod {i}",
            )
        )
    return found


PROBLEMS = {"elasticity": elastic, "decay": decay}
WAYS = ("none", "features", "modulation")


def error(samples: Sequence[Sample], seed: int, way: str, epochs: int) -> float:
    """Trains on the first samples, and returns the mean error on the last ones."""
    if way == "none":
        samples = [sample._replace(scalars=None) for sample in samples]
    first, second = _SIZES[0], _SIZES[0] + _SIZES[1]
    parts = samples[:first], samples[first:second], samples[second:]
    config = dataclasses.replace(
        learn.TRAIN_PRESETS["fast"],
        num_basis=16,
        scalar_modulation=way == "modulation",
    )
    trained = learn.train(
        Splits(*parts, source="benchmarks.cases"),
        config=config,
        num_epochs=epochs,
        seed=seed,
    )
    errors: list[float] = []
    for sample in parts[2]:
        known = np.asarray(sample.target)
        off = trained(sample) - known
        errors.append(float(np.linalg.norm(off) / np.linalg.norm(known)))
    return float(np.mean(errors))


def main(argv: Sequence[str]) -> None:
    """Prints a row for each problem and way, and all numbers as JSON."""
    problems = argv[1].split(",") if len(argv) > 1 else list(PROBLEMS)
    ways = argv[2].split(",") if len(argv) > 2 else list(WAYS)
    epochs = int(argv[3]) if len(argv) > 3 else 60
    rows: dict[str, dict[str, list[float]]] = {}
    for name in problems:
        samples, rows[name] = PROBLEMS[name](sum(_SIZES), 0), {}
        for way in ways:
            begin = time.monotonic()
            found = [error(samples, seed, way, epochs) for seed in range(3)]
            rows[name][way] = found
            span = f"({min(found):.4f} to {max(found):.4f})"
            seconds = time.monotonic() - begin
            print(f"{name} {way}: {np.mean(found):.4f} {span}, {seconds:.0f} s")
    print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv)
