"""What a pool does on one node beside its replicas: weights in shared memory, logs of the dead."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workbench.checkpoint.check import check_checkpoint
from workbench.checkpoint.spool import Spool
from workbench.errors import WeightsError
from workbench.models import resolve_model

if TYPE_CHECKING:
    from workbench.checkpoint.parts import Part

LINE_BYTES = 400
"""A line of a log, generously."""

Stamp = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of each file of a checkpoint."""


class NodeActor:
    """One per pool and node, made when it is first needed. What blocks runs on threads.

    Weights that come as a state dict have a key, which is that of no other transfer.
    """

    def __init__(self, pool: str, model: str) -> None:
        self._pool = pool
        self._model = model
        self._spool: Spool | None = None
        self._making = threading.Lock()

    async def check(self, directory: str, *, values: bool = True) -> Stamp:
        """Look at a checkpoint as this node sees it.

        Raises:
            CheckpointError: says what is wrong with it.
        """
        await asyncio.to_thread(self._check, directory, values)
        return await self.stamp(directory)

    def _check(self, directory: str, values: bool) -> None:
        check_checkpoint(directory, resolve_model(self._model), values=values)

    async def stamp(self, directory: str) -> Stamp:
        """Changes where a file of a checkpoint does; empty where there is none any more."""
        return await asyncio.to_thread(_stamp, Path(directory))

    async def write(self, key: int, part: Part) -> None:
        """Put one part of a state dict down.

        Raises:
            NoRoomError: this node's memory cannot hold it.
        """
        await asyncio.to_thread(self._write, key, part)

    def _write(self, key: int, part: Part) -> None:
        with self._making:
            if self._spool is None:
                self._spool = Spool(self._pool, resolve_model(self._model))
        self._spool.write(key, part)

    async def finish(self, key: int) -> str:
        """The directory of a state dict whose parts were all written.

        Raises:
            WeightsError: this process knows of none; it was started anew.
            CheckpointError: parts are missing.
        """
        if self._spool is None:
            raise WeightsError("a node lost the weights that were sent to it")
        return str(await asyncio.to_thread(self._spool.finish, key))

    async def holds(self, key: int) -> str:
        """The directory of a state dict that is complete here; empty where it is not."""
        return str(self._spool.find(key) or "") if self._spool else ""

    async def parts(self, key: int) -> list[Any]:
        """References to the parts of what this node holds, for one that lacks it."""
        if self._spool is None or self._spool.find(key) is None:
            return []
        return [ray.put(part) for part in await asyncio.to_thread(self._spool.read, key)]

    async def forget(self, key: int, *, before: bool = False) -> None:
        """Drop a state dict, complete or not; or all that came before it."""
        if self._spool is not None:
            drop = self._spool.remove_older if before else self._spool.remove
            await asyncio.to_thread(drop, key)

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
        """The actor on a node. Where its process dies another one comes, which holds nothing."""
        if node_id not in self._actors:
            actor: Any = ray.remote(NodeActor)
            here = NodeAffinitySchedulingStrategy(node_id, soft=False)
            self._actors[node_id] = actor.options(
                num_cpus=0, max_restarts=-1, scheduling_strategy=here
            ).remote(self._pool, self._model)
        return self._actors[node_id]

    def all(self) -> list[Any]:
        """Those that were needed so far."""
        return list(self._actors.values())

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


def _stamp(directory: Path) -> Stamp:
    found = [(file.name, file.stat()) for file in sorted(directory.glob("*.safetensors"))]
    return tuple((name, seen.st_size, seen.st_mtime_ns) for name, seen in found)


def tail(path: Path, lines: int) -> str:
    """The last ``lines`` lines of a text file; empty where there is none."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - (lines + 1) * LINE_BYTES))
            text = log.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:]).rstrip()
