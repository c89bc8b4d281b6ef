"""Policies choose as their names say, and spread what looks alike."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter, deque
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import ConfigError
from workbench.routing.policies import POLICIES, Candidates, Turn, make_policy
from workbench.routing.policies.sticky import StickyLeastLoaded

LOADS = st.lists(st.integers(0, 60), min_size=1, max_size=8)


@dataclass
class View:
    replica_id: str
    in_flight: int = 0
    num_sessions: int = 0
    in_flight_tokens: int = 0
    queued: int = 0
    external: int = 0
    engine: object = None

    @property
    def load(self):
        return self.in_flight + self.external


class Replicas(Candidates):
    """The table's side of the contract, the slow and obvious way."""

    def __init__(self, views, seed=0):
        self.views = list(views)
        self.rng = random.Random(seed)

    def __getitem__(self, index):
        return self.views[index]

    def __len__(self):
        return len(self.views)

    def least_loaded(self):
        return min(self.views, key=lambda v: (v.in_flight, v.num_sessions, self.rng.random()))


class Pool:
    """Replicas that a policy chooses among, with the books a table would keep."""

    def __init__(self, policy, replicas=4, seed=0):
        self.policy = make_policy(policy, random.Random(seed))
        self.views = {f"r{i}": View(f"r{i}") for i in range(replicas)}
        self.replicas = Replicas(self.views.values(), seed)
        self.chosen = Counter()

    def open(self, turn, pinned=None):
        """A turn begins; the view it went to."""
        view = self.policy.choose(turn, pinned, self.replicas)
        self.chosen[view.replica_id] += 1
        view.in_flight += 1
        view.in_flight_tokens += turn.prompt_tokens
        if view is not pinned:
            view.num_sessions += 1
            if pinned:
                pinned.num_sessions -= 1
        return view

    def close(self, turn, view, *, ends_session=False):
        view.in_flight -= 1
        view.in_flight_tokens -= turn.prompt_tokens
        view.num_sessions -= ends_session

    def serve(self, turns, concurrency):
        """One-turn requests, ``concurrency`` at a time; the oldest ends first."""
        running = deque()
        for turn in turns:
            if len(running) == concurrency:
                self.close(*running.popleft(), ends_session=True)
            running.append((turn, self.open(turn)))

    @property
    def shares(self):
        return [self.chosen[name] for name in self.views]


def views(*in_flight):
    return [View(f"r{i}", in_flight=load) for i, load in enumerate(in_flight)]


def choose(policy, candidates, *, pinned=None, seed=0, **turn):
    made = make_policy(policy, random.Random(seed))
    return made.choose(Turn(turn.pop("session_id", "s"), **turn), pinned, Replicas(candidates))


# ------------------------------------------------------------------ sticky-least-loaded


def test_a_session_without_a_pin_goes_to_the_least_loaded():
    busy, idle = views(1, 0)
    assert choose("sticky-least-loaded", [busy, idle]) is idle


def test_a_pin_holds_up_to_the_margin_and_yields_above_it():
    policy = StickyLeastLoaded(margin=2)
    for load, stays in ((6, True), (7, True), (8, False)):
        pinned, other = views(load, 5)
        assert (choose(policy, [pinned, other], pinned=pinned) is pinned) is stays


def test_the_more_a_session_has_in_its_cache_the_more_load_it_takes_to_move_it():
    pinned, other = views(9, 0)
    policy = StickyLeastLoaded(margin=4, tokens_per_request=1024)
    assert choose(policy, [pinned, other], pinned=pinned, context_tokens=4096) is other
    assert choose(policy, [pinned, other], pinned=pinned, context_tokens=5120) is pinned


@settings(deadline=None)
@given(LOADS, st.data(), st.integers(0, 3), st.integers(0, 20_000))
def test_a_move_never_makes_the_new_replica_the_more_loaded_one(loads, data, margin, context):
    candidates = views(*loads)
    pinned = data.draw(st.sampled_from(candidates))
    policy = StickyLeastLoaded(margin=margin)
    chosen = choose(policy, candidates, pinned=pinned, context_tokens=context)
    assert chosen is pinned or chosen.in_flight + 1 <= pinned.in_flight


@settings(deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_whatever_the_loads_do_a_session_moves_at_most_thrice_and_settles_after_each(seed, chased):
    rng, policy = random.Random(seed), make_policy("sticky-least-loaded", random.Random(0))
    turn, pinned, stays = Turn("s"), "r0", []
    for _ in range(100):
        by_name = {view.replica_id: view for view in views(*(rng.randrange(60) for _ in range(4)))}
        if chased:
            by_name[pinned].in_flight = 100
        chosen = policy.choose(turn, by_name[pinned], Replicas(by_name.values())).replica_id
        if chosen != pinned:
            stays.append(turn.turns_here)
            turn.moves += 1
            turn.turns_here, pinned = 0, chosen
        turn.turns_here += 1
    assert len(stays) <= 3
    assert all(stay >= 4 for stay in stays[1:])


def test_sessions_that_crowd_one_replica_spread_once_and_then_stay_for_good():
    pool = Pool(StickyLeastLoaded(margin=4, tokens_per_request=1024))
    crowded = pool.views["r0"]
    turns = {f"s{i}": Turn(f"s{i}", context_tokens=1024) for i in range(40)}
    pins = dict.fromkeys(turns, crowded)
    crowded.num_sessions = len(turns)
    last_move = 0
    running = {}
    for i in range(100):
        for name, turn in turns.items():  # everyone's next turn begins as its last one ends
            if name in running:
                pool.close(turn, running[name])
            running[name] = view = pool.open(turn, pins[name])
            turn.turns_here += 1
            if view is not pins[name]:
                pins[name], turn.turns_here, last_move = view, 1, i
                turn.moves += 1
    assert last_move < 5
    assert max(turn.moves for turn in turns.values()) == 1
    loads = [view.in_flight for view in pool.replicas]
    assert max(loads) - min(loads) <= 4 + 1 + 1  # margin, worth of the context, the turn that ended


def test_while_its_replica_is_nearly_idle_a_session_stays_without_a_look_at_the_others():
    class Unseen(Replicas):
        def least_loaded(self):
            raise AssertionError("looked")

    (pinned,) = views(2)
    policy = make_policy("sticky-least-loaded", random.Random(0))
    assert policy.choose(Turn("s"), pinned, Unseen([pinned])) is pinned


@pytest.mark.parametrize("field", ["margin", "tokens_per_request", "max_moves", "settle_turns"])
def test_a_sticky_policy_refuses_values_below_its_range(field):
    with pytest.raises(ConfigError) as refused:
        StickyLeastLoaded(**{field: -1})
    assert refused.value.field == field


# ------------------------------------------------------------------ by the moment alone


def test_least_loaded_ignores_the_pin():
    pinned, idle = views(1, 0)
    assert choose("least-loaded", [pinned, idle], pinned=pinned) is idle


def test_round_robin_takes_turns():
    pool = Pool("round-robin", replicas=3)
    order = [pool.open(Turn("s")).replica_id for _ in range(7)]
    assert order == ["r0", "r1", "r2", "r0", "r1", "r2", "r0"]


def test_random_and_power_of_two_choose_alike_under_the_same_seed():
    for name in ("random", "power-of-two"):
        runs = []
        for _ in range(2):
            pool = Pool(name, seed=7)
            runs.append([pool.open(Turn("s")).replica_id for _ in range(50)])
        assert runs[0] == runs[1]


def test_random_and_power_of_two_reach_every_idle_replica():
    for name in ("random", "power-of-two"):
        policy = make_policy(name, random.Random(0))
        idle = Replicas(views(0, 0, 0, 0))
        chosen = Counter(policy.choose(Turn("s"), None, idle).replica_id for _ in range(400))
        assert min(chosen[f"r{i}"] for i in range(4)) > 50


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_power_of_two_never_takes_the_most_loaded_one(seed):
    candidates = views(3, 9, 5)
    assert choose("power-of-two", candidates, seed=seed).in_flight < 9


# ------------------------------------------------------------------ stable-hash

MAPPING = """
from tests.unit.routing.test_policies import choose, views
print([choose("stable-hash", views(*[0] * 5), session_id=f"s{i}").replica_id for i in range(200)])
"""


def test_stable_hash_is_the_same_in_two_fresh_processes():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", MAPPING],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert all(f"r{i}" in outputs[0] for i in range(5))


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=50, unique=True), st.integers(2, 8), st.data())
def test_taking_a_replica_away_moves_only_its_own_sessions(sessions, replicas, data):
    before = views(*[0] * replicas)
    gone = data.draw(st.sampled_from(before))
    after = [view for view in before if view is not gone]
    for session in sessions:
        was = choose("stable-hash", before, session_id=session)
        now = choose("stable-hash", after, session_id=session)
        assert now is was or was is gone


@settings(deadline=None)
@given(LOADS, LOADS, st.randoms())
def test_stable_hash_moves_for_no_load_and_no_order(some, others, rng):
    count = min(len(some), len(others))
    shuffled = views(*others[:count])
    rng.shuffle(shuffled)
    before = choose("stable-hash", views(*some[:count]))
    after = choose("stable-hash", shuffled, pinned=shuffled[0])
    assert after.replica_id == before.replica_id


def test_stable_hash_takes_any_text_for_a_session():
    assert choose("stable-hash", views(0, 0), session_id="not \udcff utf-8").replica_id in {
        "r0",
        "r1",
    }


def test_stable_hash_gives_replicas_like_shares():
    pool = Pool("stable-hash", replicas=8)
    for i in range(4000):
        pool.open(Turn(f"session-{i}"))
    assert max(pool.shares) / min(pool.shares) < 1.3


# ------------------------------------------------------------------ all of them

EVEN_WHEN_IDLE = ["sticky-least-loaded", "least-loaded", "round-robin", "prefix-aware", "kv-aware"]


@pytest.mark.parametrize("name", EVEN_WHEN_IDLE)
@settings(deadline=None)
@given(sessions=st.integers(1, 40), replicas=st.integers(1, 6), seed=st.integers(0, 1000))
def test_sessions_opened_while_all_is_idle_are_within_one_of_each_other(
    name, sessions, replicas, seed
):
    pool = Pool(name, replicas, seed)
    for i in range(sessions):
        turn = Turn(f"s{i}", prompt_tokens=640, blocks=tuple(range(20 * i, 20 * i + 20)))
        pool.close(turn, pool.open(turn))
    assert max(pool.shares) - min(pool.shares) <= 1


@pytest.mark.parametrize("name", POLICIES)
def test_a_burst_of_2000_requests_spreads(name):
    pool = Pool(name)
    for i in range(2000):
        pool.open(Turn(f"s{i}", prompt_tokens=640, blocks=tuple(range(20 * i, 20 * i + 20))))
    assert max(pool.shares) / min(pool.shares) <= 1.2


@pytest.mark.parametrize("name", POLICIES)
@settings(deadline=None)
@given(loads=LOADS, data=st.data())
def test_what_is_chosen_is_a_candidate_or_the_pin(name, loads, data):
    everyone = views(*loads)
    pinned = data.draw(st.none() | st.sampled_from(everyone))
    some = data.draw(st.lists(st.sampled_from(everyone), min_size=1, unique_by=id))
    turn = {"context_tokens": 200, "prompt_tokens": 300, "blocks": tuple(range(9))}
    assert choose(name, some, pinned=pinned, **turn) in [*some, pinned]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_made_by_its_own_name(name):
    assert make_policy(name, random.Random(0)).name == name


def test_an_unknown_policy_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError) as refused:
        make_policy("stickiest", random.Random(0))
    assert refused.value.field == "policy"
    assert set(refused.value.allowed.split(", ")) == set(POLICIES)


class FirstOne:
    def choose(self, turn, pinned, candidates):
        return candidates[0]


class ByChance(FirstOne):
    def __init__(self, rng):
        self.rng = rng


class Configured(FirstOne):
    def __init__(self, zone):
        self.zone = zone


def test_an_object_with_the_one_method_is_a_policy():
    mine = FirstOne()
    assert make_policy(mine, random.Random(0)) is mine


def test_a_class_is_made_with_the_generator_where_it_takes_one():
    rng = random.Random(0)
    assert isinstance(make_policy(FirstOne, rng), FirstOne)
    assert make_policy(ByChance, rng).rng is rng


@pytest.mark.parametrize("wrong", [None, 7, object(), Configured])
def test_what_is_no_policy_is_refused(wrong):
    with pytest.raises(ConfigError) as refused:
        make_policy(wrong, random.Random(0))
    assert refused.value.field == "policy"
