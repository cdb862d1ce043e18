"""Suggestions for unknown flags: similar names and new names of renamed flags."""

import difflib
from collections.abc import Collection, Iterable, Sequence

from opjax.learn.config import renamed

# What other programs call the same, where the words are too different to tell.
_ELSEWHERE = {
    "average_decay": ("ema", "ema_decay"),
    "batch_size": ("bs",),
    "clip_norm": ("grad_clip", "max_grad_norm", "gradient_clip"),
    "devices": ("gpu", "gpus", "num_gpus"),
    "init_from": ("pretrained", "finetune", "fine_tune", "checkpoint", "load"),
    "learning_rate": ("lr", "max_lr"),
    "models": ("architecture", "arch", "net", "network"),
    "num_basis": ("basis", "k", "slice_num"),
    "num_epochs": ("epoch",),
    "num_layers": ("depth", "blocks", "num_blocks"),
    "preset": ("config", "recipe"),
    "seeds": ("random_seed", "random_state"),
    "target_names": ("target", "outputs", "labels"),
    "feature_names": ("inputs", "fields"),
    "test": ("test_data", "test_dir"),
    "train": ("data", "dataset", "train_data"),
    "validation_fraction": ("validation", "val", "val_split"),
    "weight_decay": ("wd", "decay", "l2"),
    "width": ("channels", "dim", "hidden", "hidden_dim", "n_hidden", "hidden_size"),
    "workdir": ("dir", "folder", "out", "outdir", "output", "output_dir", "resume"),
}


def meant(name: str, known: Collection[str], within: Collection[str] = ()) -> str:
    """Returns a sentence that suggests what to write instead of an unknown flag.

    Args:
      name: the unknown flag.
      known: names of all flags.
      within: options that are set with --model_options.

    Returns:
      The sentence; empty if no flag is similar.
    """
    plain = name.replace("-", "_").strip("_")
    if plain.removeprefix("no") in within:
        plain = plain.removeprefix("no")
    if plain in within:
        return f"It is an option of single models: --model_options={plain}=..."
    new = renamed.FLAGS.get(plain)
    if new in known:
        return f"Since opjax 0.3 it is called --{new}."
    near = [flag for flag, others in _ELSEWHERE.items() if plain in others]
    near = [flag for flag in near if flag in known] or _similar(plain, known)
    if near:
        return f"Did you mean --{' or --'.join(near)}?"
    if options := _similar(plain, within):
        return f"Did you mean --model_options={options[0]}=...?"
    return ""


def unexpected(arguments: Sequence[str], line: Sequence[str]) -> str:
    """Returns a sentence about arguments that are not flags.

    Args:
      arguments: the remaining arguments.
      line: the full command line.
    """
    first = line.index(arguments[0]) if arguments[0] in line else 0
    before = line[first - 1] if first else ""
    what = f"Unexpected arguments: {' '.join(arguments)}."
    if before.startswith("-") and before.endswith(","):
        return (
            f"{what} A blank ends the value of a flag: write {before}{arguments[0]} "
            f'without it, or put quotes around it, "{before} {arguments[0]}".'
        )
    return f"{what} Values belong to flags, --name=value; --help lists all flags."


def _similar(name: str, known: Iterable[str]) -> list[str]:
    """The nearest name, and those that complete it."""
    names = [flag for flag in known if len(flag) > 2]
    completed = sorted(flag for flag in names if name in flag.split("_"))
    return completed[:3] or difflib.get_close_matches(name, names, n=1, cutoff=0.7)
