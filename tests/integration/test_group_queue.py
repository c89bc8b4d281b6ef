"""A queue in a process of its own, and who fills and empties it: any of them may be killed.

No engine runs; groups are made up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import ray

from tests.unit.stream.headers import header, mark
from workbench.cluster.connection import connect
from workbench.cluster.group_queue import RayQueue
from workbench.errors import ConfigError, StreamEndedError, StreamError
from workbench.stream.facts import Terms
from workbench.stream.rules import StreamRules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    Open = Callable[..., Awaitable[RayQueue]]

pytestmark = [pytest.mark.ray]

TASKS = 60
WAIT_S = 200.0
RULES = StreamRules(required_samples=3, max_staleness=None, staleness_threshold=3)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    connection = connect()
    yield
    connection.close()


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Opens queues, and closes them also where a test fails: what it left would fail others."""
    async with contextlib.AsyncExitStack() as undo:

        async def open_(rules: StreamRules = RULES, **options: Any) -> RayQueue:
            queue = await RayQueue.open(rules, **options)
            undo.push_async_callback(queue.close)
            return queue

        yield open_


async def fill(queue: RayQueue) -> None:
    """As a rollouter does.

    What puts answer is not counted: one whose answer died with the actor is made again, and its
    group may have been taken and committed by then.
    """
    held: dict[Any, Any] = {}
    try:
        while True:
            for ticket in await queue.admit(list(held), 4, 1.0):
                if ticket.position >= TASKS:
                    await queue.source_ended(TASKS)
                else:
                    held[ticket] = str(ticket.position).encode() * 2000
            for ticket in list(held):
                await queue.put(header(ticket), held[ticket])
                del held[ticket]
                await asyncio.sleep(0.005)
    except StreamEndedError:
        return


async def publish(queue: RayQueue) -> None:
    """As a learner does, so that there is room again."""
    for version in range(1, 10**6):
        await queue.begin_publish(version)
        await queue.end_publish(mark(version))
        await asyncio.sleep(0.05)


class Consuming:
    """Takes and commits in a process of its own; becomes a Ray actor."""

    def __init__(self, queue: RayQueue, name: str) -> None:
        self._queue, self._name = queue, name

    async def pid(self) -> int:
        return os.getpid()

    async def take_all(self, batches: int = 10**6) -> list[int]:
        """The positions of all that was committed; the last of ``batches`` is not."""
        done: list[int] = []
        after = 0
        while batches:
            try:
                taken = await self._queue.take(3, 2.0, self._name, after)
            except StreamEndedError:
                break
            if taken is None:
                continue
            after, batches = taken.number, batches - 1
            positions = [head.ticket.position for head, *_ in taken.groups]
            assert [blob for _, blob, *_ in taken.groups] == [
                str(position).encode() * 2000 for position in positions
            ]
            if batches:
                await self._queue.commit(taken.number)
                done += positions
        return done


def consuming(queue: RayQueue, name: str) -> Any:
    actor: Any = ray.remote(Consuming)
    return actor.options(num_cpus=0).remote(queue, name)


async def test_each_group_is_consumed_once_whoever_is_killed(opened: Open) -> None:
    queue = await opened()
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        filling = tasks.create_task(fill(queue))
        publishing = tasks.create_task(publish(queue))
        doomed, *others = [consuming(queue, name) for name in ("doomed", "b", "c")]
        before = await doomed.take_all.remote(3)
        taking = [asyncio.ensure_future(other.take_all.remote()) for other in others]
        os.kill(await doomed.pid.remote(), signal.SIGKILL)

        for _ in range(3):
            first = await queue.pid()
            ended = (await queue.snapshot()).ended
            os.kill(first, signal.SIGKILL)
            while (await queue.snapshot()).ended < min(ended + 8, TASKS):
                await asyncio.sleep(0.05)
            while await queue.pid() == first:
                await asyncio.sleep(0.05)

        open_rows = [row for row in await queue.batches() if not row["committed"]]
        assert [row["consumer"] for row in open_rows].count("doomed") == 1
        await queue.reclaim("doomed")
        consumed = [position for done in await asyncio.gather(*taking) for position in done]
        consumed += await consuming(queue, "doomed").take_all.remote()
        await filling
        publishing.cancel()
    assert Counter(before + consumed) == Counter(range(TASKS))
    assert (await queue.snapshot()).ended == TASKS, "each was queued once"
    # Tickets whose answer died with the actor were played again; nothing else was left out.
    assert {count.cause for count in (await queue.snapshot()).drops} <= {"lost"}
    folder = queue._own.path
    assert folder.exists()
    await queue.close()
    assert not folder.exists()
    with pytest.raises(StreamError, match="the stream's queue is gone"):
        await queue.snapshot()


async def test_a_folder_is_gone_on_with_and_belongs_to_one_at_a_time(
    opened: Open, tmp_path: Path
) -> None:
    queue = await opened(folder=tmp_path / "new")
    tickets = await queue.admit([], 5, 0.0)
    for ticket in tickets[:4]:
        await queue.put(header(ticket), b"...")
    taken = await queue.take(2, 0.0, "main", 0)
    assert taken is not None
    await queue.commit(taken.number)
    with pytest.raises(StreamError, match="another process runs the stream"):
        await opened(folder=tmp_path / "new")
    await queue.close()

    queue = await opened(StreamRules(required_samples=2), folder=tmp_path / "new", version=1)
    await queue.source_ended(5)
    (again,) = await queue.admit([], 5, 0.0)
    assert (again.position, again.attempt, again.start_version) == (4, 2, 1)
    await queue.put(header(again), b"...")
    taken = await queue.take(2, 0.0, "main", 0)
    assert taken is not None
    assert [head.ticket.position for head, *_ in taken.groups] == [2, 3]
    with pytest.raises(ConfigError, match="1 <= n <= 4"):
        await queue.take(5, 0.0, "main", taken.number)
    await queue.close()
    await queue.close()


async def test_a_folder_that_cannot_be_is_refused(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "stream.journal").write_bytes(b"something of somebody else's")
    with pytest.raises(StreamError, match="is not the journal of a stream"):
        await opened(folder=tmp_path)
    with pytest.raises(ConfigError, match="folder"):
        await opened(folder=tmp_path / "stream.journal" / "in it")
    terms = Terms(agent="tool", n=8, epochs=1, shuffle=None)
    for _ in range(2):
        queue = await opened(folder=tmp_path / "ours", terms=terms)
        await queue.close()
    with pytest.raises(
        ConfigError, match=r"^n: is 4, and the stream in this folder was begun with 8"
    ):
        await opened(folder=tmp_path / "ours", terms=replace(terms, n=4))
