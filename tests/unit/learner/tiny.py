"""A model of some thousand weights, made here and now, and rollouts for it."""

from __future__ import annotations

from workbench.trajectory import RolloutStatus, Segment, Trajectory
from workbench.types import VersionSpan

VOCABULARY = 258


def make_model(folder, seed: int = 0, size: int = 16):
    """The directory of a new model, with a tokenizer of bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.unit.chat import tokenizer
    from workbench.learner.network import quiet

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=size,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        initializer_range=0.3,  # else all tokens are about as likely, whatever is before them
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    with quiet():
        model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def a_segment(prompt, response, mask=None, log_prob=-2.0, **more):
    mask = [1] * len(response) if mask is None else mask
    spans = tuple(VersionSpan(0, at, at + 1) for at, m in enumerate(mask) if m)
    log_probs = [log_prob if m else 0.0 for m in mask]
    return Segment(list(prompt), list(response), mask, log_probs, spans, **more)


def a_rollout(reward, *segments, group="g", index=0, status=RolloutStatus.DONE):
    error = "boom" if status is RolloutStatus.FAILED else ""
    turns = calls = messages = ()
    return Trajectory(
        f"{group}-{index}", group, index, "a", {}, segments, turns, calls, messages, status,
        reward, error=error,
    )  # fmt: skip


def a_group(*rewards_and_responses, prompt=(5, 6, 7), group="g"):
    """Rollouts of one segment each."""
    return [
        a_rollout(reward, a_segment(prompt, response), group=group, index=index)
        for index, (reward, response) in enumerate(rewards_and_responses)
    ]
