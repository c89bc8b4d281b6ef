"""Batches on worker processes: what dies, is stopped, and goes on. Engines are simulated."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.integration.pools import HELLO, playing_pool, until_played
from workbench import AgentLoopBase, Workbench
from workbench.errors import ConfigError, RolloutError
from workbench.records import read_trajectories
from workbench.trajectory import RolloutStatus
from workbench.verl import AgentLoopOutput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench import Rollout, Trajectory

pytestmark = [pytest.mark.ray]


@pytest.fixture(scope="module")
def pool() -> Iterator[Workbench]:
    with playing_pool(2, workers=2) as made:
        yield made


class Marked(AgentLoopBase):
    """Samples once, leaves a mark, and waits where its task says so until a file is there."""

    async def run(self, sampling_params: Any, **task: Any) -> None:
        import asyncio

        await self.generate(await self.render.prompt([HELLO]), sampling_params)
        folder = Path(task["folder"])
        (folder / f"{task['number']}-{uuid4().hex}").write_text(str(os.getpid()))
        while task["waits"] and not (folder / "go").exists():
            await asyncio.sleep(0.01)


def tasks(folder: Path, count: int, *, waiting: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    return [
        {"folder": str(folder), "number": number, "waits": number in waiting}
        for number in range(count)
    ]


def marks(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if "-" in path.name)


def statuses(rows: list[Trajectory]) -> list[str]:
    return [str(row.status) for row in rows]


SAMPLING = {"max_tokens": 4}


def begin(pool: Workbench, given: list[dict[str, Any]], **options: Any) -> Rollout:
    return pool.rollout(given, Marked, sampling_params=SAMPLING, **options)


def test_a_killed_worker_costs_no_rollout(pool: Workbench, tmp_path: Path) -> None:
    rollout = begin(pool, tasks(tmp_path, 6, waiting=(0, 1, 2, 3, 4, 5)))
    until_played(lambda: len(marks(tmp_path)) == 6)
    pids = {int(path.read_text()) for path in marks(tmp_path)}
    assert len(pids) == 2
    os.kill(min(pids), signal.SIGKILL)
    until_played(lambda: len(marks(tmp_path)) == 9)
    (tmp_path / "go").touch()
    rows = rollout.result(60)
    assert statuses(rows) == ["done"] * 6
    assert sorted(row.attempts for row in rows) == [1, 1, 1, 2, 2, 2]
    assert rollout.snapshot().retried == 3
    assert "go on" not in repr(rollout)


def test_a_batch_that_was_stopped_goes_on_and_what_had_ended_is_kept(
    pool: Workbench, tmp_path: Path
) -> None:
    rollout = begin(pool, tasks(tmp_path, 4, waiting=(1, 3)))
    until_played(lambda: rollout.snapshot().done == 2)
    with pytest.raises(RolloutError, match="still runs"):
        rollout.resume()
    rollout.cancel()
    assert statuses(rollout.result(60)) == ["done", "cancelled", "done", "cancelled"]
    (tmp_path / "go").touch()
    again = rollout.resume()
    rows = again.result(60)
    assert statuses(rows) == ["done"] * 4
    assert [rows[0], rows[2]] == [rollout.trajectories()[0], rollout.trajectories()[2]]
    assert len(again.batch()) == 4


def test_a_file_that_rows_are_kept_in_lets_the_same_call_go_on(
    pool: Workbench, tmp_path: Path
) -> None:
    kept, given = tmp_path / "rows.jsonl", tasks(tmp_path, 4, waiting=(1, 3))
    rollout = begin(pool, given, keep=kept)
    until_played(lambda: rollout.snapshot().done == 2)
    rollout.cancel()
    assert len(read_trajectories(kept)) == 2
    with kept.open("ab") as file:
        file.write(b'{"half a li')  # as a process that is killed leaves it
    (tmp_path / "go").touch()
    rows = begin(pool, given, keep=kept).result(60)
    assert statuses(rows) == ["done"] * 4
    assert len(marks(tmp_path)) == 4 + 2, "those that were stopped were played twice"
    assert sorted(t.rollout_id for t in read_trajectories(kept)) == [
        f"task-{number}/0" for number in range(4)
    ]
    with pytest.raises(ConfigError, match="task-0"):
        begin(pool, tasks(tmp_path / "other", 4), keep=kept)
    with pytest.raises(ConfigError, match="jsonl"):
        begin(pool, given, keep=tmp_path / "rows.csv")


def test_what_is_gone_on_with_is_kept_too(pool: Workbench, tmp_path: Path) -> None:
    kept = tmp_path / "rows.jsonl"
    rollout = begin(pool, tasks(tmp_path, 3, waiting=(1,)), keep=kept)
    until_played(lambda: rollout.snapshot().done == 2)
    rollout.cancel()
    (tmp_path / "go").touch()
    assert statuses(rollout.resume().result(60)) == ["done"] * 3
    assert len(read_trajectories(kept)) == 3


class Written(AgentLoopBase):
    """In verl's style."""

    async def run(self, sampling_params: Any, **kwargs: Any) -> AgentLoopOutput:
        prompt_ids = await self.apply_chat_template(list(kwargs["raw_prompt"]))
        output = await self.server_manager.generate(
            request_id=uuid4().hex, prompt_ids=prompt_ids, sampling_params=sampling_params
        )
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=output.token_ids,
            response_mask=[1] * len(output.token_ids),
            response_logprobs=output.log_probs,
            num_turns=2,
        )


def test_a_loop_in_verls_style_plays_on_workers(pool: Workbench) -> None:
    rollout = pool.rollout([{"raw_prompt": [HELLO]}] * 3, Written, n=2, sampling_params=SAMPLING)
    rows = rollout.result(60)
    for row in rows:
        row.check()
        assert (row.status, row.sampled_tokens) == (RolloutStatus.DONE, 4)
        assert row.tokenizer == "smollm2-135m"
    assert rollout.batch().tensors["response_mask"].sum() == 6 * 4


def test_long_prompts_follow_the_rule_and_say_so(pool: Workbench) -> None:
    long, short = {"prompt": "word " * 6000}, {"prompt": "word"}
    rejected, kept = pool.rollout([long, short], sampling_params=SAMPLING).result(60)
    assert statuses([rejected, kept]) == ["failed", "done"]
    assert "tokens, 4095 are allowed" in rejected.error
    (cut, whole) = pool.rollout(
        [long, short], sampling_params=SAMPLING, overlong="cut-left", max_prompt_tokens=100
    ).result(60)
    assert statuses([cut, whole]) == ["done", "done"]
    assert len(cut.segments[0].prompt_ids) == 100
    (note,) = cut.notes
    assert note.startswith("the prompt was cut on the left, from 6")
    assert whole.notes == ()
