"""Series for `benchmarks.rollouts`, of 51 frames.

- `flow`: the vorticity of smooth flows on a periodic square of 16 x 16 points,
  viscosity 1e-3, at times 10 to 60, from our solver with 64 x 64 points.
- `advection`: spots that a flow carries and mixes on meshes of random shapes, about 200
  points, each case with its own velocity and diffusivity, `opjax.datasets.advection`.
- `kuramoto_sivashinsky`: the conservative Kuramoto-Sivashinsky equation on 160 points
  of a periodic line in APEBench's difficulty mode, `gamma_2 = -2`, `gamma_4 = -18`,
  `delta_1 = -1`, from truncated Fourier series after 500 steps, by exponax.

References:
  Koehler et al., "APEBench", NeurIPS 2024 (arXiv:2411.00180).
"""

import pathlib
from collections.abc import Callable, Mapping

import jax
import numpy as np

from opjax.datasets import advection
from opjax.problems import navier_stokes

STEPS = 50
VISCOSITY = 1e-3  # of the flow
_POINTS, _STRIDE, _START = 64, 4, 10
_SPACING = 0.14
_LINE_POINTS, _WARM_UP = 160, 500
_LINEAR, _CONVECTION = (0.0, 0.0, -2.0, 0.0, -18.0), -1.0


def write_flow(folder: pathlib.Path, counts: Mapping[str, int]) -> None:
    """Writes flows from seeds of their own, one `.npz` file each."""
    force = navier_stokes.forcing(num_points=_POINTS)

    @jax.jit
    def flow(key: jax.Array) -> jax.Array:
        first = navier_stokes.initial_vorticity(key, num_points=_POINTS)
        later = navier_stokes.solve(
            first, force, viscosity=VISCOSITY, num_frames=_START + STEPS
        )
        return later[_START - 1 :, ::_STRIDE, ::_STRIDE]

    _write(folder, counts, flow, first_time=_START, name="flow")


def write_advection(folder: pathlib.Path, counts: Mapping[str, int]) -> None:
    """Writes spots in a flow, the parts from seeds of their own."""
    for seed, (part, count) in enumerate(counts.items()):
        advection.write_series(
            folder / part,
            count,
            seed=seed,
            spacing=_SPACING,
            num_frames=STEPS + 1,
            interval=0.1,
        )


def write_kuramoto_sivashinsky(folder: pathlib.Path, counts: Mapping[str, int]) -> None:
    """Writes solutions of the Kuramoto-Sivashinsky equation, one `.npz` file each.

    Raises:
      ImportError: if exponax is missing; names the extra.
    """
    try:
        import exponax
    except ImportError as error:
        raise ImportError(
            'The Kuramoto-Sivashinsky equation needs exponax: pip install "'
            'opjax[benchmark]", or exponax alone.'
        ) from error
    step = exponax.stepper.generic.DifficultyConvectionStepper(
        1,
        _LINE_POINTS,
        linear_difficulties=_LINEAR,
        convection_difficulty=_CONVECTION,
        conservative=True,
    )
    draw = exponax.ic.RandomTruncatedFourierSeries(1, cutoff=5, max_one=True)
    warm = exponax.repeat(step, _WARM_UP)
    later = exponax.rollout(step, STEPS, include_init=True)

    @jax.jit
    def solution(key: jax.Array) -> jax.Array:
        return later(warm(draw(_LINE_POINTS, key=key)))[:, 0]

    _write(folder, counts, solution, first_time=0, name="line")


WRITERS: Mapping[str, Callable[[pathlib.Path, Mapping[str, int]], None]] = {
    "flow": write_flow,
    "advection": write_advection,
    "kuramoto_sivashinsky": write_kuramoto_sivashinsky,
}
COUNTS = {
    "flow": {"train": 40, "test": 8},
    "advection": {"train": 100, "test": 16},
    "kuramoto_sivashinsky": {"train": 50, "test": 30},
}


def _write(
    folder: pathlib.Path,
    counts: Mapping[str, int],
    draw: Callable[[jax.Array], jax.Array],
    *,
    first_time: int,
    name: str,
) -> None:
    """Writes frames on a grid that are drawn from keys of their own."""
    number, times = 0, first_time + np.arange(STEPS + 1.0)
    for part, count in counts.items():
        (folder / part).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            frames = np.asarray(draw(jax.random.key(number)), np.float32)
            np.savez(folder / part / f"{name}_{i:04d}.npz", target=frames, times=times)
            number += 1
