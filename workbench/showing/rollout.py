"""One rollout as HTML that stands still: for saved notebooks, opened untrusted and offline. Pure.

It has no scripts, and its size is bounded whatever the rollout's: what is left out is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.decoding import decoder
from workbench.showing import markup
from workbench.showing.markup import BAD, Room, words
from workbench.showing.runs import TokenRuns
from workbench.showing.text import (
    content_text,
    counted,
    extra_text,
    json_text,
    passage,
    prose,
    short,
)
from workbench.showing.turns import branch_words, outcome, story_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from workbench.showing.turns import TurnStory
    from workbench.trajectory import ToolCall, Trajectory

TEXT_BYTES = 80_000
"""Of HTML, for messages and tool calls."""
MAX_TURNS = 60
MAX_SEGMENTS = 12
MAX_NOTES = 8
MAX_CHARACTERS = 3000
"""Of one message, result or traceback."""
OPEN_TURNS = 3
"""A rollout of no more turns is open; of a longer one, the first and the last turn."""
MISSING = "–"


def page(trajectory: Trajectory) -> str:
    """The rollout: how it ended, then turn by turn what it was told and what it said.

    Tokens are in words where :func:`workbench.decoding.remember` was told how, else ids.

    Returns:
        HTML of less than 300 kB.
    """
    return _Page(trajectory).html()


class _Page:
    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._story = story_of(trajectory)
        self._runs = TokenRuns(trajectory, decoder(trajectory.tokenizer))
        self._room = Room(TEXT_BYTES)

    def html(self) -> str:
        turns = [self._turn(story) for story in self._story.turns[:MAX_TURNS]]
        left = len(self._story.turns) - MAX_TURNS
        more = f"and {counted(left, 'more turn')}" if left > 0 else ""
        loose = self._messages(self._story.loose)
        body = [
            self._header(),
            _error(self._trajectory),
            _notes(self._trajectory),
            _tree(self._trajectory),
            markup.quiet(words(self._runs.legend)) + markup.quiet(self._runs.key()),
            *turns,
            markup.quiet(words(more)) if more else "",
            markup.folded(words("Messages beside the turns"), loose) if loose else "",
        ]
        return f'<div style="font-family: sans-serif; line-height: 1.5">{"".join(body)}</div>'

    def _header(self) -> str:
        trajectory = self._trajectory
        title = f"Trajectory: {short(trajectory.rollout_id, 80)}"
        status = str(trajectory.status)
        edge = BAD if trajectory.error else markup.PLAIN
        return markup.edged(
            f"<strong>{words(title)}</strong> {words(status)}"
            f"<div>{markup.facts(_facts(trajectory))}</div>",
            edge,
        )

    def _turn(self, story: TurnStory) -> str:
        turn, count = story.turn, len(self._story.turns)
        facts = [
            f"{counted(turn.end - turn.start, 'token')} sampled", str(turn.finish_reason),
            short(turn.replica_id), f"{turn.total_s:.2f} s",
        ]  # fmt: skip
        if len(self._trajectory.segments) > 1:
            facts.insert(0, f"segment {turn.segment + 1}")
        title = (
            f"<strong>{words(f'Turn {story.number} of {count}')}</strong> "
            f'<span style="{markup.QUIET}">{words(" · ".join(facts))}</span>'
        )
        inside = "".join([
            self._branch(story),
            self._messages(story.messages),
            self._messages((story.said,) if story.said else ()),
            "".join(self._call(call) for call in story.calls),
            self._runs.html(story),
        ])  # fmt: skip
        is_open = count <= OPEN_TURNS or story.number in {1, count}
        return markup.folded(
            title, f'<div style="padding-left: 14px">{inside}</div>', is_open=is_open
        )

    def _branch(self, story: TurnStory) -> str:
        if not story.is_branch:
            return ""
        number = story.turn.segment
        segment = self._trajectory.segments[number]
        told = f"{branch_words(segment, number + 1)}: {prose(segment.fork_reason)}"
        return markup.edged(f"<em>{words(f'{told[0].upper()}{told[1:]}')}</em>")

    def _messages(self, messages: tuple[Mapping[str, Any], ...]) -> str:
        return self._fitting([_message(message) for message in messages], "message")

    def _call(self, call: ToolCall) -> str:
        return self._fitting([_call(call)], "tool call")

    def _fitting(self, pieces: list[str], noun: str) -> str:
        """The pieces for which there is room."""
        fitting = [piece for piece in pieces if self._room.takes(piece)]
        left = len(pieces) - len(fitting)
        more = f"{counted(left, noun)} not shown: no room" if left else ""
        return "".join(fitting) + (markup.quiet(words(more)) if more else "")


def _facts(trajectory: Trajectory) -> list[tuple[str, str]]:
    oldest, newest = trajectory.versions or (None, None)
    versions = (
        MISSING if oldest is None else f"{oldest}" if oldest == newest else f"{oldest}–{newest}"
    )
    parts = list(trajectory.reward_parts.items())
    extra = list(trajectory.extra.items())
    return [
        ("reward", MISSING if trajectory.reward is None else f"{trajectory.reward:.4g}"),
        *((f"reward: {short(name)}", f"{part:.4g}") for name, part in parts[:MAX_NOTES]),
        ("ended by", short(trajectory.ended_by) or MISSING),
        ("turns", f"{trajectory.num_turns:,}"),
        ("sampled tokens", f"{trajectory.sampled_tokens:,}"),
        ("policy version", versions),
        ("attempts", f"{trajectory.attempts:,}"),
        ("wall time", f"{trajectory.wall_s:,.1f} s"),
        ("agent", short(trajectory.agent)),
        ("group", f"{short(trajectory.group)}, rollout {trajectory.index}"),
        *((short(str(name)), prose(extra_text(value), 120)) for name, value in extra[:MAX_NOTES]),
    ]


def _error(trajectory: Trajectory) -> str:
    if not trajectory.error:
        return ""
    trace = trajectory.traceback
    left = len(trace) - MAX_CHARACTERS
    before = f"[{left:,} characters before this]\n" if left > 0 else ""
    told = passage(before + trace[-MAX_CHARACTERS:], MAX_CHARACTERS + len(before))
    return markup.edged(
        f"<strong>{words(prose(trajectory.error, 1000))}</strong>"
        + (markup.folded("Traceback", f"<pre>{markup.lines(told)}</pre>") if trace else ""),
        BAD,
    )


def _notes(trajectory: Trajectory) -> str:
    notes = [words(prose(note, 200)) for note in trajectory.notes[:MAX_NOTES]]
    left = len(trajectory.notes) - MAX_NOTES
    notes += [words(f"and {counted(left, 'more note')}")] if left > 0 else []
    return "".join(markup.edged(f"Note: {note}") for note in notes)


def _tree(trajectory: Trajectory) -> str:
    """The segments, where there are several: each with what it leaves and why."""
    segments = trajectory.segments
    if len(segments) < 2:
        return ""
    rows = [
        (
            str(number), MISSING if segment.parent is None else str(segment.parent + 1),
            f"{segment.shared_tokens:,}" if segment.shared_tokens else MISSING,
            f"{len(segment.ids):,}", f"{len(segment.sampled_ids):,}",
            prose(segment.fork_reason) or MISSING,
        )
        for number, segment in enumerate(segments[:MAX_SEGMENTS], 1)
    ]  # fmt: skip
    columns = ("segment", "branch of", "shared tokens", "tokens", "sampled", "why")
    left = len(segments) - MAX_SEGMENTS
    more = markup.quiet(words(f"and {counted(left, 'more segment')}")) if left > 0 else ""
    return markup.grid(columns, rows) + more


def _message(message: Mapping[str, Any]) -> str:
    role = short(str(message.get("role", MISSING)))
    told = passage(content_text(message.get("content")), MAX_CHARACTERS)
    calls = message.get("tool_calls")
    asked = f"\n{prose(json_text(calls), 600)}" if calls else ""
    return markup.edged(
        f"<strong>{words(role)}</strong>" + markup.passages(markup.lines(told + asked))
    )


def _call(call: ToolCall) -> str:
    name, way = short(call.name) or "no name", outcome(call)
    cut = f", {call.cut_characters:,} characters of its result cut" if call.cut_characters else ""
    arguments = passage(json_text(dict(call.arguments)), MAX_CHARACTERS)
    error = f"<div>{words(prose(call.error, 600))}</div>" if call.error else ""
    return markup.edged(
        f"<strong>{words(f'tool {name}')}</strong> {words(f'{way}, {call.seconds_s:.2f} s{cut}')}"
        + markup.passages(markup.lines(arguments))
        + error
        + markup.passages(f"→ {markup.lines(passage(call.result, MAX_CHARACTERS))}"),
        BAD if call.error or not call.well_formed else markup.PLAIN,
    )
