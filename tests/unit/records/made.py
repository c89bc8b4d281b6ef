"""Trajectories of any shape, for tests of what becomes of them."""

from __future__ import annotations

from hypothesis import strategies as st

from workbench.trajectory import RolloutStatus, Segment, ToolCall, Trajectory, Turn
from workbench.types import FinishReason, VersionSpan

counts = st.integers(0, 2**40)
seconds = st.floats(0, 1e6)
words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
any_number = st.floats(-1e3, 0.0) | st.just(float("-inf"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | seconds | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
spans = st.builds(VersionSpan, counts, counts, counts)
segments = st.lists(st.tuples(counts, st.integers(0, 1), any_number), max_size=5).flatmap(
    lambda tokens: st.builds(
        Segment,
        prompt_ids=st.lists(counts, max_size=4),
        response_ids=st.just([token for token, _, _ in tokens]),
        response_mask=st.just([mask for _, mask, _ in tokens]),
        log_probs=st.just([log_prob for _, _, log_prob in tokens]),
        version_spans=st.lists(spans, max_size=2).map(tuple),
        fork_reason=words,
        parent=st.none() | counts,
        shared_tokens=counts,
    )
)  # fmt: skip
turns = st.builds(
    Turn, counts, counts, counts, st.sampled_from(FinishReason), words, counts, st.none() | counts,
    counts, st.none() | seconds, st.none() | seconds, seconds, st.none() | counts,
)  # fmt: skip
tool_calls = st.builds(
    ToolCall, counts, words, st.dictionaries(words, json_values, max_size=2), words, st.booleans(),
    words, seconds, counts,
)  # fmt: skip
trajectories = st.builds(
    Trajectory,
    rollout_id=words, group=words, index=counts, agent=words,
    task=st.dictionaries(words, json_values, max_size=2),
    segments=st.lists(segments, max_size=3).map(tuple),
    turns=st.lists(turns, max_size=3).map(tuple),
    tool_calls=st.lists(tool_calls, max_size=2).map(tuple),
    messages=st.lists(st.dictionaries(words, json_values, max_size=2), max_size=2).map(tuple),
    status=st.sampled_from(RolloutStatus),
    reward=st.none() | st.floats(-1e300, 1e300) | st.just(float("inf")),
    reward_parts=st.dictionaries(words, seconds, max_size=2),
    error=words, traceback=words, wall_s=seconds, ended_by=words, attempts=counts,
    notes=st.lists(words, max_size=2).map(tuple),
    extra=st.dictionaries(words, json_values, max_size=2),
    tokenizer=words,
)  # fmt: skip


def played(number: int = 0, **known) -> Trajectory:
    """A rollout of two turns in one segment."""
    log_probs = [-0.5, 0.0, -0.25]
    span = (VersionSpan(3, 0, 1), VersionSpan(4, 2, 3))
    turn = Turn(0, 0, 1, FinishReason.STOP, "replica-0", 2, 0, 1, 0.1, 0.2, 0.3)
    facts = {
        "rollout_id": f"task-{number}/0",
        "group": f"task-{number}",
        "index": 0,
        "agent": "test",
        "task": {"prompt": "p"},
        "segments": (Segment([1, 2], [7, 5, 8], [1, 0, 1], log_probs, span),),
        "turns": (turn, Turn(0, 2, 3, FinishReason.LENGTH, "replica-1", 4, 2, 1, None, None, 0.5)),
        "tool_calls": (),
        "messages": (),
        "status": RolloutStatus.DONE,
        "reward": 1.0,
    }
    return Trajectory(**facts | known)
