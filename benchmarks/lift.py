"""Surface pressure and polar curve of one unseen airfoil, predicted and computed.

    python -m experiments.lift --preset=fast --workdir=runs/lift
    python -m benchmarks.lift --lift_run=runs/lift

The airfoil is a test sample. Its polar has angles across the training's range at the
Mach number of the sample; the solver computes some of them.
"""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from experiments import lift as program
from opjax import learn
from opjax.datasets import lift
from opjax.learn.predict.quantities import measure
from opjax.learn.predict.trained import Trained
from opjax.learn.report import drawing
from opjax.learn.run.folder import read_config
from opjax.samples import Sample

_RUN = flags.DEFINE_string("lift_run", "", "Folder of a run of experiments.lift.")
_SAMPLE = flags.DEFINE_integer("lift_sample", 0, "Number of the test sample.")
_FIGURE = flags.DEFINE_string("lift_figure", "results/lift.png", "File to write.")


class Polar(NamedTuple):
    """Lift coefficients over the angle.

    Attributes:
      angles: in degrees, `(k,)`.
      scalar: the predicted scalar, `(k,)`.
      integrated: of the predicted pressure, `(k,)`.
    """

    angles: np.ndarray
    scalar: np.ndarray
    integrated: np.ndarray


def predicted_polar(trained: Trained, sample: Sample, angles: np.ndarray) -> Polar:
    """Predicts the lift of a sample at several angles."""
    assert sample.scalars is not None
    rows: list[tuple[float, float]] = []
    for angle in angles:
        turned = np.array([angle, sample.scalars[1]], np.float32)
        case = sample._replace(scalars=turned, target=None, target_scalars=None)
        values, scalars = trained.both(case)
        assert scalars is not None
        (found,) = measure((program.QUANTITY,), case, [values], lift.CHANNELS)
        rows.append((float(scalars[0]), found[program.QUANTITY.text]))
    return Polar(angles, *np.transpose(rows))


def computed_polar(
    sample: Sample, angles: np.ndarray, *, num_wake: int, tolerance: float
) -> np.ndarray:
    """Solves for the lift of a sample at several angles; NaN where it is unsteady."""
    assert sample.scalars is not None
    assert sample.grid_shape is not None
    mesh = sample.mesh_points.reshape(*sample.grid_shape, 2)
    flows = [
        lift.solve(
            mesh,
            num_wake=num_wake,
            angle=float(angle),
            mach=float(sample.scalars[1]),
            tolerance=tolerance,
        )
        for angle in angles
    ]
    return np.array([f.lift if f.residual <= tolerance else np.nan for f in flows])


def draw(
    sample: Sample,
    values: np.ndarray,
    polar: Polar,
    computed: tuple[np.ndarray, np.ndarray],
) -> Any:
    """Draws pressures at the wall, and lifts over angles, computed ones as dots."""
    assert sample.boundaries is not None
    assert sample.target is not None
    assert sample.scalars is not None
    wall = sample.boundaries[lift.WALL]
    figure = drawing.new_figure(7.0, 2.8)
    left, right = figure.subplots(1, 2)
    chord = sample.mesh_points[wall, 0]
    left.plot(chord, sample.target[wall, 0], "k.", markersize=3, label="computed")
    left.plot(chord, values[wall, 0], "C0-", linewidth=1.1, label="predicted")
    left.invert_yaxis()
    angle, mach = sample.scalars
    left.set_title(f"wall, {angle:.1f} degrees, Mach {mach:.2f}", fontsize=9)
    left.set_xlabel("x / chord")
    left.set_ylabel("pressure coefficient")
    right.plot(*computed, "k.", label="computed")
    right.plot(polar.angles, polar.scalar, "C0-", label="predicted scalar")
    right.plot(polar.angles, polar.integrated, "C1--", label="from predicted pressure")
    right.set_title(f"the same airfoil, Mach {mach:.2f}", fontsize=9)
    right.set_xlabel("angle of attack, degrees")
    right.set_ylabel("lift coefficient")
    for axis in (left, right):
        drawing.plain(axis)
        drawing.legend(axis)
    return figure


def save(figure: Any, path: pathlib.Path) -> None:
    """Writes a small file, of few colours."""
    drawing.save_lines(figure, path, dpi=80, colours=24)


def main(argv: Sequence[str]) -> None:
    """Draws the figure of a finished run."""
    if len(argv) > 1 or not _RUN.value:
        raise app.UsageError("Give the folder of a run, --lift_run=runs/lift.")
    run = pathlib.Path(_RUN.value)
    config = read_config(run, program.Config)
    if config is None:
        raise app.UsageError(f"{run} is no folder of a run; train there first.")
    sample = program.splits(config).test[_SAMPLE.value]
    trained = learn.load(run / f"{config.model}-{config.seed}")
    values = trained.both(sample).values
    polar = predicted_polar(trained, sample, np.linspace(*lift.ANGLES, 21))
    angles = np.linspace(*lift.ANGLES, 6)
    lifts = computed_polar(
        sample, angles, num_wake=config.num_wake, tolerance=config.tolerance
    )
    figure = draw(sample, values, polar, (angles, lifts))
    save(figure, pathlib.Path(_FIGURE.value))
    shown = polar.scalar[::4], polar.integrated[::4]
    for row in zip(angles, lifts, *shown, strict=True):
        print("angle {:.1f}, lift {:.3f}, {:.3f}, {:.3f}".format(*row))


if __name__ == "__main__":
    app.run(main)
