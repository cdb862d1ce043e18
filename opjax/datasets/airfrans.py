"""AirfRANS: air flow around airfoils, published or converted, or potential flow.

A sample is the flow around one airfoil at one speed and angle of attack. Features are
`x, y`, the freestream velocity, the distance to the airfoil and its normals, which are
zero in the fluid. Targets are velocity, pressure over density and turbulent viscosity.
Velocities are in m/s, lengths in chords of one metre.

`generate` computes potential flow around Joukowski airfoils in the same layout: no
RANS, no viscosity, no boundary layer. Use it for tests and to try the program.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from opjax import _checks, samples
from opjax._files import OnePath
from opjax.datasets import _airfrans_files, _arrays, _generated
from opjax.datasets.requests import Request, divide
from opjax.files import variables
from opjax.problems import airfoil_forces, joukowski
from opjax.samples import Sample, Splits

# Lists of `manifest.json` for training and tests; counts as published.
SPLITS = {
    "full": ("full_train", "full_test"),
    "scarce": ("scarce_train", "full_test"),
    "reynolds": ("reynolds_train", "reynolds_test"),
    "aoa": ("aoa_train", "aoa_test"),
}
FEATURES = ("x", "y", "u_inf", "v_inf", "distance", "n_x", "n_y")
TARGETS = ("u", "v", "p", "nut")

_ARRAYS = ("points", "cells", "surface", "fields", "distance", "normals")
_SOURCE = "data.isir.upmc.fr/extrality/NeurIPS_2022/Dataset.zip"
_NAME = re.compile(r"airFoil2D_[A-Za-z]+_([0-9.]+)_(-?[0-9.]+)(_[-0-9.]+)*")


class Details(NamedTuple):
    """Additional data for the evaluation of a flow.

    Attributes:
      points: nodes in float64, `(n, 2)`, because cells at the airfoil are too thin for
        float32.
      surface: indices of the nodes on the airfoil, in order around it, `(m,)`.
      speed: freestream speed.
      angle: angle of attack, in radians.
    """

    points: np.ndarray
    surface: np.ndarray
    speed: float
    angle: float


def splits(
    request: Request,
    *,
    split: str = "full",
    num_radii: int = 24,
    num_angles: int = 64,
) -> Splits:
    """Returns the flows of a benchmark, see `requests.Request`, or potential flows.

    The split is that of AirfRANS, as for `load`. The other options are as for
    `generate`.
    """
    if request.data_dir:
        source = f"AirfRANS, {split}, {request.data_dir}"
        return request.read(partial(load, split=split), source)
    first, test = (
        generate(
            count,
            seed=2 * request.seed + i,
            num_radii=num_radii,
            num_angles=num_angles,
            cache_dir=request.cache_dir,
        )
        for i, count in enumerate((sum(request.sizes[:2]), request.num_test))
    )
    source = f"potential flow, no AirfRANS data, seed {request.seed}"
    return divide([*first, *test], request.sizes, source)


def load(
    data_dir: OnePath,
    *,
    split: str = "full",
    num_train: int | None = None,
    num_test: int | None = None,
) -> tuple[list[Sample], list[Sample]]:
    """Reads cases as published, or as written by `convert`.

    The folder, or its subfolder `Dataset`, contains `manifest.json` and, for every
    case, a folder with `<case>_internal.vtu` and `<case>_aerofoil.vtp`, or a file
    `<case>.npz`. The authors used the last tenth of the training list for validation.

    Args:
      data_dir: the folder.
      split: one of `SPLITS`: all cases; few training cases (with the same test set); or
        Reynolds numbers or angles of attack in the test set outside the training range.
      num_train: maximum number of training cases, the first ones.
      num_test: maximum number of test cases.

    Returns:
      Training and test cases: `features` and `target` as in `FEATURES` and `TARGETS` at
      all nodes, quadrilateral `cells`, `name` as published, and `Details`.

    Raises:
      FileNotFoundError: if files are missing. The message names them and the download
        address.
      ImportError: if pyvista is needed but missing.
      ValueError: if a file is damaged, or there are too few cases.

    References:
      Bonnet et al., "AirfRANS", NeurIPS 2022 (arXiv:2212.07564).
    """
    _checks.option("split", split, SPLITS)
    root = _root(data_dir)
    manifest = _manifest(root)
    loaded = []
    for key, limit in zip(SPLITS[split], (num_train, num_test), strict=True):
        names = manifest.get(key)
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError(
                f"{root / 'manifest.json'} has the lists {sorted(manifest)}, "
                f"expected the list {key!r} of case names."
            )
        if limit is not None and not 1 <= limit <= len(names):
            raise ValueError(
                f"{key} in {root / 'manifest.json'} has {len(names)} cases, but "
                f"{limit} were requested (validation cases are training cases and "
                "count too)."
            )
        loaded.append([read_case(root, name) for name in names[:limit]])
    train, test = loaded
    samples.check([*train, *test])
    return train, test


def read_case(data_dir: OnePath, name: str) -> Sample:
    """Reads one case; arguments and errors as for `load`."""
    root = Path(data_dir)
    converted = root / f"{name}.npz"
    if converted.is_file():
        arrays = {
            k: variables.read_variable(converted, k, source=_SOURCE) for k in _ARRAYS
        }
        return _case(name, converted, arrays)
    parts = ("internal.vtu", "aerofoil.vtp")
    paths = [root / name / f"{name}_{part}" for part in parts]
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"Neither {converted} exists nor {', '.join(missing)}. Get the data set "
            f"from {_SOURCE}."
        )
    arrays = _airfrans_files.read(*paths, source=_SOURCE)
    return _case(name, paths[0], arrays)


def convert(
    data_dir: OnePath,
    out_dir: OnePath,
    *,
    names: Sequence[str] | None = None,
) -> None:
    """Converts published cases to `.npz` files, which load faster and without pyvista.

    Args:
      data_dir: the published folder.
      out_dir: folder for `<case>.npz` and a copy of `manifest.json`; existing cases are
        not converted again.
      names: names of the cases; by default all in the manifest.

    Raises:
      FileNotFoundError: if files are missing.
      ImportError: if pyvista is missing.
      OSError: if a file cannot be written.
      ValueError: if a file is damaged.
    """
    root, out = _root(data_dir), Path(out_dir).expanduser()
    manifest = _manifest(root)
    if names is None:
        names = sorted({name for listed in manifest.values() for name in listed})
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (out / f"{name}.npz").exists():
            variables.write(out / f"{name}.npz", _plain(read_case(root, name)))
    (out / "manifest.json").write_text(json.dumps(manifest))


def save(
    data_dir: OnePath,
    cases: Sequence[Sample],
    manifest: dict[str, Sequence[str]],
) -> None:
    """Writes cases in the published layout, so that `load` reads them.

    Args:
      data_dir: folder; created if missing.
      cases: cases from `load`.
      manifest: lists of names.

    Raises:
      ImportError: if pyvista is missing.
      OSError: if a file cannot be written.
    """
    root = Path(data_dir).expanduser()
    for case in cases:
        name = case.name
        (root / name).mkdir(parents=True, exist_ok=True)
        _airfrans_files.write(root / name / name, _plain(case))
    (root / "manifest.json").write_text(
        json.dumps({key: list(names) for key, names in manifest.items()})
    )


def generate(
    num_samples: int,
    *,
    seed: int,
    num_radii: int = 24,
    num_angles: int = 64,
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Generates potential flows around Joukowski airfoils; no AirfRANS data, no RANS.

    Speeds range from 30 to 90 m/s, angles of attack from -5 to 15 degrees, thickness
    from 10 to 20 and camber up to 6 percent of the chord. The velocity at the airfoil
    is set to zero, as published, although this fluid slips. The pressure is that of the
    slipping fluid, and the turbulent viscosity is zero.

    Args:
      num_samples: number of cases; case `i` depends only on `seed` and `i`.
      seed: seed of the set; use different seeds for training and test data.
      num_radii: number of nodes outwards, within four chords.
      num_angles: number of nodes around the airfoil.
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      The cases.

    Raises:
      ValueError: if a number is not positive or `seed` is negative.
    """
    arrays = _build(
        num_samples, seed, cache_dir, num_radii=num_radii, num_angles=num_angles
    )
    cells, surface = _ring(num_radii, num_angles)
    return [
        _case(
            f"airFoil2D_joukowski_{speed:.3f}_{angle:.3f}_{index}",
            Path("generated"),
            {name: array[index] for name, array in arrays.items()}
            | {"cells": cells, "surface": surface},
        )
        for index, (speed, angle) in enumerate(arrays["conditions"])
    ]


def coefficients(case: Sample, fields: np.ndarray) -> np.ndarray:
    """Returns drag and lift coefficient of fields on the mesh of a case.

    The velocity at the airfoil is set to zero, as in the published evaluation.

    Args:
      case: the flow.
      fields: velocity, pressure and turbulent viscosity, shape `(n, 4)`.

    Returns:
      Both coefficients in float64, shape `(2,)`.
    """
    assert case.cells is not None
    assert case.features is not None
    points, surface, speed, angle = case.details
    velocity = np.array(fields[:, :2], np.float32)
    velocity[surface] = 0
    stencil = airfoil_forces.wall_stencil(points, case.cells, surface)
    normals = case.features[surface, 5:]
    forces = airfoil_forces.force_coefficients(
        points[surface].astype(np.float32),
        fields[surface, 2],
        speed=speed,
        angle=angle,
        shear=airfoil_forces.wall_shear(velocity, normals, stencil),
    )
    return np.asarray(forces, np.float64)


def _root(data_dir: OnePath) -> Path:
    names = ["manifest.json", "Dataset/manifest.json"]
    return _arrays.find(data_dir, names, source=_SOURCE).parent


def _manifest(root: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((root / "manifest.json").read_text())
    except ValueError as error:
        raise ValueError(
            f"{root / 'manifest.json'} is damaged: {error}. Get it from {_SOURCE}."
        ) from None
    if not isinstance(manifest, dict):
        raise ValueError(f"{root / 'manifest.json'} must contain lists by name.")
    return manifest


def _case(name: str, path: Path, arrays: Mapping[str, np.ndarray]) -> Sample:
    """Builds a case from what `_plain` takes out of it, checked."""
    points, cells, surface, fields, distance, normals = (arrays[k] for k in _ARRAYS)
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(
            f"{name!r} is not the name of a case, expected "
            "airFoil2D_SST_<speed>_<angle>_<digits>."
        )
    n, m = len(points), len(surface)
    expected = {
        "points": (points, (n, 2)),
        "fields": (fields, (n, 4)),
        "distance": (distance, (n,)),
        "normals": (normals, (m, 2)),
    }
    for key, (array, shape) in expected.items():
        if array.shape != shape or array.dtype.kind != "f":
            raise ValueError(
                f"{key} in {path} has shape {array.shape} and dtype {array.dtype}, "
                f"expected numbers of shape {shape}, because points has {n} rows "
                f"and surface has {m}."
            )
    for key, array in {"cells": cells, "surface": surface}.items():
        if array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= n:
            raise ValueError(f"{key} in {path} must contain point indices below {n}.")
    if m < 3 or len(set(surface.tolist())) < m:
        raise ValueError(
            f"surface in {path} has {m} nodes, expected at least three distinct nodes."
        )
    speed, angle = float(match[1]), math.radians(float(match[2]))
    features = np.zeros((n, len(FEATURES)), np.float32)
    features[:, :2] = points
    features[:, 2:4] = speed * np.array([math.cos(angle), math.sin(angle)])
    features[:, 4] = distance
    features[surface, 5:] = normals
    return Sample(
        points.astype(np.float32),
        fields.astype(np.float32),
        features,
        cells=cells,
        name=name,
        details=Details(points.astype(np.float64), surface, speed, angle),
    )


def _plain(case: Sample) -> dict[str, Any]:
    """Arrays of a case, as in a converted file."""
    assert case.features is not None
    return {
        "points": case.details.points,
        "cells": case.cells,
        "surface": case.details.surface,
        "fields": case.target,
        "distance": case.features[:, 4],
        "normals": case.features[case.details.surface, 5:],
    }


def _ring(num_radii: int, num_angles: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells of a mesh around the airfoil, and the nodes on it."""
    index = np.arange(num_radii * num_angles).reshape(num_radii, num_angles)
    after = np.roll(index, -1, axis=1)
    corners = (index[:-1], index[1:], after[1:], after[:-1])
    return np.stack([c.reshape(-1) for c in corners], axis=1), index[0]


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("joukowski", version=1)
def _build(
    *, num_samples: int, seed: int, num_radii: int, num_angles: int
) -> dict[str, np.ndarray]:
    def draw(_: jax.Array, index: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([seed, index])
        # As in the name of the case, from which they are read again.
        speed, angle = (round(v, 3) for v in rng.uniform([30, -5], [90, 15]))
        thickness, camber = rng.uniform([0.1, 0.0], [0.2, 0.06])
        flow = joukowski.flow(
            speed,
            math.radians(angle),
            np.array([-0.77 * thickness, 2 * camber]),
            num_radii=num_radii,
            num_angles=num_angles,
        )
        points, velocity, pressure, normals = map(np.asarray, flow[:4])
        velocity = np.concatenate([np.zeros_like(velocity[:1]), velocity[1:]])
        zero = np.zeros_like(pressure)[..., None]
        fields = np.concatenate([velocity, pressure[..., None], zero], axis=-1)
        points = points.reshape(-1, 2)
        return {
            "points": points,
            "fields": fields.reshape(-1, 4),
            "distance": _distances(points, points[:num_angles]),
            "normals": normals,
            "conditions": np.array([speed, angle]),
        }

    return _generated.draw(
        draw,
        num_samples=num_samples,
        seed=seed,
        name="Potential flow",
        dtype=np.float64,
    )


def _distances(points: np.ndarray, contour: np.ndarray) -> np.ndarray:
    """Distances of points from the sides of a polygon."""
    sides = np.roll(contour, -1, axis=0) - contour
    offsets = points[:, None] - contour[None]
    along = np.sum(offsets * sides, axis=2) / np.sum(sides**2, axis=1)
    nearest = offsets - np.clip(along, 0, 1)[..., None] * sides
    return np.linalg.norm(nearest, axis=2).min(axis=1)
