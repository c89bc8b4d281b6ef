"""Rollouts to choose from, live: opened to their tokens, and left again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.widgets.feeds import ended
from tests.unit.widgets.wires import Until, displayed, shown
from widgets import TrajectoryView
from workbench import decoding
from workbench.errors import ConfigError
from workbench.trajectory import RolloutStatus, Segment, Trajectory, Turn
from workbench.types import FinishReason, VersionSpan

pytestmark = pytest.mark.usefixtures("wires")


def trajectory(number: int = 0) -> Trajectory:
    segment = Segment([1, 2], [3, 4], [1, 1], [-0.1, -2.0], (VersionSpan(3, 0, 2),))
    turn = Turn(0, 0, 2, FinishReason.STOP, "replica-0", 2, 0, 1, 0.1, 0.2, 0.5)
    return Trajectory(
        f"rollout-{number}", "task-0", number, "tool", {}, (segment,), (turn,), (), (),
        RolloutStatus.DONE, 0.5,
    )  # fmt: skip


class Run:
    """A batch in progress, as a handle shows it."""

    def __init__(self, ended: int) -> None:
        self.rows = [trajectory(number) for number in range(ended)]
        self.done = False

    def trajectories(self) -> list[Trajectory]:
        return list(self.rows)

    def decode(self, ids: list[int]) -> str:
        return "".join(f"<{number}>" for number in ids)


def test_a_rollout_is_chosen_opened_to_its_tokens_and_left_again():
    view = TrajectoryView(Run(3))
    displayed(view)
    table = shown(view)["parts"][0]
    assert [row[table["key"]] for row in table["rows"]] == ["rollout-2", "rollout-1", "rollout-0"]
    opened = Until(view, lambda p: p["title"] == "Rollout rollout-1")
    view.set_state({"selected": "rollout-1"})
    picture = opened.wait()
    assert picture["actions"] == ["back"]
    (tokens,) = [part for part in picture["parts"] if part["kind"] == "tokens"]
    assert [token["text"] for token in tokens["tokens"]] == ["<1>", "<2>", "<3>", "<4>"]
    assert [token["mask"] for token in tokens["tokens"]] == [0, 0, 1, 1]
    left = Until(view, lambda p: p["title"] == "Rollouts")
    view.set_state({"selected": ""})
    left.wait()
    view.close()


def test_rollouts_are_found_and_stepped_through_as_a_browser_asks():
    view = TrajectoryView([trajectory(number) for number in range(120)])
    displayed(view)
    assert len(shown(view)["parts"][0]["rows"]) == 50
    found = Until(view, lambda p: len(p["parts"][0]["rows"]) == 11)
    view.set_state({"asked": {"find": "rollout-5", "group": "", "sort": "-rollout", "page": "0"}})
    rows = found.wait()["parts"][0]["rows"]
    assert [row[0] for row in rows[:2]] == ["rollout-59", "rollout-58"]
    opened = Until(view, lambda p: p["title"] == "Rollout rollout-58")
    view.set_state({"selected": "rollout-58"})
    steps = {step["label"]: step for step in opened.wait()["steps"]}
    assert steps["previous rollout"]["selected"] == "rollout-59"
    turned = Until(view, lambda p: p["title"] == "Rollout rollout-58, turn 1 of 1")
    view.set_state({"asked": {**view.asked, **dict(steps["next turn"]["asked"])}})
    turned.wait()
    view.close()


def test_tokens_are_in_words_where_their_tokenizer_is_known(monkeypatch):
    monkeypatch.setattr(decoding, "_known", {})
    decoding.remember("tiny", lambda ids: f"<{ids[0]}>")
    for tokenizer, first in (("tiny", "<1>"), ("other", "1 "), ("", "1 ")):
        view = TrajectoryView(replace(trajectory(), tokenizer=tokenizer))
        displayed(view)
        assert shown(view)["parts"][-1]["tokens"][0]["text"] == first
        view.close()


def test_rollouts_that_end_appear_and_the_last_one_ends_it():
    run = Run(1)
    view = TrajectoryView(run)
    displayed(view)
    assert shown(view)["status"] == "running"
    grown = Until(view, lambda p: len(p["parts"][0]["rows"]) == 2 and not p["status"])
    run.rows.append(trajectory(1))
    run.done = True
    grown.wait()
    assert ended()
    view.close()


def test_a_source_that_keeps_the_last_ones_only_is_followed():
    run = Run(3)
    feed = TrajectoryView(run)._feed
    assert not feed.pull()
    run.rows = [*run.rows[1:], trajectory(3)]
    assert feed.pull()
    assert feed.rows[-1].rollout_id == "rollout-3"


def test_one_trajectory_is_opened_at_once():
    view = TrajectoryView(trajectory(4), decode=lambda ids: "x")
    displayed(view)
    assert shown(view)["title"] == "Rollout rollout-4"
    assert shown(view)["actions"] == []  # there is nowhere to go back to
    assert repr(view) == f"TrajectoryView({trajectory(4)!r})"
    assert repr(TrajectoryView([trajectory(0), trajectory(1)])) == "TrajectoryView(2 rollouts)"
    view.close()


@pytest.mark.parametrize("source", [7, "rollout", [1, 2]])
def test_what_has_no_trajectories_is_refused(source):
    with pytest.raises(ConfigError, match=r"source: .*no trajectories"):
        TrajectoryView(source)
