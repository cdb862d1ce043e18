"""What tests compile is kept whole, for all of their processes."""

import zlib

import pytest

from tests import compiled


@pytest.fixture
def two(tmp_path):
    """Folders of two processes of one kind."""
    return folder(tmp_path, "one"), folder(tmp_path, "other")


def folder(root, name):
    (root / name).mkdir()
    return compiled.Folder(root / name, root / "all" / "kind")


def program(text):
    if not compiled.whole(zlib.compress(b"")):
        pytest.importorskip("zstandard")
        import zstandard

        return zstandard.compress(text)
    return zlib.compress(text)


def test_a_program_of_one_process_is_found_by_others_and_later(two, tmp_path):
    one, other = two
    (one.path / "jit_a-cache").write_bytes(program(b"a"))
    other.exchange()
    assert not (other.path / "jit_a-cache").exists()
    one.exchange()
    other.exchange()
    for found in (other, folder(tmp_path, "later")):
        assert (found.path / "jit_a-cache").read_bytes() == program(b"a")


def test_half_a_program_stays_where_it_is(two, tmp_path):
    one, other = two
    (one.path / "jit_a-cache").write_bytes(program(b"some text" * 99)[:-4])
    one.exchange()
    other.exchange()
    assert not list(other.path.iterdir())
    assert not list((tmp_path / "all" / "kind").iterdir())


def test_what_was_deleted_may_come_back(two, tmp_path):
    one, other = two
    (one.path / "jit_a-cache").write_bytes(program(b"a"))
    one.exchange()
    other.exchange()
    (tmp_path / "all" / "kind" / "jit_a-cache").unlink()
    other.exchange()  # its link leads nowhere, and it has nothing to add
    one.exchange()
    assert (other.path / "jit_a-cache").read_bytes() == program(b"a")


def test_other_flags_have_other_programs(tmp_path, monkeypatch):
    found = compiled.kept(tmp_path)
    assert found == compiled.kept(tmp_path)
    monkeypatch.setenv("XLA_FLAGS", "--xla_other=1")
    assert compiled.kept(tmp_path) != found
