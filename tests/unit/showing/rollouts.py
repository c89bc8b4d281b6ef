"""Rollouts of any kind: branches, several versions, hostile text, whatever can be missing."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from workbench.rollout.trajectory import TrajectoryBuilder
from workbench.trajectory import RolloutStatus, ToolCall
from workbench.types import FinishReason, TokenOutput, VersionSpan

EVIL = "<img src=x onerror='window.broken=1'></details></bdi>\n\u202e&amp;\"\x1b[31m\ud800"
"""Markup that closes what is around it, direction and control characters, a lone surrogate."""


def output(ids, *, log_prob=-0.5, spans=None, **known):
    covering = (VersionSpan(3, 0, len(ids)),) if ids else ()
    return TokenOutput(
        list(ids), [log_prob] * len(ids), known.pop("finish", FinishReason.STOP),
        covering if spans is None else spans, known.pop("replica_id", "replica-1"), **known,
    )  # fmt: skip


def built(builder, **known):
    values = {
        "rollout_id": "batch/task/0", "group": "task", "index": 0, "agent": "tool", "task": {},
        "status": RolloutStatus.DONE, "reward": 0.75, "wall_s": 2.5,
    }  # fmt: skip
    return builder.build(**(values | known))


def conversation():
    """A question, a tool call, a branch beside it, an answer."""
    builder = TrajectoryBuilder()
    builder.messages += [
        {"role": "system", "content": "You calculate."},
        {"role": "user", "content": "What is two plus two?"},
        {"role": "assistant", "content": "I add.", "tool_calls": [{"name": "add"}]},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "It is four."},
        {"role": "user", "content": "Thank you."},
    ]
    builder.add_turn([1, 2, 9], output([3, 4], spans=(VersionSpan(3, 0, 1), VersionSpan(4, 1, 2))))
    builder.add_tool_call(
        ToolCall(0, "add", {"a": 2}, "4", well_formed=True, seconds_s=0.25, cut_characters=12)
    )
    builder.add_turn([1, 2, 8], output([7], log_prob=math.log(0.9)), fork="it thought again")
    builder.ended_by = "answer"
    builder.notes.append("the prompt was cut")
    builder.extra["seed"] = 11
    return built(builder, attempts=2, reward_parts={"right": 0.5})


texts = st.one_of(st.text(max_size=12), st.just(EVIL), st.just(EVIL * 300))
token_ids = st.lists(st.integers(0, 300), max_size=12)


@st.composite
def sampled(draw):
    ids = draw(token_ids)
    cut = draw(st.integers(0, len(ids)))
    spans = tuple(
        s for s in (VersionSpan(1, 0, cut), VersionSpan(2, cut, len(ids))) if s.start < s.end
    )
    log_prob = draw(st.sampled_from([0.0, -0.5, -1e9, -math.inf, math.nan]))
    return output(ids, log_prob=log_prob, spans=spans, finish=draw(st.sampled_from(FinishReason)))


@st.composite
def trajectories(draw):
    """Any that a loop may leave behind."""
    builder = TrajectoryBuilder()
    row = []
    for _ in range(draw(st.integers(0, 5))):
        prompt = draw(st.sampled_from([row, row[: len(row) // 2]])) + draw(token_ids)
        said = draw(sampled())
        builder.add_turn(prompt, said, fork=draw(st.sampled_from(["", "", EVIL])))
        row = prompt + said.token_ids
        if draw(st.booleans()):
            builder.add_tool_call(ToolCall(
                builder.num_turns - 1, draw(texts), {draw(texts): draw(texts)}, draw(texts),
                well_formed=draw(st.booleans()), error=draw(texts),
            ))  # fmt: skip
        if draw(st.booleans()):
            builder.observe(draw(token_ids))
            row = list(row)
    roles = st.sampled_from(["user", "assistant", "tool", "system", EVIL])
    contents = st.one_of(st.none(), texts, st.lists(st.fixed_dictionaries({"text": texts})))
    builder.messages += draw(
        st.lists(st.fixed_dictionaries({"role": roles, "content": contents}), max_size=8)
    )
    builder.ended_by = draw(texts)
    builder.notes += draw(st.lists(texts, max_size=12))
    builder.extra |= draw(st.dictionaries(texts, texts, max_size=12))
    status = draw(st.sampled_from(RolloutStatus))
    return built(
        builder, status=status, rollout_id=draw(texts), group=draw(texts), agent=draw(texts),
        reward=0.5 if status is RolloutStatus.DONE else None,
        error=f"E: {draw(texts)}" if status is RolloutStatus.FAILED else "",
        traceback=draw(texts), reward_parts=draw(st.dictionaries(texts, st.floats(), max_size=12)),
    )  # fmt: skip
