"""A reverse proxy that puts a path in front, as JupyterHub's and nginx's do."""

from __future__ import annotations

from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClientConnection, WebSocketHandler, websocket_connect

from workbench.aio import LoopThread

KEPT = ("Content-Type", "Location", "Set-Cookie", "Cache-Control", "Content-Disposition")


class Proxy:
    """Serves ``/proxy/PORT/…`` from that port of this machine; ``paths`` is what was asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        (self._socket,) = bind_sockets(0, "127.0.0.1")
        self.port: int = self._socket.getsockname()[1]
        self._loop = LoopThread("proxy")
        self._server: HTTPServer = self._loop.run(self._open())

    async def _open(self) -> HTTPServer:
        known = {"paths": self.paths}
        server = HTTPServer(
            Application([
                (r"/proxy/(\d+)/(.*/ws)", _Socket, known),
                (r"/proxy/(\d+)/(.*)", _Page, known),
                (r"/(.*)", _Lost, known),
            ], log_function=lambda _: None)
        )  # fmt: skip
        server.add_sockets([self._socket])
        return server

    def close(self) -> None:
        async def end() -> None:
            self._server.stop()
            await self._server.close_all_connections()

        self._loop.run(end())
        self._loop.close()


class _Lost(RequestHandler):
    """What left its path."""

    def initialize(self, paths: list[str]) -> None:
        self._paths = paths

    def get(self, path: str) -> None:
        self._paths.append(f"/{path}")
        self.set_status(404)
        self.finish("nothing is here")


class _Page(RequestHandler):
    def initialize(self, paths: list[str]) -> None:
        self._paths = paths

    async def _pass(self, port: str, path: str) -> None:
        self._paths.append(self.request.path)
        query = f"?{self.request.query}" if self.request.query else ""
        names = ("Cookie", "Origin", "Host", "Content-Type")
        headers = {
            name: self.request.headers[name] for name in names if name in self.request.headers
        }
        request = HTTPRequest(
            f"http://127.0.0.1:{port}/{path}{query}",
            method=self.request.method or "GET",
            headers=headers,
            body=self.request.body or None,
            follow_redirects=False,
        )
        answer = await AsyncHTTPClient().fetch(request, raise_error=False)
        self.set_status(answer.code)
        for name in KEPT:
            for value in answer.headers.get_list(name):
                self.set_header(name, value)
        self.finish(answer.body)

    async def get(self, port: str, path: str) -> None:
        await self._pass(port, path)

    async def post(self, port: str, path: str) -> None:
        await self._pass(port, path)


class _Socket(WebSocketHandler):
    _there: WebSocketClientConnection | None = None

    def initialize(self, paths: list[str]) -> None:
        self._paths = paths

    def check_origin(self, origin: str) -> bool:
        return True

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        self._asked = subprotocols
        return subprotocols[0]

    async def open(self, port: str, path: str) -> None:
        self._paths.append(self.request.path)
        names = ("Cookie", "Origin", "Host")
        headers = {
            name: self.request.headers[name] for name in names if name in self.request.headers
        }
        self._there = await websocket_connect(
            HTTPRequest(f"ws://127.0.0.1:{port}/{path}", headers=headers),
            on_message_callback=self._back,
            subprotocols=self._asked,
        )

    def _back(self, message: Any) -> None:
        if message is None:
            self.close()
        elif self.ws_connection:
            self.write_message(message, binary=isinstance(message, bytes))

    async def on_message(self, message: Any) -> None:
        if self._there is not None:
            await self._there.write_message(message, binary=isinstance(message, bytes))

    def on_close(self) -> None:
        if self._there is not None:
            self._there.close()
