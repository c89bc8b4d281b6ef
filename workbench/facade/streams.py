"""Streams and learners, as a :class:`workbench.facade.workbench.Workbench` begins them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cluster.group_queue import RayQueue
from workbench.cluster.learner import RayLearner
from workbench.errors import ConfigError
from workbench.facade.batches import Batches
from workbench.facade.learner import Learner
from workbench.facade.stream import Stream
from workbench.facade.streaming import Streaming
from workbench.learner.config import LearnerConfig
from workbench.rollout.agents import UNREWARDED
from workbench.stream.facts import Terms
from workbench.stream.filters import check_filter, group_filter
from workbench.stream.rollouter import Rollouter
from workbench.stream.rules import StreamRules
from workbench.stream.source import TaskSource, check_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from workbench.cluster.proxy import Weights
    from workbench.rollout.loop import AgentLoopBase
    from workbench.rollout.rewards import Reward
    from workbench.rollout.run import Batch
    from workbench.rollout.tasks import Task, Tasks
    from workbench.stream.groups import Group
    from workbench.types import SamplingParams
    from workbench.weights import PauseMode, WeightUpdate

BOUNDS = {field.name for field in fields(StreamRules)}
"""Options that are a stream's rules."""


class Streams(Batches):
    """The part of a workbench that begins streams."""

    _say: Callable[[str], None]
    _streams: dict[str, Stream]
    _learners: dict[str, Learner]

    def stream(
        self,
        tasks: Tasks | Iterator[str | Task],
        agent: str | type[AgentLoopBase] = "single_turn",
        *,
        n: int = 8,
        sampling_params: SamplingParams | None = None,
        reward: Reward | None = None,
        timeout_s: float | None = None,
        rules: StreamRules | None = None,
        folder: str | Path | None = None,
        epochs: int | None = 1,
        shuffle: int | None = None,
        filter: str | Callable[[Group], bool] | None = None,  # noqa: A002 - what it is
        name: str = "stream",
        **more: Any,
    ) -> Stream:
        """Begin a stream of rollouts and return its handle at once.

        A group per task is played as soon as the bounds allow, queued, and handed out in batches,
        the oldest first, while :meth:`Stream.publish` gives the pool new weights.

        Args:
            tasks: as for :meth:`rollout`; or an iterator, which is read as tasks are needed.
            agent: ``single_turn``, ``tool``, another registered name, or a loop class.
            n: rollouts per task.
            sampling_params: by the engine's names.
            reward: of a finished trajectory.
            timeout_s: wall time of one rollout.
            rules: all bounds at once, such as :meth:`StreamRules.verl`; else by their names.
            folder: where the stream is written down. The same call with the same folder goes on
                with it after a crash or :meth:`Stream.stop`: each task is consumed exactly once.
            epochs: times that all tasks are played; None for no end.
            shuffle: a seed: each epoch has an order of its own.
            filter: which groups are handed out: ``varied`` (their rewards differ), or a quick
                function of a group. The place of one that is not goes to another task.
            name: one stream of a name at a time: a former one is closed.
            more: the stream's bounds (``required_samples``, ``max_staleness``, ``when_too_old``,
                ``max_concurrent``, …; see :class:`workbench.stream.rules.StreamRules`), and what
                :meth:`rollout` takes (``max_attempts``, ``tools``, …).

        Raises:
            ConfigError: an option is wrong, or two cannot work together; says how they have to
                stand to each other. Or ``folder`` is of a stream of other tasks, or with another
                ``agent``, ``n``, ``epochs`` or ``shuffle``.
            TaskError: a task lacks a field that the agent needs.
        """
        rules = _taken_rules(rules, more)
        keeps = group_filter(filter)
        options = {
            "agent": agent,
            "n": n,
            "sampling_params": sampling_params,
            "reward": reward,
            "timeout_s": timeout_s,
            "also": BOUNDS | {"epochs", "filter", "folder", "rules", "shuffle"},
        } | more
        _refuse_of_batches(more)
        pool, limits = self._pool, self.manager.limits
        template = self._call(pool.players.prepare(pool.client, limits, [], options))
        rewarded = reward is not None or template.setup.loop not in UNREWARDED
        check_filter(filter, template.n, rewarded=rewarded)
        source = TaskSource(tasks, template.setup.loop, epochs=epochs, shuffle=shuffle)
        self._check_folder(name, folder)
        former = self._streams.get(name)
        streaming = self._call(self._begin(name, source, template, rules, keeps, folder, former))
        stream = self._streams[name] = Stream(streaming, pool.reach, folder)
        return stream

    def _check_folder(self, name: str, folder: str | Path | None) -> None:
        """Refuse one that cannot be, before the former stream of the name is closed."""
        if folder is None:
            return
        if Path(folder).exists() and not Path(folder).is_dir():
            raise ConfigError("folder", f"{str(folder)!r} is a file", allowed="a directory")
        for other in self._streams.values():
            if other.name != name and not other.closed and other.is_in(folder):
                problem = f"{str(folder)!r} is where the stream {other.name!r} is written down"
                raise ConfigError("folder", problem, allowed="another one, or close that stream")

    def learner(
        self,
        model: str | None = None,
        *,
        load: str | Path | None = None,
        folder: str | Path | None = None,
        niceness: int = 0,
        name: str = "learner",
        **config: Any,
    ) -> Learner:
        """A small learner in a process of its own, on a GPU where one is free.

        Args:
            model: the pool's by default.
            load: what :meth:`Learner.save` wrote, to go on from.
            folder: where weights are handed over; shared memory of this machine by default. On
                several nodes, a folder that all of them read.
            niceness: how far engines on the same cores go before it, 0 to 19.
            name: one learner of a name at a time: a former one is closed.
            config: fields of :class:`workbench.learner.config.LearnerConfig`.

        Raises:
            ConfigError: a field is unknown or wrong, there is no such model or device, or nothing
                to load. The former learner of the name goes on then.
        """
        known = [field.name for field in fields(LearnerConfig)]
        for setting in config:
            if setting not in known:
                raise ConfigError(setting, "is no setting of a learner", allowed=known)
        port = RayLearner(
            model or self.manager.config.model,
            LearnerConfig(**config),
            folder=folder,
            niceness=niceness,
        )
        former = self._learners.get(name)
        port.check(load, spare_gpus=former.gpus if former is not None else 0)
        if former is not None:  # before the new one starts: each holds gigabytes
            former.close()
        self._call(port.start())
        learner = self._learners[name] = Learner(port, self._pool.reach, former)
        if load is not None:
            try:
                learner.load(load)
            except BaseException:
                learner.close()
                raise
        return learner

    def update_weights(
        self,
        source: Weights | Learner,
        *,
        version: int | None = None,
        mode: PauseMode = "keep",
        recompute: bool = False,
    ) -> WeightUpdate:
        """As :meth:`PoolVerbs.update_weights`; a :class:`Learner` gives the weights that it has.

        Weights of that learner that the pool is not on any more are removed.

        Raises:
            CheckpointError: the weights do not fit the model, or are not finite.
            ConfigError: the version does not go up.
            LearnerDiedError: the learner's process is gone.
            WeightsError: no replica took them; the pool stays on those that it has.
        """
        if not isinstance(source, Learner):
            return super().update_weights(source, version=version, mode=mode, recompute=recompute)
        given = source.weights()
        update = super().update_weights(given, version=version, mode=mode, recompute=recompute)
        source.published(given)
        return update

    async def _begin(
        self,
        name: str,
        source: TaskSource,
        template: Batch,
        rules: StreamRules,
        keeps: Callable[[Group], bool],
        folder: str | Path | None,
        former: Stream | None = None,
    ) -> Streaming:
        """Begin it, once all that can be refused was; only then the former one is closed."""
        pool = self._pool
        manager = pool.reach.manager
        versions = await manager.get_weight_version()
        capacity = manager.limits.max_num_seqs * max(1, len(versions))
        player = await pool.players.manager(pool.client, capacity, manager.get_replicas)
        version = max(versions.values(), default=0)
        terms = Terms(template.setup.agent, template.n, source.epochs, source.shuffle)
        if former is not None and not former.closed and former.is_in(folder):
            await former.check(terms, source)
            await former.aclose()  # the folder is its queue's until then
        queue = await RayQueue.open(rules, folder=folder, version=version, terms=terms)
        try:
            await check_tasks(source, await queue.digests())
            first = await queue.snapshot()
            if former is not None:
                await former.aclose()
        except BaseException:
            await queue.close()
            raise
        rollouter = Rollouter(
            queue, source, player, template, max_failures=rules.max_failures, keeps=keeps
        )
        return Streaming(
            name,
            template.setup.agent,
            queue,
            rollouter,
            player,
            rules,
            template.n,
            source,
            pool.reach,
            first,
            lambda text: self._say(f"{name}: {text}"),
        )


def _taken_rules(rules: StreamRules | None, options: dict[str, Any]) -> StreamRules:
    """Those that were given, at once or by name, taken out of the options."""
    own = {option: options.pop(option) for option in BOUNDS & options.keys()}
    if rules is not None and own:
        problem = "is given twice"
        raise ConfigError(min(own), problem, allowed="rules=, or its bounds by name, not both")
    if rules is not None and not isinstance(rules, StreamRules):
        raise ConfigError("rules", f"{rules!r}", allowed="StreamRules(…), or bounds by name")
    return rules or StreamRules(**own)


def _refuse_of_batches(options: dict[str, Any]) -> None:
    """Refuse what a batch has and a stream cannot."""
    if "concurrency" in options:
        raise ConfigError("concurrency", "is a batch's", allowed="max_concurrent, in groups")
    if options.get("on_failure") == "drop":  # a group of one has nothing to be compared with
        problem = "'drop' is a batch's: the groups of a stream have n rollouts"
        allowed = "'keep': a rollout that failed is a row of its group, without a reward"
        raise ConfigError("on_failure", problem, allowed=allowed)
