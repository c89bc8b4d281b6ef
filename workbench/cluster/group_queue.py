"""A stream's queue as a Ray actor that restarts by itself, and a port to it for any process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workbench.checkpoint.folders import OwnFolder, roomy
from workbench.cluster.ports import our_errors
from workbench.cluster.remote import Remote
from workbench.errors import StreamError, WorkbenchError
from workbench.ids import new_id
from workbench.stream.queue import StreamQueue, Taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.metrics.streams import PublishMark, StreamSnapshot
    from workbench.stream.facts import Terms
    from workbench.stream.groups import GroupHeader, Ticket
    from workbench.stream.rules import StreamRules

MAX_CALLS = 10_000
"""Calls at once; whoever waits for tickets or a batch keeps one."""

LOCK_S = 5.0
"""How long the process before this one may take to let go of the folder."""

PAUSE_S = 0.1
"""Between two tries to reach an actor that restarts."""

ABSENT_S = 120.0
"""How long it may take to be back, and to read its journal."""

ROOM_BYTES = 2**30
"""What there has to be of shared memory for a journal that goes with its queue; else it is among
the temporary files."""

GONE = "the stream's queue is gone: its stream was closed, or the process that began it ended"


class QueueActor:
    """A :class:`StreamQueue` in a process of its own. Every life of it reads the same journal."""

    def __init__(
        self, rules: StreamRules, folder: str, version: int, run: str, terms: Terms | None
    ) -> None:
        self._refused: WorkbenchError | None = None
        try:
            self._queue = StreamQueue(
                rules,
                folder=Path(folder),
                version=version,
                run=run,
                lock_wait_s=LOCK_S,
                terms=terms,
            )
        except WorkbenchError as error:  # out of here Ray would make a text of it
            self._refused = error

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """What the queue's own method returns."""
        if self._refused is not None:
            raise self._refused
        return await getattr(self._queue, method)(*args, **options)

    async def pid(self) -> int:
        """Of its process."""
        return os.getpid()


class _AbsentError(WorkbenchError):
    """The actor restarts, or the way to it is broken just now."""


class RayQueue:
    """The queue, as any process of the cluster reaches it; see :class:`StreamQueue`.

    Calls wait while its actor restarts, and are made again: each changes nothing the second time.
    Ends with the process that opened it, or when that closes it.

    Raises:
        StreamError: from every method: it is gone for good.
    """

    def __init__(self, actor: Any, own: OwnFolder | None = None, *, is_owner: bool = False) -> None:
        self._actor = Remote(actor)
        self._own = own
        self._is_owner = is_owner

    def __reduce__(self) -> tuple[Any, ...]:
        return RayQueue, (self._actor.handle,)

    @classmethod
    async def open(
        cls,
        rules: StreamRules,
        *,
        folder: str | os.PathLike[str] | None = None,
        version: int = 0,
        terms: Terms | None = None,
    ) -> RayQueue:
        """Start its actor, on this process's node.

        Args:
            rules: the stream's.
            folder: where its journal is; goes on with what is there. None: in a folder that goes
                with the queue, so that it survives the death of its actor alone.
            version: what the stream's pool is on.
            terms: see :class:`StreamQueue`.

        Raises:
            ConfigError: the folder cannot be used, or is of a stream with other terms.
            StreamError: another process runs the stream in it, or something else is in there.
        """
        own = None if folder is not None else OwnFolder(roomy(ROOM_BYTES), "stream")
        path = _absolute(own.path / "journal" if own else folder or "")
        here = ray.get_runtime_context().get_node_id()
        actor: Any = ray.remote(QueueActor)
        options = actor.options(
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=MAX_CALLS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        )
        queue = cls(options.remote(rules, path, version, new_id(), terms), own, is_owner=True)
        try:
            await queue.snapshot()
        except BaseException:
            await queue.close()
            raise
        return queue

    async def _call(self, method: str, *args: Any, **options: Any) -> Any:
        return await self._ask("call", method, *args, **options)

    async def _ask(self, method: str, *args: Any, **options: Any) -> Any:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + ABSENT_S
        while True:
            try:
                with our_errors(StreamError(GONE), _AbsentError()):
                    return await self._actor.ask(method, *args, **options)
            except _AbsentError as error:
                if loop.time() > give_up_s:
                    raise StreamError("the stream's queue cannot be reached") from error
            await asyncio.sleep(PAUSE_S)

    async def pid(self) -> int:
        """Of the actor's process."""
        pid: int = await self._ask("pid")
        return pid

    async def close(self) -> None:
        """End it, where it was opened; elsewhere this does nothing. Idempotent."""
        try:
            if self._is_owner:
                with contextlib.suppress(WorkbenchError), our_errors(StreamError(GONE)):
                    await self._actor.ask("call", "close")
        finally:
            if self._is_owner:
                self._actor.kill()
            if self._own is not None:
                self._own.close()

    # -- as the queue has them ----------------------------------------------------------------

    async def admit(self, held: Sequence[Ticket], most: int, wait_s: float) -> list[Ticket]:
        """See :meth:`StreamQueue.admit`."""
        tickets: list[Ticket] = await self._call("admit", list(held), most, wait_s)
        return tickets

    async def put(self, header: GroupHeader, blob: bytes) -> bool:
        """See :meth:`StreamQueue.put`."""
        is_kept: bool = await self._call("put", header, blob)
        return is_kept

    async def leave(self, header: GroupHeader, cause: str, *, replay: bool) -> None:
        """See :meth:`StreamQueue.leave`."""
        await self._call("leave", header, cause, replay=replay)

    async def source_ended(self, total: int) -> None:
        """See :meth:`StreamQueue.source_ended`."""
        await self._call("source_ended", total)

    async def fail(self, error: str) -> None:
        """See :meth:`StreamQueue.fail`."""
        await self._call("fail", error)

    async def stop(self) -> None:
        """See :meth:`StreamQueue.stop`."""
        await self._call("stop")

    async def take(self, n: int, wait_s: float, consumer: str, after: int) -> Taken | None:
        """See :meth:`StreamQueue.take`."""
        taken: Taken | None = await self._call("take", n, wait_s, consumer, after)
        return taken

    async def commit(self, number: int) -> None:
        """See :meth:`StreamQueue.commit`."""
        await self._call("commit", number)

    async def reclaim(self, consumer: str) -> None:
        """See :meth:`StreamQueue.reclaim`."""
        await self._call("reclaim", consumer)

    async def begin_publish(self, version: int) -> None:
        """See :meth:`StreamQueue.begin_publish`."""
        await self._call("begin_publish", version)

    async def end_publish(self, mark: PublishMark) -> list[Ticket]:
        """See :meth:`StreamQueue.end_publish`."""
        tickets: list[Ticket] = await self._call("end_publish", mark)
        return tickets

    async def pause(self) -> None:
        """See :meth:`StreamQueue.pause`."""
        await self._call("pause")

    async def resume(self) -> None:
        """See :meth:`StreamQueue.resume`."""
        await self._call("resume")

    async def step(self) -> None:
        """See :meth:`StreamQueue.step`."""
        await self._call("step", new_id())

    async def set_max_staleness(self, bound: int | None) -> None:
        """See :meth:`StreamQueue.set_max_staleness`."""
        await self._call("set_max_staleness", bound)

    async def snapshot(self) -> StreamSnapshot:
        """See :meth:`StreamQueue.snapshot`."""
        told: StreamSnapshot = await self._call("snapshot")
        return told

    async def groups(self) -> list[dict[str, Any]]:
        """See :meth:`StreamQueue.groups`."""
        rows: list[dict[str, Any]] = await self._call("groups")
        return rows

    async def batches(self) -> list[dict[str, Any]]:
        """See :meth:`StreamQueue.batches`."""
        rows: list[dict[str, Any]] = await self._call("batches")
        return rows

    async def digests(self) -> dict[int, str]:
        """See :meth:`StreamQueue.digests`."""
        known: dict[int, str] = await self._call("digests")
        return known


def _absolute(folder: str | os.PathLike[str]) -> str:
    """The actor's working directory is another one."""
    return str(Path(folder).expanduser().resolve())
