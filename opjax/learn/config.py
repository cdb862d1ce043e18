"""Groups of options that a program's configuration is put together from.

    @dataclasses.dataclass(frozen=True)
    class Config(RunOptions, DataOptions, ModelOptions, TrainingOptions):
        stride: int = option(2, "Keep every so many points", minimum=1)

A program leaves out the groups that it has no use for; its presets, not its fields, say
what differs from the defaults here.
"""

import dataclasses
import functools
from typing import Any, Self

import optax

from opjax import precision, training
from opjax.learn import fields
from opjax.learn.fields import option
from opjax.nn.attention.mixers import RIDGE_UNITS

# Rules of updates, by name.
_RULES = {"adamw": training.adamw, "muon": training.muon}


@dataclasses.dataclass(frozen=True)
class Options:
    """What every configuration does."""

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        fields.check(self)


@dataclasses.dataclass(frozen=True)
class RunOptions(Options):
    """What to run."""

    preset: str = option(
        "quick", "Values of all flags that are not given; paper_x: those of the model x"
    )
    models: tuple[str, ...] = option(
        ("functional", "transolver", "galerkin"),
        "Models by name, or one of your own, package.module:function",
        members=True,
    )
    seeds: tuple[int, ...] = option(
        (0,),
        "Seeds of parameters and sample order",
        minimum=0,
        below=2**31,
        members=True,
    )

    @property
    def model(self) -> str:
        """The first model, the only one of a member."""
        return self.models[0]

    @property
    def seed(self) -> int:
        """The first seed, the only one of a member."""
        return self.seeds[0]

    def variants(self) -> dict[str, Self]:
        """Configurations that every model is trained with, by their labels."""
        return {"": self}

    def members(self) -> dict[tuple[str, Any], Any]:
        """Configurations of single models and seeds, by name and seed.

        A program that has others, of other classes too, replaces this. A seed that is
        None stands for a member with several seeds inside.
        """
        return {
            (f"{model}_{label}" if label else model, seed): dataclasses.replace(
                variant, models=(model,), seeds=(seed,)
            )
            for label, variant in self.variants().items()
            for model in self.models
            for seed in self.seeds
        }


@dataclasses.dataclass(frozen=True)
class DataOptions(Options):
    """Data."""

    data_dir: str = option("", "Folder of the published files; empty: own solver")
    data_seed: int = option(0, "Seed of our own solver's samples", minimum=0)
    num_train: int = option(200, "Training samples", minimum=1)
    num_validation: int = option(
        20, "Validation samples, which choose the epoch; 0: the last one", minimum=0
    )
    num_test: int = option(50, "Test samples", minimum=1)


@dataclasses.dataclass(frozen=True)
class SizeOptions(Options):
    """Size of the model."""

    features: int = option(64, "Channels of functional attention", minimum=1)
    num_layers: int = option(4, "Blocks", minimum=1)
    num_heads: int = option(4, "Heads; must divide the features", minimum=1)

    def __post_init__(self):
        """Refuses heads of unequal sizes."""
        super().__post_init__()
        if self.features % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} must divide features={self.features}."
            )


@dataclasses.dataclass(frozen=True)
class ModelOptions(SizeOptions):
    """Model."""

    equal_parameters: bool = option(
        True, "Give other models the channels that make parameters about equal"
    )
    num_basis: int = option(32, "Basis functions per head", minimum=1)
    mlp_ratio: int = option(1, "Hidden width of perceptrons over features", minimum=1)
    mlp_layers: int = option(2, "Residual layers of lno's perceptrons", minimum=1)
    convolution: bool = option(True, "3 x 3 projections where samples are on a grid")
    shared_basis: bool = option(True, "One basis for all blocks")
    reference_points: int = option(
        0, "Reference points per axis for distances as inputs; 0: none", minimum=0
    )
    ridge_logit: float = option(0.0, "Initial logit of the learned ridge")
    ridge_unit: str = option(
        "one",
        "What the ridge is measured in: one, or the mean eigenvalue of what it is "
        "added to",
        choices=RIDGE_UNITS,
    )
    initial_kernels: str = option(
        "published",
        "Deviations of kernels before training: published, 0.02, or such that features "
        "keep their variance",
        choices=("published", "unit_variance"),
    )
    temperature: float = option(0.5, "Initial temperature of the basis", above=0)
    min_temperature: float = option(
        0.1, "Smallest temperature of the basis; 0: all are free", minimum=0
    )
    max_temperature: float = option(5.0, "Largest temperature of the basis", above=0)
    projection: str = option(
        "mean",
        "How functions become coefficients",
        choices=("mean", "transpose", "pseudo_inverse"),
    )
    num_boxes: int = option(4, "Subdomains per side, of Schwarz models", minimum=1)
    overlap: int = option(2, "Points by which subdomains grow", minimum=0)
    coarse_points: int = option(
        0, "Points per side where galerkin2d attends; 0: half the grid's", minimum=0
    )
    num_modes: int = option(12, "Wave numbers of fno and galerkin2d", minimum=1)
    norm_epsilon: float = option(1e-7, "Added to the variances of galerkin2d", above=0)
    outer_norm: bool = option(
        False, "Whether galerkin2d and the like normalise layers rather than heads"
    )
    dropout: float = option(
        0.0, "Share of zeros in galerkin2d's layers", minimum=0, below=1
    )
    num_landmarks: int = option(64, "Landmarks of nystrom and ono", minimum=1)
    ono_attention: str = option(
        "nystrom",
        "Attention of ono",
        choices=("nystrom", "mean", "efficient", "galerkin"),
    )
    num_experts: int = option(3, "Experts of a mixture of gnot", minimum=1)
    num_random: int = option(64, "Random features of performer", minimum=1)
    num_projected: int = option(64, "Points that linformer projects to", minimum=1)
    rematerialize: bool = option(False, "Recompute blocks backward, to save memory")
    chunk_size: int = option(
        0,
        "Points computed at once, to save memory, and time on a CPU (256 to 1024); 0: "
        "all. For attention in bases without convolutions",
        minimum=0,
    )
    storage_dtype: str = option(
        "float32",
        "What chunk_size or rematerialize keep features in for the backward pass; 16 "
        "bits take half the memory and change gradients by about 1e-3",
        choices=("float32", *precision.TYPES),
    )
    compute_dtype: str = option(
        "float32",
        "What features are rounded to in products of points; sums and all else stay in "
        "float32. For attention in bases without convolutions",
        choices=("float32", *precision.TYPES),
    )

    def __post_init__(self):
        """Refuses what no model could use."""
        super().__post_init__()
        keeps = self.chunk_size or self.rematerialize
        if self.storage_dtype != ModelOptions.storage_dtype and not keeps:
            raise ValueError(
                f"storage_dtype={self.storage_dtype} means nothing without chunk_size "
                "or rematerialize; give one of them, or leave it out."
            )
        if self.reference_points == 1:
            raise ValueError("reference_points=1 must be at least 2, or 0 for none.")
        free, largest = not self.min_temperature, ModelOptions.max_temperature
        if free and self.max_temperature != largest:
            raise ValueError(
                f"max_temperature={self.max_temperature} means nothing with "
                "min_temperature=0, which leaves temperatures free."
            )
        if self.min_temperature > self.max_temperature:
            raise ValueError(
                f"min_temperature={self.min_temperature} must not be above "
                f"max_temperature={self.max_temperature}."
            )


@dataclasses.dataclass(frozen=True)
class UpdateOptions(Options):
    """Updates."""

    clip_norm: float = option(0.0, "Largest gradient norm; 0: no clipping", minimum=0)
    average_decay: float = option(
        0.0,
        "Decay of the moving average of the weights, which is validated and saved in "
        "their place; 0: none",
        minimum=0,
        below=1,
    )

    @property
    def updates(self) -> "UpdateOptions":
        """These options alone, for a program that passes them on."""
        names = [field.name for field in dataclasses.fields(UpdateOptions)]
        return UpdateOptions(**{name: getattr(self, name) for name in names})

    def around(
        self, optimizer: optax.GradientTransformation
    ) -> optax.GradientTransformation:
        """Returns the optimizer with what these options add to it."""
        if self.clip_norm:
            clip = training.clip_gradient_norm(self.clip_norm)
            optimizer = optax.chain(clip, optimizer)
        if self.average_decay:
            optimizer = training.averaged(optimizer, self.average_decay)
        return optimizer


@dataclasses.dataclass(frozen=True)
class TrainingOptions(UpdateOptions):
    """Training."""

    num_epochs: int = option(20, "Passes over the training samples", minimum=1)
    batch_size: int = option(2, "Samples in a batch", minimum=1)
    microbatch: int = option(
        0, "Samples differentiated at once; 0: one on CPU, else the batch", minimum=0
    )
    num_buckets: int = option(
        4, "Sizes that meshes of different sizes are padded to", minimum=1
    )
    optimizer: str = option(
        "adamw",
        "Rule of the updates; muon: of kernels, matrix by matrix, and adamw of the "
        "rest, see opjax.training.muon",
        choices=tuple(_RULES),
    )
    learning_rate: float = option(1e-3, "Peak of the one-cycle schedule", above=0)
    weight_decay: float = option(1e-5, "Decoupled decay of all parameters", minimum=0)
    clip_norm: float = option(0.1, "Largest gradient norm; 0: no clipping", minimum=0)
    pct_start: float = option(
        0.3, "Fraction of the run with rising rate", minimum=0, maximum=1
    )
    div_factor: float = option(25.0, "Peak over first learning rate", above=0)
    final_div_factor: float = option(1e4, "First over last learning rate", above=0)
    cycle_momentum: bool = option(True, "Cycle beta1 0.95, 0.85, 0.95")
    beta1: float = option(0.9, "Decay of the mean if not cycled", minimum=0, below=1)
    beta2: float = option(0.999, "Decay of the mean square", above=0, below=1)
    eps: float = option(1e-8, "Added to the root mean square", above=0)
    eval_every: int = option(1, "Epochs between validations", minimum=1)
    checkpoint_every: int = option(5, "Epochs between checkpoints", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        available = getattr(self, "num_train", 0) or self.batch_size
        if self.batch_size > available:
            raise ValueError(
                f"batch_size={self.batch_size} must be at most num_train={available}."
            )
        if self.microbatch and self.batch_size % self.microbatch:
            raise ValueError(
                f"microbatch={self.microbatch} must divide "
                f"batch_size={self.batch_size}."
            )
        if self.cycle_momentum and self.beta1 != TrainingOptions.beta1:
            raise ValueError(
                f"beta1={self.beta1} means nothing while beta1 is cycled; add "
                "--nocycle_momentum."
            )

    def make_optimizer(self, total_steps: int) -> optax.GradientTransformation:
        """Clipping, then AdamW or Muon under a one-cycle schedule, as torch runs it.

        Args:
          total_steps: updates of the whole run.

        Returns:
          The gradient transformation, the same object for the same numbers, so that
          members that differ in their seeds share what is compiled.
        """
        names = ("pct_start", "div_factor", "final_div_factor")
        return _onecycle(
            self.updates,
            self.optimizer,
            self.learning_rate,
            total_steps,
            b1=None if self.cycle_momentum else self.beta1,
            schedule=tuple((name, getattr(self, name)) for name in names),
            b2=self.beta2,
            eps=self.eps,
            weight_decay=self.weight_decay,
        )


@functools.lru_cache(maxsize=8)
def _onecycle(
    updates: UpdateOptions,
    rule: str,
    peak: float,
    total_steps: int,
    *,
    b1: float | None,
    schedule: tuple[tuple[str, float], ...],
    **numbers: float,
) -> optax.GradientTransformation:
    """A rule whose rate cycles, and whose beta1 does unless it is given."""
    rate = training.onecycle(peak, total_steps, **dict(schedule))
    beta = b1
    if beta is None:
        pct_start = dict(schedule)["pct_start"]
        beta = training.onecycle_momentum(total_steps, pct_start=pct_start)
    return updates.around(_RULES[rule](rate, b1=beta, **numbers))


@dataclasses.dataclass(frozen=True)
class StepOptions(UpdateOptions):
    """Training on fresh samples in every step."""

    num_steps: int = option(4000, "Optimizer steps", minimum=1)
    batch_size: int = option(8, "Samples of a step", minimum=1)
    learning_rate: float = option(0.0, "Rate; 0: the one of each model", minimum=0)
