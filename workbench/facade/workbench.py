"""The façade: a pool of vLLM replicas as one object, blocking where a cell wants it to be.

It holds no state of the pool, which lives in the cluster. Everything that it starts ends when it is
closed, when its ``with`` block is left, or when its process ends, however it ends. What it is
attached to goes on.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, Self, TypeVar

from workbench.aio import polite
from workbench.client import LLMServerClient
from workbench.cluster.head import stop_head
from workbench.cluster.verbs import ManagerVerbs
from workbench.errors import ConfigError, NoRoomError, PoolClosedError
from workbench.facade import cells
from workbench.facade.asking import Reply, ask
from workbench.facade.looks import pool_html, pool_text
from workbench.facade.opening import open_pool
from workbench.facade.progress import Progress
from workbench.facade.replica import Replica
from workbench.facade.routing import Routing
from workbench.facade.streams import Streams
from workbench.showing import bundle
from workbench.views import view

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from workbench.cluster.manager import LLMServerManager
    from workbench.config import PoolConfig, RoutingConfig
    from workbench.engines.base import EngineLimits
    from workbench.facade.handle import Rollout
    from workbench.facade.learner import Learner
    from workbench.facade.reach import Reach
    from workbench.facade.stream import Stream
    from workbench.metrics.feed import Feed
    from workbench.rollout.rendering import Message
    from workbench.supervision import SupervisionConfig
    from workbench.types import PoolSnapshot

T = TypeVar("T")


class Workbench(Streams):
    """A pool of replicas of one model, ready when the constructor returns.

    With nothing but the ``name`` of a pool that runs, the object is *attached* to that pool: all
    that a pool does works through it, and :meth:`close` leaves the pool alone.

    Args:
        model: packaged name (``smollm2-135m``, the default), local directory, or hub id.
        replicas: each gets GPUs of its own, or CPU cores where the cluster has no GPU; 1 by
            default.
        name: under which others attach to the pool, and which is shown everywhere.
        engine_args: passed to vLLM's ``AsyncEngineArgs`` untouched.
        policy: how sessions find their replica: a name, an object or a class with ``choose``.
        routing: everything else about routing (capacity, health, delays).
        deterministic: the same session ids get the same replicas and seeds in every process.
        detached: it outlives this process, until :meth:`down` or ``workbench down``; where no Ray
            cluster is named, one is started on this machine for it.
        placement: ``pack`` (the default) fills one node before the next, ``spread`` uses many.
        oversubscribe: allow more replicas than cores, where there are no GPUs.
        openai_routes: give each replica's address vLLM's OpenAI routes too.
        supervision: when a replica counts as failed, and how often it is replaced.
        workers: processes that play agent loops; 0 plays them in this one.
        address: a Ray cluster; else ``RAY_ADDRESS``, else the pool ``name`` of this machine, else
            Ray is started here.
        engine: ``vllm``, the default; ``simulated`` is for tests and overhead measurements.
        start_timeout_s: seconds after which a start is given up.
        sample_s: seconds between two samples of the pool's history; 1 by default.
        seed: of the choice among equally loaded replicas, and of the engines.
        progress: show progress, on standard error or below the cell.

    Raises:
        ConfigError: something is wrong with the arguments, or the name is taken; nothing was
            started.
        NoRoomError: the cluster cannot hold the replicas; nothing is left running.
        ReplicaStartError: a replica did not come up; nothing is left running.
    """

    def __init__(
        self,
        model: str | None = None,
        replicas: int | None = None,
        *,
        name: str | None = None,
        engine_args: Mapping[str, Any] | None = None,
        policy: Any = None,
        routing: RoutingConfig | None = None,
        deterministic: bool | None = None,
        detached: bool = False,
        placement: str | None = None,
        oversubscribe: bool | None = None,
        openai_routes: bool | None = None,
        supervision: SupervisionConfig | None = None,
        workers: int = 1,
        address: str | None = None,
        engine: str | None = None,
        start_timeout_s: float | None = None,
        sample_s: float | None = None,
        seed: int | None = None,
        progress: bool = True,
    ) -> None:
        asked = {
            "replicas": replicas,
            "engine_args": engine_args,
            "routing": routing,
            "policy": policy,
            "deterministic": deterministic,
            "placement": placement,
            "oversubscribe": oversubscribe,
            "openai_routes": openai_routes,
            "supervision": supervision,
            "engine": engine,
            "start_timeout_s": start_timeout_s,
            "sample_s": sample_s,
            "seed": seed,
        }
        given = {option: value for option, value in asked.items() if value is not None}
        self._asked = model, name, address, workers, detached, given
        self._progress = progress
        self._rollouts: weakref.WeakSet[Rollout] = weakref.WeakSet()
        self._streams: dict[str, Stream] = {}
        self._learners: dict[str, Learner] = {}
        self._dashboards: dict[str, Any] = {}
        self._closed = False
        self._steps = contextlib.ExitStack()
        place = cells.spot()
        former = cells.made_at(place)
        if former is not None and former._is_made_from(self._asked):
            self._take_over(former)
        else:
            if former is not None:
                self._say(f"this cell made the pool {former.config.name!r} before: it is closed")
                former.close()
            self._open()
        self.config: PoolConfig = self._pool.reach.manager.config
        cells.add(self, place)

    def _open(self) -> None:
        model, name, address, workers, detached, given = self._asked
        try:
            self._pool = open_pool(
                self._steps,
                model,
                name,
                address,
                workers,
                given,
                detached=detached,
                progress=self._progress,
            )
        except BaseException as error:
            self._steps.close()
            held = ", ".join(cells.names())
            if isinstance(error, NoRoomError) and held:
                hint = f"Open in this process: {held}; close() gives their places back"
                raise NoRoomError(f"{error}. {hint}") from None
            raise

    def _is_made_from(self, asked: tuple[Any, ...]) -> bool:
        """Whether the same arguments made this, and its pool is well."""
        made_it = not self.attached or self._asked[4]  # detached
        return made_it and asked == self._asked and not isinstance(self._pool.reach.look(), str)

    def _take_over(self, former: Workbench) -> None:
        """Be what another object of the same cell was; that one is closed, its pool is not."""
        self._pool, self._steps = former._pool, former._steps
        self._rollouts, self._dashboards = former._rollouts, former._dashboards
        self._streams, self._learners = former._streams, former._learners
        former._closed = True
        cells.remove(former)
        versions = sorted(set(self.weight_versions().values()))
        weights = f", on weights of version {versions[-1]}" if versions[-1:] > [0] else ""
        name = self._pool.reach.manager.config.name
        self._say(f"this cell made the pool {name!r} before: it goes on{weights}; close() ends it")

    def _say(self, text: str) -> None:
        Progress(enabled=self._progress).show(text, last=True)

    # -- asking -----------------------------------------------------------------------------

    def generate(
        self, prompt: str | Sequence[Message], *, session: str | None = None, **sampling: Any
    ) -> Reply:
        """Answer a prompt, or go on with a conversation.

        Args:
            prompt: what the user says, or a list of messages.
            session: turns with the same one go to the same replica. Nothing is remembered: a
                conversation goes on by sending all of its messages.
            sampling: by the engine's names; 256 tokens at most unless ``max_tokens`` says more.
        """
        return self._call(ask(self._pool, prompt, session, sampling))

    async def agenerate(
        self, prompt: str | Sequence[Message], *, session: str | None = None, **sampling: Any
    ) -> Reply:
        """:meth:`generate` for an ``await``."""
        asked = self._reach().while_open(ask(self._pool, prompt, session, sampling))
        return await polite(self._pool.reach.loop.submit(asked))

    def client(
        self, client_cls: type[LLMServerClient] = LLMServerClient, **kwargs: Any
    ) -> LLMServerClient:
        """A token client for this pool; for the event loop that first uses it."""
        return self._call(self.manager.get_client(client_cls, **kwargs))

    # -- looking ----------------------------------------------------------------------------

    @property
    def attached(self) -> bool:
        """Whether the pool is somebody else's."""
        return self._pool.reach.manager.attached

    @property
    def manager(self) -> LLMServerManager:
        """The pool's manager.

        Raises:
            PoolClosedError: the pool was closed.
        """
        return self._reach().manager

    @property
    def limits(self) -> EngineLimits:
        """What the engines can take."""
        return self.manager.limits

    @property
    def feed(self) -> Feed:
        """What the pool records: figures over time, sessions, events and rollouts."""
        return self._pool.reach.feed

    @property
    def routing(self) -> Routing:
        """The balancer: sessions, events, moves and drains."""
        return Routing(self._reach())

    @property
    def replicas(self) -> list[Replica]:
        """The replicas, in their order."""
        reach = self._reach()
        return [Replica(reach, r.status.replica_id) for r in self.snapshot().replicas]

    def replica(self, replica_id: str) -> Replica:
        """One replica.

        Raises:
            ConfigError: unknown; lists those that there are.
        """
        found = {replica.replica_id: replica for replica in self.replicas}
        if replica_id not in found:
            raise ConfigError("replica_id", f"{replica_id!r}", allowed=sorted(found))
        return found[replica_id]

    def snapshot(self) -> PoolSnapshot:
        """The pool at this moment."""
        return self._call(self.manager.snapshot())

    def dashboard(
        self,
        port: int = 0,
        address: str = "127.0.0.1",
        password: str | None = None,
        *,
        control: bool = False,
        **options: Any,
    ) -> Any:
        """A dashboard of the pool, served from this process until it, or this object, is closed.

        Asked for again with the same arguments, it is the same one.

        Args:
            port: to listen on; 0 for any that is free.
            address: to listen on. Off loopback a password is asked for.
            password: None for a new one, where one is needed.
            control: have a page on which whoever may look may manage the pool.
            options: see :func:`widgets.dashboard.serve`.

        Raises:
            ConfigError: the port is taken, an argument is wrong, or no dashboard is installed.
        """
        options |= {"port": port, "address": address, "password": password}
        key = repr(sorted((options | {"control": control}).items()))
        known = self._dashboards.get(key)
        if known is None or known.closed:
            self._reach()
            known = self._dashboards[key] = view("dashboard")(
                self.feed, control=self._verbs() if control else None, **options
            )
        return known

    def _verbs(self) -> ManagerVerbs:
        """For a page that may outlive this object, if its cell is run again."""
        return ManagerVerbs(self.manager, self._pool.reach.call)

    def __repr__(self) -> str:
        name = self.config.name if self.attached else ""
        return pool_text(self.config.model, self._pool.reach.look(), attached_to=name)

    def _repr_html_(self) -> str:
        return pool_html(self.config, self._pool.reach.look(), attached=self.attached)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle("pool", self, include, exclude)

    # -- ending -----------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the pool and all that came with it, or leave it where this was attached. Idempotent.

        Rollouts of this object that have not ended become cancelled rows. A step that fails or is
        interrupted keeps none of the others from being taken.
        """
        if self._closed:
            return
        self._pool.reach.feed.pull()  # what is taken away later is all that there was
        self._closed = self._pool.reach.closed = True
        cells.remove(self)
        for rollout in list(self._rollouts):
            self._steps.callback(rollout.cancel)
        for learner in self._learners.values():
            self._steps.callback(learner.drop)
        for stream in self._streams.values():
            self._steps.callback(stream.close)
        for dashboard in self._dashboards.values():
            self._steps.callback(dashboard.close)
        self._steps.close()  # from the last to the first

    def down(self) -> None:
        """Stop the pool, also a detached one, or one that this object is only attached to.

        Everybody else's calls end with :class:`PoolClosedError`. Idempotent.
        """
        if not self._closed:
            entry = self.manager.entry
            self._call(self.manager.down())
            self.close()
            if entry.kind == "head":
                stop_head(entry.pid, entry.process_start)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _reach(self) -> Reach:
        """The way to the pool.

        Raises:
            PoolClosedError: it was closed.
        """
        if self._closed:
            raise PoolClosedError(f"the pool {self.config.name!r} was closed")
        return self._pool.reach

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        return self._pool.reach.call(coro)
