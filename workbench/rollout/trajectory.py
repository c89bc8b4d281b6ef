"""The builder of trajectories: turns in, frozen records out.

Nothing is tokenised twice: what a turn was asked and what it said is recorded as it was, and a
prompt that does not go on from there to the token begins a new segment.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.trajectory import RolloutStatus, Segment, ToolCall, Trajectory, Turn
from workbench.types import TokenOutput, VersionSpan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["RolloutStatus", "Segment", "ToolCall", "Trajectory", "TrajectoryBuilder", "Turn"]


@dataclass(slots=True)
class _Growing:
    prompt_ids: list[int]
    fork_reason: str
    response_ids: list[int] = field(default_factory=list)
    response_mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    spans: list[VersionSpan] = field(default_factory=list)

    def freeze(self) -> Segment:
        return Segment(
            list(self.prompt_ids),
            list(self.response_ids),
            list(self.response_mask),
            list(self.log_probs),
            tuple(self.spans),
            self.fork_reason,
        )


class TrajectoryBuilder:
    """Records turns as they are sampled. Whatever goes wrong later, what it has is exact."""

    def __init__(self) -> None:
        self._segments: list[_Growing] = []
        self._turns: list[Turn] = []
        self._tool_calls: list[ToolCall] = []
        self.messages: list[Mapping[str, Any]] = []
        """The conversation in words, for people to read."""

    @property
    def sampled_tokens(self) -> int:
        """Tokens sampled so far, over all turns."""
        return sum(turn.end - turn.start for turn in self._turns)

    @property
    def num_turns(self) -> int:
        """Turns so far."""
        return len(self._turns)

    def add_turn(self, prompt_ids: Sequence[int], output: TokenOutput, fork: str = "") -> None:
        """Record a generation: the prompt that was sent and what came back.

        Args:
            prompt_ids: exactly as they were sent.
            output: exactly as it came back.
            fork: why the prompt does not continue the last turn, if the caller knows.
        """
        segment = self._extend(list(prompt_ids), fork)
        start = len(segment.response_ids)
        segment.response_ids += output.token_ids
        segment.response_mask += [1] * len(output.token_ids)
        segment.log_probs += output.log_probs
        segment.spans += [
            VersionSpan(span.version, span.start + start, span.end + start)
            for span in output.version_spans
        ]
        self._turns.append(
            Turn(
                segment=len(self._segments) - 1,
                start=start,
                end=len(segment.response_ids),
                finish_reason=output.finish_reason,
                replica_id=output.replica_id,
                prompt_tokens=len(prompt_ids),
                num_cached_tokens=output.num_cached_tokens,
                attempts=output.attempts,
                queue_s=output.timing.queue_s,
                first_token_s=output.timing.first_token_s,
                total_s=output.timing.total_s,
            )
        )

    def add_tool_call(self, call: ToolCall) -> None:
        """Record a tool call of the last turn with its answer."""
        self._tool_calls.append(call)

    def observe(self, ids: Sequence[int]) -> None:
        """Append tokens that the policy was told after its last turn (mask 0).

        Needed only for what no later prompt will show.
        """
        segment = self._segments[-1]
        segment.response_ids += ids
        segment.response_mask += [0] * len(ids)
        segment.log_probs += [0.0] * len(ids)

    def build(self, **known: Any) -> Trajectory:
        """The frozen trajectory; ``known`` are the fields that the builder cannot know."""
        return Trajectory(
            segments=tuple(segment.freeze() for segment in self._segments),
            turns=tuple(self._turns),
            tool_calls=tuple(self._tool_calls),
            messages=tuple(self.messages),
            **known,
        )

    def _extend(self, prompt_ids: list[int], fork: str) -> _Growing:
        """The segment that this prompt continues, or a new one."""
        if not self._segments:
            self._segments.append(_Growing(prompt_ids, ""))
            return self._segments[-1]
        last = self._segments[-1]
        so_far = last.prompt_ids + last.response_ids
        if not fork and prompt_ids[: len(so_far)] == so_far:
            self.observe(prompt_ids[len(so_far) :])
            return last
        self._segments.append(_Growing(prompt_ids, fork or _first_difference(so_far, prompt_ids)))
        return self._segments[-1]


def _first_difference(before: Sequence[int], after: Sequence[int]) -> str:
    for position, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return f"the prompt differs from the last turn at token {position}: {old} became {new}"
    return f"the prompt ends at token {len(after)}, inside the last turn"
