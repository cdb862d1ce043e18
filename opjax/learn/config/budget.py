"""Options of the length of the training, in steps."""

import dataclasses

from opjax.learn.config.fields import option
from opjax.learn.config.groups import Options


@dataclasses.dataclass(frozen=True)
class BudgetOptions(Options):
    """Budget."""

    num_steps: int = option(
        0,
        "Number of optimizer steps, rounded to whole epochs. Replaces --num_epochs. "
        "0 uses --num_epochs",
        minimum=0,
    )
    full_points: float = option(
        0.0,
        "Final fraction of the epochs in which steps use all points, after "
        "--train_points",
        minimum=0,
        below=1,
    )

    def __post_init__(self):
        """Refuses a last stage of all points where there is no other."""
        super().__post_init__()
        points = getattr(self, "train_points", (1.0,))
        if self.full_points and set(points) == {1.0}:
            raise ValueError(
                f"full_points={self.full_points} has no effect without train_points, "
                "because all steps use all points; set train_points, or omit it."
            )
