"""A trajectory's tokens, one by one, each with what is known of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from widgets.pictures.picture import Token, Tokens
from widgets.pictures.text import prose, visible

if TYPE_CHECKING:
    from workbench.trajectory import Segment

Decode = Callable[[Sequence[int]], str]
"""Token ids to text, as a tokenizer's ``decode`` does it."""

MAX_TOKENS = 2000
"""Of a trajectory, over all its segments."""
PROMPT_TAIL = 200
"""Of a prompt that does not fit, so many tokens before the response are shown."""
TOKEN_LENGTH = 40
MAX_JOINED = 6
"""Tokens that may share one character: nobody spreads its bytes over more."""
BROKEN = "\ufffd"
"""What a decoder writes for bytes that are no character yet."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A token before it is decoded."""

    token_id: int
    mask: int
    log_prob: float
    version: int | None


def token_parts(segments: Sequence[Segment], decode: Decode | None) -> tuple[Tokens, ...]:
    """One part per segment: its prompt, then its response; at most :data:`MAX_TOKENS` in all.

    Args:
        segments: of a trajectory.
        decode: token ids to text; None shows ids.
    """
    parts = []
    room = MAX_TOKENS
    for number, segment in enumerate(segments, 1):
        rows, note = _cut(segment, room)
        room -= len(rows)
        why = f": {prose(segment.fork_reason)}" if segment.fork_reason else ""
        title = f"Tokens of segment {number} of {len(segments)}{why}"
        parts.append(Tokens(title, _tokens(rows, decode), note))
    return tuple(parts)


def _cut(segment: Segment, room: int) -> tuple[list[_Row], str]:
    """What there is room for, and in words what is left out."""
    prompt, response = len(segment.prompt_ids), len(segment.response_ids)
    first = 0
    if prompt + response > room:
        first = max(0, prompt - max(PROMPT_TAIL, room - response))
    rows = _rows(segment)[first : first + room]
    after = prompt + response - first - len(rows)
    left = [f"{first:,} tokens of the prompt's start"] if first else []
    left += [f"{after:,} tokens at the end"] if after else []
    note = f"{prompt:,} prompt tokens, {response:,} response tokens"
    return rows, f"{note}; not shown: {' and '.join(left)}" if left else note


def _rows(segment: Segment) -> list[_Row]:
    versions: dict[int, int] = {}
    for span in segment.version_spans:
        versions.update(dict.fromkeys(range(span.start, span.end), span.version))
    told = [_Row(token_id, 0, 0.0, None) for token_id in segment.prompt_ids]
    triples = zip(segment.response_ids, segment.response_mask, segment.log_probs, strict=True)
    return told + [
        _Row(token_id, mask, log_prob, versions.get(place))
        for place, (token_id, mask, log_prob) in enumerate(triples)
    ]


def _tokens(rows: Sequence[_Row], decode: Decode | None) -> tuple[Token, ...]:
    texts = _texts([row.token_id for row in rows], decode)
    return tuple(
        Token(
            prose(text, TOKEN_LENGTH),
            row.mask,
            _hint(row),
            round(1.0 - math.exp(min(row.log_prob, 0.0)), 2) if row.mask else None,
        )
        for row, text in zip(rows, texts, strict=True)
    )


def _hint(row: _Row) -> str:
    if not row.mask:
        return f"id {row.token_id}"
    version = "" if row.version is None else f", version {row.version}"
    return f"id {row.token_id}, log p {row.log_prob:.3f}{version}"


def _texts(ids: Sequence[int], decode: Decode | None) -> list[str]:
    """Each token's text; where several make one character, the first has it, the others a dot."""
    if decode is None:
        return [f"{token_id} " for token_id in ids]
    known: dict[tuple[int, ...], str] = {}

    def text_of(*some: int) -> str:
        if some not in known:
            known[some] = _decoded(decode, some)
        return known[some]

    texts: list[str] = []
    while len(texts) < len(ids):
        start = len(texts)
        joined = text_of(ids[start])
        size = 1
        while BROKEN in joined and size < MAX_JOINED and start + size < len(ids):
            size += 1
            joined = text_of(*ids[start : start + size])
        if BROKEN in joined:
            size, joined = 1, text_of(ids[start])
        texts += [joined, *["·"] * (size - 1)]
    return texts


def _decoded(decode: Decode, ids: tuple[int, ...]) -> str:
    """The text, or the ids where the decoder does not know them."""
    try:
        return decode(list(ids))
    except Exception:  # noqa: BLE001  # a tokenizer's own; the token is shown all the same
        return visible(" ".join(f"<{token_id}>" for token_id in ids))
