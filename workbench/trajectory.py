"""What one rollout did, token by token: frozen records.

A *segment* is one growing row: the next turn's prompt starts with the previous turn's prompt and
completion, to the token, and what lies between is observed (mask 0). Where a prompt does not start
so, a new segment begins and records why: a *fork*. Each sampled token is under mask 1 in exactly
one segment.

Pure: no I/O, no clock; checked by :meth:`Trajectory.check`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from workbench.showing import bundle, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.types import FinishReason, VersionSpan


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

    def _repr_html_(self) -> str:
        rows = [
            {
                "turn": number,
                "replica": turn.replica_id,
                "prompt tokens": turn.prompt_tokens,
                "of them cached": turn.num_cached_tokens,
                "tokens sampled": turn.end - turn.start,
                "ended by": str(turn.finish_reason),
                "seconds": round(turn.total_s, 2),
            }
            for number, turn in enumerate(self.turns, start=1)
        ]
        reward = "no reward" if self.reward is None else f"reward {self.reward:.3g}"
        facts = f"{self.status}, {reward}" + (f", {self.error}" if self.error else "")
        return table(f"Trajectory: {self.rollout_id}", rows, facts)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle("trajectory", self, include, exclude)

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
