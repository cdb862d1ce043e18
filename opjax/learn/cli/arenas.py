"""Memory of a program that runs for days: few pools of the C library's allocator."""

import ctypes
import os

_ARENA_MAX = -8  # of <malloc.h>
_ARENAS = 2


def limit() -> bool:
    """Lets the threads of a process share two pools of glibc's allocator.

    Every checkpoint is saved by new threads. glibc gives threads pools of their own, up
    to eight a core, and what is free in them stays with the process: 4 % more memory
    after 20,000 steps. `MALLOC_ARENA_MAX` of the environment wins. Other C libraries
    are left alone.

    Returns:
      Whether the pools are limited now, by this call.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(library.mallopt(_ARENA_MAX, _ARENAS))
