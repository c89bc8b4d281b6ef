"""A replica's HTTP routes: ``/health`` and ``/metrics``, and vLLM's own where they are asked for.

Off loopback every route but ``/health`` asks for a key: ``Authorization: Bearer KEY``.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from workbench.errors import ConfigError, ReplicaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

START_S = 10.0
"""How long the server may take to listen."""

ABOUT = {"/health", "/load", "/metrics", "/ping", "/targets", "/version"}
"""Routes that tell of the engine and ask nothing of it."""

OPEN = {"/health"}
"""Routes that ask for no key."""


class HttpServer:
    """Serves ``app`` on the running loop.

    Args:
        app: what is served.
        host: the address to listen on; the port is any that is free.
        key: what callers have to show; None where anybody may call.
    """

    def __init__(self, app: ASGIApp, host: str, key: str | None = None) -> None:
        self._guard = _Guard(app, key)
        self._host = host
        self._task: asyncio.Task[None] | None = None
        self._server: uvicorn.Server | None = None
        self.address = ""
        """``http://host:port``, once it listens."""

    @property
    def in_flight(self) -> int:
        """Requests for the model that were not answered to the end yet."""
        return self._guard.in_flight

    async def start(self) -> None:
        """Listen; returns when it does.

        Raises:
            ConfigError: the address is none of this machine's.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.bind((self._host, 0))
        except OSError as error:
            listener.close()
            raise ConfigError("host", f"cannot listen on {self._host!r}: {error}") from error
        host = f"[{self._host}]" if family is socket.AF_INET6 else self._host
        self.address = f"http://{host}:{listener.getsockname()[1]}"
        config = uvicorn.Config(self._guard, log_level="warning", access_log=False, lifespan="off")
        self._server = uvicorn.Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="http")
        async with asyncio.timeout(START_S):
            while not self._server.started:  # noqa: ASYNC110 - it says so in no other way
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Stop; requests that are open are cut off. Idempotent."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = self._server.force_exit = True
            await asyncio.gather(self._task, return_exceptions=True)
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()  # uvicorn only stops waiting for it


def replica_app(check: Callable[[], object], metrics: Callable[[], tuple[bytes, str]]) -> Starlette:
    """``/health`` and ``/metrics``.

    Args:
        check: raises :class:`ReplicaError` when the engine is not well.
        metrics: the exposition and its content type.
    """

    async def health(_: Request) -> Response:
        try:
            check()
        except ReplicaError as error:
            return JSONResponse({"status": "unhealthy", "error": str(error)}, status_code=503)
        return JSONResponse({"status": "ok"})

    async def figures(_: Request) -> Response:
        body, kind = metrics()
        return Response(body, media_type=kind)

    return Starlette(routes=[Route("/health", health), Route("/metrics", figures)])


class _Guard:
    """Asks for the key, and counts what is under way."""

    def __init__(self, app: ASGIApp, key: str | None) -> None:
        self._app = app
        self._key = key and f"Bearer {key}".encode()
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._may(scope):
            await _refuse(scope, receive, send)
            return
        counts = scope["path"] not in ABOUT
        self.in_flight += counts
        try:
            await self._app(scope, receive, send)
        finally:
            self.in_flight -= counts

    def _may(self, scope: Scope) -> bool:
        if self._key is None or scope["path"] in OPEN:
            return True
        shown = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(shown, self._key)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})  # which answers 403
        return
    await JSONResponse({"error": "a key is needed"}, status_code=401)(scope, receive, send)
