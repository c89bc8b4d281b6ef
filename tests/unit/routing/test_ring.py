"""A bounded log that is read by cursor."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.routing.ring import Ring


def test_items_are_numbered_from_one():
    ring = Ring(3)
    assert ring.last == 0
    assert [ring.append(item) for item in "abcd"] == [1, 2, 3, 4]
    assert (ring.last, len(ring)) == (4, 3)


def test_a_reader_that_keeps_up_misses_nothing_and_reads_nothing_twice():
    ring, seen, cursor = Ring(10), [], 0
    for start in range(0, 40, 8):
        for item in range(start, start + 8):
            ring.append(item)
        page = ring.read(cursor)
        seen += page.items
        cursor = page.cursor
        assert page.lost == 0
    assert seen == list(range(40))
    assert ring.read(cursor) == ([], 40, 0)


def test_a_reader_that_was_too_slow_is_told_how_much_it_missed():
    ring = Ring(3)
    for item in "abcde":
        ring.append(item)
    assert ring.read(1) == (["c", "d", "e"], 5, 1)


def test_a_page_is_as_long_as_was_asked_for():
    ring = Ring(10)
    for item in "abcde":
        ring.append(item)
    assert ring.read(1, limit=2) == (["b", "c"], 3, 0)
    assert ring.read(9) == ([], 5, 0)


@given(
    size=st.integers(1, 6),
    steps=st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(1, 4)), max_size=20),
)
def test_what_is_read_and_what_is_lost_is_all_there_was(size, steps):
    ring, everything, cursor = Ring(size), [], 0
    for added, limit in steps:
        for _ in range(added):
            everything.append(len(everything))
            ring.append(everything[-1])
        page = ring.read(cursor, limit)
        first = cursor + page.lost
        assert page.items == everything[first : first + len(page.items)]
        assert page.cursor == first + len(page.items)
        assert len(ring) == min(size, len(everything))
        cursor = page.cursor
