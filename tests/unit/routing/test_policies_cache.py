"""Policies that know caches go where the prefix is, and spread where there is none."""

from __future__ import annotations

import random

import pytest

from tests.unit.routing.test_policies import Pool, Replicas, View, views
from workbench.errors import ConfigError
from workbench.routing.policies import Turn, make_policy
from workbench.routing.policies.kv_aware import KVAware
from workbench.routing.policies.prefix_aware import PrefixAware
from workbench.routing.prefix import BLOCK_TOKENS
from workbench.types import EngineFigures

CACHE_AWARE = ["prefix-aware", "kv-aware"]
SHARED = tuple(range(1000, 1010))
"""Blocks of a beginning that prompts have in common."""


def turn(session_id="s", *, shared=0, own=20, context_tokens=0, **more):
    """Its first blocks are everybody's, its others nobody else's."""
    rng = random.Random(session_id)
    blocks = SHARED[:shared] + tuple(rng.getrandbits(64) for _ in range(own))
    tokens = len(blocks) * BLOCK_TOKENS
    return Turn(session_id, tokens, blocks, context_tokens=context_tokens, **more)


def made(name, seed=0):
    return make_policy(name, random.Random(seed))


def send(policy, replica, *turns):
    """Have the policy send these to a replica: the only one there is."""
    for one in turns:
        policy.choose(one, None, Replicas([View(replica)]))


def asked(policy, what, candidates, pinned=None):
    return policy.choose(what, pinned, Replicas(candidates)).replica_id


# ------------------------------------------------------------------ both


@pytest.mark.parametrize("name", CACHE_AWARE)
def test_a_prompt_goes_where_its_beginning_was_sent(name):
    policy = made(name)
    send(policy, "r1", turn("a", own=20))
    for _ in range(20):
        assert asked(policy, turn("a", own=24), views(0, 0, 0)) == "r1"


@pytest.mark.parametrize("name", CACHE_AWARE)
@pytest.mark.parametrize("concurrency", [8, 64])
def test_with_nothing_to_reuse_requests_spread_as_evenly_as_by_load(name, concurrency):
    pool = Pool(name)
    pool.serve((turn(f"s{i}") for i in range(2000)), concurrency)
    assert max(pool.shares) / min(pool.shares) <= 1.2


@pytest.mark.parametrize("name", CACHE_AWARE)
def test_a_miss_goes_to_no_overloaded_replica(name):
    policy = made(name)
    send(policy, "r0", turn("a"))
    busy, idle = View("r0", in_flight=3, in_flight_tokens=1920), View("r1")
    assert asked(policy, turn("b"), [busy, idle]) == "r1"


@pytest.mark.parametrize("name", CACHE_AWARE)
@pytest.mark.parametrize("prompts", ["identical", "system prompt of a third", "of two thirds"])
def test_a_burst_of_prompts_that_begin_alike_spreads_all_the_same(name, prompts):
    shared, own = {"identical": (10, 0), "system prompt of a third": (10, 20)}.get(prompts, (10, 5))
    pool = Pool(name)
    for i in range(2000):
        pool.open(turn(f"s{i}", shared=shared, own=own))
    assert max(pool.shares) / min(pool.shares) <= 1.2


@pytest.mark.parametrize("name", CACHE_AWARE)
def test_sessions_that_begin_alike_do_not_pile_up_on_one_idle_replica(name):
    pool = Pool(name)
    for i in range(80):
        one = turn(f"s{i}", shared=10, own=5)
        pool.close(one, pool.open(one))
    assert max(pool.shares) - min(pool.shares) <= 3


@pytest.mark.parametrize("name", CACHE_AWARE)
def test_what_a_replica_sampled_itself_counts_as_cached_there(name):
    policy = made(name)
    pinned, other = View("r0", in_flight=1, in_flight_tokens=600), View("r1")
    # Two blocks of forty were ever a prompt; the rest was sampled in the session's last turn.
    send(policy, "r0", turn("a", own=2))
    going_on = turn("a", own=40, context_tokens=30 * BLOCK_TOKENS)
    assert asked(policy, going_on, [pinned, other], pinned) == "r0"


@pytest.mark.parametrize("name", CACHE_AWARE)
def test_a_context_that_was_rewritten_is_no_reason_to_stay(name):
    policy = made(name)
    pinned, other = View("r0", in_flight=1, in_flight_tokens=600), View("r1")
    rewritten = turn("a", own=20, context_tokens=60 * BLOCK_TOKENS)
    assert asked(policy, rewritten, [pinned, other], pinned) == "r1"


@pytest.mark.parametrize("name", CACHE_AWARE)
def test_pinned_sessions_stay_after_a_restart_that_forgot_all_prompts(name):
    pinned, *others = views(1, 0, 0)
    going_on = turn("a", own=40, context_tokens=30 * BLOCK_TOKENS)
    assert asked(made(name), going_on, [pinned, *others], pinned) == "r0"


@pytest.mark.parametrize("name", CACHE_AWARE)
def test_a_replica_that_is_gone_is_not_chosen_for_what_it_had(name):
    policy = made(name)
    send(policy, "gone", turn("a"))
    assert asked(policy, turn("a"), views(4, 1, 3)[1:]) == "r1"


@pytest.mark.parametrize("name", CACHE_AWARE)
def test_a_turn_without_any_blocks_goes_to_the_least_loaded(name):
    policy = made(name)
    assert asked(policy, Turn("s"), views(2, 0, 1)) == "r1"
    assert asked(policy, Turn("s"), views(2, 0, 1), pinned=View("r2", in_flight=1)) == "r1"


@pytest.mark.parametrize("kind", [PrefixAware, KVAware])
def test_memory_is_bounded_whatever_is_sent(kind):
    policy = kind(random.Random(0), max_blocks=500)
    for i in range(300):
        policy.choose(turn(f"s{i}", shared=5), None, Replicas(views(0, 0, 0)))
    assert len(policy._index) <= 500


# ------------------------------------------------------------------ prefix-aware


def test_a_prefix_below_the_smallest_share_draws_nobody():
    policy = PrefixAware(random.Random(0), min_share=0.3)
    send(policy, "r0", turn("a", shared=6, own=0))
    assert asked(policy, turn("b", shared=6, own=15), views(1, 0)) == "r1"  # 6 of 21
    policy = PrefixAware(random.Random(0), min_share=0.3)
    send(policy, "r0", turn("a", shared=6, own=0))
    assert asked(policy, turn("b", shared=6, own=14), views(1, 0)) == "r0"  # 6 of 20


@pytest.mark.parametrize(("load", "goes_to"), [(4, "r0"), (5, "r1")])
def test_a_prefix_is_followed_up_to_the_margin_and_the_worth_of_its_prefill(load, goes_to):
    policy = PrefixAware(random.Random(0), margin=2)
    send(policy, "r0", turn("a", own=64))  # 2,048 tokens: two requests' worth
    assert asked(policy, turn("a", own=64), views(load, 0)) == goes_to


def test_a_longer_match_goes_before_a_replica_with_one_request_less():
    policy = PrefixAware(random.Random(0))
    send(policy, "r0", turn("a", own=30))
    send(policy, "r1", turn("a", own=20))
    assert asked(policy, turn("a", own=30), views(1, 0, 0)) == "r0"


def test_when_the_longest_match_is_overloaded_the_next_longest_is_taken():
    policy = PrefixAware(random.Random(0))
    send(policy, "r0", turn("a", own=30))
    send(policy, "r1", turn("a", own=20))
    assert asked(policy, turn("a", own=30), views(9, 1, 0)) == "r1"


@pytest.mark.parametrize("wrong", [{"min_share": 0}, {"min_share": 1.1}, {"margin": -1}])
def test_a_prefix_aware_policy_refuses_values_out_of_range(wrong):
    with pytest.raises(ConfigError) as refused:
        PrefixAware(random.Random(0), **wrong)
    assert refused.value.field in wrong


# ------------------------------------------------------------------ kv-aware


def reporting(name, *, usage=0.0, preempted=0, **load):
    figures = EngineFigures(kv_cache_usage=usage, num_preempted=preempted)
    return View(name, engine=figures, **load)


def test_the_prefill_that_is_saved_is_weighed_against_the_tokens_in_flight():
    for in_flight_tokens, goes_to in ((600, "r0"), (680, "r1")):
        policy = made("kv-aware")
        send(policy, "r0", turn("a", own=20))  # 640 tokens
        candidates = [View("r0", 1, in_flight_tokens=in_flight_tokens), View("r1")]
        assert asked(policy, turn("a", own=25), candidates) == goes_to


def test_equal_costs_go_to_fewest_requests_then_fewest_sessions():
    assert asked(made("kv-aware"), turn(), views(2, 1, 2)) == "r1"
    crowded, roomy = View("r0", num_sessions=2), View("r1", num_sessions=1)
    assert asked(made("kv-aware"), turn(), [crowded, roomy]) == "r1"


def test_a_fuller_cache_weighs_more():
    candidates = [
        reporting("r0", usage=0.9),
        reporting("r1", usage=0.5),
        reporting("r2", usage=0.8),
    ]
    assert asked(made("kv-aware"), turn(), candidates) == "r1"


def test_an_engine_that_did_not_report_is_judged_by_what_is_in_flight():
    unknown = View("r0", in_flight=1, in_flight_tokens=3000)
    assert asked(made("kv-aware"), turn(), [unknown, reporting("r1", usage=0.3)]) == "r1"
    assert asked(made("kv-aware"), turn(), [unknown, reporting("r1", usage=0.9)]) == "r0"


def test_preemptions_weigh_until_a_report_without_new_ones():
    policy = made("kv-aware")
    steady, shaky = (
        reporting("r0", in_flight=1, in_flight_tokens=100),
        reporting("r1", preempted=50),
    )
    assert asked(policy, turn("a"), [steady, shaky]) == "r1"  # before its first look: all old
    shaky.engine = EngineFigures(num_preempted=51)
    for i in range(5):
        assert asked(policy, turn(f"b{i}"), [steady, shaky]) == "r0"
    shaky.engine = EngineFigures(num_preempted=51)
    assert asked(policy, turn("c"), [steady, shaky]) == "r1"
    shaky.engine = EngineFigures(num_preempted=1)  # restarted
    assert asked(policy, turn("d"), [steady, shaky]) == "r0"


def test_a_burst_between_two_reports_reaches_the_replicas_that_looked_worse():
    pool = Pool("kv-aware")
    for view, usage in zip(pool.replicas, (0.0, 0.4, 0.4, 0.4), strict=True):
        view.engine = EngineFigures(kv_cache_usage=usage)
    for i in range(2000):
        pool.open(turn(f"s{i}"))
    assert max(pool.shares) / min(pool.shares) <= 1.2
