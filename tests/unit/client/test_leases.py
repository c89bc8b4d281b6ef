"""The lease book by itself: what a client may start alone, what it reports, what it forgets."""

from __future__ import annotations

import pytest

from workbench.client import leases
from workbench.client.leases import LeaseBook
from workbench.routing.messages import (
    ASK,
    ClosedTurn,
    Failure,
    Grant,
    OpenTurn,
    Outcome,
    Refusal,
    Reply,
    Revocation,
    Usage,
)


def answer(book, *grants, revoked=(), cursor=None, epoch=None, **more):
    """Let the book have a reply; what it makes of it."""
    cursor = max([book.cursor, *(r.stamp for r in revoked)]) if cursor is None else cursor
    reply = Reply(
        epoch or book.epoch or 1,
        cursor,
        grants=list(grants),
        revocations=list(revoked),
        answers=book._number,
        **more,
    )
    return book.apply(reply)


def replica_void(stamp, replica_id="r0"):
    return Revocation(stamp, "", replica_id)


def session_void(stamp, session_id="s"):
    return Revocation(stamp, session_id, "")


def greeted():
    """A book whose first report was answered, with nothing to report."""
    book = LeaseBook("me")
    assert book.report().full
    answer(book)
    assert not book.dirty
    return book


def granted(book, session="s", replica="r0", stamp=0, tokens=0):
    """A turn that the balancer granted."""
    lease_id = book.want(session, tokens)
    book.report()
    ((answered, lease),) = answer(book, Grant(lease_id, replica, stamp))
    assert answered == lease.lease_id == lease_id
    return lease


def pinned(book, *sessions, replica="r0", stamp=0):
    """Session leases, with nothing open and nothing to report."""
    for session in sessions or ("s",):
        book.give_back(granted(book, session, replica, stamp))
    book.report()
    return book


# -- turns on pins ---------------------------------------------------------------------------


def test_a_session_without_a_pin_has_to_be_asked_for():
    assert greeted().take("s") is None


def test_a_grant_is_a_session_lease_for_the_turns_after_it():
    book = pinned(greeted())
    first, second = book.take("s"), book.take("s")
    assert (first.replica_id, first.session_id, first.owner) == ("r0", "s", "me")
    assert first.lease_id != second.lease_id
    assert book.num_open == 2


def test_a_grant_that_says_ask_is_for_one_turn_only():
    book = pinned(greeted())
    granted(book, stamp=ASK)
    assert book.take("s") is None


def test_what_the_balancer_wants_to_be_reported_how_often_is_taken_from_its_replies():
    book = greeted()
    answer(book, report_s=0.7)
    assert book.report_s == 0.7


# -- revocations -----------------------------------------------------------------------------


def test_a_revoked_replica_voids_older_pins_only():
    book = pinned(pinned(greeted(), "old", stamp=3), "elsewhere", replica="r1", stamp=3)
    pinned(book, "new", stamp=4)
    answer(book, revoked=[replica_void(4)])
    assert book.take("old") is None
    assert book.take("new") is not None
    assert book.take("elsewhere") is not None


def test_a_revoked_replica_can_be_granted_again():
    book = pinned(greeted())
    answer(book, revoked=[replica_void(1)])
    assert book.take("s") is None
    pinned(book, stamp=1)
    assert book.take("s") is not None


def test_a_revoked_session_is_void_and_no_other_is():
    book = pinned(greeted(), "s", "t")
    answer(book, revoked=[session_void(1)])
    assert book.take("s") is None
    assert book.take("t") is not None


def test_a_revocation_that_is_older_than_the_pin_is_not_meant():
    book = pinned(greeted(), stamp=5)
    answer(book, revoked=[session_void(5), replica_void(5)])
    assert book.take("s") is not None


@pytest.mark.parametrize("revocation", [session_void(2), replica_void(2)])
def test_a_grant_and_its_revocation_in_one_reply_leave_no_pin(revocation):
    book = greeted()
    lease_id = book.want("s")
    book.report()
    ((_, lease),) = answer(book, Grant(lease_id, "r0", 1), revoked=[revocation])
    assert book.take("s") is None
    assert book.give_back(lease), "the turn itself is granted"


@pytest.mark.parametrize("revocation", [session_void(2), replica_void(2)])
def test_a_grant_that_its_revocation_overtook_leaves_no_pin(revocation):
    book = greeted()
    lease_id = book.want("s")
    book.report()
    answer(book, revoked=[revocation])
    answer(book, Grant(lease_id, "r0", 1), cursor=1)
    assert book.take("s") is None
    assert book.cursor == 2, "what was obeyed is not asked for again"


def test_a_client_that_is_too_far_behind_forgets_its_pins():
    book = pinned(greeted(), "s", "t")
    lease_id = book.want("late")
    answer(book, forget_pins=True, cursor=9)
    answer(book, Grant(lease_id, "r0", 5))
    assert book.num_pins == 0
    pinned(book, stamp=9)
    assert book.take("s") is not None


def test_a_death_voids_what_is_pinned_there():
    book = pinned(greeted(), "s", "t")
    pinned(book, "u", replica="r1")
    book.give_back(book.take("s"), Outcome.DIED)
    assert book.take("s") is book.take("t") is None
    assert book.take("u") is not None


def test_a_failure_costs_its_own_session_the_pin():
    book = pinned(greeted(), "s", "t")
    book.give_back(book.take("s"), Outcome.FAILED)
    assert book.take("s") is None
    assert book.take("t") is not None


def test_old_news_of_a_death_does_not_concern_pins_that_came_after_it():
    book = pinned(greeted(), "s", "t")
    old = book.take("s")
    answer(book, revoked=[replica_void(1)])
    pinned(book, "t", stamp=1)  # the replica is back
    book.give_back(old, Outcome.DIED)
    assert book.take("t") is not None


def test_pins_are_bounded_and_the_newer_half_stays(monkeypatch):
    monkeypatch.setattr(leases, "MAX_PINS", 10)
    book = pinned(greeted(), *(f"s{i}" for i in range(11)))
    assert book.num_pins == 6
    assert book.take("s0") is None
    assert book.take("s10") is not None


# -- asking ----------------------------------------------------------------------------------


def test_what_is_wanted_is_asked_for_once():
    book = greeted()
    lease_id = book.want("s", 7, -1, (1, 2))
    assert book.urgent
    assert [tuple(want) for want in book.report().wants] == [(lease_id, "s", 7, -1, (1, 2))]
    assert not book.dirty


def test_a_want_that_is_withdrawn_before_it_was_sent_was_never_there():
    book = greeted()
    book.withdraw(book.want("s"))
    assert not book.dirty


def test_a_want_that_is_withdrawn_after_it_was_sent_is_called_off():
    book = greeted()
    lease_id = book.want("s")
    book.report()
    book.withdraw(lease_id)
    assert book.report().closed == [ClosedTurn(lease_id, served=False)]
    assert answer(book, Grant(lease_id, "r0", 0)) == []
    assert book.num_open == 0
    assert book.report().closed == [ClosedTurn(lease_id, served=False)], (
        "it was granted all the same"
    )


def test_a_grant_that_comes_twice_is_one_lease():
    book = greeted()
    lease = granted(book)
    assert answer(book, Grant(lease.lease_id, "r1", 0)) == []
    assert not book.dirty
    assert book.give_back(lease)


def test_a_refusal_is_told_to_whom_it_concerns():
    book = greeted()
    lease_id, error = book.want("s"), ValueError("no")
    assert answer(book, refusals=[Refusal(lease_id, error), Refusal(99, error)]) == [
        (lease_id, error)
    ]


def test_why_turns_wait_is_known_until_they_need_not_wait_any_more():
    book = greeted()
    lease_id = book.want("s")
    answer(book, waiting="r0 is full")
    answer(book)  # a watch that brought nothing
    assert book.waiting == "r0 is full"
    answer(book, Grant(lease_id, "r0", 0))
    assert book.waiting == ""


# -- reports ---------------------------------------------------------------------------------


def test_a_lease_is_given_back_once():
    book = greeted()
    lease = granted(book)
    assert book.give_back(lease)
    assert not book.give_back(lease, Outcome.DIED)
    assert book.report().closed == [ClosedTurn(lease.lease_id, served=True)]
    assert not book.dirty


def test_a_turn_that_is_open_when_the_report_is_made_is_told_of_and_so_is_its_end():
    book = pinned(greeted())
    lease = book.take("s", 5)
    report = book.report()
    assert report.opened == [OpenTurn(lease.lease_id, "s", "r0", 5)]
    assert report.usage == [Usage("s", "r0", 1, 5, 0, 0, 0, 0)]
    book.give_back(lease, sampled_tokens=2, context_tokens=7)
    report = book.report()
    assert (report.opened, report.closed) == ([], [ClosedTurn(lease.lease_id, served=True)])
    assert report.usage == [Usage("s", "r0", 0, 0, 2, 0, 7, 0)]


def test_turns_that_begin_and_end_between_two_reports_are_one_line_of_usage():
    book = pinned(greeted())
    for context in (8, 14):
        lease = book.take("s", 5)
        book.give_back(lease, sampled_tokens=3, cached_tokens=4, context_tokens=context)
    report = book.report()
    assert (report.opened, report.closed) == ([], [])
    assert report.usage == [Usage("s", "r0", 2, 10, 6, 8, 14, 16)]


def test_a_failure_that_nobody_knew_the_turn_of_is_told_with_the_stamp_of_its_pin():
    book = pinned(greeted(), stamp=4)
    book.give_back(book.take("s"), Outcome.FAILED)
    assert book.urgent
    assert book.report().failures == [Failure("r0", 4, Outcome.FAILED)]


def test_a_failure_of_a_turn_that_the_balancer_knows_is_told_with_its_end():
    book = greeted()
    lease = granted(book)
    book.give_back(lease, Outcome.DIED)
    report = book.report()
    assert report.closed == [ClosedTurn(lease.lease_id, served=False)]
    assert [(f.replica_id, f.outcome) for f in report.failures] == [
        (lease.replica_id, Outcome.DIED)
    ]


def test_an_ended_session_has_no_pin_any_more():
    book = pinned(greeted())
    book.end_session("s")
    assert book.take("s") is None
    assert book.report().ended == ["s"]


def test_reports_are_numbered_and_say_what_was_obeyed():
    book = greeted()
    answer(book, revoked=[replica_void(3)])
    first, second = book.report(), book.report()
    assert second.number == first.number + 1
    assert (first.owner, first.epoch, first.cursor) == ("me", 1, 3)


# -- what gets lost --------------------------------------------------------------------------


def test_after_a_lost_report_everything_that_is_held_is_said():
    book = pinned(greeted(), "s", "t")
    known, mine = granted(book, "u", "r1"), book.take("s", 3)
    over = book.take("t")
    asked = book.want("v")
    book.end_session("t")
    lost = book.report()
    book.lost(lost)
    book.give_back(over)
    report = book.report()
    assert report.full
    assert {turn.lease_id for turn in report.opened} == {known.lease_id, mine.lease_id}
    assert [want.lease_id for want in report.wants] == [asked]
    assert report.pins == [("s", "r0"), ("u", "r1")]
    assert (report.closed, report.ended) == ([], [])
    assert [(told.number, told.ended) for told in report.again] == [(lost.number, ["t"])]
    assert not book.report().full


def test_a_balancer_that_does_not_know_the_client_is_told_everything():
    book = pinned(greeted())
    answer(book, resync=True)
    assert book.urgent
    assert book.report().pins == [("s", "r0")]


def test_in_the_balancers_next_life_stamps_start_over_and_pins_stay():
    book = pinned(greeted(), stamp=8)
    answer(book, revoked=[replica_void(9, "r1")])
    answer(book, epoch=2, resync=True, cursor=0)
    assert (book.epoch, book.cursor) == (2, 0)
    assert book.take("s") is not None
    pinned(book, "t", replica="r1", stamp=0)
    assert book.take("t") is not None
    answer(book, epoch=2, revoked=[replica_void(1)])
    assert book.take("s") is None


def test_words_from_a_former_life_of_the_balancer_change_nothing():
    book = pinned(greeted())
    answer(book, epoch=2, resync=True, cursor=0)
    lease_id = book.want("t")
    assert answer(book, Grant(lease_id, "r0", 9), epoch=1, revoked=[replica_void(9)]) == []
    assert (book.epoch, book.cursor) == (2, 0)
    assert book.take("s") is not None


def test_what_a_lost_report_said_of_failures_and_usage_is_said_again():
    book = greeted()
    lease = granted(book)
    book.report()
    book.give_back(lease, Outcome.FAILED, sampled_tokens=5, context_tokens=8)
    lost = book.report()
    book.lost(lost)
    full = book.report()
    assert (full.full, full.failures, full.usage) == (True, [], [])
    (again,) = full.again
    assert (again.number, again.failures, again.usage) == (lost.number, lost.failures, lost.usage)
    book.lost(full)
    assert [told.number for told in book.report().again] == [lost.number, full.number]


def test_a_turn_whose_caller_left_says_nothing_of_its_replica():
    book = greeted()
    lease = granted(book)
    book.report()
    book.give_back(lease, Outcome.LEFT)
    report = book.report()
    assert report.closed == [ClosedTurn(lease.lease_id, served=False)]
    assert report.failures == []
