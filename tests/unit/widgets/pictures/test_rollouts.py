"""Rollouts found, sorted, turned page by page, compared and stepped through."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.showing.rollouts import EVIL, conversation, trajectories
from tests.unit.widgets.pictures.scenes import NASTY, fact, part, texts
from tests.unit.widgets.pictures.test_trajectory import built, decode, output, two_turns
from widgets.pictures.asking import EVERYTHING, ORDERS, Asked, asked_of, found, next_sort
from widgets.pictures.rollouts import browse, chosen, rollouts_picture
from widgets.pictures.still import html, still
from workbench.rollout.trajectory import TrajectoryBuilder
from workbench.trajectory import RolloutStatus


def some():
    """Three groups of four; every fifth failed. Numbers rise with time."""
    rows = []
    for n in range(12):
        failed = n % 5 == 4
        rows.append(replace(
            two_turns(rollout_id=f"batch/task-{n // 4}/{n % 4}", group=f"task-{n // 4}"),
            index=n % 4,
            status=RolloutStatus.FAILED if failed else RolloutStatus.DONE,
            reward=None if failed else n / 10,
            error=f"ToolError: number {n}" if failed else "",
            ended_by="max_turns" if n % 3 == 0 else "answer",
            wall_s=float(n),
        ))  # fmt: skip
    return rows


def ids(rows):
    return [row.rollout_id.removeprefix("batch/task-") for row in rows]


def look(rows, selected="", **asked):
    values = {name: str(value) for name, value in asked.items()}
    return browse(rows, selected, asked_of(values), lambda row: decode)


def step(picture, label):
    (one,) = [one for one in picture.steps if one.label == label]
    return one


def labels(picture):
    """Ways on that lead somewhere."""
    return [s.label for s in picture.steps if s.selected is not None or s.asked]


# ---------------------------------------------------------------------------- finding


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"status": "failed"}, ["2/1", "1/0"]),
        ({"group": "TASK-1"}, ["1/3", "1/2", "1/1", "1/0"]),
        ({"find": "number 9"}, ["2/1"]),
        ({"find": "task-0/2"}, ["0/2"]),
        ({"find": "MAX_TURNS"}, ["2/1", "1/2", "0/3", "0/0"]),
        ({"least": "0.95"}, ["2/3", "2/2"]),
        ({"least": "0.1", "most": "0.2"}, ["0/2", "0/1"]),
        ({"most": "0", "status": "done"}, ["0/0"]),
        ({"find": "nowhere"}, []),
    ],
)
def test_rollouts_are_found_the_last_first(asked, expected):
    rows = some()
    assert ids(found(rows, asked_of(asked))) == expected
    table = part(look(rows, **asked), "Rollouts")
    assert [row[0].removeprefix("batch/task-") for row in table.rows] == expected


@pytest.mark.parametrize(
    ("sort", "first", "last"),
    [
        ("reward", "0/0", "1/0"),
        ("-reward", "2/3", "1/0"),
        ("wall time (s)", "0/0", "2/3"),
        ("-rollout", "2/3", "0/0"),
        ("group", "0/0", "2/3"),
        ("error", "1/0", "0/0"),
        ("-ended by", "2/1", "2/2"),
    ],
)
def test_rollouts_are_sorted_and_what_has_no_value_is_last(sort, first, last):
    rows = some()
    in_order = ids(found(rows, Asked(sort=sort)))
    assert sorted(in_order) == sorted(ids(rows))
    if sort == "-ended by":
        assert {"answer"} == {row.ended_by for row in found(rows, Asked(sort=sort))[8:]}
    else:
        assert in_order[0] == first
        if sort not in {"reward", "-reward", "error"}:
            assert in_order[-1] == last
    if "reward" in sort:
        assert {row.reward for row in found(rows, Asked(sort=sort))[-2:]} == {None}


def test_a_reward_that_is_no_number_is_sorted_as_none():
    rows = [replace(two_turns(), reward=value) for value in (0.5, math.nan, 1.0, -1.0)]
    for sort in ("reward", "-reward"):
        assert math.isnan(found(rows, Asked(sort=sort))[-1].reward)


@pytest.mark.parametrize("column", ORDERS)
def test_a_head_sorts_one_way_then_the_other_then_not(column):
    one = next_sort(column, "")
    other = next_sort(column, one)
    assert {one, other} == {column, f"-{column}"}
    assert next_sort(column, other) == ""
    for sort in (one, other):
        table = part(look(some(), sort=sort), "Rollouts")
        way = "descending" if sort.startswith("-") else "ascending"
        assert table.order == (table.columns.index(column), way)
        assert table.sorts[table.columns.index(column)] == next_sort(column, sort)


@pytest.mark.parametrize(
    "values",
    [
        {"status": "<b>", "sort": "-", "page": "-1", "turn": "x", "least": "nan", "most": "inf"},
        {"status": None, "sort": "__class__", "page": "²", "least": "1e999", "other": "x"},
        {},
    ],
)
def test_what_makes_no_sense_counts_as_not_asked(values):
    asked = replace(asked_of(values), status="")
    assert asked == EVERYTHING


def test_ten_thousand_rollouts_are_sent_page_by_page():
    rows = [replace(two_turns(), rollout_id=f"batch/task/{n}") for n in range(10_000)]
    picture = look(rows, page=3)
    table = part(picture, "Rollouts")
    assert (len(table.rows), table.rows[0][0]) == (50, "batch/task/9849")
    (pages,) = [field for field in picture.fields if field.kind == "pages"]
    assert (pages.text, pages.last) == ("151 to 200 of 10,000", 199)
    assert len(picture.to_json()) < 20_000
    last = look(rows, page=10**8)
    assert part(last, "Rollouts").rows[-1][0] == "batch/task/0"


def test_nothing_ended_and_nothing_found_are_told_apart():
    assert part(look([]), "Rollouts").empty == "no rollout ended yet"
    assert look([]).fields == ()
    nothing = look(some(), find="nowhere")
    assert part(nothing, "Rollouts").empty == "none fits what is asked for"
    assert [field.text for field in nothing.fields if field.kind == "pages"] == ["none"]


def test_what_is_clicked_is_found_however_its_id_is_shown():
    rows = [two_turns(rollout_id=f"{'x' * 60}{n}{'y' * 40}\u202e") for n in range(3)]
    table = rollouts_picture(rows).parts[0]
    assert len(set(table.keys)) == 3, "their names are cut, what tells them apart is not"
    for row, key in zip(reversed(rows), table.keys, strict=True):
        assert chosen(rows, key) is row
        assert chosen(rows, row.rollout_id) is row
    assert chosen(rows, "gone") is None


# ---------------------------------------------------------------------------- stepping


def test_turns_are_stepped_through_and_left():
    rows = [conversation()]
    whole = look(rows, "batch/task/0")
    assert labels(whole) == ["next turn"]
    assert step(whole, "next turn").asked == (("turn", "1"),)
    assert step(whole, "next turn").key == "ArrowRight"
    first = look(rows, "batch/task/0", turn=1)
    assert first.title == "Rollout batch/task/0, turn 1 of 2"
    assert labels(first) == ["next turn", "all turns"]
    messages = part(first, "Messages").rows
    assert messages[:2] == (("system", "You calculate."), ("user", "What is two plus two?"))
    assert messages[2:] == (("assistant", "I add."),), "its call stands below"
    assert part(first, "Tool calls").rows[0][:4] == ("1", "add", "well-formed", '{"a": 2}')
    assert [t.hint.split(",")[0] for t in part(first, "Tokens").tokens] == [
        "id 1", "id 2", "id 9", "id 3", "id 4",
    ]  # fmt: skip
    second = look(rows, "batch/task/0", turn=2)
    assert labels(second) == ["previous turn", "all turns"]
    assert part(second, "A branch begins here").rows == (
        ("Segment 2 is a branch of segment 1, after its first 2 tokens: it thought again",),
    )
    assert part(second, "Messages").rows == (("assistant", "It is four."),)
    assert part(second, "Messages beside").rows == (("user", "Thank you."),)
    assert [t.hint.split(",")[0] for t in part(second, "Tokens").tokens] == ["id 8", "id 7"]
    assert look(rows, "batch/task/0", turn=99).title == second.title


def test_a_turn_that_does_not_fit_is_cut_and_says_so():
    builder = TrajectoryBuilder()
    builder.add_turn([3] * 5000, output([4] * 100))
    opened = look([built(builder)], "batch/task/0", turn=1)
    tokens = part(opened, "Tokens of turn 1")
    assert len(tokens.tokens) == 2000
    assert tokens.note == (
        "5,000 tokens told, 100 sampled; not shown: 3,100 tokens of what it was told"
    )


def test_neighbours_are_those_of_the_list_that_was_left():
    rows = some()
    opened = look(rows, rows[0].rollout_id, status="done", sort="-reward")
    assert labels(opened) == ["next turn", "previous rollout", "compare group"]
    assert step(opened, "previous rollout").selected == rows[1].rollout_id
    assert step(opened, "previous rollout").asked == (("turn", ""),)
    assert step(opened, "previous rollout").key == "Shift+ArrowLeft"
    failed = look(rows, rows[4].rollout_id, status="done")  # it is in no such list
    assert step(failed, "next rollout").selected == rows[3].rollout_id


def test_the_only_rollout_has_no_neighbours():
    assert "next rollout" not in [s.label for s in look([two_turns()], "batch/task/0").steps]


# ---------------------------------------------------------------------------- comparing


def told(text, ids_, **known):
    builder = TrajectoryBuilder()
    builder.add_turn([1, 2], output(ids_))
    builder.messages += [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]
    return built(builder, **known)


def test_the_rollouts_of_a_group_stand_side_by_side():
    rows = [
        told("four", [3, 4, 7], index=0, rollout_id="b/t/0"),
        told("five\nindeed", [3, 4, 5], index=1, rollout_id="b/t/1", reward=0.25),
        told("four", [3, 4, 7], index=2, rollout_id="b/t/2"),
        told("x", [3], index=3, rollout_id="b/t/3", status=RolloutStatus.FAILED, reward=None,
             error="E: no"),
        two_turns(group="another", rollout_id="b/u/0"),
    ]  # fmt: skip
    opened = look(rows, "b/t/1")
    way = step(opened, "compare group")
    assert (way.selected, way.asked) == ("", (("compare", "task"), ("turn", "")))
    picture = look(rows, compare="task")
    assert picture.title == "Group task"
    table = part(picture, "Its rollouts")
    assert [row[0] for row in table.rows] == ["b/t/0", "b/t/1", "b/t/2", "b/t/3"]
    assert [row[2] for row in table.rows] == ["0.750", "0.250", "0.750", "–"]
    assert [row[4] for row in table.rows] == ["four", "five\nindeed", "four", "x"]
    assert [row[5] for row in table.rows] == [
        "the first",
        "at token 4, turn 1: “<b>” / “ four”",
        "the same tokens",
        "at token 3, after its last turn: its end / “ plus four”",
    ]
    assert table.keys == ("b/t/0", "b/t/1", "b/t/2", "b/t/3")
    assert fact(picture, "mean reward").text == "0.583"
    assert fact(picture, "different final answers").text == "2"
    assert step(picture, "all rollouts").asked == (("compare", ""),)


def test_a_list_of_one_group_leads_to_its_comparison():
    assert "compare group" not in labels(look(some()))
    narrow = look(some(), group="task-1")
    assert step(narrow, "compare group").asked == (("compare", "task-1"),)
    assert look(some(), compare="gone").title == "Rollouts"


def test_prompts_that_differ_are_said_to():
    rows = [two_turns(rollout_id="b/t/0"), two_turns(rollout_id="b/t/1", index=1)]
    other = replace(rows[1].segments[0], prompt_ids=[1, 5])
    rows[1] = replace(rows[1], segments=(other,))
    table = part(look(rows, compare="task"), "Its rollouts")
    assert table.rows[1][5].startswith("at token 1, in the prompt: “<b>")


# ---------------------------------------------------------------------------- anything


@settings(max_examples=60, deadline=None)
@given(st.lists(trajectories(), min_size=1, max_size=3), st.integers(0, 5))
def test_any_rollouts_are_shown_as_text_and_bounded(rows, turn):
    pictures = [look(rows), look(rows, sort="-reward", find="a")]
    table = part(pictures[0], "Rollouts")
    pictures += [look(rows, key, turn=turn) for key in table.keys]
    for opened in list(pictures):
        pictures += [look(rows, s.selected or "", **dict(s.asked)) for s in opened.steps]
    for picture in pictures:
        text = picture.to_json()
        json.loads(text)
        assert len(text.encode()) < 300_000
        assert "\u202e" not in text
        html(picture)
        assert not picture.title.startswith("Rollouts") or picture.parts


def test_hostile_text_is_shown_as_text():
    rows = [replace(two_turns(), rollout_id=NASTY, group=EVIL, ended_by=NASTY, error="")] * 2
    key = part(look(rows), "Rollouts").keys[0]
    for picture in (
        look(rows),
        look(rows, key),
        look(rows, compare=dict(step(look(rows, key), "compare group").asked)["compare"]),
    ):
        text = texts(picture)
        assert "\u202e" not in text
        assert len(text) < 10_000
        still(picture)
