"""A trajectory's tokens, one by one, each with what is known of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.pictures.picture import Token, Tokens
from widgets.pictures.text import counted, prose
from workbench.decoding import Decode
from workbench.showing.tokens import facts_of, token_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.showing.turns import TurnStory
    from workbench.trajectory import Segment, Trajectory

__all__ = ["Decode", "token_parts", "turn_tokens"]

MAX_TOKENS = 2000
"""Of a trajectory, over all its segments."""
PROMPT_TAIL = 200
"""Of a prompt that does not fit, so many tokens before the response are shown."""
TOKEN_LENGTH = 40


def token_parts(segments: Sequence[Segment], decode: Decode | None) -> tuple[Tokens, ...]:
    """One part per segment: its prompt, then its response; at most :data:`MAX_TOKENS` in all.

    Of a branch only what its parent does not have.

    Args:
        segments: of a trajectory.
        decode: token ids to text; None shows ids.
    """
    parts = []
    room = MAX_TOKENS
    for number, segment in enumerate(segments, 1):
        start, stop, note = _cut(segment, room)
        room -= stop - start
        why = f": {prose(segment.fork_reason)}" if segment.fork_reason else ""
        title = f"Tokens of segment {number} of {len(segments)}{why}"
        parts.append(Tokens(title, _tokens(segment, start, stop, decode), note))
    return tuple(parts)


def turn_tokens(trajectory: Trajectory, story: TurnStory, decode: Decode | None) -> Tokens:
    """What a turn was told since the one before it, and what it sampled.

    Args:
        trajectory: whose turn it is.
        story: of that turn.
        decode: token ids to text; None shows ids.
    """
    segment = trajectory.segments[story.turn.segment]
    told, sampled = story.sampled - story.begin, story.end - story.sampled
    start = max(story.begin, story.sampled - max(PROMPT_TAIL, MAX_TOKENS - sampled))
    stop = min(story.rest, start + MAX_TOKENS)
    note = f"{counted(told, 'token')} told, {sampled:,} sampled"
    if story.rest > story.end:
        note += f", {story.rest - story.end:,} told after them"
    left = _left(start - story.begin, story.rest - stop, "what it was told")
    shown = _tokens(segment, start, stop, decode)
    return Tokens(f"Tokens of turn {story.number}", shown, f"{note}{left}")


def _cut(segment: Segment, room: int) -> tuple[int, int, str]:
    """What there is room for, and in words what is left out."""
    prompt, response = len(segment.prompt_ids), len(segment.response_ids)
    first = own = segment.shared_tokens
    if prompt - own + response > room:
        first = max(own, prompt - max(PROMPT_TAIL, room - response))
    stop = min(first + room, prompt + response)
    note = f"{counted(prompt, 'prompt token')}, {counted(response, 'response token')}"
    if segment.parent is not None:
        note += f"; the first {own:,} are those of segment {segment.parent + 1}"
    left = _left(first - own, prompt + response - stop, "the prompt's start")
    return first, stop, f"{note}{left}"


def _left(before: int, after: int, start: str) -> str:
    left = [f"{before:,} tokens of {start}"] if before else []
    left += [f"{after:,} tokens at the end"] if after else []
    return f"; not shown: {' and '.join(left)}" if left else ""


def _tokens(segment: Segment, start: int, stop: int, decode: Decode | None) -> tuple[Token, ...]:
    facts = facts_of(segment, start, stop)
    texts = token_texts([fact.token_id for fact in facts], decode)
    return tuple(
        Token(
            prose(text, TOKEN_LENGTH),
            fact.mask,
            fact.hint,
            round(fact.unlikely, 2) if fact.mask else None,
            f"v{fact.version}" if fact.is_new_version else "",
        )
        for fact, text in zip(facts, texts, strict=True)
    )
