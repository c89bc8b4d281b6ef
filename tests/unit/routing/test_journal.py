"""Events carry both clocks: the balancer's, and the one on the wall."""

from __future__ import annotations

from workbench.routing.journal import SAME_S, Journal
from workbench.types import EventKind


def times(journal):
    return [(event.time_s, event.unix_s) for event in journal.events().items]


def test_an_event_says_when_it_was_by_both_clocks():
    journal = Journal(10, now_s=5.0)
    journal.set_wall_clock(1_000_005.0)
    journal.log(EventKind.ENDED)
    journal.now_s = 8.5
    journal.log(EventKind.ENDED)
    assert times(journal) == [(5.0, 1_000_005.0), (8.5, 1_000_008.5)]


def test_clocks_that_run_a_little_unevenly_change_no_event():
    journal = Journal(10)
    journal.set_wall_clock(1_000_000.0)
    journal.log(EventKind.ENDED)
    before = journal.events()
    journal.now_s = 10.0
    journal.set_wall_clock(1_000_010.0 + SAME_S / 2)
    assert journal.events() == before


def test_after_a_sleep_of_the_machine_events_are_on_time_again():
    journal = Journal(10)
    journal.set_wall_clock(1_000_000.0)
    journal.now_s = 1.0
    journal.set_wall_clock(1_030_000.0)
    journal.log(EventKind.ENDED)
    assert times(journal) == [(1.0, 1_030_000.0)]
