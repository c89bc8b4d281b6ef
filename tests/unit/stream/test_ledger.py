"""Whatever happens in whatever order: bounds hold, and every position is settled once."""

from __future__ import annotations

import pickle
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.stream.headers import header, mark
from workbench.errors import ConfigError, StreamEndedError, StreamError
from workbench.stream.facts import Begun, Committed, Handed, Left
from workbench.stream.ledger import StreamLedger
from workbench.stream.rules import StreamRules
from workbench.stream.views import snapshot

CONSUMERS = ["a", "b"]
consumers = st.sampled_from(CONSUMERS)
some = st.integers(1, 5)


def ledger_of(**rules) -> StreamLedger:
    ledger = StreamLedger(StreamRules(**rules))
    ledger.open("run", 0)
    return ledger


def begin(ledger, most=100):
    """Tickets, or none where nothing will be begun any more."""
    try:
        return ledger.begin(most, 0.0)
    except StreamEndedError:
        return []


def publish(ledger, version=None, error=""):
    version = ledger.books.version + 1 if version is None else version
    ledger.begin_publish(version)
    return ledger.end_publish(mark(version, error))


def play(ledger, tickets, **known):
    for ticket in tickets:
        assert ledger.put(header(ticket, **known), 1.0)


def positions(out):
    return [group.header.ticket.position for group in out.groups]


def drops(ledger):
    return {count.cause: count.groups for count in ledger.books.drops.values()}


def copied(value):
    return pickle.loads(pickle.dumps(value))


def settled(facts):
    """What became of each position, as often as it did."""
    batches = {fact.number: fact.positions for fact in facts if isinstance(fact, Handed)}
    ends = [(p, "consumed") for f in facts if isinstance(f, Committed) for p in batches[f.number]]
    left = [fact for fact in facts if isinstance(fact, Left) and not fact.is_refilled]
    return Counter(p for p, _ in ends) + Counter(f.header.ticket.position for f in left)


class World(RuleBasedStateMachine):
    """A ledger, a rollouter that forgets, two consumers that die, a learner that hurries."""

    @initialize(
        required=st.integers(1, 3),
        trigger=st.integers(1, 2),
        bound=st.sampled_from([None, 0, 1, 1, 2]),
        when=st.sampled_from(["wait", "drop", "cancel"]),
        voids=st.integers(1, 3),
        partial=st.booleans(),
        most=st.sampled_from([None, None, 2]),
        tasks=st.integers(0, 14),
    )
    def start(self, required, trigger, bound, when, voids, partial, most, tasks):
        self.rules = StreamRules(
            required_samples=required,
            trigger_parameter_sync_step=trigger,
            max_staleness=bound,
            when_too_old=when,
            max_voids=voids,
            partial_rollout=partial,
            max_concurrent=most,
        )
        self.tasks = tasks
        self.facts = []
        self.held = set()
        self.put = []
        self.marks = []
        self.last_run = 0
        self.ledger = StreamLedger(self.rules)
        self.ledger.open("run-0", 0)

    @property
    def books(self):
        return self.ledger.books

    @invariant()
    def the_books_are_in_order(self):
        self.facts += self.ledger.news()[0]
        self.ledger.check()
        assert snapshot(self.ledger).in_flight == len(self.books.running)
        since = [line for number, line in self.books.lines.items() if number > self.books.since]
        assert self.books.handed == sum(len(line.ages) for line in since)

    # -- the rollouter ----------------------------------------------------------------------

    @rule(most=some)
    def admit(self, most):
        self.ledger.reconcile(self.held)
        free, books = self.ledger.free, self.books
        running = len(books.running)
        try:
            tickets = self.ledger.begin(most, 0.0)
        except StreamError:
            return
        assert len(tickets) <= min(free, most)
        assert not (tickets and books.is_stopped)
        assert all(ticket.start_version == books.pool_version for ticket in tickets)
        if self.rules.max_concurrent:
            assert len(books.running) <= max(running, self.rules.max_concurrent)
        self.held |= {ticket for ticket in tickets if ticket.position < self.tasks}
        if len(tickets) > len([t for t in tickets if t.position < self.tasks]):
            self.ledger.source_ended(self.tasks)

    @rule()
    def the_rollouter_loses_all_it_held(self):
        self.held = set()
        self.ledger.reconcile([])
        assert not self.books.running

    def one_held(self, data):
        return data.draw(st.sampled_from(sorted(self.held, key=lambda t: t.position)))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), age=st.integers(0, 2))
    def a_group_ends(self, data, age):
        ticket = self.one_held(data)
        self.held.discard(ticket)
        oldest = min(ticket.start_version + age, self.books.pool_version)
        ended = header(ticket, oldest=max(oldest, ticket.start_version))
        is_kept = self.ledger.put(ended, 1.0)
        self.put.append((ended, is_kept))
        counts = self.books.ended, dict(self.books.drops)
        assert self.ledger.put(ended, 2.0) == is_kept
        assert counts == (self.books.ended, dict(self.books.drops))

    @precondition(lambda self: self.put)
    @rule(data=st.data())
    def an_answer_was_lost(self, data):
        ended, _ = data.draw(st.sampled_from(self.put))
        if ended.ticket not in self.held:
            before = copied(self.books)
            self.ledger.put(ended, 3.0)
            self.ledger.leave(ended, "failed", replay=True)
            is_played_again = self.books.running.get(ended.ticket.position)
            if is_played_again is None or is_played_again.ticket != ended.ticket:
                assert self.books == before

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        cause=st.sampled_from(["filtered", "failed", "cancelled", "lost", "stopped"]),
        replay=st.booleans(),
    )
    def a_group_leaves(self, data, cause, replay):
        ticket = self.one_held(data)
        self.held.discard(ticket)
        self.ledger.leave(header(ticket), cause, replay=replay)

    # -- the learner ------------------------------------------------------------------------

    @rule(n=some, consumer=consumers)
    def take(self, n, consumer):
        bound, version = self.ledger.rules.max_staleness, self.books.version
        try:
            out = self.ledger.take(n, consumer, 2.0)
        except ConfigError:
            assert n > self.rules.window or n > self.ledger.rules.window
            return
        except StreamError:
            assert self.ledger.is_over
            assert not self.books.queued
            return
        if out is None:
            return
        event("taken")
        assert len(out.groups) == n or self.ledger.is_over
        ages = [version - group.header.oldest_version for group in out.groups]
        assert bound is None or max(ages) <= bound
        left = [group.header.oldest_version for group in self.books.queued.values()]
        left = [oldest for oldest in left if bound is None or version - oldest <= bound]
        assert not left or max(g.header.oldest_version for g in out.groups) <= min(left)
        assert self.ledger.held_by(consumer, out.fact.number - 1) == out

    @precondition(lambda self: self.books.out)
    @rule(data=st.data())
    def commit(self, data):
        number = data.draw(st.sampled_from(sorted(self.books.out)))
        self.ledger.commit(number)
        self.ledger.commit(number)

    @rule(consumer=consumers, after=st.integers(0, 3))
    def a_batch_is_given_again(self, consumer, after):
        bound, version = self.ledger.rules.max_staleness, self.books.version
        if (out := self.ledger.held_by(consumer, after)) is not None:
            ages = [version - group.header.oldest_version for group in out.groups]
            assert bound is None or max(ages) <= bound
            assert self.books.out[out.fact.number] == out

    @precondition(lambda self: self.books.taken_back)
    @rule(data=st.data())
    def who_lost_a_batch_commits_it(self, data):
        number = data.draw(st.sampled_from(sorted(self.books.taken_back)))
        with pytest.raises(StreamError, match=f"batch {number} was taken back"):
            self.ledger.commit(number)

    @rule(consumer=consumers)
    def a_consumer_dies(self, consumer):
        self.ledger.reclaim(consumer)
        assert self.ledger.held_by(consumer, 0) is None

    @rule(ahead=st.integers(0, 2))
    def a_publish_begins(self, ahead):
        before = self.books.version
        version = before + ahead
        if not self.books.is_publishing:
            self.before_publish = before
        there = set(self.books.queued), dict(self.books.drops)
        self.ledger.begin_publish(version)
        self.ledger.begin_publish(version)
        assert there == (set(self.books.queued), self.books.drops)
        if not self.rules.partial_rollout:
            assert not self.ledger.free

    @precondition(lambda self: self.books.is_publishing)
    @rule(error=st.sampled_from(["", "", "no replica took them"]), refused=st.booleans())
    def a_publish_ends(self, error, refused):
        pool, coming = self.books.pool_version, self.books.version
        there = set(self.books.queued), dict(self.books.drops)
        told = mark(coming, error, refused=bool(error) and refused)
        cancelled = self.ledger.end_publish(told)
        assert self.ledger.end_publish(told) == cancelled
        assert self.books.publishes.count(told) == 1
        assert self.books.pool_version == (pool if error else coming)
        assert self.books.version == (self.before_publish if error else coming)
        if error:
            assert there == (set(self.books.queued), self.books.drops)
        assert not cancelled or (self.rules.when_too_old == "cancel" and not error)
        for ticket in cancelled:
            self.held.discard(ticket)
            self.ledger.leave(header(ticket), "cancelled", replay=True)

    # -- somebody at the keyboard -----------------------------------------------------------

    @rule(is_paused=st.booleans(), step=st.booleans())
    def gate(self, is_paused, step):
        self.ledger.gate(is_paused=is_paused, step=is_paused and step)
        if is_paused:
            assert self.ledger.free <= (self.rules.required_samples if step else 0)

    @rule(bound=st.sampled_from([None, 0, 1, 2, 3]))
    def another_bound(self, bound):
        self.ledger.set_max_staleness(bound)

    @precondition(lambda self: not self.books.is_stopped and self.books.begun > 4)
    @rule(error=st.sampled_from(["", "", "it broke"]))
    def stop(self, error):
        self.ledger.stop(error)

    @rule(same_run=st.booleans(), remembers=st.booleans(), version=st.integers(0, 1))
    def the_process_dies(self, same_run, remembers, version):
        before = self.books
        self.ledger = StreamLedger(self.rules)
        for fact in copied(self.facts):
            self.ledger.replay(fact)
        assert self.books == before
        self.last_run += not same_run
        self.ledger.open(f"run-{self.last_run}", version)
        if not same_run:
            assert not self.books.out
            assert not self.books.is_stopped
        if not remembers:
            self.held = set()

    def teardown(self):
        """Without further harm, the stream comes to its end and all is accounted for."""
        if not hasattr(self, "ledger"):
            return
        self.last_run += 1
        self.ledger.open(f"run-{self.last_run}", 0)
        self.held = set()
        for _ in range(10 * self.tasks + 10):
            publish(self.ledger)
            self.admit(100)
            for ticket in sorted(self.held, key=lambda t: t.position):
                self.ledger.put(header(ticket), 1.0)
            self.held = set()
            if self.drained():
                break
        else:
            pytest.fail(f"it does not end: {self.books}")
        self.the_books_are_in_order()
        assert settled(self.facts) == Counter(range(self.tasks))
        assert self.books.total == self.tasks

    def drained(self):
        """Take and commit all that is there; whether the stream has ended."""
        try:
            while out := self.ledger.take(self.rules.required_samples, "a", 2.0):
                self.ledger.commit(out.fact.number)
        except StreamEndedError:
            with pytest.raises(StreamEndedError):
                self.ledger.begin(1, 0.0)
            return True
        return False


TestWorld = World.TestCase
TestWorld.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


# -- a learner that does what it should ---------------------------------------------------------


class Steady:
    """No failures, and a learner that takes ``per_version`` groups of each version."""

    def __init__(self, rules, tasks, seed):
        self.rng = random.Random(seed)
        self.ledger = StreamLedger(rules)
        self.ledger.open("run", 0)
        self.ledger.source_ended(tasks)
        self.rules = rules
        self.slow = {p for p in range(tasks) if self.rng.random() < 0.3}
        """Positions whose groups end only when nothing else can happen."""
        self.batches = []
        self.is_publishing = False

    def run(self):
        while True:
            deeds = [self.admit, self.finish, self.take, self.begin_publish, self.end_publish]
            self.rng.shuffle(deeds)
            try:
                if not any(deed() for deed in deeds) and not self.finish(self.slow):
                    pytest.fail(f"nothing can happen: {snapshot(self.ledger)}")
            except StreamEndedError:
                return
            self.ledger.check()

    def admit(self):
        return bool(begin(self.ledger, self.rng.randint(1, 4)))

    def finish(self, among=None):
        running = self.ledger.books.running
        ready = [p for p in running if (p not in self.slow if among is None else p in among)]
        if not ready:
            return False
        play(self.ledger, [running[self.rng.choice(ready)].ticket])
        return True

    def take(self):
        if self.ledger.books.handed >= self.rules.per_version:
            return False
        out = self.ledger.take(self.rules.required_samples, "a", 2.0)
        if out is None:
            return False
        self.batches.append(out)
        self.ledger.commit(out.fact.number)
        return True

    def begin_publish(self):
        if self.is_publishing or self.ledger.books.handed < self.rules.per_version:
            return False
        assert not self.ledger.begin_publish(self.ledger.books.version + 1)
        self.is_publishing = True
        return True

    def end_publish(self):
        if not self.is_publishing:
            return False
        self.ledger.end_publish(mark(self.ledger.books.version))
        self.is_publishing = False
        return True


@settings(max_examples=150)
@given(
    required=st.integers(1, 4),
    trigger=st.integers(1, 3),
    bound=st.sampled_from([None, 0, 1, 2, 3]),
    share=st.sampled_from([None, None, 0.0, 0.5]),
    tasks=st.integers(1, 60),
    seed=st.integers(0, 10**6),
)
def test_where_it_waits_nothing_is_dropped_for_its_age(
    required, trigger, bound, share, tasks, seed
):
    rules = StreamRules(
        required_samples=required,
        trigger_parameter_sync_step=trigger,
        max_staleness=bound,
        staleness_threshold=share if bound else None,
    )
    steady = Steady(rules, tasks, seed)
    steady.run()
    assert not steady.ledger.books.drops
    assert sorted(p for out in steady.batches for p in positions(out)) == list(range(tasks))
    assert all(len(out.groups) == required for out in steady.batches[:-1])


@settings(max_examples=50)
@given(required=st.integers(1, 4), trigger=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_bound_0_is_the_synchronous_order(required, trigger, seed):
    rules = StreamRules(
        required_samples=required, trigger_parameter_sync_step=trigger, max_staleness=0
    )
    steady = Steady(rules, 5 * rules.per_version, seed)
    steady.run()
    facts = steady.ledger.news()[0]
    begun = [ticket for fact in facts if isinstance(fact, Begun) for ticket in fact.tickets]
    assert [t.start_version for t in begun] == [t.position // rules.per_version for t in begun]
    for out in steady.batches:
        assert {g.header.ticket.start_version for g in out.groups} == {out.fact.version}


# -- what a user would notice, one by one -------------------------------------------------------


def test_what_may_exist_is_bounded_and_what_was_taken_counts_until_a_publish():
    ledger = ledger_of(required_samples=2, max_staleness=1)
    tickets = begin(ledger)
    assert [ticket.position for ticket in tickets] == [0, 1, 2, 3]
    play(ledger, tickets)
    assert positions(ledger.take(2, "a", 2.0)) == [0, 1]
    assert not begin(ledger)
    assert positions(ledger.take(2, "a", 2.0)) == [2, 3]
    assert snapshot(ledger).waits_for == "a publish: 4 groups of version 0 were taken or wait"
    publish(ledger)
    assert [(t.position, t.start_version) for t in begin(ledger)] == [(p, 1) for p in range(4, 8)]


def test_while_the_pool_lags_behind_its_learner_no_group_is_begun_that_comes_too_late():
    ledger = ledger_of(required_samples=2, max_staleness=1)
    play(ledger, begin(ledger))
    ledger.take(2, "a", 2.0)
    ledger.begin_publish(1)
    assert ledger.free == 0  # the two that wait are all that version 1 will take of version 0's
    ledger.end_publish(mark(1))
    assert ledger.free == 2


@pytest.mark.parametrize("refused", [True, False])
def test_a_publish_that_fails_costs_no_group_however_often_it_does(refused):
    rules = {"required_samples": 2, "trigger_parameter_sync_step": 2, "max_voids": 1}
    ledger = ledger_of(max_staleness=0, when_too_old="cancel", **rules)
    flying, late, *ended = begin(ledger)
    play(ledger, ended)
    for _ in range(3):
        ledger.begin_publish(1)
        assert ledger.take(2, "a", 2.0) is None, "they would be too old for version 1"
        if not ledger.books.queued.get(late.position):
            play(ledger, [late])  # one that ends meanwhile
        assert ledger.end_publish(mark(1, "none took them", refused=refused)) == []
    assert not ledger.books.drops
    assert list(ledger.books.running) == [flying.position]
    assert positions(ledger.take(2, "a", 2.0)) == [1, 2]
    ledger.begin_publish(1)
    assert not ledger.books.drops
    assert ledger.end_publish(mark(1)) == [flying]
    assert drops(ledger) == {"given_up": 1}


def test_a_stream_has_not_ended_while_a_publish_may_make_its_last_group_too_old():
    ledger = ledger_of(required_samples=2, max_staleness=1)
    play(ledger, begin(ledger, 1))
    publish(ledger)
    play(ledger, begin(ledger, 1))
    ledger.source_ended(2)
    ledger.begin_publish(2)
    assert not ledger.is_over
    assert ledger.take(2, "a", 2.0) is None, "nor is the one that is left a batch yet"
    ledger.end_publish(mark(2))
    assert [(t.position, t.attempt) for t in begin(ledger)] == [(0, 2)]


def test_a_publish_whose_begin_is_told_twice_falls_back_to_where_it_was():
    ledger = ledger_of(required_samples=2, max_staleness=0)
    ledger.begin_publish(1)
    ledger.begin_publish(1)  # the queue's process died before it could answer
    ledger.end_publish(mark(1, "no replica took them"))
    assert (ledger.books.version, ledger.books.pool_version, ledger.free) == (0, 0, 2)


def test_what_was_taken_before_and_during_a_refused_publish_counts_once():
    ledger = ledger_of(required_samples=1, max_staleness=2)
    play(ledger, begin(ledger))
    first = ledger.take(1, "a", 2.0).fact.number
    ledger.begin_publish(1)
    ledger.take(1, "a", 2.0)
    ledger.begin_publish(2)
    ledger.take(1, "b", 2.0)
    ledger.reclaim("a")
    ledger.end_publish(mark(2, "not finite", refused=True))
    assert (first, ledger.books.version, ledger.books.handed) == (1, 0, 1)
    ledger.reclaim("b")
    assert ledger.books.handed == 0


def test_a_batch_that_has_become_too_old_is_not_given_again():
    ledger = ledger_of(required_samples=2, max_staleness=1)
    old, *young = begin(ledger, 4)
    play(ledger, [old])
    publish(ledger)
    for ticket in young:
        ledger.put(header(ticket, oldest=1), 1.0)
    assert positions(ledger.take(2, "a", 2.0)) == [0, 1]
    assert positions(ledger.take(2, "a", 2.0)) == [2, 3]
    publish(ledger)
    again = ledger.held_by("a", 0)
    assert (again.fact.number, positions(again)) == (2, [2, 3])
    assert ledger.held_by("a", 2) is None
    assert drops(ledger) == {"too_old": 1}
    assert positions(ledger.take(1, "a", 2.0)) == [1], "which is young enough"


def test_a_batch_that_was_taken_back_cannot_be_committed_any_more():
    ledger = ledger_of(required_samples=2)
    play(ledger, begin(ledger))
    first = ledger.take(2, "dead", 2.0).fact.number
    kept = ledger.take(2, "a", 2.0).fact.number
    ledger.reclaim("dead")
    again = ledger.take(2, "a", 2.0).fact.number
    with pytest.raises(StreamError, match=f"batch {first} was taken back"):
        ledger.commit(first)
    for number in (kept, again, kept, again):
        ledger.commit(number)
    assert ledger.books.settled == 4


def test_a_batch_waits_for_the_groups_that_the_next_version_would_make_too_old():
    ledger = ledger_of(required_samples=2, max_staleness=1)
    old = begin(ledger)
    play(ledger, old[:2])
    ledger.commit(ledger.take(2, "a", 2.0).fact.number)
    publish(ledger)
    young = begin(ledger)
    play(ledger, young)
    assert ledger.take(2, "a", 2.0) is None
    told = snapshot(ledger).waits_for
    assert told.startswith("2 groups begun under version 0")
    assert "position 2" in told
    play(ledger, old[2:])
    assert positions(ledger.take(2, "a", 2.0)) == [2, 3]


def test_a_slow_group_holds_nobody_up_as_long_as_a_later_version_can_take_it():
    ledger = ledger_of(required_samples=2, max_staleness=2, staleness_threshold=0.5)
    slow, *others = begin(ledger)
    play(ledger, others)
    ledger.take(2, "a", 2.0)
    for version in (1, 2):
        publish(ledger)
        play(ledger, begin(ledger))
        young = ledger.take(2, "a", 2.0)
        assert (version, young is None) in {(1, False), (2, True)}
    play(ledger, [slow])
    assert positions(ledger.take(2, "a", 2.0)) == [0, 5]


@pytest.mark.parametrize(("policy", "cancelled"), [("drop", []), ("cancel", [2, 3])])
def test_what_is_too_old_is_played_again_and_given_up_in_the_end(policy, cancelled):
    ledger = ledger_of(required_samples=2, when_too_old=policy, max_voids=2)
    old = begin(ledger)
    play(ledger, old[:2])
    publish(ledger)
    assert [ticket.position for ticket in publish(ledger)] == cancelled
    for ticket in old[2:]:
        if cancelled:
            ledger.leave(header(ticket), "cancelled", replay=True)
        else:
            assert not ledger.put(header(ticket), 1.0)
    again = begin(ledger)
    assert [(t.position, t.attempt) for t in again] == [(0, 2), (1, 2), (2, 2), (3, 2)]
    publish(ledger)
    publish(ledger)
    for ticket in again:
        assert not ledger.put(header(ticket, longest=500), 1.0)
    assert drops(ledger)["given_up"] == 4
    assert ledger.books.drops["given_up"].longest_tokens == 2000
    assert [ticket.position for ticket in begin(ledger)] == [4, 5, 6, 7]
    ledger.check()


def test_what_was_taken_and_comes_back_is_counted_once():
    ledger = ledger_of(required_samples=2, max_staleness=1)
    play(ledger, begin(ledger, 3))
    ledger.take(2, "a", 2.0)
    told = snapshot(ledger)
    assert (told.handed, told.uncommitted, told.consumed, told.ages) == (2, 2, 2, ((0, 2),))
    ledger.reclaim("a")
    told = snapshot(ledger)
    assert (told.handed, told.uncommitted, told.consumed, told.ages) == (0, 0, 0, ())
    assert (told.in_queue, told.batches, told.curve, ledger.free) == (3, 0, (), 1)


def test_a_lowered_bound_drops_what_waits_and_is_too_old_now():
    ledger = ledger_of(required_samples=1, max_staleness=2)
    play(ledger, begin(ledger, 1))
    publish(ledger)
    ledger.set_max_staleness(0)
    assert drops(ledger) == {"too_old": 1}
    with pytest.raises(ConfigError, match="max_staleness"):
        ledger.set_max_staleness(-1)


def test_a_bound_below_the_threshold_is_refused():
    ledger = ledger_of(required_samples=1, max_staleness=2, staleness_threshold=2)
    with pytest.raises(ConfigError, match="staleness_threshold <= max_staleness"):
        ledger.set_max_staleness(1)
    assert ledger.rules.max_staleness == 2


def test_when_every_group_of_a_step_is_filtered_others_are_begun():
    ledger = ledger_of(required_samples=2, max_staleness=0)
    for step in range(5):
        tickets = begin(ledger)
        assert [ticket.position for ticket in tickets] == [2 * step, 2 * step + 1]
        for ticket in tickets:
            ledger.leave(header(ticket, reward=1.0), "filtered", replay=False)
    count = ledger.books.drops["filtered"]
    assert (count.groups, count.rollouts, count.sampled_tokens) == (10, 20, 400)
    assert (count.reward_sum, count.rewarded) == (10.0, 10)


def test_the_left_over_is_handed_out_and_then_the_stream_has_ended():
    ledger = ledger_of(required_samples=4)
    tickets = begin(ledger)
    play(ledger, tickets[:2])
    ledger.source_ended(3)
    assert len(ledger.books.running) == 1
    assert ledger.take(4, "a", 2.0) is None
    play(ledger, tickets[2:3])
    out = ledger.take(4, "a", 2.0)
    assert positions(out) == [0, 1, 2]
    with pytest.raises(StreamEndedError, match="used up"):
        ledger.take(4, "a", 2.0)
    assert begin(ledger) == []
    ledger.reclaim("a")  # its taker died: not at its end after all
    assert positions(ledger.take(4, "b", 2.0)) == [0, 1, 2]


def test_a_stream_that_failed_hands_out_what_it_has_and_then_says_why():
    ledger = ledger_of(required_samples=2)
    tickets = begin(ledger)
    play(ledger, tickets[:3])
    ledger.stop("its rollouter died")
    assert positions(ledger.take(2, "a", 2.0)) == [0, 1]
    assert positions(ledger.take(2, "a", 2.0)) == [2]
    for ask in (lambda: ledger.take(2, "a", 2.0), lambda: ledger.begin(1, 0.0)):
        with pytest.raises(StreamError, match="rollouter died"):
            ask()
    assert snapshot(ledger).state == "failed"


def test_after_a_stop_what_is_in_flight_can_still_be_taken():
    ledger = ledger_of(required_samples=2)
    tickets = begin(ledger)
    ledger.stop()
    assert begin(ledger) == []
    assert ledger.take(2, "a", 2.0) is None
    play(ledger, tickets[:1])
    for ticket in tickets[1:]:
        ledger.leave(header(ticket), "stopped", replay=True)
    assert positions(ledger.take(2, "a", 2.0)) == [0]
    with pytest.raises(StreamEndedError, match="stopped"):
        ledger.take(2, "a", 2.0)


def test_a_step_begins_one_batch_and_stands_still_again():
    ledger = ledger_of(required_samples=2, max_staleness=3)
    ledger.gate(is_paused=True)
    assert begin(ledger) == []
    assert snapshot(ledger).waits_for.startswith("being resumed")
    ledger.gate(is_paused=True, step=True)
    assert len(begin(ledger, 1) + begin(ledger)) == 2
    assert begin(ledger) == []
    ledger.gate(is_paused=False)
    assert len(begin(ledger)) == 6


def test_a_step_that_is_asked_for_again_begins_no_other_groups():
    ledger = ledger_of(required_samples=2, max_staleness=3)
    ledger.gate(is_paused=True, step=True, call="one")
    assert len(begin(ledger)) == 2
    ledger.gate(is_paused=True, step=True, call="one")  # its answer was lost
    assert not begin(ledger)
    ledger.gate(is_paused=True, step=True, call="another")
    assert len(begin(ledger)) == 2


def test_more_than_there_can_be_is_refused():
    ledger = ledger_of(required_samples=2, max_staleness=1)
    with pytest.raises(ConfigError, match="1 <= n <= 4"):
        ledger.take(5, "a", 2.0)
    with pytest.raises(ConfigError, match="version >= 0"):
        ledger.begin_publish(-1)
    with pytest.raises(ConfigError, match="no batch 7"):
        ledger.commit(7)


def test_the_tasks_of_another_data_set_are_refused():
    ledger = ledger_of(required_samples=1, max_staleness=5)
    play(ledger, begin(ledger, 1), digest="one")
    ledger.take(1, "a", 2.0)
    ledger.open("another run", 0)
    ledger.set_max_staleness(0)
    publish(ledger)
    (ticket,) = begin(ledger, 1)
    assert (ticket.position, ticket.attempt) == (0, 2)
    with pytest.raises(StreamError, match="position 0"):
        ledger.put(header(ticket, digest="two"), 1.0)
