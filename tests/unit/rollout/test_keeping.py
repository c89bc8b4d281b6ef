"""Rows are kept in a file as they end; the same batch goes on from there, and no other does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workbench.errors import ConfigError
from workbench.records import read_trajectories
from workbench.rollout import keeping
from workbench.rollout.keeping import Keeper
from workbench.rollout.manager import prepare
from workbench.trajectory import RolloutStatus, Trajectory

DONE, FAILED, CANCELLED = RolloutStatus.DONE, RolloutStatus.FAILED, RolloutStatus.CANCELLED


def batch(*prompts, **options):
    return prepare(list(prompts or ("a", "b")), model="m", **options)


def row(number, status=DONE, error="", **known):
    made = Trajectory(
        f"task-{number}/0", f"task-{number}", 0, "single_turn", {"prompt": "ab"[number]},
        (), (), (), (), status, None, error=error, tokenizer="m",
    )  # fmt: skip
    return replace(made, **known)


async def kept(path, *rows):
    keeper = Keeper(path)
    for one in rows:
        keeper.add(one)
    assert await keeper.aclose() == ""


async def test_what_is_done_or_failed_is_not_played_again_unless_that_is_asked_for(tmp_path):
    path = tmp_path / "rows.jsonl"
    await kept(path, row(0), row(1, FAILED, "ValueError: no"))
    keeper = Keeper(path)
    assert [r.rollout_id for r in keeper.before(batch())] == ["task-0/0", "task-1/0"]
    assert [r.rollout_id for r in keeper.before(batch(), retry_failed=True)] == ["task-0/0"]
    keeper.close()


async def test_what_was_stopped_or_failed_with_the_pool_is_played_again(tmp_path):
    path = tmp_path / "rows.jsonl"
    await kept(path, row(0, CANCELLED), row(1, FAILED, "WorkerDiedError: it died"))
    keeper = Keeper(path)
    assert keeper.before(batch()) == []
    keeper.close()


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (row(0, agent="tool"), "'task-0/0' is of agent 'tool' there, not 'single_turn'"),
        (row(0, tokenizer="other"), "is of model 'other' there, not 'm'"),
        (row(0, task={"prompt": "z"}), "'task-0/0' has another task there"),
        (row(0, rollout_id="task-9/0"), "'task-9/0' is no rollout of this batch"),
    ],
)
async def test_rows_of_another_batch_are_refused_with_what_differs(tmp_path, other, complaint):
    path = tmp_path / "rows.jsonl"
    await kept(path, other)
    keeper = Keeper(path)
    with pytest.raises(ConfigError, match=complaint) as refused:
        keeper.before(batch())
    assert refused.value.field == "keep"
    assert "rows.jsonl" in str(refused.value)
    keeper.close()


def test_two_batches_that_run_do_not_write_to_one_file(tmp_path):
    first = Keeper(tmp_path / "rows.jsonl")
    with pytest.raises(ConfigError, match=r"keep: .*written by a batch that runs"):
        Keeper(tmp_path / "rows.jsonl")
    first.close()
    Keeper(tmp_path / "rows.jsonl").close()


@pytest.mark.parametrize("name", ["rows.csv", "no/such/folder/rows.jsonl"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_played(tmp_path, name):
    with pytest.raises(ConfigError, match=r"^keep: "):
        Keeper(tmp_path / name)


async def test_a_row_that_cannot_be_written_is_told_at_the_end_and_takes_no_other_along(
    tmp_path, monkeypatch
):
    append = keeping.append_trajectory

    def full(path, trajectory):
        if trajectory.index:
            raise ConfigError("path", "the disk is full")
        append(path, trajectory)

    monkeypatch.setattr(keeping, "append_trajectory", full)
    path = tmp_path / "rows.jsonl"
    keeper = Keeper(path)
    for one in (row(0, index=1), row(1)):
        keeper.add(one)
    assert "the disk is full" in await keeper.aclose()
    assert [r.rollout_id for r in read_trajectories(path)] == ["task-1/0"]
