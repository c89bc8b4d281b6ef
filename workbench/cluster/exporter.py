"""The pool's own figures for Prometheus, served from its controller.

``/metrics`` are the figures, ``/targets`` the replicas that there are, as Prometheus's HTTP service
discovery asks for them: a pool that grows or shrinks needs no new configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from workbench.cluster import seats
from workbench.engines.http import HttpServer
from workbench.metrics.exporter import CONTENT_TYPE, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request

    from workbench.cluster.members import Member
    from workbench.metrics.recorder import Recorder


class Exporter:
    """Serves what ``recorder`` saw last, and the addresses of ``members``."""

    def __init__(
        self, recorder: Recorder, members: Callable[[], Iterable[Member]], pool: str, key: str
    ) -> None:
        self._recorder = recorder
        self._members = members
        self._pool = pool
        self._key = key
        self._http: HttpServer | None = None

    @property
    def address(self) -> str:
        """``http://host:port``; empty before it listens."""
        return self._http.address if self._http else ""

    async def start(self) -> None:
        """Listen: on loopback where the cluster is one node, else with a key."""
        app = Starlette(routes=[Route("/metrics", self._metrics), Route("/targets", self._targets)])
        is_open = seats.spans_nodes()
        host = seats.own_address() if is_open else "127.0.0.1"
        self._http = HttpServer(app, host, self._key if is_open else None)
        await self._http.start()

    async def close(self) -> None:
        """Stop. Idempotent."""
        if self._http:
            await self._http.close()

    async def _metrics(self, _: Request) -> Response:
        return Response(render(self._recorder.latest), media_type=CONTENT_TYPE)

    async def _targets(self, _: Request) -> Response:
        return JSONResponse(
            [
                {
                    "targets": [member.status.address.removeprefix("http://")],
                    "labels": {"pool": self._pool, "replica": member.replica_id},
                }
                for member in self._members()
                if member.status.address
            ]
        )
