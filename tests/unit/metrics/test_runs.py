"""What is kept of batches of rollouts is the newest, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.metrics.runs import Runs
from workbench.metrics.samples import RolloutSnapshot
from workbench.trajectory import RolloutStatus, Segment, Trajectory


def a_run(name="rollouts-1", *, started_s=0.0, **known):
    counts = {"total": 4, "running": 4, "done": 0, "failed": 0, "cancelled": 0} | known
    return RolloutSnapshot(
        "test", **counts, sampled_tokens=0, mean_reward=None, wall_s=1.0, name=name,
        started_s=started_s,
    )  # fmt: skip


def ended(rollout_id, tokens=2):
    segment = Segment([1], [7] * (tokens - 1), [0] * (tokens - 1), [0.0] * (tokens - 1), ())
    return Trajectory(
        rollout_id, "task", 0, "test", {}, (segment,), (), (), (), RolloutStatus.DONE, None
    )


def ids(runs, name="rollouts-1"):
    return [trajectory.rollout_id for trajectory in runs.trajectories(name)]


def test_a_batch_is_known_by_its_last_snapshot():
    runs = Runs()
    runs.note(a_run("late", started_s=2.0))
    runs.note(a_run("early", started_s=1.0, running=4))
    runs.note(a_run("early", started_s=1.0, running=1, done=3), [ended("a")])
    assert [(run.name, run.running) for run in runs.snapshots()] == [("early", 1), ("late", 4)]
    assert ids(runs, "early") == ["a"]
    assert ids(runs, "late") == ids(runs, "unknown") == []


def test_the_batch_that_was_not_heard_of_for_longest_makes_room_with_its_trajectories():
    runs = Runs(batches=2)
    runs.note(a_run("a", started_s=1.0), [ended("x")])
    runs.note(a_run("b", started_s=2.0), [ended("y")])
    runs.note(a_run("a", started_s=1.0))
    runs.note(a_run("c", started_s=3.0))
    assert [run.name for run in runs.snapshots()] == ["a", "c"]
    assert ids(runs, "a") == ["x"]
    assert ids(runs, "b") == []


def test_a_trajectory_that_comes_twice_is_there_once():
    runs = Runs()
    runs.note(a_run(), [ended("a"), ended("b")])
    runs.note(a_run(), [ended("b"), ended("c")])
    assert ids(runs) == ["a", "b", "c"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"), st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)))
        ),
        max_size=30,
    )
)  # fmt: skip
def test_bounds_hold_and_the_newest_stay(notes):
    runs = Runs(batches=3, trajectories=5, tokens=20)
    order, heard = [], []
    for name, trajectories in notes:
        runs.note(a_run(name), [ended(str(number), tokens) for number, tokens in trajectories])
        heard = [other for other in heard if other != name] + [name]
        for number, tokens in trajectories:
            order = [entry for entry in order if entry[:2] != (name, str(number))]
            order.append((name, str(number), tokens))
        order = [entry for entry in order if entry[0] in heard[-3:]]
        heard = heard[-3:]
        while len(order) > 5 or sum(entry[2] for entry in order) > 20:
            order.pop(0)
    assert {run.name for run in runs.snapshots()} == set(heard)
    for name in "abcd":
        assert ids(runs, name) == [entry[1] for entry in order if entry[0] == name]
