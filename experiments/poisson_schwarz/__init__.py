"""Two-level Schwarz attention: learns the inverse Laplacian.

    python -m experiments.poisson_schwarz --preset=quick
    python -m experiments.poisson_schwarz --preset=paper --sweep
    python -m experiments.poisson_schwarz --further=scaling,mesh --nobaselines
    python -m experiments.poisson_schwarz --coefficient=random --contrast=1000

The first command trains our default model, the global baselines and a closed form. The
second reproduces the tables and figures of the Schwarz paper and adds more points, two
dimensions and an ablation. The third adds studies of what the paper leaves open. The
fourth learns the inverse of another operator. Each command writes a folder with tables,
figures and results, and continues it when repeated after an interruption.
"""

import dataclasses

import jax

from experiments.poisson_schwarz import (
    figures,
    further,
    sections,
    studies,
    tables,
    tables_further,
)
from experiments.poisson_schwarz.studies import (
    SCALINGS,
    STARTS,
    Equation,
    Structure,
    Study,
    Training,
)
from experiments.poisson_schwarz.training import NUM_SAMPLES, make_task
from experiments.studies import AtOnceOptions
from opjax.learn import Finished, Program, Report, UpdateOptions, option

_MOST_FUNCTIONS = 4096  # that right-hand sides are combined of


@dataclasses.dataclass(frozen=True)
class Config(Structure, Equation, Training, AtOnceOptions, UpdateOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    dim: int = option(1, "Dimension of space, 1 to 3", minimum=1, maximum=3)
    num_points: int = option(256, "Number of interior points per axis", minimum=2)
    global_rank: int = option(40, "Rank of the global low-rank baseline", minimum=1)
    init: str = option("whitened", "Initialisation of the factors", choices=STARTS)
    scaling: str = option(
        "none",
        "Scaling of attention by 1 / sqrt(n d_k): n counts all points or those of "
        "each block, start scales the initial factors only. See "
        "nn.schwarz.scale_products",
        choices=SCALINGS,
    )
    learning_rate: float = option(
        0.0, "Learning rate. 0 uses the default of --init", minimum=0
    )
    seeds: tuple[int, ...] = option(
        tuple(range(10)), "Seeds, all trained at once", minimum=0, below=2**31
    )
    sweep: bool = option(False, "Also train with all learning rates of the paper")
    baselines: bool = option(
        True, "Also train the global baselines and our default initialisation"
    )
    beyond: bool = option(False, "Also run more points, two dimensions and an ablation")
    further: tuple[str, ...] = option(
        ("none",),
        "Additional studies of questions that the paper leaves open",
        choices=("none", *further.SECTIONS),
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        _check_combinations(self)
        if self.num_modes > self.num_points:
            raise ValueError(
                f"num_modes={self.num_modes} is more than the num_points="
                f"{self.num_points} points of an axis can tell apart."
            )
        if (2 * self.num_modes) ** self.dim > _MOST_FUNCTIONS:
            raise ValueError(
                f"num_modes={self.num_modes} in {self.dim} dimensions span "
                f"{(2 * self.num_modes) ** self.dim} functions; at most "
                f"{_MOST_FUNCTIONS} are tabulated."
            )
        size, unseen = self.num_points**self.dim, (4 * self.num_modes) ** self.dim
        count = max(NUM_SAMPLES, unseen)
        if size * count > 2**28:
            raise ValueError(
                f"num_points={self.num_points} in {self.dim} dimensions are {size} "
                f"points, on which {count} functions need more than 2 GiB; use fewer "
                "points, or fewer num_modes."
            )
        # Covers and coarse spaces refuse what does not fit.
        setup = studies.setup_of(self)
        jax.eval_shape(lambda: studies.build(setup, STARTS["paper"], jax.random.key(0)))
        for study in self.members().values():
            if study.start.principal and study.num_columns > self.batch_size:
                raise ValueError(
                    f"batch_size={self.batch_size} must be at least "
                    f"{study.num_columns}: the factors of {study.name} start as so "
                    "many principal components of a batch."
                )

    @property
    def rate(self) -> float:
        """Learning rate of the main study."""
        return self.learning_rate or STARTS[self.init].learning_rate

    def sections(self) -> dict[str, dict[str, Study]]:
        """Studies by section and label."""
        main, parts = sections.main(self), {}
        if self.beyond:
            parts |= sections.BEYOND
        parts |= {k: further.SECTIONS[k] for k in self.further if k != "none"}
        return {"main": main} | {k: f(main["schwarz"]) for k, f in parts.items()}

    def members(self) -> dict[tuple[str, None], Study]:
        """Studies by name; their seeds are trained at once."""
        groups = self.sections().values()
        return {(one.name, None): one for group in groups for one in group.values()}


def _check_combinations(config: Config) -> None:
    """Raises ValueError for options that exclude each other."""
    varies, space = config.coefficient != "constant", config.coarse_space
    harmonic = space == "harmonic"
    excluded = {
        "sweep compares with the global model; leave out nobaselines": (
            config.sweep and not config.baselines
        ),
        "further=none goes with no other": (
            "none" in config.further and len(config.further) > 1
        ),
        f"scaling={config.scaling} goes with init=paper or init=small; init=whitened "
        "scales every level itself": (
            config.scaling != "none" and config.init == "whitened"
        ),
        f"coefficient={config.coefficient} needs dim=1": varies and config.dim > 1,
        f"coefficient={config.coefficient} needs a contrast above 1; try 1000": (
            varies and config.contrast == 1
        ),
        "coarse_space=harmonic needs a coefficient that varies; where it is constant, "
        "take interface": harmonic and not varies,
        "coarse_space=harmonic has levels=2": harmonic and config.levels > 2,
        "coarse_space=none is one level and has no others": (
            space == "none" and config.levels > 2
        ),
        f"coarse_boxes={config.coarse_boxes} has no effect with levels=2": (
            config.levels == 2 and config.coarse_boxes != Config.coarse_boxes
        ),
    }
    for message, applies in excluded.items():
        if applies:
            raise ValueError(f"{message}.")


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
    text = "\n".join([text, *tables_further.lines(rows)])
    return Report(text, result, head, alone=True)


PROGRAM = Program(
    "poisson_schwarz", PRESETS, make_task, title="Poisson, learned", report=report
)
run = PROGRAM.run
