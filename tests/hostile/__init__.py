"""Hostile files: mutated inputs of every format, read in processes with limits.

    python -m tests.hostile --seed=0 --files=2000

`originals` are valid files, `mutations` break them, `readers` read them, `worker` does
so in processes whose memory and time are limited, and sees what they touch.
"""


def run(seed: int, deadline: float) -> tuple[int, int]:
    """Reads mutated files of all formats in turn until the deadline.

    Args:
      seed: of the mutations.
      deadline: when to stop, a time of `time.monotonic`.

    Returns:
      How many files were read, and how many of them escaped: ended in another way than
      success or a documented error.
    """
    from tests.hostile import supervisor

    found = supervisor.run(seed, deadline=deadline)
    return sum(t.files for t in found), sum(len(t.escapes) for t in found)
