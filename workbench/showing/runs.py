"""A trajectory's tokens as runs of spans: what was told is set back, what was sampled is shaded."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from workbench.showing import markup
from workbench.showing.markup import Room
from workbench.showing.text import counted, prose
from workbench.showing.tokens import facts_of, token_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.decoding import Decode
    from workbench.showing.tokens import TokenFacts
    from workbench.showing.turns import TurnStory
    from workbench.trajectory import Trajectory

TOKEN_BYTES = 120_000
"""Of HTML, for all tokens of a rollout."""
MAX_TOKENS = 1000
"""Of a rollout."""
MAX_TOLD = 150
"""Of what a turn was told, so many tokens before what it sampled."""
MAX_REST = 50
"""Of what a segment was told after its last turn."""
TOKEN_LENGTH = 40
SHADE = "#e69f00"
DEEPEST = 0.7
"""Of 1, which would hide the text on it."""


class TokenRuns:
    """The tokens of a trajectory, turn after turn, until there is no more room.

    Args:
        trajectory: whose they are.
        decode: token ids to text; None shows ids.
    """

    def __init__(self, trajectory: Trajectory, decode: Decode | None) -> None:
        self._segments = trajectory.segments
        self._decode = decode
        self._room = Room(TOKEN_BYTES)
        self._shown = 0
        own = (len(segment.ids) - segment.shared_tokens for segment in trajectory.segments)
        self._total = sum(own)

    @property
    def legend(self) -> str:
        """How many tokens are shown; to be read once all turns are drawn."""
        ids = "" if self._decode else "; their text is not known here, so ids are shown"
        return f"{self._shown:,} of {self._total:,} tokens shown{ids}"

    def key(self) -> str:
        """What the looks mean."""
        likely, unlikely = _shade(0.1), _shade(1.0)
        return (
            f'<span style="{markup.QUIET}">told</span> '
            f'<u><span style="{likely}">sampled</span></u> '
            f'<u><span style="{unlikely}">sampled, unlikely</span></u> '
            "<sup>v4</sup>from here on by policy version 4; point at a token for its figures"
        )

    def html(self, story: TurnStory) -> str:
        """A turn's tokens: the end of what it was told, what it sampled, what came after."""
        segment = self._segments[story.turn.segment]
        before = max(0, story.sampled - story.begin - MAX_TOLD)
        after = max(0, story.rest - story.end - MAX_REST)
        told = facts_of(segment, story.begin + before, story.sampled)
        sampled = facts_of(segment, story.sampled, story.end)
        rest = facts_of(segment, story.end, story.rest - after)
        parts = (
            _left(before, "told before these"),
            self._told(told),
            self._sampled(sampled),
            self._told(rest),
            _left(after, "told after these"),
        )
        box = f"border: 1px solid {markup.LINE}; padding: 2px 6px"
        look = f"font-family: monospace; line-height: 1.7; {markup.WORD}; {box}"
        return f'<div style="{look}">{"".join(parts)}</div>'

    def _told(self, facts: Sequence[TokenFacts]) -> str:
        inside = self._spans(facts)
        return f'<span style="{markup.QUIET}">{inside}</span>' if inside else ""

    def _sampled(self, facts: Sequence[TokenFacts]) -> str:
        inside = self._spans(facts)
        return f"<u>{inside}</u>" if inside else ""

    def _spans(self, facts: Sequence[TokenFacts]) -> str:
        room = facts[: MAX_TOKENS - self._shown]
        texts = token_texts([fact.token_id for fact in room], self._decode)
        spans: list[str] = []
        for fact, text in zip(room, texts, strict=True):
            span = _span(fact, text)
            if not self._room.takes(span):
                break
            spans.append(span)
        self._shown += len(spans)
        return "".join(spans) + _left(len(facts) - len(spans), "not shown")


def _span(fact: TokenFacts, text: str) -> str:
    shown = escape(prose(text, TOKEN_LENGTH), quote=False).replace("␊", "↵\n")
    style = f' style="{_shade(fact.unlikely)}"' if fact.mask else ""
    version = f"<sup>v{fact.version}</sup>" if fact.is_new_version else ""
    return f'{version}<span{style} title="{escape(fact.hint)}">{shown}</span>'


def _shade(unlikely: float) -> str:
    return f"background-color:{SHADE}{round(255 * DEEPEST * unlikely):02x}"


def _left(count: int, why: str) -> str:
    return f"<em>[{counted(count, 'token')} {why}]</em> " if count > 0 else ""
