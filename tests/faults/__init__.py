"""Faults: programs that are killed, disks that fail, files that rot.

    python -m tests.faults --minutes=30 --seed=0

`subjects` are the programs, `server` runs them in forked processes and kills those,
`content` says what a folder holds, `mutations` breaks what protects it and shows which
test sees that.
"""
