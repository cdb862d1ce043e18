"""Heat kernel signatures of RNA surfaces, inputs that replace the coordinates.

They do not change under rotation or translation.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from opjax import _checks
from opjax._files import OnePath
from opjax.datasets import _off, _rna_files
from opjax.datasets.cache import cached
from opjax.eigenfunctions import heat_kernel_signature, laplacian_eigenfunctions
from opjax.samples import Sample

_VERSION = 1  # raise it whenever the same surfaces give other signatures
_FEWEST = 16  # points whose Laplacian is worth the name


def with_signatures(
    surfaces: Sequence[Sample],
    *,
    times: Sequence[float],
    num_functions: int = 128,
    data_dir: OnePath = "",
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    r"""Adds the logarithms of heat kernel signatures as features of surfaces.

        log(A sum_j exp(-lambda_j t) phi_j(x)^2),    A the area,

    so that all are zero at late times on a connected surface. If the published meshes
    with faces are available, the eigenfunctions are those of the cotangent Laplacian on
    all vertices (without triangles of zero area), evaluated at the nearest vertex of
    each point. Otherwise they are those of the graph Laplacian of the points. On two of
    the published meshes, signatures from 2048 points have a correlation with those from
    the mesh of 0.83 and 0.91 at 100 square angstrom, where heat has spread over 20
    angstrom, and above 0.98 from 530 on. The result is cached; computation takes a
    third of a second per surface, three seconds per mesh.

    Args:
      surfaces: surfaces from `rna.load`, in angstrom.
      times: positive times, in square angstrom.
      num_functions: number of eigenfunctions; fewer on a surface with fewer points.
      data_dir: the published folder, if available.
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      The surfaces with `features` `(n, len(times))`, float32.

    Raises:
      OSError: if a mesh cannot be read.
      ValueError: if a surface has too few points, a mesh is damaged, or a time is not
        positive.
    """
    _checks.positive(num_functions=num_functions, times=min(times))
    root = Path(data_dir).expanduser() if data_dir else None
    if root is None or not (root / "off").is_dir():
        root = None
    small = [s.name for s in surfaces if s.num_points < _FEWEST]
    if small:
        raise ValueError(
            f"{len(small)} surfaces have fewer than {_FEWEST} points, too few for "
            f"signatures: {', '.join(small[:8])}."
        )
    digest = hashlib.sha256()
    for surface in surfaces:
        digest.update(f"{surface.mesh_points.shape};".encode())
        digest.update(np.ascontiguousarray(surface.mesh_points).data)
        if root is not None:
            digest.update(_rna_files.files_of(root, surface.name)[0].read_bytes())
    recipe = {
        "version": _VERSION,
        "num_functions": int(num_functions),
        "times": [float(time) for time in times],
        "surfaces": digest.hexdigest(),
    }

    def build() -> dict[str, np.ndarray]:
        signatures = [_signature(s, root, num_functions, times) for s in surfaces]
        return {"signatures": np.concatenate(signatures).astype(np.float32)}

    arrays = cached(build, name="rna-signatures", recipe=recipe, cache_dir=cache_dir)
    ends = np.cumsum([surface.num_points for surface in surfaces])[:-1]
    parts = np.split(arrays["signatures"], ends)
    pairs = zip(surfaces, parts, strict=True)
    return [surface._replace(features=part) for surface, part in pairs]


def _signature(
    surface: Sample, root: Path | None, num_functions: int, times: Sequence[float]
) -> np.ndarray:
    """Logarithms of the signatures at the points of a surface, `(n, t)`."""
    points = surface.mesh_points.astype(np.float64)
    triangles = np.zeros((0, 3), np.int64)
    vertices = points
    if root is not None:
        path, _ = _rna_files.files_of(root, surface.name)
        vertices, triangles = _cleaned(
            _off.read_vertices(path), _off.read_triangles(path)
        )
    if not len(triangles):
        vertices = points
    functions, eigenvalues, masses = laplacian_eigenfunctions(
        vertices,
        num_functions=min(num_functions, len(vertices) - 2),
        triangles=triangles if len(triangles) else None,
        dimension=None if len(triangles) else 2,
    )
    with jax.enable_x64(True):
        signature = heat_kernel_signature(functions, eigenvalues, np.asarray(times))
    signature = np.log(np.maximum(masses.sum() * np.asarray(signature), 1e-12))
    return signature if vertices is points else signature[_nearest(points, vertices)]


def _cleaned(
    vertices: np.ndarray, triangles: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Joins vertices that coincide; leaves out what has no area or no triangle."""
    vertices, joined = np.unique(vertices, axis=0, return_inverse=True)
    triangles = joined.reshape(-1)[triangles]
    corners = vertices[triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    areas = np.linalg.norm(normals, axis=1)
    triangles = triangles[areas > 1e-6 * areas.mean()] if len(areas) else triangles
    used, renamed = np.unique(triangles, return_inverse=True)
    return vertices[used], renamed.reshape(-1, 3)


def _nearest(points: np.ndarray, vertices: np.ndarray) -> np.ndarray:
    from scipy.spatial import KDTree

    return np.asarray(KDTree(vertices).query(points)[1])
