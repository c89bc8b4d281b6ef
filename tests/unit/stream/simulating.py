"""Whole streams on virtual time: simulated engines, a learner with step times, whatever befalls.

Everything but the engines is the real thing: client, balancer, hosts, loops, rollouter, queue with
its journal, consumer, publisher.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from dataclasses import dataclass, field

from tests.unit.inprocess import WatchedEngine, pool_of
from tests.unit.rollout.test_exactness import AnyTokens
from workbench.engines.simulated import SimulatedArgs
from workbench.engines.virtual_clock import run_virtual
from workbench.errors import ConfigError, StreamEndedError, StreamError, WeightsError
from workbench.rollout.loop import AgentLoopBase
from workbench.rollout.manager import prepare
from workbench.rollout.worker import AgentLoopWorker
from workbench.stream.consuming import Consumer
from workbench.stream.filters import group_filter
from workbench.stream.manager import FullyAsyncAgentLoopManager
from workbench.stream.publishing import Publisher
from workbench.stream.queue import StreamQueue
from workbench.stream.rollouter import Rollouter
from workbench.stream.rules import StreamRules
from workbench.stream.source import TaskSource
from workbench.weights import WeightUpdate

ENGINE = SimulatedArgs(step_s=0.05, load_s=0.1, vocab_size=24, max_num_seqs=8, stop_token=-1)
"""Twenty tokens a second for each request."""


class Strolling(AgentLoopBase):
    """Samples as many tokens in as many turns as its task says, and fails as often."""

    numbers = itertools.count()

    async def run(self, sampling_params, *, prompt, turns=1, tokens=5, fails=0, **_):
        number = next(Strolling.numbers)
        ids = [1 + number % 20, 1 + number // 20 % 20, 1 + number // 400 % 20]
        for _turn in range(turns):
            output = await self.generate(ids, {"max_tokens": tokens})
            ids = [*ids, *output.token_ids, 4]
        if output.token_ids[0] < fails:  # of 24
            raise ValueError(f"{prompt} went wrong")


@dataclass
class Plan:
    """A stream and its fate."""

    tasks: list
    n: int = 2
    rules: dict = field(default_factory=dict)
    engines: int = 2
    filter: str | None = None
    steps_s: tuple = (0.5,)
    """What the learner's steps take, in turn."""
    failing_publishes: frozenset = frozenset()
    """Which of the publishes no replica takes, from 0."""
    fates: tuple = ()
    """Seconds until the next, and what happens then."""
    epochs: int = 1


@dataclass
class Outcome:
    """What came of it."""

    batches: list = field(default_factory=list)
    """Those that were committed."""
    versions: list = field(default_factory=list)
    """Of the learner, when it took them."""
    snapshot: object = None
    error: str = ""
    leftovers: int = 0
    published: list = field(default_factory=list)
    """When each publish began and ended, in virtual seconds."""
    sampled: list = field(default_factory=list)
    """Virtual seconds, tokens sampled so far: twice a second."""

    @property
    def positions(self):
        return Counter(group.position for batch in self.batches for group in batch.groups)


class Restarting:
    """The way to a queue that may be killed and come back from its journal."""

    def __init__(self, make):
        self._make = make
        self.current = make()
        self.kills = 0

    def __getattr__(self, name):
        async def call(*args, **kwargs):
            while True:
                queue = self.current
                try:
                    return await getattr(queue, name)(*args, **kwargs)
                except StreamError:
                    if queue is self.current:
                        raise

        return call

    async def restart(self):
        self.kills += 1
        old = self.current
        await old.close()
        self.current = self._make()


class World:
    """One stream while it is played."""

    def __init__(self, plan, pool, folder):
        self.plan, self.pool, self.outcome = plan, pool, Outcome()
        self.rules = StreamRules(**{"required_samples": 2, **plan.rules})
        self.version = self.published = 0
        clock = asyncio.get_running_loop().time
        self.runs = 0
        self.queue = Restarting(
            lambda: StreamQueue(
                self.rules, folder=folder, version=self.version, clock=clock, run=f"{self.runs}"
            )
        )
        worker = AgentLoopWorker(pool.client(), AnyTokens(-1))
        self.manager = FullyAsyncAgentLoopManager(
            [worker], concurrency=ENGINE.max_num_seqs * plan.engines, pad_id=0
        )
        self.template = prepare([], agent=Strolling, n=plan.n, reward=reward)
        self.learner_kills = 0
        self.begin()

    def begin(self):
        """A rollouter, as a new process would have it."""
        source = TaskSource(self.plan.tasks, Strolling, epochs=self.plan.epochs)
        self.rollouter = Rollouter(
            self.queue, source, self.manager, self.template,
            max_failures=self.rules.max_failures, keeps=group_filter(self.plan.filter),
        )  # fmt: skip
        self.playing = asyncio.ensure_future(self.rollouter.run())
        self.publisher = Publisher(
            self.queue, self.rules, update=self._update, pool_version=self._pool_version,
            cancel=lambda tickets: self.rollouter.cancel_groups(tickets, "cancelled"),
            idle=self._idle,
        )  # fmt: skip

    async def end_playing(self):
        """The rollouter's process is gone."""
        self.playing.cancel()
        await asyncio.gather(self.playing, return_exceptions=True)

    async def _idle(self):
        await self.rollouter.idle()

    async def _pool_version(self):
        return self.version

    async def _update(self, weights, *, version, mode):
        self.published += 1
        if self.published - 1 in self.plan.failing_publishes:
            raise WeightsError("no replica took them")
        hosts = [replica.host for replica in self.pool.replicas.values()]
        await asyncio.gather(*(host.control.update("w", version, mode) for host in hosts))
        self.version = version
        return WeightUpdate(version, mode, 0.0, 0.0, (), 0.1)

    def consumer(self):
        return Consumer(
            self.queue, "learner",
            required_samples=self.rules.required_samples, pad_id=0,
        )  # fmt: skip

    async def learn(self):
        """Take, learn, commit, publish, until the end."""
        consumer, number = self.consumer(), 0
        while True:
            try:
                batch = await consumer.get_batch()
            except StreamEndedError:
                return
            kills = self.learner_kills
            self.check(batch)
            await asyncio.sleep(self.plan.steps_s[number % len(self.plan.steps_s)])
            number += 1
            if self.learner_kills > kills:
                consumer = self.consumer()  # what it had taken comes back
                continue
            await consumer.commit()
            self.outcome.batches.append(batch)
            self.outcome.versions.append(batch.version)
            if len(self.outcome.batches) % self.rules.trigger_parameter_sync_step == 0:
                await self.publish()

    async def publish(self):
        """Once: where no replica takes the weights, the stream goes on with the old ones."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        with contextlib.suppress(WeightsError):
            await self.publisher.publish("weights")
            self.outcome.published.append((began_s, clock()))

    def check(self, batch):
        """Nothing in it is older than allowed, by its own tokens, and every row is exact."""
        bound = self.rules.max_staleness
        for group in batch.groups:
            for row in group.trajectories:
                row.check()
                oldest = row.versions[0] if row.versions else batch.version
                assert bound is None or batch.version - oldest <= bound
            assert len(group.trajectories) == self.plan.n

    async def watch(self):
        """Note how fast the engines are."""
        while True:
            tokens = sum(engine.figures().generation_tokens for engine in self.pool.engines)
            self.outcome.sampled.append((asyncio.get_running_loop().time(), tokens))
            await asyncio.sleep(0.5)

    async def befall(self):
        for pause_s, kind in self.plan.fates:
            await asyncio.sleep(pause_s)
            if kind == "queue":
                await self.queue.restart()
            elif kind == "all":
                await self.end_playing()
                self.runs += 1
                self.learner_kills += 1
                await self.queue.restart()
                self.begin()
            elif kind == "learner":
                self.learner_kills += 1
            elif kind == "rollouter":
                await self.end_playing()
                self.begin()
            elif kind == "pause":
                await self.queue.pause()
                await asyncio.sleep(1.0)
                await self.queue.resume()


async def reward(trajectory):
    """One of three, or as many as the task says. Async: work on threads takes no virtual time."""
    (segment,) = trajectory.segments
    return float(sum(segment.sampled_ids) % trajectory.task.get("spread", 3))


def simulate(plan, folder, limit_s=1000.0):
    """Play it to its end; what came of it."""

    async def main():
        Strolling.numbers = itertools.count()
        engines = [WatchedEngine(f"replica-{i}", ENGINE) for i in range(plan.engines)]
        async with pool_of(engines, no_replica_s=1000.0) as pool:
            world = World(plan, pool, folder)
            fates = asyncio.ensure_future(world.befall())
            watch = asyncio.ensure_future(world.watch())
            try:
                async with asyncio.timeout(limit_s):
                    await world.learn()
                    await fates
            except StreamError as error:
                world.outcome.error = str(error)
            finally:
                for task in (fates, watch, world.playing):
                    task.cancel()
                await asyncio.gather(fates, watch, world.playing, return_exceptions=True)
            world.outcome.snapshot = await world.queue.snapshot()
            world.outcome.leftovers = world.manager.limit - world.manager.free
            await world.queue.close()
            return world.outcome

    return run_virtual(main())


__all__ = ["ConfigError", "Outcome", "Plan", "simulate"]
