"""Flow over bodies in space: learns pressure and velocity on them from their shape.

    python -m experiments.bodies --preset=fast
    python -m experiments.bodies --preset=full
    python -m experiments.bodies --preset=fast --layout=drivaerml --data_dir=...

Surfaces of 16,224 points, or, with --preset=full, of a million. Without --data_dir it
takes potential flow of our own solver; or files of cars, with their pressure and
friction as published, see `opjax.datasets.cars`.
"""

import dataclasses
from typing import Any

from opjax import learn
from opjax.datasets import bodies, cars
from opjax.datasets.samples import Request, Splits, benchmark
from opjax.learn import SMOKE, FieldOptions, option, quick
from opjax.learn.benchmark import load

LAYOUTS = ("own", "drivaerml", "shapenet_car")


@dataclasses.dataclass(frozen=True)
class Config(FieldOptions):
    """All that the numbers of a run depend on."""

    layout: str = option("own", "Whose flows", choices=LAYOUTS)
    fields: tuple[str, ...] = option(
        cars.FIELDS, "Of the cells of drivaerml's files, to be predicted"
    )
    resolution: int = option(
        52, "Cells along an edge of the cube, 6 m^2 in all, of our own", minimum=1
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if (self.layout == "own") == bool(self.data_dir):
            raise ValueError(
                f"layout={self.layout} and data_dir={self.data_dir!r} do not fit: "
                f"files have a layout, {' or '.join(LAYOUTS[1:])}, our own flows no "
                "folder."
            )
        if self.layout != "drivaerml" and self.fields != Config.fields:
            raise ValueError(f"fields={self.fields} are of layout=drivaerml only.")


_SOME: dict[str, Any] = {"num_train": 120, "num_validation": 10, "num_test": 20}
_ALL: dict[str, Any] = {"models": ("functional",), "chunk_size": 512, "batch_size": 1}
_SIZE: dict[str, Any] = {"features": 64, "num_layers": 4, "num_heads": 4}
PRESETS = {
    "smoke": Config(
        **{**SMOKE, **_ALL, "chunk_size": 0},
        num_train=4,
        num_validation=2,
        num_test=2,
        resolution=4,
    ),
    **quick(Config(**_ALL, **_SIZE, **_SOME, num_epochs=10)),
    # A million points.
    "full": Config(
        **{**_ALL, "chunk_size": 1024},
        **_SIZE,
        preset="full",
        resolution=418,
        num_train=2,
        num_validation=0,
        num_test=1,
        num_epochs=2,
    ),
}


@benchmark
def splits(
    request: Request, *, layout: str, fields: tuple[str, ...], resolution: int
) -> Splits:
    """Our own flows, or those of files."""
    source = f"{layout}, {request.data_dir}"
    if layout == "drivaerml":
        return request.read(cars.drivaerml, source, fields=fields)
    if layout == "shapenet_car":
        return request.read(cars.shapenet_car, source)
    source = f"own solver, {6 * resolution**2} points"
    return request.generate(bodies.generate, source, resolution=resolution)


def make_task(config: Config, cache_dir: str | None) -> learn.Task:
    """The task of a run."""
    own = "layout", "fields", "resolution"
    found = load(config, splits, *own, cache_dir=cache_dir)
    return learn.regression(
        config,
        found,
        encode_points=True,
        encode_target=config.normalize_target,
        mean=config.mean_loss,
        notes=""
        if config.data_dir
        else "Targets are pressure coefficient and velocity.",
    )


PROGRAM = learn.Program(
    "bodies", PRESETS, make_task, title="Flow over bodies in space", grid_axes=0
)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
