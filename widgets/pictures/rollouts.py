"""Rollouts to choose from, and what comes of a choice: one opened, or a group compared. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from widgets.drawing import count
from widgets.pictures.asking import EVERYTHING, ORDERS, PER_PAGE, Asked, found, next_sort
from widgets.pictures.fields import Field, Option, Step
from widgets.pictures.groups import group_picture
from widgets.pictures.picture import Picture, Table
from widgets.pictures.text import prose, short
from widgets.pictures.trajectory import trajectory_picture
from widgets.tables import number
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from widgets.pictures.tokens import Decode
    from workbench.trajectory import Trajectory

KEY_LENGTH = 160
BatchOf = Callable[["Trajectory"], str]
"""The batch of a rollout, whose id tells it apart in that batch only; empty where there is one."""
NUMERIC = {"reward", "turns", "sampled tokens", "tool calls", "wall time (s)"}
STATUSES = (Option("", "all"), *(Option(str(status), str(status)) for status in RolloutStatus))


def _one_batch(_: Trajectory) -> str:
    return ""


def browse(
    rows: Sequence[Trajectory],
    selected: str,
    asked: Asked,
    decoder_of: Callable[[Trajectory], Decode | None],
    *,
    status: str = "",
    error: str = "",
    batch_of: BatchOf = _one_batch,
) -> Picture:
    """What somebody sees of rollouts: all, one that was chosen, or those of one group.

    Args:
        rows: trajectories, oldest first.
        selected: the key of the one that was chosen; empty for none.
        asked: what else is asked for.
        decoder_of: a trajectory's token ids to text; None shows ids.
        status: of the list, see :class:`widgets.pictures.picture.Picture`.
        error: why there may be more, or why what was chosen is not shown.
        batch_of: a trajectory's batch, where there are several.
    """
    opened = chosen(rows, selected, batch_of) if selected else None
    if opened is not None:
        picture = trajectory_picture(opened, decoder_of(opened), asked.turn)
        return replace(picture, steps=(*picture.steps, *_steps(rows, opened, asked, batch_of)))
    if asked.compare:
        same = [row for row in rows if _group_key(row, batch_of) == asked.compare]
        if same:
            return group_picture(same, decoder_of(same[0]), [key_of(row, batch_of) for row in same])
    return rollouts_picture(rows, asked, status=status, error=error, batch_of=batch_of)


def rollouts_picture(
    rows: Sequence[Trajectory],
    asked: Asked = EVERYTHING,
    *,
    status: str = "",
    error: str = "",
    batch_of: BatchOf = _one_batch,
) -> Picture:
    """A page of the rollouts that are asked for.

    Args:
        rows: trajectories, oldest first.
        asked: which, and in what order.
        status: see :class:`widgets.pictures.picture.Picture`.
        error: why there may be more.
        batch_of: a trajectory's batch, where there are several.
    """
    some = found(rows, asked)
    last = max(0, len(some) - 1) // PER_PAGE
    start = min(asked.page, last) * PER_PAGE
    shown = some[start : start + PER_PAGE]
    place = f"{start + 1:,} to {start + len(shown):,} of {len(some):,}"
    failed = sum(row.status is RolloutStatus.FAILED for row in rows)
    which = f" {len(some):,} fit what is asked for." if asked.is_narrow else ""
    groups = {_group_key(row, batch_of) for row in some}
    one_group = groups.pop() if len(groups) == 1 and len(some) > 1 else ""
    return Picture(
        "Rollouts",
        (_table(shown, [key_of(row, batch_of) for row in shown], asked, any_at_all=bool(rows)),),
        status,
        prose(error),
        words=f"{count(len(rows), 'rollout')}, {failed:,} failed.{which} Choose one to open it.",
        fields=_fields(place if some else "none", last) if rows else (),
        steps=(Step("compare group", asked=(("compare", one_group),)),) if one_group else (),
    )


def key_of(row: Trajectory, batch_of: BatchOf = _one_batch) -> str:
    """What names a rollout between a browser and here."""
    return _key(row.rollout_id, batch_of(row))


def chosen(
    rows: Sequence[Trajectory], key: str, batch_of: BatchOf = _one_batch
) -> Trajectory | None:
    """The rollout with this key, else the last with this id, in full or as it is shown."""
    exact = (row for row in reversed(rows) if key == key_of(row, batch_of))
    same = (row for row in reversed(rows) if key in {row.rollout_id, _name(row)})
    return next(exact, None) or next(same, None)


def _group_key(row: Trajectory, batch_of: BatchOf) -> str:
    return _key(row.group, batch_of(row))


def _key(name: str, batch: str) -> str:
    return short(f"{batch}/{name}" if batch else name, KEY_LENGTH)


def _name(row: Trajectory) -> str:
    return short(row.rollout_id, 40)


def _fields(text: str, last: int) -> tuple[Field, ...]:
    return (
        Field("find", "search", "search id, error, end"),
        Field("group", "search", "group"),
        Field("status", "choice", "status", STATUSES),
        Field("least", "number", "reward from"),
        Field("most", "number", "to"),
        Field("page", "pages", "page", text=text, last=last),
    )


def _table(
    rows: Sequence[Trajectory], keys: Sequence[str], asked: Asked, *, any_at_all: bool
) -> Table:
    columns = tuple(ORDERS)
    return Table(
        "Rollouts that ended" + ("" if asked.sort else ", the last ones first"),
        columns,
        tuple(_row(row) for row in rows),
        numeric=tuple(column in NUMERIC for column in columns),
        empty="none fits what is asked for" if any_at_all else "no rollout ended yet",
        key=0,
        keys=tuple(keys),
        sorts=tuple(next_sort(column, asked.sort) for column in columns),
        order=_order(asked.sort),
    )


def _order(sort: str) -> tuple[int, Literal["ascending", "descending"]] | None:
    if not sort:
        return None
    place = list(ORDERS).index(sort.removeprefix("-"))
    return place, "descending" if sort.startswith("-") else "ascending"


def _row(row: Trajectory) -> tuple[str, ...]:
    return (
        _name(row),
        short(row.group),
        str(row.status),
        number(row.reward, 3),
        short(row.ended_by),
        number(row.num_turns),
        number(row.sampled_tokens),
        number(len(row.tool_calls)),
        number(row.wall_s, 1),
        prose(row.error),
    )


def _steps(
    rows: Sequence[Trajectory], opened: Trajectory, asked: Asked, batch_of: BatchOf
) -> tuple[Step, ...]:
    """To its neighbours among those that were found, and to the others of its group."""
    around: Sequence[Trajectory] = found(rows, asked)
    place = _place(around, opened)
    if place is None:
        around = rows[::-1]
        place = _place(around, opened) or 0
    whole = (("turn", ""),)

    def to(label: str, key: str, there: int) -> Step:
        if not 0 <= there < len(around):
            return Step(label, key=key)
        return Step(label, key_of(around[there], batch_of), whole, key)

    steps: tuple[Step, ...] = ()
    if len(rows) > 1:
        steps += (
            to("previous rollout", "Shift+ArrowLeft", place - 1),
            to("next rollout", "Shift+ArrowRight", place + 1),
        )
    group = _group_key(opened, batch_of)
    if sum(_group_key(row, batch_of) == group for row in rows) > 1:
        steps += (Step("compare group", "", (("compare", group), *whole)),)
    return steps


def _place(rows: Sequence[Trajectory], wanted: Trajectory) -> int | None:
    return next((place for place, row in enumerate(rows) if row is wanted), None)
