"""Names that nobody else has, in this process and in those that are forked from it."""

from __future__ import annotations

import os

from workbench.ids import new_id


def test_names_differ_and_are_hexadecimal():
    names = {new_id() for _ in range(10_000)}
    assert len(names) == 10_000
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in names)


def test_a_forked_process_makes_others():
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(theirs, new_id().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(ours, 32).decode() != new_id()
    os.close(ours)
    os.close(theirs)
