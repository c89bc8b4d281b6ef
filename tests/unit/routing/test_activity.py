"""What sessions did since somebody asked last."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.routing.books import table
from workbench.metrics.samples import Activity, SessionTurns
from workbench.routing.activity import MOVES, activity
from workbench.routing.messages import Usage
from workbench.types import EventKind


def turns(books, session, count):
    for _ in range(count):
        books.release(books.acquire(session))


def test_without_events_nothing_is_told():
    assert activity(table(0).journal, 7, 30) == Activity(cursor=7)


def test_the_busiest_sessions_are_told_one_by_one_and_the_others_by_replica():
    books = table(1)
    for session, count in (("a", 1), ("b", 5), ("c", 2), ("d", 3)):
        turns(books, session, count)
    told = activity(books.journal, 0, 2)
    assert told.hot == (SessionTurns("b", "replica-0", 5), SessionTurns("d", "replica-0", 3))
    assert told.others == (("replica-0", 3),)
    assert activity(books.journal, 0, 0).others == (("replica-0", 11),)
    assert activity(books.journal, 0, 30).others == ()


def test_a_session_on_two_replicas_is_told_twice():
    books = table(2, "round-robin")
    turns(books, "s", 3)
    assert activity(books.journal, 0, 30).hot == (
        SessionTurns("s", "replica-0", 2), SessionTurns("s", "replica-1", 1),
    )  # fmt: skip


def test_turns_that_a_client_began_by_itself_count_each():
    books = table(1)
    books.note("me", Usage("s", "replica-0", 7, 70, 0, 0, 0, 0))
    assert activity(books.journal, 0, 30).hot == (SessionTurns("s", "replica-0", 7),)


def test_the_next_call_goes_on_where_the_last_one_ended():
    books = table(1)
    turns(books, "s", 2)
    first = activity(books.journal, 0, 30)
    assert activity(books.journal, first.cursor, 30) == Activity(cursor=first.cursor)
    turns(books, "s", 1)
    again = activity(books.journal, first.cursor, 30)
    assert again.hot == (SessionTurns("s", "replica-0", 1),)
    assert again.cursor > first.cursor


def test_events_that_made_room_before_they_were_read_are_told_as_lost():
    books = table(1, events=10)
    turns(books, "s", 20)
    told = activity(books.journal, 1, 30)
    assert told.hot == (SessionTurns("s", "replica-0", 5),)
    assert told.lost == 1 + 40 - 1 - 10


def test_the_last_moves_are_told_with_their_reasons():
    books = table(2)
    home = books.acquire("s").replica_id
    there = {"replica-0": "replica-1", "replica-1": "replica-0"}
    for _ in range(MOVES + 20):
        home = there[home]
        books.move_session("s", home)
    told = activity(books.journal, 0, 30).moves
    everything = [e for e in books.journal.events().items if e.kind is EventKind.MOVED]
    assert list(told) == everything[-MOVES:]
    assert {move.reason for move in told} == {"asked"}


@given(
    steps=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 5)), max_size=60),
    top=st.integers(0, 8),
    cursor=st.integers(0, 40),
)
def test_no_turn_is_lost_or_told_twice(steps, top, cursor):
    books = table(3, "round-robin", events=50)
    for session, count in steps:
        turns(books, session, count)
    told = activity(books.journal, cursor, top)
    events = [e for e in books.journal.events(cursor).items if e.kind is EventKind.ACQUIRED]
    counts = Counter((event.session_id, event.replica_id) for event in events)
    assert len(told.hot) == min(top, len(counts))
    rest = counts.copy()
    for hot in told.hot:
        assert rest.pop((hot.session_id, hot.replica_id)) == hot.turns
    assert max(rest.values(), default=0) <= min((hot.turns for hot in told.hot), default=999)
    others = Counter()
    for (_, replica_id), count in rest.items():
        others[replica_id] += count
    assert dict(told.others) == others
