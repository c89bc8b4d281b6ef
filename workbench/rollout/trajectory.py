"""The builder of trajectories: turns in, frozen records out.

Nothing is tokenised twice: what a turn was asked and what it said is recorded as it was, and a
prompt that does not go on from there to the token begins a new segment.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import RolloutError
from workbench.trajectory import RolloutStatus, Segment, ToolCall, Trajectory, Turn
from workbench.types import FinishReason, TokenOutput, VersionSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RolloutStatus", "Segment", "ToolCall", "Trajectory", "TrajectoryBuilder", "Turn"]

NO_ANSWER = (FinishReason.ABORT, FinishReason.ERROR)
"""Generations that ended so are gone on with, even where nothing was sampled."""


@dataclass(slots=True)
class Growing:
    """A segment that may still grow."""

    ids: list[int]
    """The prompt's, then the response's."""
    fork_reason: str = ""
    parent: int | None = None
    shared_tokens: int = 0
    prompt_tokens: int = field(init=False)
    response_mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    spans: list[VersionSpan] = field(default_factory=list)
    answered: int | None = None
    """How many tokens the prompt had that the policy answered with none at all."""

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.ids)

    def begins(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the prompt goes on from its end, to the token.

        One that was answered already does not: it is sampled once more, as a row of its own.
        """
        size = len(self.ids)
        return (
            size <= len(prompt_ids)
            and len(prompt_ids) != self.answered
            and (not size or prompt_ids[size - 1] == self.ids[-1])  # most others differ there
            and prompt_ids[:size] == self.ids
        )

    def observe(self, ids: Sequence[int]) -> None:
        self.ids += ids
        self.response_mask += [0] * len(ids)
        self.log_probs += [0.0] * len(ids)

    def sample(self, output: TokenOutput) -> None:
        start = len(self.response_mask)
        if not output.token_ids and output.finish_reason not in NO_ANSWER:
            self.answered = len(self.ids)
        self.ids += output.token_ids
        self.response_mask += [1] * len(output.token_ids)
        self.log_probs += output.log_probs
        self.spans += [
            VersionSpan(span.version, span.start + start, span.end + start)
            for span in output.version_spans
        ]

    def cut(self, response_tokens: int) -> None:
        """Leave out what comes after so many tokens of the response."""
        del self.ids[self.prompt_tokens + response_tokens :]
        del self.response_mask[response_tokens:], self.log_probs[response_tokens:]
        self.spans = [
            replace(span, end=min(span.end, response_tokens))
            for span in self.spans
            if span.start < response_tokens
        ]

    def freeze(self) -> Segment:
        return Segment(
            self.ids[: self.prompt_tokens],
            self.ids[self.prompt_tokens :],
            list(self.response_mask),
            list(self.log_probs),
            tuple(self.spans),
            self.fork_reason,
            self.parent,
            self.shared_tokens,
        )


class TrajectoryBuilder:
    """Records turns as they are sampled. Whatever goes wrong later, what it has is exact."""

    def __init__(self) -> None:
        self.growing: list[Growing] = []
        """The segments so far."""
        self._turns: list[Turn] = []
        self._tool_calls: list[ToolCall] = []
        self.messages: list[Mapping[str, Any]] = []
        """The conversation in words, for people to read."""
        self.ended_by = ""
        """What ended the rollout, as its loop says."""
        self.notes: list[str] = []
        """What was done that the tokens do not show."""
        self.extra: dict[str, Any] = {}
        """What the loop adds of its own."""
        self.reward: float | None = None
        """What the loop itself gives for the rollout."""

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
        number = self._segment_of(list(prompt_ids), fork)
        segment = self.growing[number]
        start = len(segment.response_mask)
        segment.sample(output)
        self._turns.append(
            Turn(
                segment=number,
                start=start,
                end=len(segment.response_mask),
                finish_reason=output.finish_reason,
                replica_id=output.replica_id,
                prompt_tokens=len(prompt_ids),
                num_cached_tokens=output.num_cached_tokens,
                attempts=output.attempts,
                queue_s=output.timing.queue_s,
                first_token_s=output.timing.first_token_s,
                total_s=output.timing.total_s,
                num_preempted=output.num_preempted,
            )
        )

    def add_tool_call(self, call: ToolCall) -> None:
        """Record a tool call of the last turn with its answer."""
        self._tool_calls.append(call)

    def observe(self, ids: Sequence[int]) -> None:
        """Append tokens that the policy was told after its last turn (mask 0).

        Needed only for what no later prompt will show.
        """
        self.growing[self._turns[-1].segment].observe(ids)

    def resize(self, number: int, response_ids: list[int]) -> None:
        """Make a segment as long as this response: cut at its end, or told what it lacks."""
        segment, size = self.growing[number], len(response_ids)
        more = len(segment.response_mask) - size
        if more > 0:
            segment.cut(size)
            self.notes.append(f"the loop left out the last {more} tokens of segment {number}")
            self._turns = [
                replace(turn, start=min(turn.start, size), end=min(turn.end, size))
                if turn.segment == number
                else turn
                for turn in self._turns
            ]
            self._clip_children(number)
        segment.observe(response_ids[len(segment.response_mask) :])

    def keep(self, numbers: Sequence[int]) -> None:
        """Leave out all segments but these, and the turns and tool calls in them."""
        left_out = len(self.growing) - len(numbers)
        if not left_out:
            return
        self.notes.append(f"the loop left out {left_out} of {len(self.growing)} segments")
        place = {number: new for new, number in enumerate(sorted(numbers))}
        stays = [at for at, turn in enumerate(self._turns) if turn.segment in place]
        turn_place = {at: new for new, at in enumerate(stays)}
        self._tool_calls = [
            replace(call, turn=turn_place[call.turn])
            for call in self._tool_calls
            if call.turn in turn_place
        ]
        self._turns = [
            replace(self._turns[at], segment=place[self._turns[at].segment]) for at in stays
        ]
        self.growing = [self.growing[number] for number in place]
        for number, segment in enumerate(self.growing):
            segment.parent = place.get(segment.parent) if segment.parent is not None else None
            segment.shared_tokens = segment.shared_tokens if segment.parent is not None else 0
            segment.fork_reason = segment.fork_reason if number else ""

    def _clip_children(self, number: int) -> None:
        """What was cut from a segment is no longer shared with those that fork from it."""
        left = len(self.growing[number].ids)
        for segment in self.growing:
            if segment.parent == number:
                segment.shared_tokens = min(segment.shared_tokens, left)
                segment.parent = number if left else None

    def check_words(self) -> None:
        """Refuse words that the loop left and that no record holds.

        Raises:
            RolloutError: names the field.
        """
        notes = (("notes", note) for note in _listed(self.notes))
        texts = [("ended_by", self.ended_by), *notes]
        for name, value in texts:
            if not isinstance(value, str):
                raise RolloutError(f"trajectory.{name}: {value!r} is no text")
        for position, message in enumerate(_listed(self.messages)):
            if not isinstance(message, Mapping):
                raise RolloutError(f"trajectory.messages[{position}]: {message!r} is no message")

    def build(self, **known: Any) -> Trajectory:
        """The frozen trajectory; ``known`` are the fields that the builder cannot know."""
        return Trajectory(
            segments=tuple(segment.freeze() for segment in self.growing),
            turns=tuple(self._turns),
            tool_calls=tuple(self._tool_calls),
            messages=tuple(
                message if isinstance(message, Mapping) else {"content": str(message)}
                for message in _listed(self.messages)
            ),
            ended_by=str(self.ended_by),
            notes=tuple(map(str, _listed(self.notes))),
            extra=dict(self.extra),
            **known,
        )

    def _segment_of(self, prompt_ids: list[int], fork: str) -> int:
        """The segment that this prompt goes on from, grown by what was told since, or a new one."""
        if not fork:
            going_on = [
                (len(segment.ids), number)
                for number, segment in enumerate(self.growing)
                if segment.begins(prompt_ids)
            ]
            if going_on:
                size, number = max(going_on)
                self.growing[number].observe(prompt_ids[size:])
                return number
        self.growing.append(self._forked(prompt_ids, fork))
        return len(self.growing) - 1

    def _forked(self, prompt_ids: list[int], fork: str) -> Growing:
        if not self.growing:
            return Growing(prompt_ids)
        shared = [common_prefix(segment.ids, prompt_ids) for segment in self.growing]
        most = max(shared)
        latest = self.growing[self._turns[-1].segment].ids
        return Growing(
            prompt_ids,
            fork or _first_difference(latest, prompt_ids, shared[self._turns[-1].segment]),
            parent=shared.index(most) if most else None,
            shared_tokens=most,
        )


def _listed(value: Any) -> Sequence[Any]:
    """What a loop left where a list belongs."""
    return value if isinstance(value, list | tuple) else [value]


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with. By halves: slices are compared much faster than tokens."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _first_difference(before: Sequence[int], after: Sequence[int], position: int) -> str:
    if position == len(before):
        return "the last turn's prompt is sampled once more; it was answered with no token"
    if position == len(after):
        return f"the prompt ends at token {position}, inside the last turn"
    old, new = before[position], after[position]
    return f"the prompt differs from the last turn at token {position}: {old} became {new}"
