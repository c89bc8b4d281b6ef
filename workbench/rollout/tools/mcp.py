"""Tools of MCP servers, through the official client.

A connection is opened and closed by a task of its own, as the client wants it; calls come from
anywhere. Whatever becomes of the server, each call ends: with its answer or with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from workbench.errors import ConfigError
from workbench.rollout.tools.base import Tool
from workbench.rollout.tools.mcp_connection import Connection, HttpServer, Server, StdioServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class McpTools:
    """All tools of one MCP server: a :class:`ToolSource`, from :meth:`stdio` or :meth:`http`.

    Not shared, each rollout has a connection of its own, and with ``stdio`` a server process;
    what a server keeps for a connection is then the rollout's. Shared, the rollouts of a worker
    use one, from the first to the last that needs it. Calls of one turn are made side by side.
    """

    server: Server
    shared: bool = False

    @classmethod
    def stdio(
        cls,
        command: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        shared: bool = False,
    ) -> McpTools:
        """A server that is a program, spoken to over its standard input and output.

        Args:
            command: the program.
            args: its arguments.
            env: environment variables beyond a few harmless ones such as ``PATH``.
            cwd: its working directory.
            shared: one process for all rollouts of a worker.
        """
        words = [command, *args]
        if not command or not all(isinstance(word, str) for word in words):
            raise ConfigError("command", f"{words!r}", allowed="a program and its arguments")
        if env is not None and not isinstance(env, Mapping):
            raise ConfigError("env", f"{env!r}", allowed="a mapping of names to texts, or None")
        given = tuple(sorted((env or {}).items()))
        return cls(StdioServer(tuple(words), given, None if cwd is None else str(cwd)), shared)

    @classmethod
    def http(
        cls, url: str, headers: Mapping[str, str] | None = None, *, shared: bool = False
    ) -> McpTools:
        """A server on the network, spoken to over streamable HTTP.

        Args:
            url: with its path, such as ``http://127.0.0.1:8000/mcp``.
            headers: sent with every request.
            shared: one connection for all rollouts of a worker.
        """
        if not str(url).startswith(("http://", "https://")):
            raise ConfigError("url", f"{url!r}", allowed="an http:// or https:// address")
        return cls(HttpServer(url, tuple(sorted((headers or {}).items()))), shared)

    @property
    def name(self) -> str:
        """What to call the server in messages."""
        return self.server.name

    async def open(self, task: Mapping[str, Any]) -> McpSession:  # noqa: ARG002 - any task
        """See :class:`ToolSource`.

        Raises:
            RolloutError: the server cannot be started or reached; names it, with the last lines
                that it wrote to its standard error.
        """
        if not self.shared:
            connection = Connection(self.server)
            try:
                await connection.start()
            except BaseException:
                await connection.close()
                raise
            return McpSession(tools_on(connection), connection.close)
        line = await _Line.to(self.server)
        return McpSession(tools_on(line.connection), line.leave)


@dataclass(frozen=True, slots=True)
class McpSession:
    """A rollout's tools over one connection: a :class:`ToolSession`."""

    tools: Mapping[str, Tool]
    _close: Callable[[], Any]

    async def close(self) -> None:
        """Leave the connection; who is the last closes it."""
        await self._close()


def tools_on(connection: Connection) -> dict[str, Tool]:
    """The tools that the server listed, by name."""
    made = {}
    for listed in connection.listed:
        function = {
            "name": listed.name,
            "description": listed.description or "",
            "parameters": listed.input_schema,
        }
        spec = {"type": "function", "function": function}
        made[listed.name] = Tool(_caller(connection, listed.name), listed.name, spec)
    return made


def _caller(connection: Connection, name: str) -> Callable[..., Any]:
    async def call(**arguments: Any) -> str:
        return await connection.call(name, arguments)

    return call


@dataclass(slots=True)
class _Line:
    """A connection with many users on one event loop."""

    server: Server
    connection: Connection
    users: int = 0

    @classmethod
    async def to(cls, server: Server) -> _Line:
        """A line that works, with one user more."""
        lines = _LINES.setdefault(asyncio.get_running_loop(), {})
        while True:
            line, is_new = lines.get(server), False
            if line is None or line.connection.ended:
                line, is_new = cls(server, Connection(server)), True
                lines[server] = line
            line.users += 1
            try:
                await line.connection.start()
                if is_new or await line.connection.lives():
                    return line
            except BaseException:
                await line.leave()
                raise
            await line.leave()  # the server is gone; the next one is new

    async def leave(self) -> None:
        """Be one user less; the last one closes it."""
        self.users -= 1
        if self.users:
            return
        lines = _LINES.setdefault(asyncio.get_running_loop(), {})
        if lines.get(self.server) is self:
            del lines[self.server]
        await self.connection.close()


_LINES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Server, _Line]] = WeakKeyDictionary()
"""What is shared, by the event loop that it lives on."""
