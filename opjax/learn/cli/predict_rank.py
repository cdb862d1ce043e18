"""Ranking of candidates to solve next, `opjax-predict --rank=12`."""

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from opjax import files
from opjax._files import remove_leftovers
from opjax.learn.cli import shared
from opjax.learn.messages import say
from opjax.learn.predict import calibration, functions, ranking
from opjax.learn.predict.ranking import Candidate, Ranker
from opjax.learn.predict.trained import Trained
from opjax.samples import Sample

_FEWEST, _EACH = 128, 16  # candidates drawn from ranges: at least, and per case asked
_RANGE = re.compile(r"\s*(.+?)\s*:\s*(\S+?)\s*\.\.\s*(\S+?)\s*")
Ranges = Mapping[str, tuple[float, float]]


def parse_ranges(text: str) -> dict[str, tuple[float, float]]:
    """Parses ranges of scalars, such as `"angle: 0..10, mach: 0.3..0.6"`.

    Raises:
      ValueError: if the text is not valid, a name is repeated, or a range is empty.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for part in text.split(","):
        matched = _RANGE.fullmatch(part)
        try:
            if matched is None:
                raise ValueError
            low, high = float(matched[2]), float(matched[3])
        except ValueError:
            raise ValueError(
                f"--ranges: {part.strip()!r} is not a range, expected name: low..high, "
                "as in 'angle: 0..10'."
            ) from None
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(
                f"--ranges: {part.strip()!r} is empty; the first end must be smaller "
                "than the second."
            )
        if matched[1] in ranges:
            raise ValueError(f"--ranges: {matched[1]} has two ranges; give one.")
        ranges[matched[1]] = low, high
    return ranges


def rank(
    operator: Trained,
    inputs: Sequence[str],
    output: pathlib.Path,
    *,
    count: int,
    ranges: str | None = None,
    solved: Sequence[str] = (),
    own_model: str | None = None,
    point_dim: int | None = None,
) -> dict[str, Any]:
    """Orders candidates and writes `ranking.csv`.

    Args:
      operator: the trained operator that predicts them.
      inputs: files of the candidates; with `ranges`, files of their meshes.
      output: folder for the table.
      count: number of cases to choose.
      ranges: ranges of the candidates' scalars, see `parse_ranges`.
      solved: files of solved cases; the training files by default.
      own_model: as for `learn.load`.
      point_dim: as for `files.read`; by default, as in training.

    Returns:
      The content of the last output line.

    Raises:
      OSError: if a file cannot be read or written.
      ValueError: see `ranking.rank`; or if ranges are of unknown scalars.
    """
    remove_leftovers(output, pathlib.Path(ranking.FILE).stem)
    calibrated = calibration.load_calibration(operator, own_model=own_model)
    members = calibration.siblings(operator, own_model=own_model)
    ranker = Ranker(operator, calibrated, members)
    say(ranker.statement())
    for sample in _solved(operator, solved, point_dim):
        ranker.add_known(sample)
    if not ranker.num_known:
        say(
            "No solved cases are known, so candidates are compared only with each "
            "other; pass the files of the solved cases, --solved."
        )
    if ranges is not None:
        cases = _from_ranges(operator, inputs, point_dim, parse_ranges(ranges), count)
    else:
        several = (operator.read(f, point_dim=point_dim) for f in files.find(inputs))
        cases = itertools.chain.from_iterable(several)
    candidates: list[Candidate] = [ranker.measure(sample) for sample in cases]
    chosen = ranker.order(candidates, count)
    output.mkdir(parents=True, exist_ok=True)
    ranking.write(output / ranking.FILE, chosen)
    unlike = [bool(one.row["unlike"]) for one in chosen if "unlike" in one.row]
    return {
        "ranking": [one.name for one in chosen],
        "candidates": len(candidates),
        "solved": ranker.num_known,
        "width_from": ranker.source,
        **({"unlike": sum(unlike)} if unlike else {}),
        "output": str(output),
    }


def _solved(
    operator: Trained, asked: Sequence[str], point_dim: int | None
) -> Iterator[Sample]:
    """Solved cases: those that are named, or else those of training."""
    options = operator.read_options(point_dim=point_dim)
    config = operator.config
    paths = asked or shared.divided(config.get("train", ""))
    if not asked:
        options = dataclasses.replace(options, stacked=config.get("stacked", False))
    try:
        solved_files = files.find(paths, stacked=options.stacked)
    except FileNotFoundError:
        if asked:
            raise
        say(f"The training samples, {','.join(paths)}, are in no files that exist.")
        return
    for file in solved_files:
        yield from files.read(file, options)


def _from_ranges(
    operator: Trained,
    inputs: Sequence[str],
    point_dim: int | None,
    ranges: Ranges,
    count: int,
) -> Iterator[Sample]:
    """Candidates whose scalars are a Sobol sequence in ranges, on meshes in turn."""
    from scipy.stats import qmc  # slow to import

    names = functions.scalars_of(operator)
    if unknown := [name for name in ranges if name not in names]:
        raise ValueError(
            f"--ranges: {unknown[0]!r} is not a scalar of the operator in "
            f"{operator.folder} (it takes {', '.join(names) or 'none'})."
        )
    options = operator.read_options(point_dim=point_dim)
    for boundary, condition in options.conditions.items():
        if moved := [name for name in ranges if name in condition.names]:
            raise ValueError(
                f"--ranges: the mesh changes with {moved[0]}, which is in the "
                f"condition of the boundary {boundary}; write a file for each "
                "candidate instead."
            )
    left = {
        name: [one for one in getattr(options, name) if one not in ranges]
        for name in ("scalars", "numbers")
    }
    meshes = files.read(inputs, dataclasses.replace(options, **left))
    power = int(np.ceil(np.log2(max(_FEWEST, _EACH * count))))
    unit = qmc.Sobol(len(ranges), scramble=False).random_base2(power)
    low, high = np.asarray(list(ranges.values())).T
    for number, row in enumerate(qmc.scale(unit, low, high)):
        mesh = meshes[number % len(meshes)]
        drawn = dict(zip(ranges, row.tolist(), strict=True))
        yield _with_scalars(
            operator, mesh, left["scalars"], drawn, f"{mesh.name} [{number}]"
        )


def _with_scalars(
    operator: Trained,
    mesh: Sample,
    own: Sequence[str],
    drawn: Mapping[str, float],
    name: str,
) -> Sample:
    """A case on a mesh with numbers that were drawn, beside its own."""
    kept = [] if mesh.scalars is None else [*mesh.scalars]
    every = dict(zip(own, kept, strict=True)) | dict(mesh.numbers or {}) | dict(drawn)
    listed = operator.channel_names.get("scalars") or []
    scalars = np.asarray([every[one] for one in listed], np.float32)
    numbers = {one: every[one] for one in every if one not in listed}
    return mesh._replace(
        name=name,
        scalars=scalars if listed else None,
        numbers=numbers or mesh.numbers,
        target=None,
        target_scalars=None,
    )
