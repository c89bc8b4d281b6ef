"""What is behind a stream's handle: all of it runs on the workbench's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.aio import end_task
from workbench.errors import PoolClosedError, StreamError, WorkbenchError
from workbench.facade.telling import Teller
from workbench.rollout.pace import PoolLoad
from workbench.stream.consuming import Consumer
from workbench.stream.facts import Terms
from workbench.stream.publishing import Publisher
from workbench.stream.source import check_tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from workbench.cluster.group_queue import RayQueue
    from workbench.facade.reach import Reach
    from workbench.metrics.samples import RolloutSnapshot
    from workbench.metrics.streams import StreamSnapshot
    from workbench.stream.groups import GroupBatch
    from workbench.stream.manager import FullyAsyncAgentLoopManager
    from workbench.stream.rollouter import Rollouter
    from workbench.stream.rules import StreamRules
    from workbench.stream.source import TaskSource
    from workbench.trajectory import Trajectory

SAMPLE_S = 0.5
"""How often a stream looks at the pool's load, and tells the pool of itself."""

MAIN = "main"
"""Who takes batches through the handle itself."""

OVER = {"ended", "failed"}
"""States of a stream of which nothing more will come."""

logger = logging.getLogger(__name__)


class Streaming:
    """Owns two tasks: one plays, one looks and tells.

    Args:
        name: tells batches and streams apart.
        agent: what plays.
        queue: of the groups.
        rollouter: fills it.
        manager: plays for it.
        rules: of the stream.
        n: rollouts per group.
        source: of its tasks.
        reach: the pool.
        first: where the queue stands.
        tell: is called with what somebody who waits long should know.
    """

    def __init__(
        self,
        name: str,
        agent: str,
        queue: RayQueue,
        rollouter: Rollouter,
        manager: FullyAsyncAgentLoopManager,
        rules: StreamRules,
        n: int,
        source: TaskSource,
        reach: Reach,
        first: StreamSnapshot,
        tell: Callable[[str], None],
    ) -> None:
        self.name = name
        self.queue = queue
        self.rollouter = rollouter
        self.rules = rules
        self.latest = first
        """Where it stood when it was looked at last."""
        self._agent = agent
        self._manager = manager
        self._n = n
        self._source = source
        self._reach = reach
        self._began_s = time.time()
        self._started_s = time.monotonic()
        self.consumer = self.consumer_of(MAIN, tell, self.look)
        self.is_on_its_way = False
        """Whether a batch was given that its taker has not got yet."""
        self.last_groups: list[dict[str, Any]] = []
        self.last_batches: list[dict[str, Any]] = []
        """As they were when it was closed."""
        pool = reach.manager
        self.publisher = Publisher(
            queue,
            rules,
            update=pool.update_weights,
            pool_version=self._pool_version,
            cancel=lambda tickets: rollouter.cancel_groups(tickets, "cancelled"),
            idle=rollouter.idle,
        )
        self._teller = Teller(self, pool.note_rollouts)
        self._playing = asyncio.create_task(self._play(), name=f"stream {name}")
        self._looking = asyncio.create_task(self._watch(), name=f"watch of {name}")

    def consumer_of(
        self,
        name: str,
        tell: Callable[[str], None] | None = None,
        look: Callable[[], Awaitable[StreamSnapshot]] | None = None,
    ) -> Consumer:
        """Somebody who takes batches; without ``tell`` and ``look`` it can be sent elsewhere."""
        return Consumer(
            self.queue,
            name,
            required_samples=self.rules.required_samples,
            pad_id=self._manager.pad_id,
            tell=tell,
            look=look,
        )

    async def give(self, n: int | None, timeout_s: float | None) -> GroupBatch:
        """The next batch, on its way to another thread, which may not wait for it to the end."""
        self.is_on_its_way = False
        batch = await self.consumer.get_batch(n, timeout_s)
        self.is_on_its_way = True
        return batch

    async def missed(self) -> None:
        """Whoever waited for a batch was interrupted: if it was given, it comes again."""
        if self.is_on_its_way:
            self.consumer.missed()

    async def again(self) -> None:
        """What was taken and not committed is given again."""
        await self.consumer.again()

    async def look(self) -> StreamSnapshot:
        """Where it stands, with what the queue cannot know: what the groups in flight wait for."""
        now = await self.queue.snapshot()
        if not now.waits_for and now.state not in OVER:
            now = replace(now, waits_for=self.rollouter.waits_for(now.window))
        self.latest = now
        return now

    async def check(self, terms: Terms, source: TaskSource) -> None:
        """Refuse what could not go on in this stream's folder, while this stream runs.

        Raises:
            ConfigError: other terms, or other tasks than those that were played.
            StreamError: the source cannot be read.
        """
        own = Terms(self._agent, self._n, self._source.epochs, self._source.shuffle)
        own.check(terms)
        known: dict[int, str] = {}
        with contextlib.suppress(StreamError):  # whose queue is gone is compared from its journal
            known = await self.queue.digests()
        await check_tasks(source, known)

    async def cancel(self, rollout_id: str) -> bool:
        """Stop one rollout; whether it was in flight."""
        return self.rollouter.cancel(rollout_id)

    async def running(self) -> list[str]:
        """The rollouts that have not ended."""
        return [name for run in self.rollouter.in_flight() for name in run.unended()]

    async def stop(self) -> None:
        """Nothing more is begun, and what is in flight stops."""
        await self.queue.stop()
        self.rollouter.stop("stopped")
        await asyncio.wait({self._playing})

    async def close(self) -> None:
        """Stop, tell a last time, and give up the queue. Idempotent."""
        try:
            with contextlib.suppress(WorkbenchError):
                await self.stop()
            await end_task(self._playing)
            await end_task(self._looking)
            with contextlib.suppress(WorkbenchError):
                await self._say_goodbye()
        finally:
            await self.queue.close()

    async def _say_goodbye(self) -> None:
        self.last_groups = await self.queue.groups()
        self.last_batches = await self.queue.batches()
        now = await self.look()
        state = "failed" if now.error else "ended"
        self.latest = replace(now, state=state, waits_for="")
        await self._teller.tell()

    # -- what a teller asks of a run --------------------------------------------------------

    def trajectories(self) -> list[Trajectory]:
        """The last that ended."""
        return list(self.rollouter.tally.last)

    def snapshot(self) -> RolloutSnapshot:
        """Its rollouts, and where the stream stood when it was looked at last."""
        runs = [run.snapshot() for run in self.rollouter.in_flight()]
        total = self.latest.tasks if self.latest.tasks is not None else self._source.total
        return self.rollouter.tally.snapshot(
            agent=self._agent,
            name=self.name,
            total=self._n * total if total is not None else 0,
            running=sum(run.running for run in runs),
            wall_s=time.monotonic() - self._started_s,
            started_s=self._began_s,
            limit=self._manager.limit,
            stream=self.latest,
        )

    # -- its tasks --------------------------------------------------------------------------

    async def _play(self) -> None:
        try:
            await self.rollouter.run()
        except StreamError as error:
            logger.warning("the stream %s stopped: %s", self.name, error)

    async def _watch(self) -> None:
        manager = self._reach.manager
        while not (self._playing.done() and self.latest.state in OVER):
            try:
                self._source.forget((await self.look()).first_open)
                pool = await manager.snapshot()
                self._manager.look(PoolLoad.of(pool.replicas, manager.limits.max_num_seqs))
            except PoolClosedError as error:
                with contextlib.suppress(StreamError):
                    await self.queue.fail(str(error))
                self.rollouter.stop("stopped")
                return
            except StreamError as error:  # its queue is gone
                self.latest = replace(self.latest, state="failed", error=str(error), waits_for="")
                return
            except Exception:  # a moment without a figure: the stream goes on
                logger.debug("no look at the pool of %s", self.name, exc_info=True)
            await self._teller.tell()
            await asyncio.sleep(SAMPLE_S)

    async def _pool_version(self) -> int:
        return max((await self._reach.manager.get_weight_version()).values(), default=0)
