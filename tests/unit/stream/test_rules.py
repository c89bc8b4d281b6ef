"""Bounds of a stream: what they come to, and which are refused."""

from __future__ import annotations

import pickle

import pytest

from workbench.errors import ConfigError
from workbench.stream.rules import StreamRules


@pytest.mark.parametrize(
    ("given", "per_version", "window"),
    [
        ({}, 8, 16),
        ({"max_staleness": 0}, 8, 8),
        ({"max_staleness": 3, "required_samples": 2}, 2, 8),
        ({"max_staleness": 2, "staleness_threshold": 0.5}, 8, 12),
        ({"max_staleness": 1, "staleness_threshold": 0.3, "required_samples": 3}, 3, 3),
        ({"max_staleness": None}, 8, 16),
        ({"max_staleness": None, "staleness_threshold": 4}, 8, 40),
        ({"trigger_parameter_sync_step": 4}, 32, 64),
    ],
)
def test_what_may_exist_follows_from_what_is_taken(given, per_version, window):
    rules = StreamRules(**given)
    assert (rules.per_version, rules.window) == (per_version, window)
    assert pickle.loads(pickle.dumps(rules)) == rules


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("required_samples", 0, "a whole number from 1"),
        ("required_samples", 2.0, "a whole number from 1"),
        ("required_samples", True, "a whole number from 1"),
        ("trigger_parameter_sync_step", -1, "a whole number from 1"),
        ("max_staleness", -1, "a whole number from 0"),
        ("max_staleness", 0.5, "a whole number from 0"),
        ("max_voids", 0, "a whole number from 1"),
        ("max_voids", None, "a whole number from 1"),
        ("max_failures", 0, "a whole number from 1"),
        ("max_concurrent", 0, "a whole number from 1"),
        ("staleness_threshold", -0.1, "a number from 0"),
        ("staleness_threshold", float("nan"), "a number from 0"),
        ("staleness_threshold", "1", "a number from 0"),
        ("staleness_threshold", True, "a number from 0"),
        ("when_too_old", "ignore", "wait, drop, cancel"),
        ("on_failed_publish", "retry", "stop, go_on"),
        ("partial_rollout", 1, "True, False"),
        ("update_mode", "now", "abort"),
    ],
)
def test_a_number_that_is_none_is_refused_by_name(field, value, allowed):
    with pytest.raises(ConfigError) as refused:
        StreamRules(**{field: value})
    assert (refused.value.field, allowed in refused.value.allowed) in {
        (field, True),
        ("mode", True),
    }


def test_a_threshold_above_the_bound_is_refused_with_the_inequality():
    with pytest.raises(ConfigError, match="staleness_threshold <= max_staleness = 1"):
        StreamRules(staleness_threshold=1.5)
    StreamRules(staleness_threshold=1.5, max_staleness=2)
    StreamRules(staleness_threshold=1.5, max_staleness=None)


def test_verls_formulas():
    rules = StreamRules.verl(
        ppo_mini_batch_size=32, require_batches=4, staleness_threshold=0.5, replicas=2
    )
    assert rules.required_samples == 128
    assert rules.window == int(128 * (1 + 0.5) * 4) == 768
    assert rules.max_concurrent == min(2 * 16, 768) == 32
    assert (rules.max_staleness, rules.update_mode) == (None, "abort")
    few = StreamRules.verl(
        ppo_mini_batch_size=2, trigger_parameter_sync_step=1, staleness_threshold=0, replicas=9
    )
    assert (few.max_concurrent, few.window) == (2, 2)
