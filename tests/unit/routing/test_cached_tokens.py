"""What should have been in the engines' caches, beside what was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.routing.books import table
from workbench.client.leases import LeaseBook
from workbench.routing.exchange import Exchange
from workbench.routing.messages import Usage
from workbench.routing.views import check, snapshot
from workbench.types import ReplicaState


def turn(books, prompt, sampled=10, cached=0, *, at="replica-0", session="s"):
    """One turn, reported by itself."""
    books.note("me", Usage(session, at, 0, 0, sampled, cached, prompt + sampled, prompt))


def counted(books):
    now = snapshot(books)
    return now.known_prompt_tokens, now.predicted_cached_tokens, now.cached_tokens


def test_a_first_turn_has_nothing_to_come_back_to():
    books = table()
    turn(books, 100)
    assert counted(books) == (100, 0, 0)


def test_what_a_turn_left_is_there_for_the_next_on_the_same_replica():
    books = table()
    turn(books, 100, sampled=10)
    turn(books, 150, cached=96)
    assert counted(books) == (250, 110, 96)


def test_on_another_replica_nothing_is_there_and_then_only_what_the_last_turn_left():
    books = table()
    turn(books, 100)
    turn(books, 150, at="replica-1")
    assert counted(books)[1] == 0
    turn(books, 200, at="replica-1")
    assert counted(books)[1] == 160


def test_no_more_than_the_prompt_can_be_cached():
    books = table()
    turn(books, 1000)
    turn(books, 20)
    assert counted(books)[1] == 20


def test_a_replica_that_came_in_anothers_place_has_nothing():
    books = table(1)
    turn(books, 100)
    books.rotation.remove("replica-0")
    books.rotation.add("replica-0")
    turn(books, 150)
    assert counted(books)[1] == 0


def test_a_session_that_was_forgotten_starts_over():
    books = table()
    turn(books, 100)
    books.sessions.end("s")
    turn(books, 150)
    assert counted(books)[1] == 0


@given(
    turns=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=8),
    cuts=st.sets(st.integers(1, 7)),
)
def test_turns_of_a_conversation_count_alike_however_they_are_reported(turns, cuts):
    """As long as each prompt holds all before it."""
    one_by_one, together = table(1), table(1)
    prompt = reported = sampled_before = 0
    for number, (new, sampled) in enumerate(turns, 1):
        prompt += new
        turn(one_by_one, prompt, sampled)
        reported += prompt
        sampled_before += sampled
        prompt += sampled
        if number in cuts or number == len(turns):
            usage = Usage("s", "replica-0", 0, 0, sampled_before, 0, prompt, reported)
            together.note("me", usage)
            reported = sampled_before = 0
    assert counted(together) == counted(one_by_one)
    check(together)


def test_a_client_reports_the_prompts_of_turns_whose_engine_said_what_was_cached():
    books = table(1)
    exchange, client = Exchange(books), LeaseBook("me")

    def talk():
        return client.apply(exchange.exchange(client.report()))

    for prompt, cached in ((100, 0), (150, 96), (200, None)):
        lease = client.take("s", prompt)
        if lease is None:
            client.want("s", prompt)
            ((_, lease),) = talk()
        client.give_back(lease, sampled_tokens=10, cached_tokens=cached, context_tokens=prompt + 10)
        talk()
    assert counted(books) == (250, 110, 96)
    assert books.sessions.entries["s"].context_tokens == 210


@pytest.mark.parametrize("state", [ReplicaState.DRAINING, ReplicaState.UNHEALTHY])
def test_what_is_reported_of_a_replica_that_is_out_of_rotation_counts(state):
    books = table()
    turn(books, 100)
    books.rotation.set_state("replica-0", state)
    turn(books, 150)
    assert counted(books)[1] == 110
