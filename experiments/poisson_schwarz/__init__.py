"""Learns the inverse Laplacian by two-level Schwarz attention.

    python -m experiments.poisson_schwarz --preset=quick
    python -m experiments.poisson_schwarz --preset=paper --sweep

The first line trains our default beside the global baselines and a closed form. The
second repeats the Schwarz paper, its tables and figures, and goes on to more points,
two dimensions and an ablation. Both write a folder with tables, figures and result, and
continue it when they are interrupted and run again.
"""

import dataclasses

import jax

from experiments.poisson_schwarz import figures, studies, tables
from experiments.poisson_schwarz.studies import STARTS, Structure, Study, Training
from experiments.poisson_schwarz.training import make_task
from opjax.learn import Finished, Program, Report, UpdateOptions, option


@dataclasses.dataclass(frozen=True)
class Config(Structure, Training, UpdateOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option("quick", "Values of all flags that are not given")
    dim: int = option(1, "Dimension", minimum=1, maximum=3)
    num_points: int = option(256, "Interior points per axis", minimum=2)
    global_rank: int = option(40, "Columns of the global baseline", minimum=1)
    init: str = option("whitened", "How training starts", choices=STARTS)
    learning_rate: float = option(0.0, "Rate; 0: the one of the start", minimum=0)
    seeds: tuple[int, ...] = option(
        tuple(range(10)), "Seeds, trained at once", minimum=0, below=2**31
    )
    sweep: bool = option(False, "Also train at all learning rates of the paper")
    beyond: bool = option(False, "Also more points, two dimensions and an ablation")

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.num_modes > self.num_points:
            raise ValueError(
                f"num_modes={self.num_modes} is more than the num_points="
                f"{self.num_points} points of an axis can tell apart."
            )
        if (2 * self.num_modes) ** self.dim > 4096:
            raise ValueError(
                f"num_modes={self.num_modes} in {self.dim} dimensions span "
                f"{(2 * self.num_modes) ** self.dim} functions; at most 4096 are "
                "tabulated."
            )
        # Covers and coarse spaces refuse what does not fit.
        setup = studies.setup_of(self)
        jax.eval_shape(lambda: studies.build(setup, STARTS["paper"], jax.random.key(0)))

    @property
    def rate(self) -> float:
        """Learning rate of the main study."""
        return self.learning_rate or STARTS[self.init].learning_rate

    def sections(self) -> dict[str, dict[str, Study]]:
        """Studies by section and label."""
        main = studies.main(self)
        if not self.beyond:
            return {"main": main}
        parts = (studies.growth, studies.ablation, studies.two_dimensions)
        return {"main": main} | {f.__name__: f(main["schwarz"]) for f in parts}

    def members(self) -> dict[tuple[str, None], Study]:
        """Studies by name; their seeds are trained at once."""
        groups = self.sections().values()
        return {(one.name, None): one for group in groups for one in group.values()}


PRESETS = {
    "smoke": Config(
        preset="smoke",
        num_points=64,
        num_modes=8,
        num_boxes=4,
        global_rank=20,
        num_steps=60,
        batch_size=32,
        seeds=(0, 1),
    ),
    "quick": Config(),
    # Section 6 of the paper at the rate of its Table 2.
    "paper": Config(preset="paper", init="paper", learning_rate=1e-3, beyond=True),
}


def report(finished: Finished) -> Report:
    """Tables, figures, and what the last line says of the configured model."""
    config, rows = finished.config, tables.rows(finished)
    figures.draw(finished.folder, config, rows)
    main = rows["main"]["schwarz"]
    result = {
        **main.summary(config.rate),
        "parameters": main.parameters,
        # Of everything in this process; `train_seconds` are of the Schwarz model, all
        # rates and seeds, without compilation.
        "seconds": finished.seconds,
        "train_seconds": main.result["seconds"],
        "init": config.init,
        "learning_rate": config.rate,
        "seeds": list(config.seeds),
        "data": finished.source,
    }
    text, head = tables.write(finished.folder, config, rows)
    return Report(text, result, head, alone=True)


PROGRAM = Program(
    "poisson_schwarz", PRESETS, make_task, title="Poisson, learned", report=report
)
run = PROGRAM.run
