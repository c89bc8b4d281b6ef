"""Whatever happens in whatever order: the books are in order, and both sides agree in the end."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.unit.routing.peer import Peer
from workbench.config import RoutingConfig
from workbench.errors import ConfigError, NoReplicaError
from workbench.routing.activity import activity
from workbench.routing.exchange import Exchange
from workbench.routing.messages import Outcome
from workbench.routing.policies import POLICIES, Need, make_policy
from workbench.routing.table import RoutingTable
from workbench.routing.views import check
from workbench.types import EngineFigures, Lease, ReplicaState

EXAMPLES = 150
STEPS = 60

SESSIONS = [f"session-{i}" for i in range(4)]
REPLICAS = [f"replica-{i}" for i in range(4)]
DOOR = "door"
GATEWAY = "gateway"
"""An owner that gives signs of life, while the door's other one never did."""

sessions = st.sampled_from(SESSIONS)
replicas = st.sampled_from(REPLICAS)
peers = st.integers(0, 2)
outcomes = st.sampled_from([Outcome.OK, Outcome.OK, Outcome.FAILED, Outcome.DIED])
prompts = st.sampled_from([0, 1, 5000])


class World(RuleBasedStateMachine):
    """A balancer's table and exchange, three clients, and callers at the door."""

    ran = 0

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        capacity=st.sampled_from([None, None, 1, 2]),
        replicas=st.integers(1, 3),
    )
    def start(self, policy, capacity, replicas):
        type(self).ran += 1
        event(f"{policy}, {'no limit' if capacity is None else 'limited'}")
        self.rules = RoutingConfig(policy=policy, capacity=capacity)
        self.now_s = 100.0
        self.epoch = 1
        self.peers = [Peer(f"client-{i}") for i in range(3)]
        self.door: dict[int, tuple[Lease, object]] = {}
        self.over: list[Lease] = []
        self.restart_with(REPLICAS[:replicas], recovering=False)

    def restart_with(self, known, *, recovering):
        rng = random.Random(0)
        policy = make_policy(self.rules.policy, rng)
        self.table = RoutingTable(
            policy, rules=self.rules, epoch=self.epoch, now_s=self.now_s, rng=rng
        )
        until_s = self.now_s + self.rules.recovery_s if recovering else 0.0
        self.exchange = Exchange(self.table, recover_until_s=until_s)
        for replica in known:
            self.add(replica)
        self.unrestored: list[str] = []
        self.gateway_heard_s = None

    def add(self, name):
        self.table.rotation.add(name)
        assert self.counts()[name] == 0
        self.exchange.restored()
        self.exchange.serve()

    def counts(self):
        return {name: replica.in_flight for name, replica in self.table.replicas.items()}

    # -- at the door ------------------------------------------------------------------------

    @rule(session=sessions, owner=st.sampled_from([DOOR, GATEWAY]), tokens=prompts)
    def acquire(self, session, owner, tokens):
        is_open = {name for name, replica in self.table.replicas.items() if replica.open}
        before = self.counts()
        try:
            lease = self.table.acquire(session, owner, prompt_tokens=tokens)
        except NoReplicaError:
            waits_for_full = Need.FULL_REPLICAS in self.table.rotation.needs or self.rules.capacity
            trial = any(replica.trial for replica in self.table.replicas.values())
            assert not is_open or waits_for_full or trial
            assert self.counts() == before
            return
        assert lease.replica_id in is_open
        before[lease.replica_id] += 1
        assert self.counts() == before
        self.door[lease.lease_id] = lease, self.table.replicas[lease.replica_id]

    @rule(session=sessions)
    def acquire_many(self, session):
        for _ in range(5):
            self.acquire(session, DOOR, 0)

    def release(self, lease, outcome=Outcome.OK):
        """Only what is open now, on the replica that was leased, may lower a count."""
        expected = self.counts()
        mine = lease.epoch == self.epoch and lease.lease_id in self.door
        if mine:
            _, replica = self.door.pop(lease.lease_id)
            if self.table.replicas.get(lease.replica_id) is replica:
                expected[lease.replica_id] -= 1
            self.over.append(lease)
        assert self.table.release(lease, outcome) == mine
        assert self.counts() == expected
        self.exchange.serve()

    @precondition(lambda self: self.door)
    @rule(data=st.data(), outcome=outcomes)
    def release_at_the_door(self, data, outcome):
        lease, _ = self.door[data.draw(st.sampled_from(sorted(self.door)))]
        self.release(replace(lease, epoch=lease.epoch - 1))
        self.release(lease, outcome)
        self.release(lease, outcome)

    @precondition(lambda self: self.over)
    @rule(data=st.data(), outcome=outcomes)
    def release_late(self, data, outcome):
        self.release(data.draw(st.sampled_from(self.over)), outcome)

    @rule()
    def gateway_gives_a_sign_of_life(self):
        self.exchange.hear(GATEWAY)
        self.gateway_heard_s = self.now_s

    # -- at the clients ---------------------------------------------------------------------

    @rule(who=peers, session=sessions, tokens=prompts, priority=st.integers(0, 1))
    def begin_a_turn(self, who, session, tokens, priority):
        self.peers[who].begin(session, tokens, priority)

    @rule(who=peers, data=st.data(), outcome=outcomes)
    def end_a_turn(self, who, data, outcome):
        peer = self.peers[who]
        if peer.held:
            peer.end(peer.held[data.draw(st.sampled_from(sorted(peer.held)))], outcome)

    @rule(who=peers, data=st.data())
    def cancel_a_turn_that_waits(self, who, data):
        peer = self.peers[who]
        if peer.waiting:
            lease_id = data.draw(st.sampled_from(sorted(peer.waiting)))
            peer.book.withdraw(lease_id)
            peer.waiting.remove(lease_id)

    @rule(who=peers, session=sessions)
    def end_a_session(self, who, session):
        self.peers[who].book.end_session(session)

    # -- on the wire ------------------------------------------------------------------------

    @rule(who=peers, fails=st.sampled_from([False, False, False, True]))
    def the_report_goes_on(self, who, fails):
        """From the client to the balancer, and the answer back; or it gets lost on the way."""
        peer = self.peers[who]
        if peer.sent is None:
            if peer.book.dirty:
                peer.sent = peer.book.report()
        elif fails:
            peer.lose()
        elif peer.answer is None:
            peer.answer = self.exchange.exchange(peer.sent)
            peer.past.append(peer.sent)
        else:
            peer.hear(peer.answer)
            peer.sent = peer.answer = None

    @rule(who=peers)
    def the_long_poll_goes_on(self, who):
        peer = self.peers[who]
        if peer.news is None:
            peer.news = self.exchange.news(peer.book.owner, peer.book.cursor)
        else:
            peer.hear(peer.news)
            peer.news = None

    @rule(who=peers, data=st.data())
    def a_report_arrives_once_more(self, who, data):
        peer = self.peers[who]
        if peer.past:
            before = self.table.leases.get(peer.book.owner, {}).copy()
            reply = self.exchange.exchange(data.draw(st.sampled_from(peer.past)))
            peer.hear(reply)
            # It may ask for what nobody waits for any more, and undo nothing.
            assert before.items() <= self.table.leases.get(peer.book.owner, {}).items()

    @rule(who=peers)
    def all_is_heard(self, who):
        peer = self.peers[who]
        self.talk(peer)
        booked = self.table.leases.get(peer.book.owner, {})
        assert booked.keys() <= peer.held.keys()
        for lease_id in peer.held.keys() - booked.keys():
            # The balancer has never known it, or knows another one under its name by now.
            replica = self.table.replicas.get(peer.held[lease_id].replica_id)
            assert replica is None or replica.since > 0
        assert peer.waiting == set() or self.exchange.queued

    def talk(self, peer):
        for _ in range(6):
            if peer.answer is None and peer.sent is None:
                peer.sent = peer.book.report()
            if peer.answer is None:
                peer.answer = self.exchange.exchange(peer.sent)
            peer.hear(peer.answer)
            peer.sent = peer.answer = None
            if news := peer.news or self.exchange.news(peer.book.owner, peer.book.cursor):
                peer.hear(news)
            peer.news = None
            if not peer.book.dirty and not self.exchange.has_news(peer.book.owner):
                return
        raise AssertionError("they never stop talking")

    # -- replicas and sessions --------------------------------------------------------------

    @rule(name=replicas)
    def add_a_replica(self, name):
        if name in self.table.replicas:
            with pytest.raises(ConfigError):
                self.table.rotation.add(name)
        elif name not in self.unrestored:
            self.add(name)

    @rule(name=replicas)
    def remove_a_replica(self, name):
        if name in self.table.replicas:
            self.table.rotation.remove(name)
            self.exchange.serve()
        else:
            with pytest.raises(ConfigError):
                self.table.rotation.remove(name)
        assert name not in self.table.sessions.pins().values()

    @rule(name=replicas)
    def replace_a_replica(self, name):
        self.remove_a_replica(name)
        self.add_a_replica(name)

    @rule(name=replicas, state=st.sampled_from([*ReplicaState, ReplicaState.READY]))
    def change_a_replica(self, name, state):
        if name in self.table.replicas:
            self.table.rotation.set_state(name, state)
            self.exchange.serve()

    @rule(well=st.booleans())
    def probe_the_unhealthy(self, well):
        for name in self.table.rotation.probes_due():
            self.table.rotation.probed(name, "" if well else "it does not answer")
            self.exchange.serve()

    @rule(name=replicas, usage=st.sampled_from([None, 0.1, 0.9]))
    def an_engine_reports(self, name, usage):
        figures = None if usage is None else EngineFigures(kv_cache_usage=usage)
        self.table.rotation.set_engine(name, figures)

    @rule(session=sessions, name=replicas)
    def move_a_session(self, session, name):
        try:
            self.table.move_session(session, name)
        except ConfigError:
            return
        assert self.table.sessions.pins()[session] == name

    # -- time -------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.05, 0.5, 3.0, 12.0, 4000.0]))
    def time_passes(self, seconds):
        self.now_s += seconds
        late_s = self.now_s - self.rules.owner_timeout_s
        if self.gateway_heard_s is not None and self.gateway_heard_s < late_s:
            self.gateway_heard_s = None
            for lease, _ in [held for held in self.door.values() if held[0].owner == GATEWAY]:
                del self.door[lease.lease_id]
                self.over.append(lease)
        self.exchange.tick(self.now_s)

    @rule(at_once=st.booleans())
    def the_balancer_starts_over(self, at_once):
        self.epoch += 1
        self.over += [lease for lease, _ in self.door.values()]
        self.door.clear()
        for peer in self.peers:
            peer.news = None
            if peer.sent:
                peer.lose()
        known = [*self.table.replicas, *self.unrestored]
        self.restart_with(known if at_once else [], recovering=True)
        self.unrestored = [] if at_once else known

    @precondition(lambda self: self.unrestored)
    @rule()
    def its_replicas_are_named_again(self):
        for name in self.unrestored:
            self.add(name)
        self.unrestored = []

    # -- what always holds ------------------------------------------------------------------

    @invariant()
    def the_books_are_in_order(self):
        if hasattr(self, "table"):
            check(self.table)

    @invariant()
    def every_turn_is_told_of(self):
        if hasattr(self, "table"):
            told = activity(self.table.journal, cursor=0, top=2)
            turns = sum(hot.turns for hot in told.hot) + sum(count for _, count in told.others)
            assert turns == self.table.acquired
            assert self.table.sessions.moves + self.table.sessions.ordered_moves >= len(told.moves)
            assert all(move.reason for move in told.moves)

    @invariant()
    def the_door_knows_what_is_open(self):
        if hasattr(self, "table"):
            booked = {**self.table.leases.get(DOOR, {}), **self.table.leases.get(GATEWAY, {})}
            assert booked.keys() == self.door.keys()

    def teardown(self):
        if not hasattr(self, "table"):
            return
        self.its_replicas_are_named_again()
        for name in REPLICAS:
            if name not in self.table.replicas:
                self.add(name)
            self.table.rotation.set_state(name, ReplicaState.READY)
        for lease, _ in list(self.door.values()):
            self.release(lease)
        self.time_passes(self.rules.recovery_s + 0.1)
        self.everybody_gets_an_answer()
        for agreed in (False, True):
            self.everybody_uses_its_pins(agreed)
            self.everybody_gets_an_answer()
        assert set(self.counts().values()) == {0}
        assert not any(self.table.leases.values())
        check(self.table)

    def everybody_gets_an_answer(self):
        for _ in range(2 * STEPS):
            for peer in self.peers:
                for lease in list(peer.held.values()):
                    peer.end(lease)
                self.talk(peer)
            if not any(peer.waiting or peer.held for peer in self.peers):
                break
        assert not any(peer.waiting for peer in self.peers)
        assert not self.exchange.queued

    def everybody_uses_its_pins(self, agreed):
        """Where they still differ, because a session was forgotten, the first use tells."""
        pins = self.table.sessions.pins()
        for peer in self.peers:
            for session in SESSIONS:
                lease = peer.book.take(session)
                if lease is None:
                    continue
                peer.hold(lease)
                assert not agreed or pins.get(session) in (lease.replica_id, None)


class TestWorld(World.TestCase):
    settings = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )

    @classmethod
    def tearDownClass(cls):
        print(f"\n{World.ran} examples of up to {STEPS} steps")  # noqa: T201 - a measure
