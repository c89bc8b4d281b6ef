"""Streams on real replicas: published to, controlled, and with their processes killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.pools import script
from tests.integration.scraping import until
from workbench.errors import (
    CheckpointError,
    ConfigError,
    DeadlineError,
    LearnerDiedError,
    StreamEndedError,
)
from workbench.models import resolve_model
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from pathlib import Path

    from workbench import Stream, Workbench
    from workbench.stream.groups import GroupBatch
    from workbench.trajectory import Trajectory

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.timeout(240)]

MODEL = resolve_model("smollm2-135m")
TASKS = [f"Count from {number} to ten." for number in range(12)]
SAMPLING = {"max_tokens": 24, "temperature": 1.0, "ignore_eos": True}


def length(trajectory: Trajectory) -> float:
    """Of the text that the model wrote."""
    return float(len(str(trajectory.messages[-1]["content"])))


def begun(bench: Workbench, **options: Any) -> Stream:
    given: dict[str, Any] = {
        "n": 4, "required_samples": 2, "sampling_params": SAMPLING, "reward": length,
    }  # fmt: skip
    return bench.stream(TASKS, **given | options)


def checked(batch: GroupBatch, bound: int) -> GroupBatch:
    """Every row is aligned, and none is older than allowed."""
    for row in batch.trajectories:
        row.check()
        assert row.status is RolloutStatus.DONE
        assert row.sampled_tokens == 24
        assert row.versions is not None
        assert batch.version - row.versions[0] <= bound
    assert len(batch.trajectories) == 4 * len(batch)
    return batch


def emptied(stream: Stream) -> None:
    """Take all that there is and all that comes."""
    while True:
        try:
            stream.get_batch(1, timeout_s=None if stream.snapshot().in_flight else 0.2)
        except DeadlineError:
            return


def test_batches_come_while_weights_change_and_every_task_is_taken_once(bench: Workbench) -> None:
    taken: list[int] = []
    versions: list[int] = []
    with begun(bench, max_staleness=1) as stream:
        for batch in stream:
            checked(batch, bound=1)
            taken += [group.position for group in batch.groups]
            versions.append(batch.version)
            stream.publish(MODEL)
        now = stream.snapshot()
        assert sorted(taken) == list(range(12))
        assert versions == list(range(versions[0], versions[0] + 6))
        assert set(bench.weight_versions().values()) == {versions[-1] + 1}
        assert (now.state, now.consumed, now.drops) == ("ended", 12, ())
        history = stream.history()
        assert list(history["groups"]) == [2] * 6
        assert history["committed"].all()
        assert history["max_staleness"].max() <= 1
        published = stream.publishes()
        assert list(published["mode"]) == ["keep"] * 6
        assert (published["stopped_s"] > 0).all()
    told = until(lambda: _told(bench, stream.name), 60)
    assert (told.done, told.stream.state) == (48, "ended")


def _told(bench: Workbench, name: str) -> Any:
    """What the pool heard of a stream, once it heard of its end."""
    bench.feed.pull()
    runs = bench.feed.latest.runs if bench.feed.latest else ()
    found = [run for run in runs if run.name == name and run.stream is not None]
    return next((run for run in found if run.stream.state == "ended" and run.done == 48), None)


def test_a_stream_is_controlled_from_a_cell(bench: Workbench) -> None:
    with begun(bench, max_staleness=2, epochs=None, shuffle=3) as stream:
        stream.pause()
        assert stream.snapshot().state == "paused"
        emptied(stream)
        stream.commit()
        stream.publish(MODEL)  # a pause is no reason not to
        before = stream.snapshot().begun
        stream.step()
        until(lambda: stream.snapshot().begun == before + 2, 60)
        checked(stream.get_batch(), bound=2)
        with pytest.raises(DeadlineError, match=r"resumed|paused"):
            stream.get_batch(timeout_s=0.5)
        stream.max_staleness = 0
        assert stream.max_staleness == 0
        stream.resume()
        stream.publish(MODEL)
        name = until(stream.running, 60)[0]  # of one of the two groups that the bound allows
        assert stream.cancel(name)
        assert not stream.cancel("task-0/99")
        batch = stream.get_batch()
        assert batch.max_staleness == 0
        rows = {row.rollout_id: row.status for row in batch.trajectories}
        assert rows[name] is RolloutStatus.CANCELLED
        assert not stream.status().empty
        stream.stop()
        assert len(list(stream)) <= 2, "what was queued"
        with pytest.raises(StreamEndedError, match="the stream was stopped"):
            stream.get_batch()


def test_what_cannot_work_is_refused_and_bad_weights_change_nothing(
    bench: Workbench, tmp_path: Path
) -> None:
    for option, value, told in (
        ("staleness_threshold", 2.5, "staleness_threshold <= max_staleness = 1"),
        ("required_samples", 0, "a whole number from 1"),
        ("filter", "odd", "'varied'"),
        ("concurrency", 3, "max_concurrent"),
        ("max_stalenes", 3, "max_staleness"),
    ):
        with pytest.raises(ConfigError, match=told):
            begun(bench, **{option: value})
    with begun(bench, on_failed_publish="go_on") as stream:
        version = stream.snapshot().version
        with pytest.raises(ConfigError, match=r"1 <= n <= 4"):
            stream.get_batch(5)
        with pytest.raises(ConfigError, match="the one after the pool's"):
            stream.publish(MODEL, version)
        with pytest.raises(CheckpointError):
            stream.publish(tmp_path)
        assert stream.publishes()["error"].iloc[-1]
        assert set(bench.weight_versions().values()) == {version}
        checked(stream.get_batch(), bound=1)


# -- processes that are killed ----------------------------------------------------------------

ROLLOUTER = """
    import json, sys
    from tests.integration.test_streams import MODEL, begun
    from workbench import Workbench

    bench = Workbench(name=sys.argv[1], progress=False)
    stream = begun(bench, folder=sys.argv[2], max_staleness=2)
    for batch in stream:
        print(json.dumps([batch.number, [g.position for g in batch.groups]]), flush=True)
        stream.publish(MODEL)
"""


def test_a_rollouter_that_is_killed_is_gone_on_with_and_each_task_is_consumed_once(
    bench: Workbench, tmp_path: Path
) -> None:
    command = script(ROLLOUTER, bench.config.name, str(tmp_path / "stream"))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        said = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.kill()  # with groups in flight, some queued, one batch taken and not committed
    taken = dict(said)
    stream = until(lambda: _again(bench, tmp_path), 60)
    with stream:
        for batch in stream:
            taken[batch.number] = [group.position for group in batch.groups]
            stream.publish(MODEL)
        history = stream.history()
    committed = history.loc[history["committed"], "number"]
    consumed = Counter(position for number in committed for position in taken[number])
    assert consumed == dict.fromkeys(range(12), 1)


def _again(bench: Workbench, folder: Path) -> Stream | None:
    """The same stream, once the queue of the process that was killed is gone too."""
    from workbench.errors import StreamError

    try:
        return begun(bench, folder=folder / "stream", max_staleness=2)
    except StreamError:
        return None


def test_a_queue_that_is_killed_comes_back_with_all_that_it_had(bench: Workbench) -> None:
    consumed: Counter[int] = Counter()
    with begun(bench, max_staleness=2) as stream:
        for batch in stream:
            if batch.number in {1, 3}:
                pid = bench._call(stream.queue.pid())
                os.kill(pid, signal.SIGKILL)
            consumed.update(group.position for group in checked(batch, bound=2).groups)
            stream.publish(MODEL)
        assert stream.snapshot().consumed == 12
    assert consumed == dict.fromkeys(range(12), 1)


def test_a_learner_that_is_killed_goes_on_from_what_it_saved(
    bench: Workbench, tmp_path: Path
) -> None:
    learned: Counter[int] = Counter()
    with (
        begun(bench, max_staleness=2, filter="varied") as stream,
        bench.learner(lr=1e-6) as learner,
    ):
        for batch in stream:
            learner.step(batch)
            if batch.number == 2:
                os.kill(learner.pid, signal.SIGKILL)
            try:
                learner.save(tmp_path / "learner")
            except LearnerDiedError:
                learner.restart()
                assert learner.load(tmp_path / "learner") == 1
                assert learner.step(batch).step == 2, "what was lost is learned again"
                learner.save(tmp_path / "learner")
            learned.update(group.position for group in batch.groups)
            stream.publish(learner)
            if batch.number == 3:
                break
        stream.publish(MODEL)  # as the others of this pool expect it
    assert sorted(learned.values()) == [1] * 6
