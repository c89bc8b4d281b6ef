"""Which weights a pool runs, and how its replicas come to run others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ray.exceptions import RayError

from workbench.errors import ConfigError, WeightsError
from workbench.weights import ReplicaUpdate, WeightUpdate

if TYPE_CHECKING:
    from workbench.cluster.holding import Holding
    from workbench.cluster.members import Member, Members
    from workbench.weights import PauseMode

OnFailure = Callable[["Member", Any, str], None]
"""Called with a replica that did not take weights, its actor then, and why."""

MARGIN_S = 30.0
"""On top of what loading may take: until the engine stands still, and for the way there."""


class _Target(NamedTuple):
    """A replica as it was when an update began."""

    member: Member
    handle: Any
    node_id: str


class Rollover:
    """One update at a time; a replica that starts gets the current weights before it serves.

    Args:
        members: the pool's replicas.
        holding: where weights are.
        balancer: is told that what was cached is of no use any more.
        limit_s: what loading may take on one replica.
    """

    def __init__(self, members: Members, holding: Holding, balancer: Any, limit_s: float) -> None:
        self._members = members
        self.holding = holding
        self._balancer = balancer
        self._limit_s = limit_s
        self._lock = asyncio.Lock()
        self.version = 0
        self.on_failure: OnFailure = lambda *_: None

    def check_version(self, version: int | None) -> int:
        """The next version, or the one that is asked for.

        Raises:
            ConfigError: it does not go up.
        """
        if version is None:
            return self.version + 1
        if type(version) is not int or version <= self.version:
            allowed = f"a whole number above {self.version}, which the pool is on"
            raise ConfigError("version", f"{version!r}", allowed=allowed)
        return version

    def begin(self, version: int | None) -> tuple[int, int]:
        """A state dict is about to come: its version, and the key of the transfer."""
        nodes = [member.node_id for member in self._members.ready()]
        return self.check_version(version), self.holding.begin(nodes)

    async def admit(self, member: Member) -> None:
        """The last step of a start: the current weights; from here on updates reach it too."""
        member.note(stage="taking the pool's weights")
        async with self._lock:
            if self.version:
                directory = await self.holding.directory_on(member.node_id)
                await member.handle.update.remote(
                    directory, self.version, "keep", recompute=False, limit_s=self._limit_s
                )
            if member.is_paused:
                await member.handle.pause.remote("keep")
                await self._resume_if_meant(member)
            member.note(version=self.version)
            member.is_known = True

    async def _resume_if_meant(self, member: Member) -> None:
        """It may have been resumed while it was told to pause, and nobody could tell it."""
        if not member.is_paused and member.handle is not None:
            await member.handle.resume.remote()

    async def update(
        self,
        source: str | None,
        key: int | None,
        version: int | None,
        mode: PauseMode,
        *,
        recompute: bool,
        transfer_s: float = 0.0,
    ) -> WeightUpdate:
        """All live replicas end on ``version``, or are replaced by ones that are.

        Args:
            source: a directory that every node can read; None for what came as ``key``.
            key: of a transfer; see :meth:`begin`.
            version: what later tokens are stamped with; the next one by default.
            mode: what becomes of requests in the engines.
            recompute: kept requests compute their KV blocks again.
            transfer_s: what bringing a state dict took so far.

        Raises:
            ConfigError: the version does not go up, or the weights do not fit the model; no engine
                saw them.
            WeightsError: no replica took them. The pool stays on the version that it was on.
        """
        began_s = time.perf_counter()
        async with self._lock:
            version = self.check_version(version)
            targets = self._targets()
            found = await self.holding.check(source, key, [t.node_id for t in targets])
            check_s = time.perf_counter() - began_s
            updates = await asyncio.gather(
                *(self._one(t, found[t.node_id], version, mode, recompute) for t in targets)
            )
            total_s = transfer_s + time.perf_counter() - began_s
            update = WeightUpdate(version, mode, check_s, transfer_s, tuple(updates), total_s)
            self._settle(update, targets, source, key)
        await self._tell(update)
        return update

    def _targets(self) -> list[_Target]:
        """Those that serve.

        Raises:
            WeightsError: there is none.
            ConfigError: one of them sleeps, and has no weights that could be changed.
        """
        ready = self._members.ready()
        if asleep := [member.replica_id for member in ready if member.is_asleep]:
            raise ConfigError("replicas", f"{', '.join(asleep)} sleep", allowed="wake() first")
        if not ready:
            raise WeightsError("no replica is ready to take weights")
        return [_Target(member, member.handle, member.node_id) for member in ready]

    async def _one(
        self,
        target: _Target,
        directory: str,
        version: int,
        mode: PauseMode,
        recompute: bool,
    ) -> ReplicaUpdate:
        """Whatever goes wrong with one is told, so that the others' news are heard of."""
        outer_s = None if mode == "wait" else self._limit_s + MARGIN_S
        try:
            async with asyncio.timeout(outer_s):
                update: ReplicaUpdate = await target.handle.update.remote(
                    directory, version, mode, recompute=recompute, limit_s=self._limit_s
                )
        except TimeoutError:
            problem = f"not done within {outer_s:g} s"
        except RayError as error:
            problem = str(getattr(error, "cause", None) or "its process is gone")
        except Exception as error:  # noqa: BLE001 - see above
            problem = f"{type(error).__name__}: {error}"
        else:
            return update
        return ReplicaUpdate(target.member.replica_id, self.version, error=problem)

    def _settle(
        self, update: WeightUpdate, targets: list[_Target], source: str | None, key: int | None
    ) -> None:
        took = any(not told.error for told in update.replicas)
        if took:
            self.version = update.version
            self.holding.keep(source, key)
        for target, told in zip(targets, update.replicas, strict=True):
            if told.error:
                problem = f"weights of version {update.version}: {told.error}"
                self.on_failure(target.member, target.handle, problem)
            elif target.member.handle is target.handle:
                target.member.note(version=update.version)
        if not took:
            failed = "; ".join(f"{told.replica_id}: {told.error}" for told in update.replicas)
            raise WeightsError(f"no replica took version {update.version}: {failed}")

    async def _tell(self, update: WeightUpdate) -> None:
        """Blocks of other weights are of no use to anybody, nor are other weights in memory."""
        took = [told.replica_id for told in update.replicas if not told.error]
        with contextlib.suppress(RayError):  # one that starts over knows of no blocks anyway
            await self._balancer.forget_caches.remote(took)
        await self.holding.forget_others()
