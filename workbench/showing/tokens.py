"""Tokens in words, one by one. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.showing.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.decoding import Decode
    from workbench.trajectory import Segment

MAX_JOINED = 6
"""Tokens that may share one character: nobody spreads its bytes over more."""
BROKEN = "\ufffd"
"""What a decoder writes for bytes that are no character yet."""


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """A token before it is decoded."""

    token_id: int
    mask: int
    log_prob: float
    version: int | None
    """Of the policy that sampled it; None where none did."""
    is_new_version: bool = False
    """Whether another version sampled what was sampled before it in its segment."""

    @property
    def hint(self) -> str:
        """What is known of it, in words."""
        if not self.mask:
            return f"id {self.token_id}"
        version = "" if self.version is None else f", version {self.version}"
        return f"id {self.token_id}, log p {self.log_prob:.3f}{version}"

    @property
    def unlikely(self) -> float:
        """0–1: how unlikely it was; 0 where its log-probability is no number."""
        if math.isnan(self.log_prob):
            return 0.0
        return 1.0 - math.exp(min(self.log_prob, 0.0))


def facts_of(segment: Segment, start: int = 0, stop: int | None = None) -> list[TokenFacts]:
    """What is known of its tokens from ``start`` to ``stop``; the prompt's are the first."""
    prompt = len(segment.prompt_ids)
    stop = len(segment.ids) if stop is None else stop
    facts = [TokenFacts(token_id, 0, 0.0, None) for token_id in segment.prompt_ids[start:stop]]
    places = range(max(0, start - prompt), max(0, stop - prompt))
    versions: dict[int, int] = {}
    before = None
    for span in segment.version_spans:
        before = span.version if span.start < places.start else before
        own = range(max(span.start, places.start), min(span.end, places.stop))
        versions.update(dict.fromkeys(own, span.version))
    for place in places:
        mask, version = segment.response_mask[place], versions.get(place)
        is_new = bool(mask) and before is not None and version != before
        before = version if mask else before
        log_prob = segment.log_probs[place]
        facts.append(TokenFacts(segment.response_ids[place], mask, log_prob, version, is_new))
    return facts


def token_texts(ids: Sequence[int], decode: Decode | None) -> list[str]:
    """Each token's text; where several make one character, the first has it, the others a dot.

    Args:
        ids: in their order.
        decode: token ids to text; None shows ids.
    """
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
