"""Streams on virtual time, whatever befalls them: nothing too old, nothing lost, nothing twice."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.unit.stream.simulating import Plan, simulate

SCHEDULES = int(os.environ.get("WORKBENCH_SCHEDULES", "60"))
"""Random streams that are played; thousands take minutes."""

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""A stream that failed is told as it was: making it smaller would take minutes."""


def tasks(count, **fields):
    return [{"prompt": f"task {number}", **fields} for number in range(count)]


def played(plan):
    with tempfile.TemporaryDirectory() as folder:
        return simulate(plan, Path(folder))


def drops(outcome):
    return {drop.cause: drop.groups for drop in outcome.snapshot.drops}


def test_without_staleness_batches_come_as_in_a_synchronous_run():
    outcome = played(Plan(tasks(8), rules={"max_staleness": 0}))
    assert outcome.versions == [0, 1, 2, 3]
    order = [[group.position for group in batch.groups] for batch in outcome.batches]
    assert order == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert {group.staleness for batch in outcome.batches for group in batch.groups} == {0}
    for batch in outcome.batches:
        for row in batch.trajectories:
            assert row.versions == (batch.version, batch.version)


def test_with_a_bound_of_one_rollouts_are_made_while_the_learner_learns():
    outcome = played(Plan(tasks(8, tokens=20), rules={"max_staleness": 1}, steps_s=(1.0,)))
    assert outcome.snapshot.ages[-1][0] == 1
    assert not outcome.snapshot.drops
    assert sum(outcome.positions.values()) == 8


long_tail = [{"prompt": f"task {i}", "tokens": 3 if i % 4 else 60} for i in range(24)]


@pytest.mark.parametrize("mode", ["keep", "abort", "wait"])
def test_a_rollout_goes_on_through_updates_and_says_which_versions_made_it(mode):
    plan = Plan(long_tail, rules={"max_staleness": 2, "update_mode": mode}, steps_s=(0.1,))
    outcome = played(plan)
    assert sum(outcome.positions.values()) == 24
    spans = [row.versions for batch in outcome.batches for row in batch.trajectories]
    crossed = [span for span in spans if span[1] > span[0]]
    assert bool(crossed) == (mode != "wait"), "an update that waits falls between requests"


def test_without_partial_rollouts_none_crosses_an_update():
    plan = Plan(long_tail, rules={"max_staleness": 2, "partial_rollout": False}, steps_s=(0.1,))
    outcome = played(plan)
    assert sum(outcome.positions.values()) == 24
    spans = [row.versions for batch in outcome.batches for row in batch.trajectories]
    assert all(oldest == newest for oldest, newest in spans)


@pytest.mark.parametrize("policy", ["drop", "cancel"])
def test_what_is_too_old_is_dropped_with_its_cause_and_played_again(policy):
    one_is_slow = [{"prompt": f"task {i}", "tokens": 100 if i == 1 else 4} for i in range(10)]
    rules = {"max_staleness": 1, "when_too_old": policy, "max_voids": 5}
    outcome = played(Plan(one_is_slow, rules=rules, steps_s=(0.3,)))
    assert outcome.positions == dict.fromkeys(range(10), 1)
    assert drops(outcome)["too_old" if policy == "drop" else "cancelled"] >= 1


def test_a_rollout_that_never_fits_the_bound_is_given_up_and_told():
    endless = [{"prompt": "task 0", "tokens": 400}, *tasks(39, tokens=4)[1:]]
    rules = {"max_staleness": 1, "when_too_old": "cancel", "max_voids": 2}
    outcome = played(Plan(endless, rules=rules, steps_s=(0.3,)))
    assert drops(outcome) == {"cancelled": 1, "given_up": 1}
    assert outcome.positions == dict.fromkeys(range(1, 39), 1)


def test_a_batch_waits_for_those_that_would_be_too_old_and_nothing_is_lost():
    outcome = played(Plan(long_tail, rules={"max_staleness": 1}, steps_s=(0.1,)))
    assert not outcome.snapshot.drops
    assert sum(outcome.positions.values()) == 24


@pytest.mark.parametrize("mode", ["keep", "abort"])
def test_a_publish_waits_for_no_rollout(mode):
    one_is_long = [{"prompt": f"task {i}", "tokens": 400 if i == 0 else 4} for i in range(12)]
    rules = {"max_staleness": 5, "update_mode": mode}
    outcome = played(Plan(one_is_long, rules=rules, steps_s=(0.1,)))
    assert sum(outcome.positions.values()) == 12
    assert max(end_s - began_s for began_s, end_s in outcome.published) < 0.1 + 1.0, "the transfer"


@pytest.mark.parametrize("mode", ["keep", "abort"])
def test_engines_are_as_fast_as_before_within_one_request_after_a_publish(mode):
    rules = {
        "required_samples": 4, "max_staleness": 2, "trigger_parameter_sync_step": 20,
        "max_concurrent": 8, "update_mode": mode,
    }  # fmt: skip
    outcome = played(Plan(tasks(280, tokens=20), rules=rules, steps_s=(0.4,)))

    def rate(start_s, end_s):
        inside = [(at, tokens) for at, tokens in outcome.sampled if start_s <= at <= end_s]
        (first_s, first), (last_s, last) = inside[0], inside[-1]
        return (last - first) / (last_s - first_s)

    for began_s, end_s in outcome.published[:2]:
        request_s = 1.0  # 20 tokens
        before = rate(began_s - 4.0, began_s)
        assert rate(end_s + request_s, end_s + request_s + 3.0) >= 0.9 * before


def test_groups_that_are_filtered_give_their_places_back_even_all_of_a_step():
    spread = [{"prompt": f"task {i}", "spread": 1 if i < 8 else 1000} for i in range(12)]
    outcome = played(Plan(spread, filter="varied", rules={"max_staleness": 0}))
    assert drops(outcome)["filtered"] >= 8
    assert drops(outcome)["filtered"] + sum(outcome.positions.values()) == 12


def test_a_failed_rollout_is_a_row_and_failed_groups_in_a_row_stop_the_stream():
    some = played(Plan(tasks(8, fails=6), n=4))
    rows = [row for batch in some.batches for row in batch.trajectories]
    assert any(row.error for row in rows)
    assert not some.error
    all_of_them = played(Plan(tasks(40, fails=24), rules={"max_failures": 3}))
    assert "3 groups in a row failed with ValueError: task" in all_of_them.error
    assert "Traceback" in all_of_them.error
    assert all_of_them.snapshot.state == "failed"


def test_a_source_that_raises_stops_the_stream_after_what_was_there():
    def breaking():
        yield from tasks(4)
        raise OSError("gone")

    outcome = played(Plan(breaking()))
    assert "the task source raised at task 4: OSError: gone" in outcome.error
    assert sum(outcome.positions.values()) == 4


fate = st.tuples(
    st.floats(0.0, 3.0), st.sampled_from(["queue", "learner", "rollouter", "all", "pause"])
)
plans = st.builds(
    Plan,
    tasks=st.lists(
        st.fixed_dictionaries(
            {
                "prompt": st.just("task"),
                "turns": st.integers(1, 3),
                "tokens": st.sampled_from([1, 4, 12, 60]),
                "fails": st.sampled_from([0, 0, 0, 4]),
                "spread": st.sampled_from([1, 3, 1000]),
            }
        ),
        min_size=1,
        max_size=14,
    ),
    n=st.integers(1, 3),
    rules=st.fixed_dictionaries(
        {
            "required_samples": st.integers(1, 4),
            "trigger_parameter_sync_step": st.integers(1, 2),
            "max_staleness": st.integers(0, 3),
            "when_too_old": st.sampled_from(["wait", "drop", "cancel"]),
            "partial_rollout": st.booleans(),
            "update_mode": st.sampled_from(["keep", "abort", "wait"]),
            "max_concurrent": st.none() | st.integers(1, 6),
            "max_failures": st.just(1000),
            "on_failed_publish": st.just("go_on"),
        }
    ),
    filter=st.sampled_from([None, "varied"]),
    steps_s=st.lists(st.floats(0.05, 3.0), min_size=1, max_size=4).map(tuple),
    failing_publishes=st.frozensets(st.integers(0, 6), max_size=3),
    fates=st.lists(fate, max_size=5).map(tuple),
    epochs=st.integers(1, 2),
)


@pytest.mark.slow
@settings(max_examples=SCHEDULES, deadline=None, phases=PHASES)
@given(plans)
def test_whatever_befalls_a_stream_every_task_is_dealt_with_once(plan):
    outcome = played(plan)
    assert not outcome.error
    positions = len(plan.tasks) * plan.epochs
    assert set(outcome.positions.values()) <= {1}, "nothing is learned twice"
    assert set(outcome.positions) <= set(range(positions))
    settled = {"filtered", "failed", "given_up"}
    left_out = sum(drop.groups for drop in outcome.snapshot.drops if drop.cause in settled)
    assert len(outcome.positions) + left_out == positions
    assert outcome.leftovers == 0, "every place is free again"
    now = outcome.snapshot
    assert (now.state, now.in_flight, now.in_queue, now.uncommitted) == ("ended", 0, 0, 0)
    undisturbed = not plan.fates and not plan.failing_publishes and plan.filter is None
    if undisturbed and plan.rules["when_too_old"] == "wait" and not left_out:
        assert not [drop for drop in now.drops if drop.cause in {"too_old", "cancelled"}]
