"""The gradient of a step, against a model's own and against finite differences, in float64."""

from __future__ import annotations

import pytest

from tests.unit.learner.tiny import a_group, a_rollout, a_segment
from workbench.learner.config import LearnerConfig
from workbench.learner.network import row_log_probs
from workbench.learner.objective import policy_loss
from workbench.learner.rows import select
from workbench.learner.tree import packed


@pytest.fixture(scope="module")
def model():
    """Of a kind that computes nothing in less than it is told to."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=64,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.5,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GPT2LMHeadModel(config).to(torch.float64).eval()


FORKED = a_rollout(
    1.0,
    a_segment([5, 6, 7], [20, 21, 9, 9, 22], [1, 1, 0, 0, 1]),
    a_segment([5, 6, 7, 20, 8], [23, 24], fork_reason="cut", parent=0, shared_tokens=4),
    index=2,
)
GROUPS = [
    [*a_group((0.0, [20, 30]), (1.0, [31, 32, 33])), FORKED],
    a_group((0.5, [20]), (2.0, [40, 41, 42, 43]), prompt=[5, 6, 50], group="h"),
]


def columns(rows):
    import torch

    return [
        torch.tensor(values, dtype=torch.float64)
        for values in (
            [log_prob for row in rows for log_prob in row.log_probs],
            [row.advantage for row in rows for _ in row.targets],
            [row.share for row in rows for _ in row.targets],
        )
    ]


def log_probs_of(model, rows, temperature=1.0):
    (pack,) = packed([row.ids for row in rows], 10_000)
    return row_log_probs(model, rows, pack, temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_rows_in_a_tree_get_what_each_gets_alone(model, temperature):
    import torch

    rows = select(GROUPS, LearnerConfig()).rows
    found = log_probs_of(model, rows, temperature).tolist()
    assert len(rows) == 6
    alone = []
    for row in rows:
        logits = model(torch.tensor([row.ids])).logits[0] / temperature
        table = logits.log_softmax(dim=-1).detach()
        alone += [float(table[e, t]) for e, t in zip(row.ends, row.targets, strict=True)]
    assert found == pytest.approx(alone, abs=1e-12)
    assert len(set(alone)) > 10  # else nothing was compared


def test_the_gradient_is_that_of_the_weighted_reward(model):
    """Where nothing is cut, a step goes up the importance-weighted mean advantage."""
    import torch

    rows = select(GROUPS, LearnerConfig()).rows
    sampled, advantages, shares = columns(rows)
    held = list(model.parameters())
    for parameter in held:
        parameter.grad = None
    loss, sums = policy_loss(log_probs_of(model, rows), sampled, advantages, shares, 1e9)
    loss.backward()
    assert sums.capped == 0

    def objective() -> float:
        with torch.no_grad():
            weights = (log_probs_of(model, rows) - sampled).exp()
            return float((shares * advantages * weights).sum())

    for seed in range(3):
        noise = torch.Generator().manual_seed(seed)
        along = [torch.randn(p.shape, generator=noise, dtype=p.dtype) for p in held]
        expected = -sum(float((p.grad * d).sum()) for p, d in zip(held, along, strict=True))
        ends = []
        for distance in (1e-6, -2e-6):  # there, and as far to the other side
            with torch.no_grad():
                torch._foreach_add_(held, along, alpha=distance)
            ends.append(objective())
        with torch.no_grad():
            torch._foreach_add_(held, along, alpha=1e-6)
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(expected, rel=1e-6)
        assert abs(expected) > 1e-3


def test_each_sampled_token_is_learned_once_whatever_its_rollout_was_split_into(model):
    rows = select(GROUPS, LearnerConfig()).rows
    assert sum(len(row.targets) for row in rows) == sum(
        sum(segment.response_mask) for g in GROUPS for rollout in g for segment in rollout.segments
    )
    forked = [row for row in rows if row.ids[:4] == [5, 6, 7, 20] and len(row.ids) > 4]
    assert [row.targets for row in forked] == [[20, 21, 22], [23, 24]]
    # Five tokens in two rows weigh what three in one do: the mean is over rollouts.
    assert [row.share for row in forked] == pytest.approx([1 / 5 / 5] * 2)
