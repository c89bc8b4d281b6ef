"""Loops that would take their worker process along, and one that answers no more.

One worker plays all, so that whatever ends it or blocks it concerns everybody. Engines are
simulated.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.pools import HELLO, playing_pool, until_played
from workbench import AgentLoopBase, Workbench

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench import Rollout, Trajectory

pytestmark = [pytest.mark.ray]


@pytest.fixture(scope="module")
def pool() -> Iterator[Workbench]:
    with playing_pool(1, workers=1) as made:
        yield made


class Harmful(AgentLoopBase):
    """Samples once, writes down its process, and does what its task says."""

    async def run(self, sampling_params: Any, **task: Any) -> None:
        import asyncio
        import threading

        class PanicError(BaseException):
            pass

        async def leave() -> None:
            raise SystemExit(3)

        folder, deed = Path(task["folder"]), task["deed"]
        await self.generate(await self.render.prompt([HELLO]), sampling_params)
        (folder / deed).write_text(str(os.getpid()))
        if deed == "leaves":
            await asyncio.gather(leave())
        elif deed == "panics":
            raise PanicError("it panicked")
        elif deed == "locks":
            self.trajectory.extra["lock"] = threading.Lock()
        while deed == "waits" and not (folder / "go").exists():
            await asyncio.sleep(0.01)
        while deed == "blocks" and not (folder / "waits").exists():
            await asyncio.sleep(0.01)
        while deed == "blocks":
            (folder / "blocked").touch()
            time.sleep(0.01)  # noqa: ASYNC251 - it is what a careless loop does


def begin(pool: Workbench, folder: Path, *deeds: str, **options: Any) -> Rollout:
    tasks = [{"folder": str(folder), "deed": deed} for deed in deeds]
    return pool.rollout(tasks, Harmful, sampling_params={"max_tokens": 4}, **options)


def ends(rows: list[Trajectory]) -> list[tuple[str, int, int]]:
    for row in rows:
        row.check()
    return [(str(row.status), row.sampled_tokens, row.attempts) for row in rows]


def test_whatever_a_loop_raises_or_leaves_behind_is_its_own_row(
    pool: Workbench, tmp_path: Path
) -> None:
    rollout = begin(pool, tmp_path, "waits", "leaves", "panics", "locks")
    until_played(lambda: rollout.snapshot().failed == 3)
    (tmp_path / "go").touch()
    rows = rollout.result(60)
    assert ends(rows) == [("done", 4, 1), *[("failed", 4, 1)] * 3]
    errors = [row.error for row in rows[1:]]
    assert errors[:2] == ["SystemExit: 3", "PanicError: it panicked"]
    assert "extra['lock']: TypeError: cannot pickle" in errors[2]
    assert ends(begin(pool, tmp_path, "nothing").result(60)) == [("done", 4, 1)]


def test_a_loop_that_blocks_beyond_its_time_is_a_failed_row_and_the_others_are_played_again(
    pool: Workbench, tmp_path: Path
) -> None:
    rollout = begin(pool, tmp_path, "waits", "blocks", timeout_s=5.0)
    until_played((tmp_path / "blocked").exists)
    (tmp_path / "go").touch()
    rows = rollout.result(120)
    assert ends(rows) == [("done", 4, 2), ("failed", 0, 1)]
    assert rows[1].error.startswith("DeadlineError: the rollout took longer than 5 s, and blocks")


def test_a_batch_that_is_stopped_while_a_loop_blocks_ends_and_the_next_one_is_played(
    pool: Workbench, tmp_path: Path
) -> None:
    (tmp_path / "waits").touch()
    rollout = begin(pool, tmp_path, "blocks")
    until_played((tmp_path / "blocked").exists)
    rollout.cancel()
    assert ends(rollout.result(60)) == [("cancelled", 0, 1)]
    assert ends(begin(pool, tmp_path, "nothing").result(60)) == [("done", 4, 1)]


def test_a_worker_that_answers_no_more_is_replaced(pool: Workbench, tmp_path: Path) -> None:
    rollout = begin(pool, tmp_path, "waits")
    until_played((tmp_path / "waits").exists)
    deaf = int((tmp_path / "waits").read_text())
    os.kill(deaf, signal.SIGSTOP)
    try:
        assert ends(begin(pool, tmp_path, "nothing").result(60)) == [("done", 4, 1)]
        (tmp_path / "go").touch()
        assert ends(rollout.result(60)) == [("done", 4, 2)]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(deaf, signal.SIGKILL)
