"""Pools of the allocator."""

import ctypes
import types

from opjax.learn.cli import arenas


def test_the_environment_wins(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    assert not arenas.limit()


def test_other_libraries_are_left_alone(monkeypatch):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: types.SimpleNamespace())
    assert not arenas.limit()


def test_glibc_is_told_of_two(monkeypatch):
    told = []
    library = types.SimpleNamespace(
        gnu_get_libc_version=None, mallopt=lambda *given: told.append(given) or 1
    )
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert arenas.limit()
    assert told == [(-8, 2)]
