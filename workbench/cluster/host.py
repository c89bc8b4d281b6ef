"""Views of a pool that are served from its cluster, and end with it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from workbench.aio import LoopThread
from workbench.cluster.feeding import pool_feed
from workbench.cluster.ports import our_errors
from workbench.errors import PoolError
from workbench.views import view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.cluster.registry import PoolEntry

CLOSE_S = 15.0
"""How long a view may take to end by itself."""


@dataclass(frozen=True, slots=True)
class HostedView:
    """Where a view is served."""

    url: str
    password: str | None = field(repr=False)
    """What a browser is asked for; None where anybody may look."""


class ViewActor:
    """Serves one view from a process of its own."""

    def __init__(self) -> None:
        self._loop = LoopThread()
        self._served: Any = None

    def serve(
        self, entry: PoolEntry, controller: Any, name: str, options: Mapping[str, Any]
    ) -> HostedView:
        """Open it.

        Raises:
            ConfigError: there is no such view, or it refuses the options.
        """
        from workbench.cluster.manager import LLMServerManager  # which knows the controller
        from workbench.cluster.verbs import ManagerVerbs

        manager = self._loop.run(LLMServerManager.of(entry, controller))
        given = dict(options)
        if given.pop("control", False):
            given["control"] = ManagerVerbs(manager, self._loop.run)
        self._served = view(name)(pool_feed(manager, self._loop.run), **given)
        return self.where()

    def where(self) -> HostedView:
        """Where it is served."""
        return HostedView(self._served.url, self._served.password)

    def close(self) -> None:
        """Take it down."""
        if self._served is not None:
            self._served.close()


class ViewHosts:
    """The views that one pool's controller hosts, by name and options."""

    def __init__(self, entry: PoolEntry, controller: Any) -> None:
        self._entry = entry
        self._controller = controller
        self._actors: dict[tuple[str, str], Any] = {}
        self._opening = asyncio.Lock()

    async def host(self, name: str, options: Mapping[str, Any]) -> HostedView:
        """Serve a view, unless it is served with these options already; where.

        Raises:
            ConfigError: there is no such view, or it refuses the options.
            PoolError: its process died.
        """
        key = name, repr(sorted(options.items()))
        async with self._opening:
            with contextlib.suppress(KeyError, RayError):
                known: HostedView = await self._actors[key].where.remote()
                return known
            actor: Any = ray.remote(ViewActor)
            handle = actor.options(num_cpus=0).remote()
            try:
                with our_errors(PoolError(f"the process of the view {name!r} died")):
                    opened: HostedView = await handle.serve.remote(
                        self._entry, self._controller, name, options
                    )
            except BaseException:
                ray.kill(handle)
                raise
            self._actors[key] = handle
            return opened

    async def stop(self, name: str) -> bool:
        """Take a view down, whatever its options; whether it was there."""
        doomed = [key for key in self._actors if key[0] == name]
        handles = [self._actors.pop(key) for key in doomed]
        await asyncio.gather(*map(_stop, handles))
        return bool(handles)


async def _stop(handle: Any) -> None:
    with contextlib.suppress(RayError, TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await handle.close.remote()
    ray.kill(handle)
