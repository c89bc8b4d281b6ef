"""Which weights a pool runs, and how its replicas come to run others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayActorError, RayError

from workbench.cluster.ports import our_errors
from workbench.errors import ConfigError, PoolError, WeightsError
from workbench.weights import ReplicaUpdate, WeightUpdate

if TYPE_CHECKING:
    from workbench.cluster.members import Member, Members
    from workbench.cluster.node import Nodes
    from workbench.weights import PauseMode

NODE_GONE = PoolError("a node of the pool is gone; try again once its replicas were replaced")

OnFailure = Callable[["Member", str], None]
"""Called with a replica that did not take weights, and why."""


class Rollover:
    """One update at a time; a replica that starts gets the current weights before it serves.

    Args:
        members: the pool's replicas.
        nodes: where weights are checked, and kept for replicas that start.
        balancer: is told that what was cached is of no use any more.
        limit_s: what loading may take on one replica.
        checks: whether the engines have weights that can be wrong.
    """

    def __init__(
        self, members: Members, nodes: Nodes, balancer: Any, limit_s: float, *, checks: bool
    ) -> None:
        self._members = members
        self._nodes = nodes
        self._balancer = balancer
        self._limit_s = limit_s
        self._checks = checks
        self._lock = asyncio.Lock()
        self._directory: str | None = None
        """Where every node finds the current weights, for replicas that start."""
        self._spooled: dict[str, str] = {}
        """Node id → where that node has them in memory, if they came as a state dict."""
        self.version = 0
        self.on_failure: OnFailure = lambda member, problem: None  # noqa: ARG005 - nobody asked yet

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

    async def admit(self, member: Member) -> None:
        """The last step of a start: the current weights; from here on updates reach it too."""
        async with self._lock:
            if self.version:
                directory = await self._directory_on(member.node_id)
                async with asyncio.timeout(self._limit_s):
                    await member.handle.update.remote(
                        directory, self.version, "keep", recompute=False
                    )
            if member.is_paused:
                await member.handle.pause.remote("keep")
                await self._resume_if_meant(member)
            member.note(version=self.version)
            member.is_known = True

    async def _resume_if_meant(self, member: Member) -> None:
        """It may have been resumed while it was told to pause, and nobody could tell it."""
        if not member.is_paused:
            await member.handle.resume.remote()

    async def _directory_on(self, node_id: str) -> str:
        """Where a node finds the current weights; brings them there if it has to.

        Raises:
            WeightsError: every node that had them is gone.
        """
        if self._directory is not None:
            return self._directory
        for holder in [] if node_id in self._spooled else list(self._spooled):
            try:
                for part in await self._nodes.on(holder).parts.remote(self.version):
                    await self._nodes.on(node_id).write.remote(self.version, part)
                finished: str = await self._nodes.on(node_id).finish.remote(self.version)
            except RayActorError:  # that node is gone
                self._nodes.drop(holder)
                del self._spooled[holder]
            else:
                self._spooled[node_id] = finished
                break
        if node_id not in self._spooled:
            raise WeightsError(f"no node has the weights of version {self.version} any more")
        return self._spooled[node_id]

    # -- updates ----------------------------------------------------------------------------

    async def receive(self, version: int, stored: list[Any]) -> None:
        """One part of a state dict, for every node that has replicas; each pulls it once.

        ``stored``: where it is in the cluster's object store.
        """
        nodes = {member.node_id for member in self._members.ready()}
        with our_errors(NODE_GONE):
            await asyncio.gather(*(self._nodes.on(n).write.remote(version, *stored) for n in nodes))

    async def update(
        self,
        source: str | None,
        version: int,
        mode: PauseMode,
        *,
        recompute: bool,
        transfer_s: float = 0.0,
    ) -> WeightUpdate:
        """All live replicas end on ``version``, or are replaced by ones that are.

        Args:
            source: a directory that every node can read; None for what :meth:`receive` brought.
            version: what later tokens are stamped with.
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
            self.check_version(version)
            targets = self._members.ready()
            directories, check_s = await self._prepare(source, version, targets)
            updates = await asyncio.gather(
                *(self._one(m, directories, version, mode, recompute=recompute) for m in targets)
            )
            total_s = transfer_s + time.perf_counter() - began_s
            update = WeightUpdate(version, mode, check_s, transfer_s, tuple(updates), total_s)
            self._settle(update, source, directories)
        await self._tell(update)
        return update

    async def _prepare(
        self, source: str | None, version: int, targets: list[Member]
    ) -> tuple[dict[str, str], float]:
        """Node id → directory, checked; and the seconds that the check took."""
        began_s = time.perf_counter()
        nodes = dict.fromkeys(member.node_id for member in targets)
        if not nodes:
            raise WeightsError("no replica is ready to take weights")
        directories = dict.fromkeys(nodes, source or "")
        with our_errors(NODE_GONE):
            if source is None:
                finishing = [self._nodes.on(n).finish.remote(version) for n in nodes]
                directories = dict(zip(nodes, await asyncio.gather(*finishing), strict=True))
            if self._checks:  # the values of a state dict were looked at where it came from
                checking = [
                    self._nodes.on(n).check.remote(d, values=source is not None)
                    for n, d in directories.items()
                ]
                await asyncio.gather(*checking)
        return directories, time.perf_counter() - began_s

    async def _one(
        self,
        member: Member,
        directories: dict[str, str],
        version: int,
        mode: PauseMode,
        *,
        recompute: bool,
    ) -> ReplicaUpdate:
        directory = directories[member.node_id]
        limit_s = None if mode == "wait" else self._limit_s
        try:
            async with asyncio.timeout(limit_s):
                update: ReplicaUpdate = await member.handle.update.remote(
                    directory, version, mode, recompute=recompute
                )
        except TimeoutError:
            problem = f"not done within {limit_s:g} s"
        except RayError as error:
            problem = str(getattr(error, "cause", None) or "its process is gone")
        else:
            return update
        return ReplicaUpdate(member.replica_id, self.version, error=problem)

    def _settle(
        self, update: WeightUpdate, source: str | None, directories: dict[str, str]
    ) -> None:
        failed = {u.replica_id: u.error for u in update.replicas if u.error}
        took = [u for u in update.replicas if not u.error]
        if took:
            self.version = update.version
            self._directory = source
            self._spooled = {} if source else dict(directories)
        for member in self._members:
            if problem := failed.get(member.replica_id):
                self.on_failure(member, f"weights of version {update.version}: {problem}")
            elif took and member.is_known:
                member.note(version=update.version)
        if not took:
            told = "; ".join(f"{name}: {problem}" for name, problem in failed.items())
            raise WeightsError(f"no replica took version {update.version}: {told}")

    async def _tell(self, update: WeightUpdate) -> None:
        """Blocks of other weights are of no use to anybody, nor are other weights in memory."""
        took = [u.replica_id for u in update.replicas if not u.error]
        with contextlib.suppress(RayError):  # one that starts over knows of no blocks anyway
            await self._balancer.forget_caches.remote(took)
        for node_id in list(self._spooled):
            with contextlib.suppress(RayError):
                await self._nodes.on(node_id).forget_before.remote(update.version)
