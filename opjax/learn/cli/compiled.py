"""Stores compiled programs on disk, so that the next run starts faster."""

import contextlib
import hashlib
import pathlib
import platform

import jax
import jaxlib

from opjax.datasets import cache

_LARGEST = 2**30  # bytes that all of them may take
_SHORTEST = 0.2  # seconds of compilation that are worth a file


def keep() -> None:
    """Enables JAX's compilation cache in `compiled/` of the cache folder.

    There is one cache per processor type and jaxlib version, because a program compiled
    for one processor may not run on another one that shares the folder. Beyond 1 GiB,
    the oldest files are deleted. A folder that was configured for JAX, such as
    `$JAX_COMPILATION_CACHE_DIR`, is not changed; an empty value disables the cache.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = cache.root() / "compiled"
    prune(folder, _LARGEST)
    kind = hashlib.sha256(_processor().encode()).hexdigest()[:12]
    place = folder / f"{jaxlib.version.__version__}-{kind}"
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _SHORTEST)


def prune(folder: pathlib.Path, largest: int) -> None:
    """Deletes the oldest files of a folder until at most `largest` bytes remain."""
    entries = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # another process deletes, too
            status = path.stat()
            if path.is_file():
                entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= largest:
            return
        total -= size
        with contextlib.suppress(OSError):
            path.unlink()


def _processor() -> str:
    """What compiled code depends on: the processor and all that it can do."""
    text = f"{platform.system()} {platform.machine()} {platform.processor()}"
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        headings = ("model name", "flags", "Features")
        for line in file:
            if not line.strip():  # the first core is enough
                break
            text += line if line.startswith(headings) else ""
    return text
