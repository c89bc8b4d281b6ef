"""Which rollouts become rows, and what is left out."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import ConfigError
from workbench.rollout.ledger import BatchRules, Ledger
from workbench.rollout.summary import summary
from workbench.rollout.tasks import RolloutSpec
from workbench.trajectory import RolloutStatus, Trajectory

DONE, FAILED, CANCELLED = RolloutStatus.DONE, RolloutStatus.FAILED, RolloutStatus.CANCELLED


def specs(groups, each):
    return [
        RolloutSpec(f"{group}/{index}", f"{group}", index, {})
        for group in range(groups)
        for index in range(each)
    ]


def ended(spec, status=DONE):
    return Trajectory(
        spec.rollout_id, spec.group, spec.index, "a", {}, (), (), (), (), status, None,
        error="ValueError: no" if status is FAILED else "",
    )  # fmt: skip


def ids(trajectories):
    return [trajectory.rollout_id for trajectory in trajectories]


def test_without_spare_ones_every_rollout_is_a_row_in_the_order_of_the_tasks():
    all_specs = specs(2, 2)
    ledger = Ledger(all_specs, 2, BatchRules())
    for spec, status in zip(reversed(all_specs), (DONE, FAILED, CANCELLED, DONE), strict=True):
        assert ledger.add(ended(spec, status)) == []
    assert ids(ledger.rows()) == [spec.rollout_id for spec in all_specs]
    assert (ledger.left_out(), ledger.missing(), ledger.wanted) == ([], 0, 4)


def test_with_spare_ones_the_first_that_are_done_are_rows_and_the_others_are_cut():
    one = specs(1, 4)
    ledger = Ledger(one, 2, BatchRules(spare=2))
    assert ledger.add(ended(one[3])) == []
    assert ledger.add(ended(one[1])) == ["0/0", "0/2"]
    ledger.add(ended(one[0], CANCELLED))
    ledger.add(ended(one[2]))  # it was just done when it was to be stopped
    assert ids(ledger.rows()) == ["0/1", "0/3"]
    assert [(out.trajectory.rollout_id, out.cause) for out in ledger.left_out()] == [
        ("0/0", "cut"),
        ("0/2", "cut"),
    ]


def test_a_spare_one_takes_the_place_of_one_that_failed():
    one = specs(1, 3)
    ledger = Ledger(one, 2, BatchRules(spare=1))
    for spec, status in zip(one, (FAILED, DONE, DONE), strict=True):
        ledger.add(ended(spec, status))
    assert ids(ledger.rows()) == ["0/1", "0/2"]
    assert [(out.trajectory.rollout_id, out.cause) for out in ledger.left_out()] == [
        ("0/0", "replaced")
    ]


def test_failures_fill_the_rows_that_nothing_else_does():
    one = specs(1, 3)
    ledger = Ledger(one, 2, BatchRules(spare=1))
    for spec, status in zip(one, (FAILED, FAILED, DONE), strict=True):
        ledger.add(ended(spec, status))
    assert ids(ledger.rows()) == ["0/0", "0/2"]


def test_what_is_dropped_is_no_row_and_is_counted_with_its_cause():
    two = specs(2, 2)
    ledger = Ledger(two, 2, BatchRules(on_failure="drop"))
    for spec, status in zip(two, (DONE, FAILED, FAILED, FAILED), strict=True):
        ledger.add(ended(spec, status))
    assert ids(ledger.rows()) == ["0/0"]
    assert ledger.missing() == 3
    assert {out.cause for out in ledger.left_out()} == {"dropped"}
    seen = summary(ledger, agent="a", running=0, wall_s=1.0)
    assert (seen.total, seen.done, seen.failed, seen.missing, seen.ended) == (4, 1, 0, 3, 4)
    assert seen.left_out == (("dropped", 3, 0),)
    assert seen.failures == (("ValueError", 3),)


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ({"max_attempts": 0}, "max_attempts: 0 .*whole number from 1"),
        ({"spare": -1}, "spare: -1 .*whole number from 0"),
        ({"concurrency": 0}, "concurrency: 0 .*whole number from 1"),
        ({"on_failure": "ignore"}, "on_failure: 'ignore' .*keep, drop"),
    ],
)
def test_rules_that_are_none_are_refused_with_what_is_allowed(rules, complaint):
    with pytest.raises(ConfigError, match=complaint):
        BatchRules(**rules)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(0, 3), st.integers(0, 4), st.booleans())
def test_every_rollout_that_ends_is_a_row_or_left_out_and_never_both(data, n, spare, groups, drops):
    rules = BatchRules(spare=spare, on_failure="drop" if drops else "keep")
    all_specs = specs(groups, n + spare)
    ledger, unwanted = Ledger(all_specs, n, rules), set()
    for spec in data.draw(st.permutations(all_specs)):
        allowed = [CANCELLED, DONE] if spec.rollout_id in unwanted else [DONE, FAILED, CANCELLED]
        unwanted |= set(ledger.add(ended(spec, data.draw(st.sampled_from(allowed)))))
        rows, out = ledger.rows(), [left.trajectory for left in ledger.left_out()]
        assert not set(ids(rows)) & set(ids(out))
        assert max(Counter(row.group for row in rows).values(), default=0) <= n
    rows, out = ledger.rows(), [left.trajectory for left in ledger.left_out()]
    assert sorted(ids(rows) + ids(out)) == sorted(spec.rollout_id for spec in all_specs)
    assert len(rows) + ledger.missing() == ledger.wanted
    best = Counter(t.group for t in (*rows, *out) if t.status is DONE)
    kept = Counter(row.group for row in rows if row.status is DONE)
    assert all(kept[group] == min(n, done) for group, done in best.items())
