"""Baselines on the test samples, by the measure that operators are measured by."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from opjax.learn.baselines import fitted
from opjax.learn.baselines.fitted import NAMES, Baselines
from opjax.learn.messages import say
from opjax.learn.predict.field_errors import errors_of
from opjax.samples import Sample
from opjax.samples.fields import Field, Fields

Numbers = Callable[[np.ndarray], dict[str, float]]


class Compared(NamedTuple):
    """What the baselines of a task have reached.

    Attributes:
      fitted: the baselines; None if there are none.
      numbers: of each, by its key, as those of an operator in a table.
      words: how each predicts, by its key.
      notes: sentences, why one is left out or how meshes are brought together.
    """

    fitted: Baselines | None
    numbers: Mapping[str, dict[str, float]]
    words: Mapping[str, str]
    notes: Sequence[str]


def compare(
    train: Sequence[Sample],
    test: Sequence[Sample],
    fields: Fields | None,
    *,
    joint: Numbers | None,
) -> Compared:
    """Fits baselines to the training samples and measures them on the test samples.

    Args:
      train: training samples.
      test: test samples, in physical units.
      fields: of the output function, where each has an error of its own.
      joint: what is said of the errors of all channels together, if that is the error.
    """
    if reason := fitted.obstacle(train):
        return Compared(None, {}, {}, [f"No baselines: {reason}."])
    begin = time.monotonic()
    found = Baselines.fit(train, fields)
    numbers = {
        name: measured(
            test, [found.predict(name, one) for one in test], fields, joint=joint
        )
        for name in found.names
    }
    say(f"Baselines: {time.monotonic() - begin:.1f} s.")
    words = {name: found.words(name) for name in found.names}
    return Compared(found, numbers, words, found.notes)


def measured(
    test: Sequence[Sample],
    predicted: Sequence[np.ndarray],
    fields: Fields | None,
    *,
    joint: Numbers | None,
) -> dict[str, float]:
    """Returns the numbers of predictions, those that an operator has in tables."""
    numbers: dict[str, float] = {}
    if fields is not None:
        numbers = errors_of(fields, test, predicted).numbers()
    if joint is not None or fields is None:
        whole = together(predicted[0].shape[1])
        errors = errors_of(whole, test, predicted).filled[:, 0]
        numbers |= {} if joint is None else joint(errors)
    return numbers


def together(channels: int) -> Fields:
    """Returns all channels as one field, in physical units."""
    return Fields((Field("all", tuple(range(channels)), 1.0),))


def sentences(
    compared: Compared, models: Mapping[str, Mapping[str, float]], fields: Sequence[str]
) -> str:
    """Returns the sentences below a table: who wins, and how baselines predict.

    Args:
      compared: the baselines.
      models: the numbers of the models, medians over the seeds, by their names.
      fields: keys of the fields, empty for one.
    """
    parts = [_verdict(compared, models, fields)] if compared.numbers else []
    known = [f"- {NAMES[k]}: {text}." for k, text in compared.words.items() if text]
    parts += ["\n".join(known)] * bool(known)
    parts += [" ".join(compared.notes)] * bool(compared.notes)
    return "\n" + "\n\n".join(filter(None, parts)) + "\n" if any(parts) else ""


def wins(
    compared: Compared, models: Mapping[str, Mapping[str, float]], fields: Sequence[str]
) -> dict[str, str]:
    """Returns the fields on which a baseline is at least as good as all models.

    The key of the baseline by the key of the field, or by `""` for a single one.
    """
    found: dict[str, str] = {}
    for field in fields or [""]:
        baseline, model = (
            _smallest(rows, _key(field)) for rows in (compared.numbers, models)
        )
        if baseline and model and baseline[0] <= model[0]:
            found[field] = baseline[1]
    return found


def _key(field: str) -> str:
    return f"relative_l2_{field}" if field else "relative_l2"


def _smallest(
    rows: Mapping[str, Mapping[str, float]], key: str
) -> tuple[float, str] | None:
    found = [(row[key], name) for name, row in rows.items() if row.get(key) is not None]
    return min(found, default=None)


def _verdict(
    compared: Compared, models: Mapping[str, Mapping[str, float]], fields: Sequence[str]
) -> str:
    """Says which predicts each field better, and what follows."""
    won, lost, kept = wins(compared, models, fields), list[str](), list[str]()
    for field in fields or [""]:
        baseline, model = (
            _smallest(rows, _key(field)) for rows in (compared.numbers, models)
        )
        if baseline is None or model is None:
            continue
        of = f" of {field}" if field else ""
        pair = (
            f"{baseline[0]:.3g} ({NAMES[baseline[1]]}) to {model[0]:.3g} ({model[1]})"
        )
        if field in won:
            lost.append(f"{of.removeprefix(' of ') or 'error'} {pair}")
        else:
            ratio = baseline[0] / model[0] if model[0] else float("inf")
            kept.append(
                f"The operator {model[1]} has {ratio:.2g} times less error{of} than "
                f"the best baseline, {NAMES[baseline[1]]}."
            )
    if lost:
        names = list(dict.fromkeys(won.values()))
        flags = " or ".join(f"`--baseline={name}`" for name in names)
        kept.insert(
            0,
            f"**A baseline wins**: {', '.join(lost)}. Use the baseline: it is saved "
            f"with the run, and `opjax-predict` with {flags} predicts with it. An "
            "operator needs more cases, more training or other inputs to be worth its "
            "time here.",
        )
    return " ".join(kept)
