"""Answers that were given and never arrived: nothing counts twice, nothing is given away."""

from __future__ import annotations

import pytest

from tests.unit.routing.books import table
from workbench.client.leases import LeaseBook
from workbench.routing.exchange import Exchange
from workbench.routing.messages import Outcome
from workbench.routing.views import check
from workbench.types import ReplicaState


def talk(replicas=1, **rules):
    exchange = Exchange(table(replicas, **rules))
    book = LeaseBook("me")
    book.apply(exchange.exchange(book.report()))
    return exchange, book


def granted(exchange, book, session="s", tokens=10):
    wanted = book.want(session, tokens)
    answers = dict(book.apply(exchange.exchange(book.report())))
    return answers[wanted]


def lose_answers(exchange, book, count):
    """Reports that are heard, whose answers are lost; then one that is answered."""
    for _ in range(count):
        report = book.report()
        exchange.exchange(report)
        book.lost(report)
    book.apply(exchange.exchange(book.report()))


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_usage_counts_once_however_many_answers_are_lost(lost):
    exchange, book = talk()
    granted(exchange, book)
    lease = book.take("s", 10)
    book.give_back(lease, sampled_tokens=5, context_tokens=15)
    lose_answers(exchange, book, lost)
    session = exchange.table.sessions.entries["s"]
    assert (session.turns, session.prompt_tokens, session.sampled_tokens) == (2, 20, 5)
    check(exchange.table)


def test_usage_of_reports_that_were_not_heard_counts_all_the_same():
    exchange, book = talk()
    granted(exchange, book)
    for _ in range(3):
        book.give_back(book.take("s", 10), sampled_tokens=5, context_tokens=15)
        book.lost(book.report())
    book.apply(exchange.exchange(book.report()))
    session = exchange.table.sessions.entries["s"]
    assert (session.turns, session.sampled_tokens) == (4, 15)


def test_one_failure_is_one_failure():
    exchange, book = talk()
    book.give_back(granted(exchange, book), Outcome.FAILED)
    lose_answers(exchange, book, 4)
    replica = exchange.table.replicas["replica-0"]
    assert (replica.total_failures, replica.state) == (1, ReplicaState.READY)


def test_a_grant_on_its_way_is_kept_for_a_client_that_says_everything_again():
    exchange, mine = talk(capacity=1)
    other = LeaseBook("other")
    other.apply(exchange.exchange(other.report()))
    wanted, rival = mine.want("s"), other.want("t")
    report = mine.report()
    exchange.exchange(report)  # granted, and the answer does not arrive
    assert not other.apply(exchange.exchange(other.report()))
    mine.lost(report)
    answers = dict(mine.apply(exchange.exchange(mine.report())))
    assert answers[wanted].replica_id == "replica-0"
    assert exchange.table.leases["me"].keys() == {wanted}
    assert rival not in exchange.table.leases.get("other", {})


def test_a_client_that_says_everything_again_keeps_its_place_in_the_line():
    exchange, mine = talk(capacity=1)
    other = LeaseBook("other")
    other.apply(exchange.exchange(other.report()))
    busy = granted(exchange, other)
    first, second = mine.want("first"), other.want("second")
    report = mine.report()
    exchange.exchange(report)
    exchange.exchange(other.report())
    mine.lost(report)
    mine.apply(exchange.exchange(mine.report()))
    other.give_back(busy)
    other.apply(exchange.exchange(other.report()))
    assert exchange.table.leases["me"].keys() == {first}
    assert second not in exchange.table.leases["other"]
