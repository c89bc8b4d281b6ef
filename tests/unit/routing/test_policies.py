"""Policies choose as their names say, and spread what looks alike."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from workbench.errors import ConfigError
from workbench.routing.policies import POLICIES, LeastLoaded, StickyLeastLoaded, make_policy


@dataclass
class View:
    replica_id: str
    in_flight: int = 0
    num_sessions: int = 0


def policy(kind=StickyLeastLoaded, seed=0):
    return kind(random.Random(seed))


def test_the_replica_with_fewest_requests_in_flight_is_chosen():
    busy, idle = View("a", in_flight=3), View("b", in_flight=1, num_sessions=9)
    assert policy(LeastLoaded).choose("s", None, [busy, idle]) is idle


def test_equal_load_goes_to_the_replica_with_fewest_sessions():
    crowded, empty = View("a", num_sessions=2), View("b")
    assert policy(LeastLoaded).choose("s", None, [crowded, empty]) is empty


def test_full_ties_do_not_all_go_to_the_first():
    views = [View(name) for name in "abcd"]
    least = policy(LeastLoaded)
    chosen = Counter(least.choose(f"s{i}", None, views).replica_id for i in range(400))
    assert min(chosen[name] for name in "abcd") > 50


def test_ties_are_broken_alike_under_the_same_seed():
    views = [View(name) for name in "abcd"]
    runs = []
    for _ in range(2):
        least = policy(LeastLoaded, seed=7)
        runs.append([least.choose(f"s{i}", None, views).replica_id for i in range(50)])
    assert runs[0] == runs[1]


def test_a_pinned_session_stays_even_where_others_are_less_loaded():
    pinned, idle = View("a", in_flight=50), View("b")
    assert policy().choose("s", pinned, [pinned, idle]) is pinned


def test_a_session_without_a_pin_goes_to_the_least_loaded():
    busy, idle = View("a", in_flight=1), View("b")
    assert policy().choose("s", None, [busy, idle]) is idle


def test_least_loaded_ignores_the_pin():
    pinned, idle = View("a", in_flight=1), View("b")
    assert policy(LeastLoaded).choose("s", pinned, [pinned, idle]) is idle


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_made_by_its_own_name(name):
    assert make_policy(name, random.Random(0)).name == name


def test_an_unknown_policy_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError) as refused:
        make_policy("stickiest", random.Random(0))
    assert refused.value.field == "policy"
    assert set(refused.value.allowed.split(", ")) == set(POLICIES)
