"""Steps of a learner: what changes, what does not, and what is left when it ends."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.unit.learner.tiny import a_group, a_rollout, a_segment, make_model
from workbench.checkpoint.check import check_checkpoint
from workbench.errors import ConfigError
from workbench.learner.config import LearnerConfig
from workbench.learner.figures import StepFigures
from workbench.learner.learner import GRPOLearner
from workbench.learner.rows import select
from workbench.learner.tree import packed
from workbench.metrics.aggregation import aggregate
from workbench.trajectory import RolloutStatus

GOOD, BAD = [20, 21, 22], [30, 31, 32, 33]
GROUP = a_group((1.0, GOOD), (0.0, BAD), (0.0, [30, 40]))
FAST = {"lr": 1e-2, "dtype": "float32"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("tiny"))


def weights(learner):
    return [master.clone() for master in learner._network.masters]


def same(one, other):
    return all(bool((a == b).all()) for a, b in zip(one, other, strict=True))


def log_prob(learner, response):
    rows = select([a_group((1.0, response), (0.0, [1]))], LearnerConfig()).rows[:1]
    (pack,) = packed([row.ids for row in rows], 1_000)
    return float(learner._network.log_probs(rows, pack).sum().detach())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_did_better_becomes_more_likely_and_what_did_worse_less(model, dtype):
    learner = GRPOLearner(model, LearnerConfig(lr=1e-2, dtype=dtype))
    before = log_prob(learner, GOOD), log_prob(learner, BAD)
    told = [learner.step([GROUP]) for _ in range(3)]
    assert log_prob(learner, GOOD) > before[0] + 0.5
    assert log_prob(learner, BAD) < before[1] - 0.5
    assert [figures.step for figures in told] == [1, 2, 3]
    assert told[0].changed
    assert (told[0].tokens, told[0].computed_tokens) == (9, 3 + 2 + 3 + 0)


def test_steps_too_small_for_bfloat16_still_add_up(model):
    learner = GRPOLearner(model, LearnerConfig(lr=1e-5))
    before = weights(learner)
    held = [parameter.detach().clone() for parameter in learner._network._held]
    learner.step([GROUP])
    learner.step([GROUP])
    moved = [float((a - b).abs().max()) for a, b in zip(weights(learner), before, strict=True)]
    assert max(moved) == pytest.approx(2e-5, rel=0.2)
    near_one = [at for at, value in enumerate(held) if float(value.abs().max()) >= 1.0]
    assert near_one
    assert all(bool((learner._network._held[at] == held[at]).any()) for at in near_one)


def test_parts_of_a_step_add_up_to_it(model):
    groups = [GROUP, a_group((0.0, [9, 9]), (3.0, [8]), prompt=[60, 61], group="h")]
    whole = GRPOLearner(model, LearnerConfig(**FAST))
    parts = GRPOLearner(model, LearnerConfig(**FAST, tokens_per_pass=5))
    one, other = whole.step(groups), parts.step(groups)
    assert other.computed_tokens > one.computed_tokens
    for name in ("loss", "grad_norm", "kl", "mean_weight", "largest_weight"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-4)


def test_rollouts_without_a_reward_take_no_part(model):
    lost = [
        a_rollout(None, a_segment([5, 6, 7], [50]), index=3, status=RolloutStatus.FAILED),
        a_rollout(None, a_segment([5, 6, 7], [51]), index=4, status=RolloutStatus.CANCELLED),
        a_rollout(None, a_segment([5, 6, 7], [52]), index=5),
        a_rollout(None, index=6, status=RolloutStatus.FAILED),
    ]
    one, other = (GRPOLearner(model, LearnerConfig(**FAST)) for _ in range(2))
    one.step([GROUP])
    told = other.step([[*GROUP, *lost]])
    assert same(weights(one), weights(other))
    assert (told.rollouts, told.left_out, told.rewarded) == (7, 4, 3)
    assert told.reward == pytest.approx(1 / 3)


def test_where_rewards_do_not_differ_nothing_changes_and_it_says_so(model):
    learner = GRPOLearner(model, LearnerConfig(**FAST))
    learner.step([GROUP])  # momentum alone would go on
    before = weights(learner)
    told = learner.step([a_group((0.5, GOOD), (0.5, BAD)), a_group((None, GOOD), (1.0, BAD))])
    assert same(weights(learner), before)
    assert not told.changed
    assert "different rewards" in told.note
    assert (told.groups, told.differing, told.tokens, told.grad_norm) == (2, 0, 0, None)


def test_a_gradient_that_is_not_finite_changes_nothing_and_it_says_so(model):
    learner = GRPOLearner(model, LearnerConfig(**FAST))
    before = weights(learner)
    lost = a_rollout(1.0, a_segment([5, 6, 7], GOOD, log_prob=float("nan")))
    told = learner.step([[lost, *GROUP[1:]]])
    assert same(weights(learner), before)
    assert "not finite" in told.note
    assert learner.step([GROUP]).changed  # and nothing of it is left


def test_a_single_rollout_has_nothing_to_be_compared_with(model):
    learner = GRPOLearner(model, LearnerConfig(**FAST))
    with pytest.raises(ConfigError, match=r"^n: the group 'g' has 1 rollout \(allowed: n >= 2"):
        learner.step([GROUP, GROUP[:1]])


def test_a_learner_that_is_loaded_goes_on_to_the_bit(model, tmp_path):
    learner = GRPOLearner(model, LearnerConfig(lr=1e-2))
    learner.step([GROUP])
    learner.save(tmp_path / "saved")
    later = learner.step([GROUP])
    other = GRPOLearner(model, LearnerConfig(lr=1e-2))
    assert other.load(tmp_path / "saved") == 1
    again = other.step([GROUP])
    assert again.step == 2
    assert (again.loss, again.grad_norm) == (later.loss, later.grad_norm)
    assert same(weights(other), weights(learner))


def test_a_save_that_breaks_leaves_the_one_before(model, tmp_path, monkeypatch):
    import torch

    learner = GRPOLearner(model, LearnerConfig(**FAST))
    learner.step([GROUP])
    first = learner.save(tmp_path)
    assert check_checkpoint(first, model)
    learner.step([GROUP])

    def broken(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", broken)
        with pytest.raises(OSError, match="no space"):
            learner.save(tmp_path)
    assert GRPOLearner(model, LearnerConfig(**FAST)).load(tmp_path) == 1
    (tmp_path / ".step-000002-0.1.partial").mkdir()  # of a process that was killed meanwhile
    learner.save(tmp_path)
    assert GRPOLearner(model, LearnerConfig(**FAST)).load(tmp_path) == 2
    assert len(list(tmp_path.iterdir())) == 2  # the state, and what points to it


def test_what_is_not_a_save_of_this_model_is_refused(model, tmp_path):
    learner = GRPOLearner(model, LearnerConfig(**FAST))
    with pytest.raises(ConfigError, match="folder: nothing was saved"):
        learner.load(tmp_path)
    learner.save(tmp_path)
    (state,) = tmp_path.glob("step-*/state.pt")
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(ConfigError, match=r"folder: .*cannot be read"):
        learner.load(tmp_path)


def test_written_weights_are_a_model_that_engines_take(model, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    learner = GRPOLearner(model, LearnerConfig(lr=1e-2))
    target = tmp_path / "weights"
    learner.write_weights(target)
    learner.step([GROUP])
    assert learner.write_weights(target) == target
    assert check_checkpoint(target, model)
    assert list(tmp_path.iterdir()) == [target]
    loaded = AutoModelForCausalLM.from_pretrained(target)
    assert same(loaded.parameters(), learner._network._held)
    assert AutoTokenizer.from_pretrained(target).chat_template


def test_figures_say_how_they_are_brought_together(model):
    learner = GRPOLearner(model, LearnerConfig(**FAST))
    steps = [learner.step([GROUP]), learner.step([GROUP, a_group((1.0, [1]), (1.0, [2]))])]
    rows = [{name: getattr(step, name) for name in StepFigures.__slots__} for step in steps]
    total = aggregate(pd.DataFrame(rows), StepFigures.AGGREGATION)
    assert total["step"] == 2
    assert total["rollouts"] == 3 + 5
    assert total["reward"] == pytest.approx((1 + 1 + 2) / 8)


def test_positions_are_as_exact_as_transformers_has_them(model):
    import torch
    from transformers import AutoModelForCausalLM

    learner = GRPOLearner(model, LearnerConfig(dtype="bfloat16"))
    known = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    held = dict(learner._network.model.named_buffers())
    for name, buffer in known.named_buffers():
        assert held[name].dtype == buffer.dtype
        assert torch.equal(held[name], buffer)


def test_a_step_that_raised_leaves_nothing_for_the_next_one(model, monkeypatch):
    learner, fresh = (
        GRPOLearner(model, LearnerConfig(**FAST)),
        GRPOLearner(model, LearnerConfig(**FAST)),
    )
    with monkeypatch.context() as patch:
        patch.setattr(learner._network, "advance", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            learner.step([GROUP])
    assert learner.step([GROUP]).grad_norm == fresh.step([GROUP]).grad_norm


def test_rollouts_of_another_policy_are_pointed_out(model):
    learner = GRPOLearner(model, LearnerConfig(**FAST))
    strange = [
        a_rollout(reward, a_segment([5, 6], response, log_prob=-60.0), index=index)
        for index, (reward, response) in enumerate([(1.0, GOOD), (0.0, BAD)])
    ]
    figures = learner.step([strange])
    assert "are weights and temperature the same?" in figures.note
    assert figures.changed
