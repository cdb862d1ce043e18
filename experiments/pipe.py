"""Flow through deformed pipes: learns the velocity along them from their shape.

    python -m experiments.pipe --preset=quick
    python -m experiments.pipe --preset=paper --data_dir=... --split=functional

The benchmark of Geo-FNO. Without --data_dir it takes samples of our own solver: the
quick preset keeps every second node of a solve on 32 x 32 elements.
"""

import dataclasses

from opjax.datasets import pipe
from opjax.learn import PAPER, SMOKE, BenchmarkOptions, Program, benchmark, option


@dataclasses.dataclass(frozen=True)
class Config(BenchmarkOptions):
    """All that the numbers of a run depend on."""

    split: str = option(
        "transolver", "Of the published files", choices=tuple(pipe.SPLITS)
    )
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


PRESETS = {
    "smoke": Config(
        **SMOKE, num_train=8, num_validation=4, num_test=4, num_elements=8, stride=1
    ),
    "quick": Config(),
    # As published, but for validation samples, which leave 980 of 1000 for training.
    "paper": Config(
        **PAPER,
        num_train=980,
        num_validation=20,
        num_test=200,
        num_elements=64,
        stride=1,
        batch_size=4,
        clip_norm=1.0,
    ),
}
PROGRAM = Program(
    "pipe",
    PRESETS,
    benchmark(
        pipe.splits,
        "split",
        "num_elements",
        "stride",
        encode_points=True,
        notes="The target is the velocity along x.",
    ),
)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
