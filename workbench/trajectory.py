"""What one rollout did, token by token: frozen records.

A *segment* is one growing row: the next turn's prompt starts with the previous turn's prompt and
completion, to the token, and what lies between is observed (mask 0). Where a prompt goes on from no
segment's end, a new one begins and records why: a *fork*. Segments make a tree: a fork names the
one whose tokens it begins with, and how many they share. Each sampled token is under mask 1 in
exactly one segment, the one that sampled it, so that it is trained once.

Pure: no I/O, no clock; checked by :meth:`Trajectory.check`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from workbench.showing import bundle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """Tries on a replica that it took; one where nothing went wrong."""
    queue_s: float | None
    first_token_s: float | None
    total_s: float
    num_preempted: int | None = None
    """How often the engine put it off for others; None where it does not say."""


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
    cut_characters: int = 0
    """How many of the result's characters were left out; the result says so where they were."""


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
    """Why this segment goes on from no other's end; empty for the first."""
    parent: int | None = None
    """The segment whose tokens its prompt begins with; None where it shares none."""
    shared_tokens: int = 0
    """How many of its prompt's tokens are the parent's, from the first."""

    @property
    def ids(self) -> list[int]:
        """All its tokens, the prompt's first."""
        return self.prompt_ids + self.response_ids

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
    ended_by: str = ""
    """What ended it, as its loop says: ``answer``, or the name of the limit that it met."""
    attempts: int = 1
    """How often it was played; only the last time is in here."""
    notes: tuple[str, ...] = ()
    """What was done to it that its tokens do not show, such as a prompt that was cut."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What its loop adds of its own."""
    tokenizer: str = ""
    """The model whose tokens these are, as it was asked for."""

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
        from workbench.showing.rollout import page

        return page(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle("trajectory", self, include, exclude)

    def check(self) -> None:
        """Assert every alignment that this module promises."""
        for number, segment in enumerate(self.segments):
            own = [turn for turn in self.turns if turn.segment == number]
            _check_segment(segment, own)
            assert bool(segment.fork_reason) == (number > 0)
            _check_parent(segment, self.segments[:number])
        assert all(0 <= turn.segment < len(self.segments) for turn in self.turns)
        assert all(0 <= call.turn < max(1, len(self.turns)) for call in self.tool_calls)
        assert (self.status is RolloutStatus.FAILED) == bool(self.error)
        assert self.status is RolloutStatus.DONE or self.reward is None
        assert self.reward is None or math.isfinite(self.reward)
        assert self.attempts >= 1


def _check_segment(segment: Segment, turns: Sequence[Turn]) -> None:
    size = len(segment.response_ids)
    assert len(segment.response_mask) == len(segment.log_probs) == size
    assert set(segment.response_mask) <= {0, 1}
    under_mask = [position for position, mask in enumerate(segment.response_mask) if mask]
    spans = [position for s in segment.version_spans for position in range(s.start, s.end)]
    assert spans == under_mask
    assert [position for turn in turns for position in range(turn.start, turn.end)] == under_mask
    observed = zip(segment.response_mask, segment.log_probs, strict=True)
    assert all(mask or not log_prob for mask, log_prob in observed)


def _check_parent(segment: Segment, before: Sequence[Segment]) -> None:
    if segment.parent is None:
        assert not segment.shared_tokens
        return
    assert 0 <= segment.parent < len(before)
    shared = segment.shared_tokens
    assert 0 < shared <= len(segment.prompt_ids)
    assert before[segment.parent].ids[:shared] == segment.prompt_ids[:shared]
