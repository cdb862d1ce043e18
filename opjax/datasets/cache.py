"""A content-addressed cache of generated arrays on disk.

A file is identified by the SHA-256 digest of its recipe, so a changed recipe gives a
different file and no file must be invalidated. Files contain plain arrays (no pickle)
and their checksum; they are written atomically.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from opjax._files import OnePath, remove_leftovers, replacing

try:
    import fcntl
except ImportError:  # Windows: two processes both build, the last one is kept
    fcntl = None

_LOGGER = logging.getLogger(__name__)
_CHECKSUM = "_sha256"
_WAY_OUT = "set $OPJAX_CACHE or --cache_dir to a writable folder with free space"


def cached(
    build: Callable[[], Mapping[str, Any]],
    *,
    name: str,
    recipe: Mapping[str, Any],
    cache_dir: OnePath | None = None,
) -> dict[str, np.ndarray]:
    """Returns the arrays of `build()`, from disk if this recipe is cached.

    Another process that requests the same recipe waits and reads the result. A damaged
    file is reported and rebuilt. If the folder cannot be written, a warning is logged
    and the arrays are still returned.

    Args:
      build: function that returns the arrays; must depend only on `recipe`.
      name: start of the file name: letters, digits, `_` and `-`.
      recipe: everything that the arrays depend on, as JSON values, including the
        version of the generator as `version`.
      cache_dir: folder; created if missing. The default is `$OPJAX_CACHE` or
        `~/.cache/opjax`.

    Returns:
      The arrays by name.

    Raises:
      ValueError: if `name` is not a plain file name, `recipe` has no `version` or is
        not JSON, or an array name starts with an underscore.
      TypeError: if `recipe` or an array contains Python objects.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax.datasets.cache import cached
      >>> recipe = {"version": 1, "num_samples": 3}
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     given = {"name": "sines", "recipe": recipe, "cache_dir": folder}
      ...     first = cached(lambda: {"x": np.ones(3)}, **given)
      ...     again = cached(lambda: {"x": np.zeros(3)}, **given)  # is not called
      >>> again["x"].tolist()
      [1.0, 1.0, 1.0]
    """
    path = cache_path(name=name, recipe=recipe, cache_dir=cache_dir)
    with _locked(path) as alone:
        arrays = _read(path)
        if arrays is None:
            if alone:
                remove_leftovers(path.parent, path.stem)
            arrays = _plain_arrays(build())
            _write(path, arrays)
    return arrays


def cache_path(
    *,
    name: str,
    recipe: Mapping[str, Any],
    cache_dir: OnePath | None = None,
) -> Path:
    """Returns the path of the file of `cached`, with the same arguments and errors.

    Examples:
      >>> from opjax.datasets.cache import cache_path
      >>> cache_path(name="sines", recipe={"version": 1}, cache_dir="cache").suffix
      '.npz'
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError(f"{name=} must consist of letters, digits, '_' and '-'.")
    if "version" not in recipe:
        raise ValueError(
            f"The recipe has the keys {sorted(recipe)}, but 'version' is missing: "
            "a number to increase whenever the generator changes its output."
        )
    text = json.dumps(dict(recipe), sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return root(cache_dir) / f"{name}-{digest}.npz"


def root(cache_dir: OnePath | None = None) -> Path:
    """Returns the folder of the cache: `$OPJAX_CACHE` or `~/.cache/opjax`.

    Examples:
      >>> from opjax.datasets.cache import root
      >>> root("cache").name
      'cache'
    """
    folder = cache_dir or os.environ.get("OPJAX_CACHE") or "~/.cache/opjax"
    # Unlike Path.expanduser this does not raise for a user without a home folder.
    return Path(os.path.expanduser(folder))


def _plain_arrays(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    plain = {key: np.asarray(value) for key, value in arrays.items()}
    for key, array in plain.items():
        if key.startswith("_"):
            raise ValueError(
                f"Array name {key!r} starts with an underscore; rename it."
            )
        if array.dtype.hasobject:
            raise TypeError(f"Array {key!r} has dtype {array.dtype}, expected numbers.")
    return plain


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for key in sorted(arrays):
        array = arrays[key]
        digest.update(f"{key} {array.dtype.str} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _read(path: Path) -> dict[str, np.ndarray] | None:
    """Arrays of a complete, undamaged file; None if there is none."""
    try:
        # Opened here because np.load forgets to close a file that it cannot read.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as content:
            arrays = {key: content[key] for key in content.files}
        if str(arrays.pop(_CHECKSUM)) != _checksum(arrays):
            raise ValueError("the checksum does not match")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # a damaged byte can lead zipfile and NumPy anywhere
        _LOGGER.warning("Rebuilding the unreadable cache file %s: %s", path, error)
        return None
    _LOGGER.info("Read %s", path)
    return arrays


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes to a temporary file and renames it; a failure costs only a warning."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, open(temporary, "xb") as file:
            np.savez(file, **{_CHECKSUM: np.array(_checksum(arrays))}, **arrays)
        _LOGGER.info("Wrote %s", path)
    except OSError as error:
        _LOGGER.warning("Not cached (%s): %s", error, _WAY_OUT)


def _lock(file: IO[bytes], path: Path) -> None:
    assert fcntl is not None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _LOGGER.info("Waiting for another process that makes %s", path)
        fcntl.flock(file, fcntl.LOCK_EX)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[bool]:
    """Holds the lock file of `path` where the system has one to give; tells whether.

    The lock only saves work: without it, racing processes each build and rename. The
    empty lock file stays, since removing it would let a third process slip in.
    """
    held = False
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(open(path.with_suffix(".lock"), "ab"))
                _lock(file, path)
                held = True
            except OSError as error:
                _LOGGER.debug("No lock for %s: %s", path, error)
        yield held
