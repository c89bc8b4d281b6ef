"""The replica actor: one engine host in a process of its own.

Its output goes to a log file of its own, so that a start that fails can show its last words. A
guard process makes sure that the engine's child processes never outlive it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from workbench.engines.guard import guard_children
from workbench.engines.host import EngineHost
from workbench.models import resolve_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.engines.base import Engine, EngineLimits
    from workbench.types import EngineFigures, GenerateRequest, TokenDelta


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """What a replica is made from."""

    replica_id: str
    pool: str
    model: str
    engine: str
    engine_args: Mapping[str, Any]
    device: str
    threads: int
    seed: int


class ReplicaActor:
    """Becomes a Ray actor in :mod:`workbench.cluster.controller`."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self._spec = spec
        self._log = _own_log(spec)
        self._stage = "placed"
        self._host: EngineHost | None = None
        guard_children()

    async def start(self) -> EngineLimits:
        """Load the model.

        Raises:
            ConfigError: the model cannot be had on this node.
        """
        spec = self._spec
        engine: Engine
        if spec.engine == "simulated":
            from workbench.engines.simulated import SimulatedArgs, SimulatedEngine

            engine = SimulatedEngine(spec.replica_id, SimulatedArgs(**spec.engine_args))
        else:
            from workbench.engines.vllm import VLLMEngine, prepare_environment

            self._stage = "preparing the model"
            model_dir = await asyncio.to_thread(resolve_model, spec.model)
            prepare_environment(spec.device, spec.threads)
            engine = VLLMEngine(
                spec.replica_id,
                str(model_dir),
                spec.engine_args,
                device=spec.device,
                seed=spec.seed,
            )
        self._stage = "starting the engine"
        self._host = EngineHost(spec.replica_id, engine)
        limits = await self._host.start()
        self._stage = ""
        return limits

    def where(self) -> tuple[int, str, str]:
        """Process id, node name and log path."""
        return os.getpid(), os.uname().nodename, str(self._log)

    async def stage(self) -> str:
        """What it is doing while it starts; empty once it is ready."""
        return self._stage

    async def submit(
        self, channel_id: str, requests: Sequence[GenerateRequest]
    ) -> list[Exception | None]:
        """See :meth:`EngineHost.submit`."""
        return await self._serving().submit(channel_id, requests)

    async def collect(self, channel_id: str, delivered: int) -> tuple[int, list[TokenDelta]]:
        """See :meth:`EngineHost.collect`."""
        return await self._serving().collect(channel_id, delivered)

    async def abort(self, request_ids: Sequence[str]) -> None:
        """See :meth:`EngineHost.abort`."""
        await self._serving().abort(request_ids)

    async def close_channel(self, channel_id: str) -> None:
        """See :meth:`EngineHost.close_channel`."""
        await self._serving().close_channel(channel_id)

    async def figures(self) -> EngineFigures:
        """What the engine reports of itself."""
        return self._serving().figures()

    async def probe(self) -> EngineFigures:
        """See :meth:`EngineHost.probe`."""
        return self._serving().probe()

    async def log_tail(self, lines: int) -> str:
        """The last lines of its log."""
        return tail(self._log, lines)

    async def close(self) -> None:
        """Stop the engine and its processes."""
        if self._host:
            await self._host.close()

    def _serving(self) -> EngineHost:
        if self._host is None:
            raise RuntimeError(f"{self._spec.replica_id} was not started")
        return self._host


def tail(path: Path, lines: int) -> str:
    """The last ``lines`` lines of a text file; empty where there is none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as log:
            return "".join(deque(log, maxlen=lines)).rstrip()
    except OSError:
        return ""


def _own_log(spec: ReplicaSpec) -> Path:
    """Send this process's output, and its children's, to a file of its own among Ray's logs."""
    untyped: Any = ray
    folder = Path(untyped._private.worker._global_node.get_logs_dir_path())
    path = folder / f"{spec.pool}-{spec.replica_id}-{os.getpid()}.log"
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    return path
