"""Options of a training that starts from a baseline or from a trained operator."""

import dataclasses

from opjax.learn.config.fields import option, spell
from opjax.learn.config.groups import Options

NORMALIZERS = ("keep", "renew", "blend")
# What has no effect without an operator to start from.
OF_OPERATOR = ("init_normalizers", "init_channels", "train_only", "rank")


@dataclasses.dataclass(frozen=True)
class StartOptions(Options):
    """Start."""

    start_from: str = option(
        "nothing",
        "Starting point of predictions. baseline: the model learns the residual of "
        "the best baseline (mean field, nearest case or POD with RBF, selected for "
        "each field on held-out training cases), and the validation set determines "
        "how much of the model is added",
        choices=("nothing", "baseline"),
    )

    init_from: str = option(
        "",
        "Operator that supplies the initial parameters and the normalisers: the folder "
        "of a finished run, a published folder, the name of an operator that ships "
        "with opjax, or hf://owner/name. The model must have the same options. If "
        "empty, parameters are initialised from --seeds",
    )
    init_normalizers: str = option(
        "keep",
        "Normalisers of a training that starts with --init_from. keep: those of the "
        "operator, so that it predicts the same before the first step. renew: fitted "
        "to the new training samples, for data in other units or of other ranges. "
        "blend: mean and deviation of both in equal parts",
        choices=NORMALIZERS,
    )
    init_channels: str = option(
        "same",
        "Channels of the samples of a training that starts with --init_from. same: "
        "those of the operator. by_name: inputs and fields may differ. Channels of "
        "the same name are kept, and others are new: at first, a new input has no "
        "effect, and a new field is predicted by its mean",
        choices=("same", "by_name"),
    )
    train_only: tuple[str, ...] = option(
        (),
        "Parts of the operator of --init_from that are trained, separated by commas; "
        "the others are frozen. head: what computes the output from the last layer. "
        "norms: all normalisation layers. Other names are parts of parameter names, "
        "such as attention, blocks.mlp or bias; an unknown name lists them. If empty, "
        "all parts are trained",
    )
    rank: int = option(
        0,
        "Rank of the updates of the weight matrices of the operator of --init_from. "
        "Only these updates are trained, and they are added to the matrices in the "
        "trained operator. 0 trains all parameters",
        minimum=0,
    )

    @property
    def freezes(self) -> bool:
        """Whether parts of the operator are not trained."""
        return bool(self.train_only or self.rank)

    def check_operator(self) -> None:
        """Raises ValueError for options without an operator to start from."""
        for name in OF_OPERATOR:
            value = getattr(self, name)
            if value != getattr(StartOptions, name):
                raise ValueError(
                    f"{name}={spell(value)} has no effect without init_from; pass the "
                    "initial operator, or omit it."
                )


START = StartOptions()  # by default
