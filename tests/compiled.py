"""Programs that tests compile, kept for later sessions and shared by all processes.

JAX writes the files of its cache in their place: who reads one meanwhile, or after its
writer was killed, finds half a program. So each process of a session has a folder of
its own, of links to what is kept, and adds what it has compiled after every file of
tests, whole and at once. What tests start shares the folder of its test.
"""

import contextlib
import hashlib
import os
import pathlib
import platform
import zlib
from collections.abc import Iterator

import jax
import jaxlib
import pytest

from opjax.learn.cli import compiled

_LARGEST = 2**30  # bytes that all programs may take
_SHORTEST = 0.05  # seconds; to keep a shorter compilation costs a tenth of it
_SUFFIX = "-cache"  # of JAX's files


def kept(cache: pathlib.Path) -> pathlib.Path:
    """The folder of programs for this processor, version of jaxlib and flags."""
    known = [platform.machine(), os.environ.get("XLA_FLAGS", "")]
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        known += sorted({x for x in file if x.startswith(("model name", "flags"))})
    kind = hashlib.sha256("\n".join(known).encode()).hexdigest()[:12]
    return cache / f"{jaxlib.version.__version__}-{kind}"


class Folder:
    """The programs of one process, which others get by `exchange`."""

    def __init__(self, path: pathlib.Path, store: pathlib.Path) -> None:
        self.path, self._store = path, store
        store.mkdir(parents=True, exist_ok=True)
        self.exchange()

    def exchange(self) -> None:
        """Adds what was compiled here to what is kept, and takes what others added."""
        own = {name for name in os.listdir(self.path) if name.endswith(_SUFFIX)}
        all_kept = set(os.listdir(self._store))
        for name in own - all_kept:
            if not (self.path / name).is_symlink():  # it was deleted meanwhile
                self._add(name)
        for name in all_kept - own:
            if name.endswith(_SUFFIX):
                (self.path / name).symlink_to(self._store / name)

    def _add(self, name: str) -> None:
        content = (self.path / name).read_bytes()
        if not whole(content):  # of a process that was killed
            return
        temporary = self._store / f".{name[-20:]}.{os.getpid()}"
        temporary.write_bytes(content)
        temporary.replace(self._store / name)

    def close(self) -> None:
        """Adds what is left, and deletes the oldest beyond 1 GiB."""
        self.exchange()
        compiled.prune(self._store.parent, _LARGEST)


def whole(content: bytes) -> bool:
    """Whether a file of JAX's cache has its end."""
    try:
        import zstandard
    except ImportError:
        unpack, error = zlib.decompress, zlib.error
    else:
        unpack, error = zstandard.decompress, zstandard.ZstdError
    try:
        unpack(content)
    except error:
        return False
    return True


@contextlib.contextmanager
def shared(path: pathlib.Path, store: pathlib.Path) -> Iterator[Folder]:
    """JAX finds and keeps programs, here and in the processes that tests start."""
    folder = Folder(path, store)
    settings = {
        "jax_compilation_cache_dir": str(folder.path),
        "jax_persistent_cache_min_compile_time_secs": _SHORTEST,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            jax.config.update(name, value)
            patch.setenv(name.upper(), str(value))
        try:
            yield folder
        finally:
            folder.close()
