"""Options of training on time series."""

import dataclasses

from opjax.learn.config.fields import option, spell
from opjax.learn.config.groups import Options

MODES = ("one_step", "unrolled", "time_conditional", "one_shot")
# Modes whose model is told the time, or the size of the step.
TIMED = ("time_conditional", "one_shot")


@dataclasses.dataclass(frozen=True)
class TimeOptions(Options):
    """Time."""

    time: str = option(
        "none",
        "How a model learns transient fields. one_step: the next frame from true "
        "frames. unrolled: --unroll steps from its own predictions. "
        "time_conditional: the frame after a given time interval. one_shot: a frame "
        "at any time from the first frames. none: samples without time",
        choices=("none", *MODES),
    )
    unroll: int = option(
        4,
        "Number of steps that a training sample is unrolled for, with --time=unrolled; "
        "maximum number of frames that a step may span, with --time=time_conditional",
        minimum=1,
    )
    unroll_schedule: tuple[int, ...] = option(
        (),
        "Increasing numbers of unrolled steps, separated by commas, such as 1,4, one "
        "for each stage of training. Replaces --unroll. All stages have the same "
        "number of epochs",
    )
    unroll_gradient: str = option(
        "all",
        "Steps through which gradients pass, with --time=unrolled: all or only the "
        "last one",
        choices=("all", "last"),
    )
    history: int = option(1, "Number of input frames", minimum=1)
    time_target: str = option(
        "increment",
        "What a model predicts: the increment since the last frame, or the state",
        choices=("increment", "state"),
    )
    input_noise: float = option(
        0.0,
        "Standard deviation of the noise on input frames in training, in units of the "
        "standard deviation of each field",
        minimum=0,
    )
    rollout_steps: int = option(
        0,
        "Maximum number of steps of rollouts in validation and test. 0 rolls out to "
        "the end of every series",
        minimum=0,
    )
    validation_steps: int = option(
        0,
        "Maximum number of steps of rollouts in validation, which select the epoch. "
        "Use a few for chaotic equations. 0 uses --rollout_steps",
        minimum=0,
    )

    def __post_init__(self):
        """Refuses options that mean nothing in a mode."""
        super().__post_init__()
        unread = set[str]()
        if self.time == "none":
            own = {field.name for field in dataclasses.fields(TimeOptions)}
            unread = own - {"time"}
        elif self.time != "unrolled":
            unread = {"unroll_gradient", "unroll_schedule"}
            if self.time != "time_conditional":
                unread |= {"unroll"}
        for field in dataclasses.fields(TimeOptions):
            value = getattr(self, field.name)
            if field.name in unread and value != field.default:
                raise ValueError(
                    f"{field.name}={spell(value)} has no effect with "
                    f"time={self.time}; omit it, or use another time."
                )
        if self.unroll_schedule:
            self._check_schedule()

    def _check_schedule(self) -> None:
        """Raises ValueError unless the stages of the unrolling get longer."""
        stages, shown = self.unroll_schedule, spell(self.unroll_schedule)
        if self.unroll != TimeOptions.unroll:
            raise ValueError(
                f"unroll={self.unroll} has no effect with unroll_schedule={shown}, "
                "which sets the numbers of steps; omit one of them."
            )
        whole = list(filter(_is_number, stages))
        if len(stages) < 2 or list(stages) != sorted(set(whole)):
            raise ValueError(
                f"unroll_schedule={shown} must consist of two or more increasing "
                "numbers of steps, such as 1,4; for one number use --unroll."
            )

    @property
    def unroll_stages(self) -> tuple[int, ...]:
        """Number of unrolled steps in each stage of the training."""
        return self.unroll_schedule or (self.unroll,)


def _is_number(steps: object) -> bool:
    """Whether a caller, in Python, gave a number of steps."""
    return isinstance(steps, int) and steps > 0
