"""What became of a stream's groups: what was dropped is told beside what was not. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from widgets.drawing import count
from widgets.pictures.picture import Bar, Bars, Table
from widgets.pictures.text import prose
from widgets.tables import number
from widgets.theme import COLOURS

if TYPE_CHECKING:
    from workbench.metrics.samples import RolloutSnapshot
    from workbench.metrics.streams import DropCount, StreamSnapshot

CAUSES = {
    "too_old": ("too old", "older than the bound when it was asked for; its task is played again"),
    "cancelled": (
        "cancelled",
        "stopped in flight, soon too old; its task is played again",
    ),
    "given_up": ("given up", "too old too often; its task is left out"),
    "filtered": ("filtered", "the stream's filter left it out, such as equal rewards"),
    "failed": ("failed", "every rollout of it failed"),
    "stopped": ("stopped", "stopped by hand"),
    "lost": ("lost", "its process died; its task is played again"),
}
"""In words, and why."""
ALL, DROPPED = COLOURS[2], COLOURS[1]
NOTABLE = 1.2
"""So many times the average length, and a selection is pointed out."""


class Outcome(NamedTuple):
    """Groups of which the same became."""

    name: str
    groups: int | None
    rollouts: int | None
    tokens: float | None
    """Per rollout, on average."""
    longest: float | None
    """Tokens of each group's longest rollout, on average."""
    reward: float | None
    why: str


def outcomes(run: RolloutSnapshot, stream: StreamSnapshot) -> list[Outcome]:
    """All that ended, what was taken of it, and what was not, by cause."""
    ended = run.done + run.failed
    return [
        Outcome(
            "all that ended", None, ended, run.sampled_tokens / ended if ended else None, None,
            run.mean_reward, "taken, queued, or neither",
        ),
        _counted("taken", stream.taken, "the learner took it"),
        *(_dropped(drop) for drop in stream.drops),
    ]  # fmt: skip


def _dropped(drop: DropCount) -> Outcome:
    name, why = CAUSES.get(drop.cause, (prose(drop.cause, 40), ""))
    return _counted(name, drop, why)


def _counted(name: str, count: DropCount, why: str) -> Outcome:
    return Outcome(
        name, count.groups, count.rollouts,
        count.sampled_tokens / count.rollouts if count.rollouts else None,
        count.longest_tokens / count.groups if count.groups else None,
        count.reward_sum / count.rewarded if count.rewarded else None, why,
    )  # fmt: skip


def outcome_table(run: RolloutSnapshot, stream: StreamSnapshot) -> Table:
    """Counts, lengths and rewards by what became of groups."""
    rows = tuple(
        (
            one.name, number(one.groups), number(one.rollouts), number(one.tokens, 1),
            number(one.longest, 1), number(one.reward, 3), one.why,
        )
        for one in outcomes(run, stream)
    )  # fmt: skip
    return Table(
        "What became of groups",
        ("", "groups", "rollouts", "tokens per rollout", "longest rollout, tokens", "mean reward",
         "why"),
        rows,
        numeric=(False, True, True, True, True, True, False),
        note=_selection(run, stream),
    )  # fmt: skip


def _selection(run: RolloutSnapshot, stream: StreamSnapshot) -> str:
    """Says so where what was dropped for its age is longer than the average."""
    old = [d for d in stream.drops if d.cause in {"too_old", "cancelled", "given_up"}]
    rollouts, ended = sum(d.rollouts for d in old), run.done + run.failed
    if not rollouts or not ended or not run.sampled_tokens:
        return ""
    times = sum(d.sampled_tokens for d in old) / rollouts * ended / run.sampled_tokens
    if times < NOTABLE:
        return ""
    return f"dropped for age: {times:,.1f} times as long as all: what is trained on is shorter"


def length_bars(run: RolloutSnapshot, stream: StreamSnapshot) -> list[Bars]:
    """Tokens per rollout, of all and of what was not taken; none where nothing was dropped."""
    if not stream.drops:
        return []
    bars = tuple(
        Bar(one.name, one.tokens, _length(one), DROPPED if place else ALL)
        for place, one in enumerate(outcomes(run, stream))
        if one.tokens is not None
    )
    return [Bars("Length of rollouts, by what became of them", "tokens per rollout", bars)]


def _length(one: Outcome) -> str:
    of = "" if one.groups is None else f" ({count(one.groups, 'group')})"
    return number(one.tokens, 1) + of
