"""The replica actor: one engine host in a process of its own.

Its output goes to a log file of its own, so that a start that fails can show its last words. A
guard process makes sure that the engine's child processes never outlive it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from workbench.cluster import seats
from workbench.cluster.engine import make_app, make_engine
from workbench.cluster.node import tail
from workbench.engines.guard import guard_children
from workbench.engines.host import EngineHost
from workbench.engines.http import HttpServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.engines.base import Engine, EngineLimits
    from workbench.types import EngineFigures, GenerateRequest, TokenDelta
    from workbench.weights import PauseMode, ReplicaUpdate


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
    is_open: bool = False
    """Whether other machines may reach its HTTP routes."""
    key: str | None = field(default=None, repr=False)
    """What they have to show then."""
    openai_routes: bool = False


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a replica's process is."""

    pid: int
    node: str
    node_id: str
    log_path: str


class ReplicaActor:
    """Becomes a Ray actor in :mod:`workbench.cluster.fleet`."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self._spec = spec
        self._log = _own_log(spec)
        self._profiles = self._log.with_suffix(".profile")
        self._stage = "placed"
        self._stages: list[tuple[str, float]] = []
        self._stage_began_s = time.monotonic()
        self._engine: Engine | None = None
        self._host: EngineHost | None = None
        self._http: HttpServer | None = None
        guard_children()

    async def start(self) -> tuple[EngineLimits, str, tuple[tuple[str, float], ...]]:
        """Load the model.

        Returns:
            What the engine can take; the address of the HTTP routes; what took how many seconds.

        Raises:
            ConfigError: the model cannot be had on this node.
        """
        spec = self._spec
        self._begin("preparing the model")
        self._engine = engine = await make_engine(spec, str(self._profiles))
        self._begin("starting the engine")
        self._host = EngineHost(spec.replica_id, engine)
        limits = await self._host.start()
        self._begin("opening its HTTP routes")
        at = seats.own_address() if spec.is_open else "127.0.0.1"
        app = await make_app(spec, engine, self._host)
        self._http = HttpServer(app, at, spec.key if spec.is_open else None)
        await self._http.start()
        self._begin("")
        return limits, self._http.address, tuple(self._stages)

    def _begin(self, stage: str) -> None:
        now_s = time.monotonic()
        self._stages.append((self._stage, now_s - self._stage_began_s))
        self._stage, self._stage_began_s = stage, now_s

    def where(self) -> Whereabouts:
        """Known from the first moment."""
        node_id = ray.get_runtime_context().get_node_id()
        return Whereabouts(os.getpid(), os.uname().nodename, node_id, str(self._log))

    async def stage(self) -> str:
        """What it is doing while it starts; empty once it is ready."""
        return self._stage

    # -- serving ----------------------------------------------------------------------------

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

    async def abort_all(self, session_id: str | None) -> int:
        """See :meth:`EngineHost.abort_all`."""
        return await self._serving().abort_all(session_id)

    async def close_channel(self, channel_id: str) -> None:
        """See :meth:`EngineHost.close_channel`."""
        await self._serving().close_channel(channel_id)

    async def figures(self) -> EngineFigures:
        """What the engine reports of itself."""
        return self._with_external(self._serving().figures())

    async def probe(self) -> EngineFigures:
        """See :meth:`EngineHost.probe`."""
        return self._with_external(self._serving().probe())

    def _with_external(self, figures: EngineFigures) -> EngineFigures:
        external = self._http.in_flight if self._http else 0
        return replace(figures, external=external) if external else figures

    # -- control ----------------------------------------------------------------------------

    async def pause(self, mode: PauseMode) -> None:
        """See :meth:`EngineControl.pause`."""
        await self._serving().control.pause(mode)

    async def resume(self) -> None:
        """See :meth:`EngineControl.resume`."""
        await self._serving().control.resume()

    async def update(
        self, directory: str, version: int, mode: PauseMode, *, recompute: bool, limit_s: float
    ) -> ReplicaUpdate:
        """See :meth:`EngineControl.update`."""
        control = self._serving().control
        return await control.update(directory, version, mode, recompute=recompute, limit_s=limit_s)

    async def clear_cache(self) -> None:
        """See :meth:`EngineControl.clear_cache`."""
        await self._serving().control.clear_cache()

    async def sleep(self, level: int) -> bool:
        """See :meth:`EngineControl.sleep`."""
        return await self._serving().control.sleep(level)

    async def wake(self) -> bool:
        """See :meth:`EngineControl.wake`."""
        return await self._serving().control.wake()

    async def start_profile(self) -> None:
        """See :meth:`Engine.start_profile`."""
        self._serving()
        assert self._engine is not None
        self._profiles.mkdir(exist_ok=True)
        await self._engine.start_profile()

    async def stop_profile(self) -> dict[str, bytes]:
        """The traces that were recorded: file name → content."""
        self._serving()
        assert self._engine is not None
        await self._engine.stop_profile()
        return await asyncio.to_thread(_take_files, self._profiles)

    async def log_tail(self, lines: int) -> str:
        """The last lines of its log."""
        return await asyncio.to_thread(tail, self._log, lines)

    async def close(self) -> None:
        """Stop the engine and its processes."""
        if self._http:
            await self._http.close()
        if self._host:
            await self._host.close()

    def _serving(self) -> EngineHost:
        if self._host is None:
            raise RuntimeError(f"{self._spec.replica_id} was not started")
        return self._host


def _take_files(folder: Path) -> dict[str, bytes]:
    """What is in a folder, which is empty afterwards."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[path.name] = path.read_bytes()
            path.unlink()
    return found


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
