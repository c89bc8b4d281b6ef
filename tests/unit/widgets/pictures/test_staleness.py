"""Streams: versions on their way, ages when taken, what was dropped, publishes, the reward."""

from __future__ import annotations

import pytest

from tests.unit.widgets.pictures.scenes import (
    NASTY,
    NOW_S,
    blank_view,
    fact,
    make_run,
    make_stream_run,
    part,
    texts,
)
from tests.unit.widgets.pictures.test_progress import bars_of, view_of
from widgets.pictures.progress import progress_picture
from widgets.pictures.staleness import staleness_picture
from workbench.metrics.streams import DropCount, PublishMark


def seen(*runs, name=None):
    return staleness_picture(view_of(*runs), name)


def a_drop(cause="too_old", **known):
    counts = {"groups": 1, "rollouts": 4, "sampled_tokens": 400, "longest_tokens": 200,
              "reward_sum": 0.0, "rewarded": 0}  # fmt: skip
    return DropCount(cause, **(counts | known))


def test_the_facts_of_a_stream():
    shown = {f.label: f.text for f in part(seen(make_stream_run()), "Stream stream-1 (tool)").facts}
    assert shown == {
        "state": "running",
        "learner's version": "6 (pool: 5)",
        "bound": "2 versions",
        "in flight": "10 groups",
        "queued": "4 groups",
        "window in use": "18 of 24",
        "taken": "48 groups in 12 batches",
        "not yet committed": "4 groups",
        "mean staleness": "0.88 versions",
        "not taken": "8 groups (14.3%)",
        "replicas stood still": "6 publishes, 1 failed, 0.60 s at most",
        "waits for": "a publish: 8 groups of version 6 were taken or wait",
    }


def test_groups_on_their_way_stand_by_version_with_the_learners_and_the_bound():
    bars = bars_of(seen(make_stream_run()), "Groups on their way")
    assert list(bars.items()) == [
        ("v6", (0, "none: the learner's version")),
        ("v5, in flight", (7, "7: 1 behind")),
        ("v5, queued", (3, "3: 1 behind")),
        ("v4, in flight", (2, "2: 2 behind, the bound")),
        ("v4, queued", (1, "1: 2 behind, the bound")),
        ("v3, in flight", (1, "1: 3 behind, too old")),
    ]


def test_the_bound_is_marked_where_no_group_is_that_old_and_absent_where_there_is_none():
    new = {"running": ((6, 2),), "queued": ()}
    assert (
        bars_of(seen(make_stream_run(**new)), "Groups on")["v4"][1] == "none: 2 behind, the bound"
    )
    endless = bars_of(seen(make_stream_run(max_staleness=None, **new)), "Groups on")
    assert list(endless) == ["v6, in flight"]
    assert list(bars_of(seen(make_stream_run(version=1, **new)), "Groups on"))[-1] == "v1"


def test_groups_of_very_old_versions_are_counted_together():
    running = tuple((version, 2) for version in range(40))
    run = make_stream_run(version=39, running=running, queued=((3, 5),), max_staleness=None)
    bars = bars_of(seen(run), "Groups on")
    assert bars["older, in flight"] == (64, "64: more than 7 behind")
    assert bars["older, queued"][0] == 5
    assert sum(value for value, _ in bars.values()) == 85


def test_ages_are_a_histogram_up_to_the_bound_at_least():
    picture = seen(make_stream_run(ages=((0, 12), (1, 36)), max_staleness=3))
    assert bars_of(picture, "Staleness of groups") == {
        "0": (12, "12 (25%)"), "1": (36, "36 (75%)"), "2": (0, "0 (0%)"),
        "3": (0, "0 (0%), the bound"),
    }  # fmt: skip
    assert part(picture, "Staleness of groups").note.endswith("0.75 on average")
    endless = seen(make_stream_run(ages=((0, 1), (12, 2), (90, 3)), max_staleness=None))
    ages = bars_of(endless, "Staleness of groups")
    assert len(ages) == 13
    assert ages["12 or more"][0] == 5


def test_what_was_dropped_stands_beside_all_with_its_length_and_reward():
    picture = seen(make_stream_run())
    rows = {row[0]: row[1:6] for row in part(picture, "What became of groups").rows}
    assert rows["all that ended"] == ("–", "300", "200.0", "–", "0.500")
    assert rows["taken"] == ("48", "240", "150.0", "300.0", "0.525")
    assert rows["too old"] == ("3", "12", "400.0", "500.0", "0.100")
    assert bars_of(picture, "Length of rollouts")["too old"] == (400.0, "400.0 (3 groups)")


def test_a_selection_by_length_is_said_and_only_where_there_is_one():
    def note(*drops):
        return part(seen(make_stream_run(drops=drops)), "What became of groups").note

    assert note(a_drop(sampled_tokens=2400)).startswith("dropped for age: 3.0 times as long")
    assert note(a_drop(sampled_tokens=800)) == note() == ""
    assert note(a_drop("filtered", sampled_tokens=2400)) == ""


def test_publishes_show_how_long_replicas_stood_still_and_why_one_failed():
    picture = seen(make_stream_run())
    bars = bars_of(picture, "Replicas stood still, by publish")
    assert bars["version 3"] == (pytest.approx(0.3), "0.30 of 0.80 s")
    assert bars["version 4"][1] == "0.40 of 0.90 s, failed"
    assert bars["version 5"][1] == "0.50 of 1.00 s, 1 replaced"
    odd = [(row[0], *row[3:]) for row in part(picture, "Publishes that did not").rows]
    assert odd == [
        ("5", "taken", "replica-1"),
        ("4", "ConnectionError: no replica answered", "–"),
    ]


def test_only_the_last_publishes_have_bars():
    marks = tuple(PublishMark(NOW_S, n, "keep", 0.1, 0.2) for n in range(100))
    picture = seen(make_stream_run(publishes=marks))
    assert min(bars_of(picture, "Replicas stood")) == "version 92"
    assert part(picture, "Replicas stood").note.startswith("and 92 before")
    assert "Publishes that did not" not in texts(picture)
    assert fact(picture, "replicas stood still").text == "last 100 publishes, 0.10 s at most"


def test_the_reward_is_drawn_by_batch_with_its_course():
    chart = part(seen(make_stream_run()), "Mean reward")
    assert (chart.along, chart.times_s) == ("batch", tuple(range(1, 13)))
    each, course = chart.lines
    assert each.values[:2] == (0.25, 0.3)
    assert course.values[-1] == pytest.approx(0.2 + 7.5 / 20)
    assert len(part(seen(make_stream_run(curve=((3, -1.0),))), "Mean reward").lines) == 1


@pytest.mark.parametrize("make", [staleness_picture, progress_picture])
def test_a_stream_that_failed_says_why(make):
    error = "ToolError: no such tool\nTraceback (most recent call last):\n  File 1"
    picture = make(view_of(make_stream_run(state="failed", error=error)))
    assert picture.error == "stream stream-1 failed: ToolError: no such tool"
    assert fact(picture, "state").tone == "bad"
    untold = make(view_of(make_stream_run(state="failed", error="")))
    assert untold.error == "stream stream-1 failed: no reason was told"


def test_the_last_stream_that_goes_on_is_opened_and_another_by_its_name():
    over = (make_stream_run("c", state="ended"), make_stream_run("d", state="failed"))
    runs = (make_stream_run("a"), make_stream_run("b"), *over)
    picture = seen(*runs, make_run("batch"))
    assert part(picture, "Stream b")
    table = part(picture, "Streams")
    assert [(row[0], row[-1]) for row in table.rows] == [
        ("d", "failed"), ("c", "ended"), ("b", "running"), ("a", "running"),
    ]  # fmt: skip
    assert table.key == 0
    assert part(seen(*runs, name="a"), "Stream a")
    assert seen(*runs, name="batch").error == "no stream batch here; known: a, b, c, d."


def test_before_the_first_stream_and_before_its_first_group():
    assert seen(make_run()).words == "No stream of rollouts yet."
    assert part(seen(make_run()), "Streams").empty == "no stream yet"
    staleness_picture(blank_view()).to_json()
    new = seen(make_stream_run(
        running=(), queued=(), begun=0, ended=0, consumed=0, batches=0, ages=(), drops=(),
        publishes=(), curve=(), done=0, failed=0, sampled_tokens=0, mean_reward=None, version=0,
        pool_version=0, waits_for="", handed=0,
    ))  # fmt: skip
    assert fact(new, "mean staleness").text == fact(new, "not taken").text == "–"
    assert fact(new, "waits for").text == "–"
    assert part(new, "Mean reward").note == "no batch with a reward yet"
    assert "0 of 0" not in texts(new)


def test_hostile_words_of_streams_are_shown_as_text_and_bounded():
    run = make_stream_run(
        NASTY, agent=NASTY, state="failed", error=NASTY, waits_for=NASTY, drops=(a_drop(NASTY),),
        publishes=(PublishMark(NOW_S, 1, NASTY, 0.1, 0.2, NASTY, (NASTY,) * 9),),
    )  # fmt: skip
    for picture in (seen(run), progress_picture(view_of(run))):
        text = texts(picture)
        assert "\u202e" not in text
        assert "<script>" in text
        assert len(text) < 12_000


# -- rollout progress ------------------------------------------------------------------------------


def test_progress_of_a_stream_counts_groups_and_never_a_total():
    picture = progress_picture(view_of(make_run("batch-0"), make_stream_run()))
    shown = {f.label: f.text for f in part(picture, "Stream stream-1 (tool)").facts}
    assert shown["taken"] == "48 groups in 12 batches"
    assert shown["learner's version"] == "6 (pool: 5)"
    assert shown["running"] == "40"
    assert shown["state"] == "running"
    assert "time left, about" not in shown
    ends = bars_of(picture, "Where the 340 rollouts so far")
    assert "not begun" not in ends
    assert sum(value for value, _ in ends.values()) == 340
    assert bars_of(picture, "Rollouts that ended")["stream-1"] == (
        None, "48 groups, running",
    )  # fmt: skip
    assert part(picture, "Batches").rows[0][3] == "–"
    assert "0 of 0" not in texts(picture)
    assert picture.words.startswith("1 batch, 1 stream. stream-1: 300 rollouts ended, 48 groups")


def test_progress_of_a_stream_whose_tasks_are_counted():
    run = make_stream_run(tasks=64, state="ended", consumed=48)
    bars = bars_of(progress_picture(view_of(run)), "Rollouts that ended")
    assert bars["stream-1"] == (0.75, "48 of 64 groups, ended")


def test_a_stream_that_nobody_tells_of_is_not_shown_as_running():
    picture = progress_picture(view_of(make_stream_run(heard_s=1.0)))
    assert fact(picture, "state").text.startswith("no news since")
    assert fact(picture, "running").text == "–"
    ended = progress_picture(view_of(make_stream_run(heard_s=1.0, state="ended")))
    assert fact(ended, "state").text == "ended"
