"""A stream of rollouts, as a notebook or a script holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.aio import polite
from workbench.errors import ConfigError, PoolClosedError, StreamEndedError, StreamError
from workbench.facade.learner import Learner
from workbench.facade.stream_tables import (
    batch_frame,
    batch_summary,
    drop_frame,
    group_frame,
    publish_frame,
    stream_text,
)
from workbench.facade.streaming import MAIN, OVER
from workbench.showing import bundle, table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator
    from typing import Self

    import pandas as pd

    from workbench.cluster.group_queue import RayQueue
    from workbench.facade.reach import Reach
    from workbench.facade.streaming import Streaming
    from workbench.metrics.feed import Feed
    from workbench.metrics.streams import StreamSnapshot
    from workbench.stream.consuming import Consumer
    from workbench.stream.facts import Terms
    from workbench.stream.groups import GroupBatch
    from workbench.stream.rules import StreamRules
    from workbench.stream.source import TaskSource
    from workbench.trajectory import Trajectory
    from workbench.weights import PauseMode, WeightUpdate

T = TypeVar("T")

GLANCE_S = 0.5
"""How long a queue may take to say whether its stream is over."""


class Stream:
    """Groups of rollouts without an end, and the weights that they are played with.

    It goes on by itself, as far as its bounds allow; taking batches and publishing weights is up to
    whoever holds it. All methods may be called from a running cell; those with an ``a`` in front
    are for an ``await``.

    A loop over it begins with what was taken and not committed: whoever leaves one with ``break``,
    and is done with the batch, commits it.
    """

    def __init__(self, streaming: Streaming, reach: Reach, folder: str | Path | None) -> None:
        self._streaming = streaming
        self._reach = reach
        self._folder = Path(folder).resolve() if folder is not None else None
        self._closed = False

    # -- taking -----------------------------------------------------------------------------

    def get_batch(self, n: int | None = None, timeout_s: float | None = None) -> GroupBatch:
        """Wait for the next batch; what is left over at the end of the tasks is one, too.

        It is handed out for good once it is committed: :meth:`commit`, or the next round of
        ``for batch in stream``.

        Args:
            n: groups; ``required_samples`` by default.
            timeout_s: None waits as long as it takes.

        Raises:
            ConfigError: so many groups are never there at once.
            DeadlineError: it did not come in time; says what the stream waits for.
            StreamEndedError: all was handed out.
            StreamError: the stream failed; what was there before has been handed out.
        """
        try:
            batch = self._call(self._streaming.give(n, timeout_s))
        except KeyboardInterrupt:
            self._reach.loop.submit(self._streaming.missed())
            raise
        self._streaming.is_on_its_way = False
        return batch

    async def aget_batch(self, n: int | None = None, timeout_s: float | None = None) -> GroupBatch:
        """:meth:`get_batch` for an ``await``."""
        try:
            batch = await self._acall(self._streaming.give(n, timeout_s))
        except asyncio.CancelledError:
            self._reach.loop.submit(self._streaming.missed())
            raise
        self._streaming.is_on_its_way = False
        return batch

    def commit(self) -> None:
        """What was taken is dealt with: after a crash it is not handed out again."""
        self._call(self._streaming.consumer.commit())

    def __iter__(self) -> Iterator[GroupBatch]:
        self._call(self._streaming.again())
        while True:
            try:
                batch = self.get_batch()
            except StreamEndedError:
                return
            yield batch
            self.commit()

    async def __aiter__(self) -> AsyncIterator[GroupBatch]:
        await self._acall(self._streaming.again())
        while True:
            try:
                batch = await self.aget_batch()
            except StreamEndedError:
                return
            yield batch
            await self._acall(self._streaming.consumer.commit())

    def consumer(self, name: str) -> Consumer:
        """Somebody else who takes batches, also in another process: pickle it and send it.

        Each batch goes to one of them. Its methods are to be awaited.

        Raises:
            ConfigError: ``main`` is this handle's own name.
        """
        if name == MAIN:
            raise ConfigError("name", f"{name!r} is the stream's own", allowed="another name")
        return self._streaming.consumer_of(name)

    @property
    def queue(self) -> RayQueue:
        """The queue, as any process reaches it."""
        return self._streaming.queue

    # -- weights ----------------------------------------------------------------------------

    def publish(
        self,
        weights: Any,
        version: int | None = None,
        *,
        mode: PauseMode | None = None,
        recompute: bool = False,
    ) -> WeightUpdate:
        """Give the pool new weights while rollouts go on; the learner is on the next version then.

        Args:
            weights: a :class:`Learner`, a checkpoint's directory, or a state dict.
            version: the next one by default; no other is taken, since staleness counts them.
            mode: what becomes of requests in the engines; the stream's ``update_mode`` by default.
            recompute: requests that go on compute their KV blocks anew.

        Raises:
            CheckpointError: the weights do not fit the model, or are not finite.
            ConfigError: the version is not the next one.
            WeightsError: no replica took them. The stream goes on with the old ones, or stops, as
                ``on_failed_publish`` says.
        """
        given = weights.weights() if isinstance(weights, Learner) else weights
        update = self._call(self._publish(given, version, mode, recompute=recompute))
        if isinstance(weights, Learner):
            weights.published(given)
        return update

    async def apublish(
        self,
        weights: Any,
        version: int | None = None,
        *,
        mode: PauseMode | None = None,
        recompute: bool = False,
    ) -> WeightUpdate:
        """:meth:`publish` for an ``await``."""
        given = await weights.aweights() if isinstance(weights, Learner) else weights
        update = await self._acall(self._publish(given, version, mode, recompute=recompute))
        if isinstance(weights, Learner):
            weights.published(given)
        return update

    async def _publish(
        self, weights: Any, version: int | None, mode: PauseMode | None, **options: Any
    ) -> WeightUpdate:
        check_kind(weights)
        return await self._streaming.publisher.publish(weights, version, mode, **options)

    # -- control ----------------------------------------------------------------------------

    def pause(self) -> None:
        """Begin no more groups until :meth:`resume`; those in flight go on, batches are there."""
        self._call(self._streaming.queue.pause())

    def resume(self) -> None:
        """Go on. Idempotent.

        Raises:
            StreamEndedError: it was stopped, or has ended.
        """
        if self.done:
            raise StreamEndedError(f"{self.name} is over: the same call with its folder goes on")
        self._call(self._streaming.queue.resume())

    def step(self) -> None:
        """Begin the groups of one batch as soon as the bounds allow, and stand still again.

        Raises:
            StreamError: it is not paused.
        """
        now = self.snapshot()
        if not now.is_paused or now.state in OVER:
            raise StreamError(f"{self.name} is not paused: pause() first, then step()")
        self._call(self._streaming.queue.step())

    def cancel(self, rollout_id: str) -> bool:
        """Stop one rollout, which becomes a cancelled row of its group; whether it was running."""
        return self._call(self._streaming.cancel(rollout_id))

    @property
    def max_staleness(self) -> int | None:
        """The bound; may be set while it runs."""
        return self.snapshot().max_staleness

    @max_staleness.setter
    def max_staleness(self, bound: int | None) -> None:
        self._call(self._streaming.queue.set_max_staleness(bound))

    def stop(self) -> None:
        """End it: what is in flight is stopped, what is queued is still handed out. Idempotent.

        With a ``folder``, the same call goes on later; what was stopped is played then.
        """
        self._call(self._streaming.stop())

    def close(self) -> None:
        """:meth:`stop`, and give up the queue with what is in it. Idempotent.

        What was taken last and not committed comes back to whoever goes on with the ``folder``.
        """
        if not self._closed:
            self._reach.loop.run(self._streaming.close())
            self._closed = True

    async def aclose(self) -> None:
        """:meth:`close` for an ``await``."""
        if not self._closed:
            await polite(self._reach.loop.submit(self._streaming.close()))
            self._closed = True

    async def check(self, terms: Terms, source: TaskSource) -> None:
        """Refuse what could not go on in its folder; see :meth:`Streaming.check`."""
        await self._streaming.check(terms, source)

    @property
    def closed(self) -> bool:
        """Whether its queue was given up."""
        return self._closed

    def is_in(self, folder: str | Path | None) -> bool:
        """Whether this is where it is written down."""
        return folder is not None and self._folder == Path(folder).resolve()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- looking ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Tells batches and streams of one pool apart."""
        return self._streaming.name

    @property
    def rules(self) -> StreamRules:
        """As it began."""
        return self._streaming.rules

    @property
    def feed(self) -> Feed:
        """The pool's figures over time, this stream among them."""
        return self._reach.feed

    @property
    def done(self) -> bool:
        """Whether nothing more will come of it.

        Asks the queue until that is so; where it does not answer at once, as of the last half
        second.
        """
        if self._closed or self._streaming.latest.state in OVER:
            return True
        now = self._reach.look_at(self._streaming.look(), GLANCE_S)
        state = self._streaming.latest.state if isinstance(now, str) else now.state
        return state in OVER

    def snapshot(self) -> StreamSnapshot:
        """Where it stands; once it is closed, where it stood."""
        if self._closed:
            return self._streaming.latest
        return self._call(self._streaming.look())

    def status(self) -> pd.DataFrame:
        """A row per group that is in flight, queued, or taken and not committed."""
        if self._closed:
            return group_frame(self._streaming.last_groups)
        return group_frame(self._call(self._streaming.queue.groups()))

    def history(self) -> pd.DataFrame:
        """A row per batch that was handed out."""
        if self._closed:
            return batch_frame(self._streaming.last_batches)
        return batch_frame(self._call(self._streaming.queue.batches()))

    def summary(self) -> pd.Series[Any]:
        """All batches as one: sums, means and maxima, as each column declares."""
        return batch_summary(self.history())

    def drops(self) -> pd.DataFrame:
        """What was not handed out, by cause, beside what was: a selection shows itself here."""
        return drop_frame(self.snapshot())

    def publishes(self) -> pd.DataFrame:
        """A row per publish, failed ones among them."""
        return publish_frame(self.snapshot())

    def trajectories(self) -> list[Trajectory]:
        """The last rollouts that ended, in that order, whatever became of their groups."""
        return list(self._streaming.rollouter.tally.last)

    def running(self) -> list[str]:
        """The ids of the rollouts that are in flight, or wait for their place."""
        return self._call(self._streaming.running())

    def __repr__(self) -> str:
        return stream_text(self.name, self._look())

    def _repr_html_(self) -> str:
        now = self._look()
        if isinstance(now, str):
            return table(f"Stream: {self.name}", [{"state": now}])
        row = {
            "state": now.state, "version": now.version, "bound": now.max_staleness,
            "in flight": now.in_flight, "queued": now.in_queue, "taken": now.consumed,
            "not committed": now.uncommitted, "batches": now.batches,
            "waits for": now.waits_for or now.error,
        }  # fmt: skip
        return table(f"Stream: {self.name}", [row])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle("stream", self, include, exclude)

    def _look(self) -> StreamSnapshot | str:
        if self._closed:
            return self._streaming.latest
        return self._reach.look_at(self._streaming.look())

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        self._check(coro)
        return self._reach.call(coro)

    async def _acall(self, coro: Coroutine[Any, Any, T]) -> T:
        self._check(coro)
        return await polite(self._reach.loop.submit(self._reach.while_open(coro)))

    def _check(self, coro: Coroutine[Any, Any, Any]) -> None:
        if self._closed:
            coro.close()
            raise PoolClosedError(f"the stream {self.name!r} was closed")


def check_kind(weights: Any) -> None:
    """Refuse what cannot be weights, before anybody hears of a new version.

    Raises:
        ConfigError: says what is allowed.
    """
    is_state = isinstance(weights, Mapping)
    if not is_state and not (isinstance(weights, str | PathLike) and Path(weights).is_dir()):
        allowed = "a Learner, the directory of a checkpoint, or a state dict"
        raise ConfigError("weights", f"{weights!r}", allowed=allowed)
