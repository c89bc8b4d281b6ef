"""What a pool does on one node beside its replicas: weights in shared memory, logs of the dead."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workbench.checkpoint.check import check_checkpoint
from workbench.checkpoint.spool import Spool
from workbench.models import resolve_model

if TYPE_CHECKING:
    from workbench.checkpoint.parts import Part


class NodeActor:
    """One per pool and node, made when it is first needed. What blocks runs on threads."""

    def __init__(self, pool: str, model: str) -> None:
        self._pool = pool
        self._model = model
        self._spool: Spool | None = None

    async def check(self, directory: str, *, values: bool = True) -> float:
        """Look at a checkpoint as this node sees it; the seconds that took.

        Raises:
            CheckpointError: says what is wrong with it.
        """
        began_s = time.perf_counter()
        await asyncio.to_thread(self._check, directory, values)
        return time.perf_counter() - began_s

    def _check(self, directory: str, values: bool) -> None:
        check_checkpoint(directory, resolve_model(self._model), values=values)

    async def write(self, version: int, part: Part) -> None:
        """Put one part of a state dict down.

        Raises:
            NoRoomError: this node's memory cannot hold it.
        """
        await asyncio.to_thread(self._write, version, part)

    def _write(self, version: int, part: Part) -> None:
        if self._spool is None:
            self._spool = Spool(self._pool, resolve_model(self._model))
        self._spool.write(version, part)

    async def finish(self, version: int) -> str:
        """The directory of a version whose parts were all written; older ones are dropped."""
        assert self._spool is not None
        directory = await asyncio.to_thread(self._spool.finish, version)
        return str(directory)

    async def forget_before(self, version: int) -> None:
        """Drop older versions."""
        if self._spool is not None:
            await asyncio.to_thread(self._spool.remove_older, version)

    async def parts(self, version: int) -> list[Part]:
        """A version that this node has, for one that lacks it."""
        assert self._spool is not None
        return await asyncio.to_thread(self._spool.read, version)

    async def log_tail(self, path: str, lines: int) -> str:
        """The last lines of a file on this node."""
        return await asyncio.to_thread(tail, Path(path), lines)

    async def close(self) -> None:
        """Give the memory back. Idempotent."""
        spool, self._spool = self._spool, None
        if spool is not None:
            await asyncio.to_thread(spool.close)


class Nodes:
    """The nodes of one pool, by id."""

    def __init__(self, pool: str, model: str) -> None:
        self._pool, self._model = pool, model
        self._actors: dict[str, Any] = {}

    def on(self, node_id: str) -> Any:
        """The actor on a node."""
        if node_id not in self._actors:
            actor: Any = ray.remote(NodeActor)
            here = NodeAffinitySchedulingStrategy(node_id, soft=False)
            self._actors[node_id] = actor.options(num_cpus=0, scheduling_strategy=here).remote(
                self._pool, self._model
            )
        return self._actors[node_id]

    def drop(self, node_id: str) -> None:
        """A node is gone, or its actor is."""
        self._actors.pop(node_id, None)

    async def close(self, limit_s: float) -> None:
        """End all of them."""
        actors, self._actors = list(self._actors.values()), {}
        if actors:
            closing = [asyncio.ensure_future(actor.close.remote()) for actor in actors]
            await asyncio.wait(closing, timeout=limit_s)
            for done in closing:
                _ = done.done() and done.exception()
        for actor in actors:
            ray.kill(actor)


def tail(path: Path, lines: int) -> str:
    """The last ``lines`` lines of a text file; empty where there is none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as log:
            return "".join(deque(log, maxlen=lines)).rstrip()
    except OSError:
        return ""
