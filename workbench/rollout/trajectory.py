"""What one rollout did, token by token: frozen records and the builder that makes them.

Nothing is tokenised twice. A *segment* is one growing row: the next turn's prompt starts with the
previous turn's prompt and completion, to the token, and what lies between is observed (mask 0).
Where a prompt does not start so, a new segment begins and records why: a *fork*. Each sampled token
is under mask 1 in exactly one segment.

Pure: no I/O, no clock; checked by :meth:`Trajectory.check`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from workbench.types import FinishReason, TokenOutput, VersionSpan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RolloutStatus(StrEnum):
    """How a rollout ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant generation. Its sampled ids are ``response_ids[start:end]`` of its segment."""

    segment: int
    start: int
    end: int
    finish_reason: FinishReason
    replica_id: str
    prompt_tokens: int
    num_cached_tokens: int | None
    attempts: int
    queue_s: float | None
    first_token_s: float | None
    total_s: float


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model wrote, and what it was told in return."""

    turn: int
    name: str
    """Empty when no name could be read."""
    arguments: Mapping[str, Any]
    result: str
    well_formed: bool
    """Whether it could be read, names a known tool and gives the arguments it takes."""
    error: str = ""
    """Why it was not executed, or what it raised."""
    seconds_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Segment:
    """One training row. ``response_*`` are aligned 1:1; log-probabilities are 0.0 at mask 0."""

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    """1 for tokens that the policy sampled, 0 for what it was told."""
    log_probs: list[float]
    version_spans: tuple[VersionSpan, ...]
    """Over ``response_ids``; they cover exactly the tokens under mask 1."""
    fork_reason: str = ""
    """Why this segment does not continue the one before; empty for the first."""

    @property
    def sampled_ids(self) -> list[int]:
        """The tokens under mask 1."""
        pairs = zip(self.response_ids, self.response_mask, strict=True)
        return [token for token, mask in pairs if mask]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The result of one rollout. A failed one has no reward, and says why in ``error``."""

    rollout_id: str
    group: str
    """The task that it is one of n rollouts of."""
    index: int
    """Which of the n."""
    agent: str
    task: Mapping[str, Any]
    segments: tuple[Segment, ...]
    turns: tuple[Turn, ...]
    tool_calls: tuple[ToolCall, ...]
    messages: tuple[Mapping[str, Any], ...]
    status: RolloutStatus
    reward: float | None
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    """Type and message of what went wrong."""
    traceback: str = ""
    wall_s: float = 0.0

    @property
    def num_turns(self) -> int:
        """Assistant generations."""
        return len(self.turns)

    @property
    def sampled_tokens(self) -> int:
        """Tokens that the policy sampled, over all segments."""
        return sum(turn.end - turn.start for turn in self.turns)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Of the last turn; None when there was none."""
        return self.turns[-1].finish_reason if self.turns else None

    @property
    def versions(self) -> tuple[int, int] | None:
        """The oldest and the newest policy version in it; None without a sampled token."""
        found = [span.version for segment in self.segments for span in segment.version_spans]
        return (min(found), max(found)) if found else None

    def __repr__(self) -> str:
        reward = "no reward" if self.reward is None else f"reward {self.reward:.3g}"
        why = f", {self.error}" if self.error else ""
        return (
            f"Trajectory({self.rollout_id!r}, {self.status}, {reward}, {self.num_turns} turns, "
            f"{self.sampled_tokens} tokens sampled{why})"
        )

    def check(self) -> None:
        """Assert every alignment that this module promises."""
        for segment in self.segments:
            size = len(segment.response_ids)
            assert len(segment.response_mask) == len(segment.log_probs) == size
            covered = {i for s in segment.version_spans for i in range(s.start, s.end)}
            assert covered == {i for i, mask in enumerate(segment.response_mask) if mask}
        for number, segment in enumerate(self.segments):
            own = [turn for turn in self.turns if turn.segment == number]
            sampled = {i for turn in own for i in range(turn.start, turn.end)}
            assert sampled == {i for i, mask in enumerate(segment.response_mask) if mask}
            assert bool(segment.fork_reason) == (number > 0)
        assert (self.status is RolloutStatus.FAILED) == bool(self.error)
        assert self.status is RolloutStatus.DONE or self.reward is None


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
