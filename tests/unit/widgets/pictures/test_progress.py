"""Batches of rollouts: counts that add up, causes, rewards, several at once."""

from __future__ import annotations

from tests.unit.widgets.pictures.scenes import (
    NASTY,
    blank_view,
    fact,
    make_replica,
    make_run,
    make_sample,
    make_view,
    part,
    texts,
)
from widgets.pictures.progress import progress_picture


def view_of(*runs):
    return make_view(1, sample=make_sample((make_replica("replica-0"),), runs=runs))


def bars_of(picture, title):
    return {bar.name: (bar.value, bar.text) for bar in part(picture, title).bars}


def test_the_facts_of_a_batch():
    picture = progress_picture(view_of(make_run("train-1")))
    shown = {f.label: f.text for f in part(picture, "Batch train-1 (tool)").facts}
    assert shown == {
        "ended": "34 of 64",
        "running": "10",
        "done": "30",
        "failed": "4",
        "cancelled": "0",
        "mean reward": "0.500",
        "sampled, ended rollouts": "150 tokens/s",
        "time left, about": "53 s",
        "since its start": "1 min 00 s",
    }
    assert fact(picture, "failed").tone == "warn"


def test_where_the_rollouts_are_adds_up_with_failures_by_cause():
    ends = bars_of(progress_picture(view_of(make_run(cancelled=2, failed=6))), "Where the 64")
    assert ends["failed: ToolError"] == (3, "3 (5%)")
    assert ends["failed: other causes"] == (2, "2 (3%)")
    assert ends["not begun"] == (64 - 30 - 6 - 2 - 10, "16 (25%)")
    assert sum(value for value, _ in ends.values()) == 64


def test_many_causes_are_bounded_and_nothing_is_lost():
    causes = tuple((f"Error{n}", 1) for n in range(30))
    ends = bars_of(progress_picture(view_of(make_run(failed=30, failures=causes))), "Where")
    assert len(ends) == 4 + 8 + 1
    assert ends["failed: other causes"][0] == 22


def test_rewards_are_a_histogram():
    picture = progress_picture(view_of(make_run()))
    assert bars_of(picture, "Rewards") == {"0.00 to 0.50": (12, "12"), "0.50 to 1.00": (18, "18")}
    assert part(picture, "Rewards").note == "30 rollouts with a reward, 0.500 on average"


def test_no_reward_is_no_zero():
    picture = progress_picture(view_of(make_run(mean_reward=None, rewards=())))
    assert fact(picture, "mean reward").text == "–"
    assert part(picture, "Rewards").note == "no reward yet"


def test_several_batches_and_the_last_that_runs_is_opened():
    runs = (make_run("a"), make_run("b"), make_run("c", done=64, failed=0, running=0))
    picture = progress_picture(view_of(*runs))
    assert part(picture, "Batch b")
    assert list(bars_of(picture, "Rollouts that ended")) == ["a", "b", "c"]
    assert bars_of(picture, "Rollouts that ended")["c"] == (1.0, "64 of 64, ended")
    table = part(picture, "Batches")
    assert [row[0] for row in table.rows] == ["c", "b", "a"]
    assert table.key == 0
    assert part(progress_picture(view_of(*runs), "a"), "Batch a")


def test_a_batch_is_found_by_what_the_table_shows_of_its_name():
    long = "experiment-" + "x" * 60
    view = view_of(make_run(long), make_run("other"))
    key = part(progress_picture(view), "Batches").rows[1][0]
    assert key != long
    assert part(progress_picture(view, key), f"Batch {key}")


def test_an_unknown_batch_is_said_with_the_known_ones():
    picture = progress_picture(view_of(make_run("a")), "nope")
    assert picture.error == "no batch nope here; known: a."
    assert part(picture, "Batches").rows


def test_before_the_first_batch():
    picture = progress_picture(view_of())
    assert part(picture, "Rollouts that ended").note == "no batch yet"
    assert picture.words == "No batch of rollouts yet."
    progress_picture(blank_view()).to_json()


def test_a_batch_that_just_began_and_an_empty_one():
    new = make_run(running=64, done=0, failed=0, failures=(), sampled_tokens=0, wall_s=0.0)
    picture = progress_picture(view_of(new))
    assert fact(picture, "time left").text == "–"
    empty = make_run(total=0, running=0, done=0, failed=0, failures=(), mean_reward=None)
    assert bars_of(progress_picture(view_of(empty)), "Where the 0 rollouts")["done"] == (0, "0")


def test_hostile_names_and_causes_are_shown_as_text():
    text = texts(progress_picture(view_of(make_run(NASTY, failures=((NASTY, 4),)))))
    assert "\u202e" not in text
    assert "<script>" in text
    assert len(text) < 10_000


def test_a_batch_that_nobody_tells_of_any_more_is_not_shown_as_running():
    view = view_of(make_run("train-1", heard_s=1.0))
    picture = progress_picture(view)
    assert fact(picture, "running").text == "–"
    assert fact(picture, "time left, about").text.startswith("no news since ")
    assert "no news since" in part(picture, "Batches").rows[0][10]
    assert "No news since" in picture.words
