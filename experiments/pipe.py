"""Flow through deformed pipes: learns the velocity along them from their shape.

    python -m experiments.pipe --preset=quick
    python -m experiments.pipe --preset=paper --data_dir=...

The benchmark of Geo-FNO. Without --data_dir it takes samples of our own solver: the
quick preset keeps every second node of a solve on 32 x 32 elements.
"""

import dataclasses
from typing import Any

from opjax import learn
from opjax.datasets import pipe
from opjax.learn import FLARE, LNO, PAPER, SMOKE, FieldOptions, option, published, quick
from opjax.learn.benchmark import load


@dataclasses.dataclass(frozen=True)
class Config(FieldOptions):
    """All that the numbers of a run depend on."""

    split: str = option(
        "transolver",
        "Whose test samples in the published files; whose mesh points, of the pipe or "
        "of the unit square with the pipe's as features",
        choices=tuple(pipe.SPLITS),
    )
    normalize_inputs: bool = option(True, "Normalise coordinates and features")
    num_elements: int = option(32, "Elements a side of our own solver", minimum=1)
    stride: int = option(2, "Keep every so many of its nodes", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if 2 * self.num_elements % self.stride:
            raise ValueError(
                f"stride={self.stride} must divide 2 num_elements="
                f"{2 * self.num_elements}."
            )


_RESCALED: Any = {"normalize_inputs": True, "normalize_target": True, "beta2": 0.999}
_RESCALED |= {"split": "transolver"}
_ONO = {"num_basis": 8, "num_landmarks": 256, "batch_size": 2, "clip_norm": 0.1}
PRESETS = {
    "smoke": Config(
        **SMOKE, num_train=8, num_validation=4, num_test=4, num_elements=8, stride=1
    ),
    **quick(Config()),
    # Table 10, and the authors' program for what it leaves open.
    **published(
        Config(
            **PAPER,
            split="functional",
            normalize_inputs=False,
            normalize_target=False,
            num_train=1000,
            num_test=200,
            num_elements=64,
            stride=1,
            shared_basis=False,
            batch_size=4,
            clip_norm=1.0,
            beta2=0.95,
        ),
        transolver={**_RESCALED, "mlp_ratio": 2, "batch_size": 8, "clip_norm": 0.1},
        flare={**FLARE, **_RESCALED, "num_basis": 128},
        lno=LNO,
        ono_original={**_RESCALED, **_ONO},
    ),
}


def make_task(config: Config, cache_dir: str | None) -> learn.Task:
    """The task of a run."""
    own = ("split", "num_elements", "stride")
    return learn.regression(
        config,
        load(config, pipe.splits, *own, cache_dir=cache_dir),
        encode_points=config.normalize_inputs,
        encode_features=config.normalize_inputs,
        encode_target=config.normalize_target,
        mean=config.mean_loss,
        notes="The target is the velocity along x.",
    )


PROGRAM = learn.Program("pipe", PRESETS, make_task, grid_axes=2, over_points=True)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
