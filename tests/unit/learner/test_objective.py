"""What a step is to make larger, against cases that were computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.learner.objective import TokenSums, group_advantages, policy_loss, token_shares

rewards = st.floats(-100, 100, allow_subnormal=False)


def test_advantages_are_rewards_against_those_of_the_group():
    assert group_advantages([1.0, 0.0, 0.0, 1.0]) == [1.0, -1.0, -1.0, 1.0]
    assert group_advantages([3.0, 1.0], scale=False) == [1.0, -1.0]
    found = group_advantages([0.0, 0.0, 0.0, 1.0])
    assert found == pytest.approx([-1 / math.sqrt(3)] * 3 + [math.sqrt(3)])


def test_a_rollout_without_a_reward_takes_no_part():
    assert group_advantages([1.0, None, 0.0, None]) == [1.0, 0.0, -1.0, 0.0]
    assert group_advantages([None, 4.0]) == [0.0, 0.0]
    assert group_advantages([None, None]) == [0.0, 0.0]


def test_equal_rewards_give_nothing_also_when_they_are_sums_that_round_differently():
    assert group_advantages([0.3, 0.1 + 0.2, 0.3]) == [0.0, 0.0, 0.0]
    assert group_advantages([0.0, 0.0]) == [0.0, 0.0]
    assert group_advantages([1e-9, 0.0]) == [1.0, -1.0]  # small is not equal


@given(st.lists(rewards, min_size=2, max_size=9), st.floats(0.1, 10), rewards)
def test_advantages_do_not_depend_on_the_scale_of_rewards(found, factor, offset):
    found = [round(reward) for reward in found]  # whose spread is far from rounding
    advantages = group_advantages(found)
    assert sum(advantages) == pytest.approx(0, abs=1e-6)
    moved = group_advantages([factor * reward + offset for reward in found])
    assert moved == pytest.approx(advantages, abs=1e-6)


@given(st.lists(st.integers(0, 50), max_size=9))
def test_each_rollout_or_each_token_weighs_the_same(sizes):
    by_rollout, by_token = token_shares(sizes), token_shares(sizes, "token")
    weights = {round(share * size, 9) for share, size in zip(by_rollout, sizes, strict=True)}
    assert len(weights - {0.0}) <= 1
    assert len(set(by_token)) <= 1
    for shares in (by_rollout, by_token):
        total = sum(share * size for share, size in zip(shares, sizes, strict=True))
        assert total == pytest.approx(1 if any(sizes) else 0)


def test_the_gradient_is_share_times_cut_weight_times_advantage():
    import torch

    ratios = [1.0, 1.5, 8.0, 0.25]
    sampled = torch.tensor([-1.0, -2.0, -3.0, -0.5], dtype=torch.float64)
    log_probs = (sampled + torch.tensor(ratios).log()).requires_grad_()
    advantages = torch.tensor([1.0, -1.0, 2.0, -0.5], dtype=torch.float64)
    shares = torch.tensor([0.25, 0.25, 0.4, 0.1], dtype=torch.float64)
    loss, sums = policy_loss(log_probs, sampled, advantages, shares, 2.0)
    loss.backward()
    by_hand = [0.25 * 1.0 * 1.0, 0.25 * 1.5 * -1.0, 0.4 * 2.0 * 2.0, 0.1 * 0.25 * -0.5]
    assert log_probs.grad.tolist() == pytest.approx([-value for value in by_hand])
    kl = sum(ratio - 1 - math.log(ratio) for ratio in ratios)
    assert sums == TokenSums(4, pytest.approx(10.75), pytest.approx(8), 1, pytest.approx(kl))


def test_sums_of_parts_are_those_of_the_whole():
    parts = TokenSums(2, 3.0, 2.5, 1, 0.5) + TokenSums(1, 1.0, 1.0, 0, 0.0)
    assert parts == TokenSums(3, 4.0, 2.5, 1, 0.5)
