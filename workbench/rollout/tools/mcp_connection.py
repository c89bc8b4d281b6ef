"""One connection to an MCP server, owned by one task."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from workbench.errors import RolloutError
from workbench.rollout.tools.results import ToolError, as_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import anyio
    from mcp import Client
    from mcp.client._transport import TransportStreams
    from mcp.types import CallToolResult, Tool

HTTP_TIMEOUT_S = 30.0
"""Of connecting and sending; answers may take as long as the call is allowed to."""

TAIL_CHARACTERS = 2000
"""How much of a server's standard error is told when it does not start."""

_OWNERS: set[asyncio.Task[None]] = set()
"""Tasks that own a connection. The loop itself holds them only weakly."""


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that is a program."""

    words: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None

    @property
    def name(self) -> str:
        return shlex.join(self.words)

    def client(self, log: TextIO) -> Client:
        """Not connected yet; the program's standard error goes to ``log``."""
        from mcp import Client, StdioServerParameters, stdio_client

        command, *args = self.words
        program = StdioServerParameters(
            command=command, args=args, env=dict(self.env), cwd=self.cwd
        )
        return Client(stdio_client(program, errlog=log), cache=None)


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server on the network."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return self.url

    def client(self, log: TextIO) -> Client:  # noqa: ARG002 - its log is elsewhere
        """Not connected yet."""
        from mcp import Client

        return Client(self._transport(), cache=None)

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[TransportStreams]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        limits = httpx2.Timeout(HTTP_TIMEOUT_S, read=None)
        async with (
            httpx2.AsyncClient(headers=dict(self.headers), timeout=limits) as http,
            streamable_http_client(self.url, http_client=http) as streams,
        ):
            yield streams


Server = StdioServer | HttpServer


class Connection:
    """To one server. Its contexts are entered and left by one task, which is its owner."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._owner: asyncio.Task[None] | None = None
        self._scope: anyio.CancelScope | None = None
        self._client: Client | None = None
        self._known = asyncio.Event()
        """It is open, or it is known that it will not be."""
        self._enough = asyncio.Event()
        self._reopening = asyncio.Lock()
        self._problem = ""
        self.listed: list[Tool] = []
        """The server's tools, once it is open."""
        self.ended = False
        """Whether it is known not to work any more."""

    async def start(self) -> None:
        """Open it, or wait until it is.

        Raises:
            RolloutError: it cannot be opened; names the server and says why.
        """
        if self._owner is None:
            self._owner = asyncio.create_task(self._own(), name=f"mcp {self._server.name}")
            _OWNERS.add(self._owner)
            self._owner.add_done_callback(_OWNERS.discard)
        await self._known.wait()
        if self._problem:
            raise RolloutError(self._problem)

    async def close(self) -> None:
        """Close it and wait until the server's process, where it is ours, is gone. Idempotent."""
        self._enough.set()
        if self._scope is not None and not self._known.is_set():
            self._scope.cancel()
        if self._owner is not None:
            await asyncio.wait({self._owner})

    async def lives(self) -> bool:
        """Whether the server still answers."""
        try:
            await self._answer((await self._ready()).list_tools())
        except Exception:  # noqa: BLE001 - whatever it is, this connection is of no use
            self.ended = True
        return not self.ended

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; what the model gets to read.

        Raises:
            ToolError: with the server's own text of an error, or saying that the server is gone.
        """
        client = await self._ready()
        result = await self._answer(client.call_tool(name, dict(arguments)))
        text = text_of(result)
        if result.is_error:
            raise ToolError(text)
        return text

    async def _ready(self) -> Client:
        """The client. One failed request over HTTP ends its connection, so another is opened."""
        if isinstance(self._server, StdioServer) or self._enough.is_set():
            if self._client is None or self.ended:
                raise self._gone()
            return self._client
        async with self._reopening:
            if self._owner is not None and self._owner.done():
                self._renew()
            try:
                await self.start()
            except RolloutError as error:
                raise self._gone() from error
            if self._client is None:
                raise self._gone()
            return self._client

    def _renew(self) -> None:
        self._owner = self._client = None
        self._problem, self.ended, self._known = "", False, asyncio.Event()

    def _gone(self) -> ToolError:
        return ToolError(f"error: the MCP server {self._server.name} is gone")

    async def _answer(self, asking: Any) -> Any:
        """An answer of the server; an error as soon as the connection is over."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        assert self._owner is not None
        call = asyncio.ensure_future(asking)
        try:
            await asyncio.wait({call, self._owner}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise self._gone()
            return call.result()
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise ToolError(f"error: {error.message}") from error
            # Over HTTP the next call may well get through; a program's end is one.
            self.ended = isinstance(self._server, StdioServer)
            raise self._gone() from error
        finally:
            call.cancel()

    async def _own(self) -> None:
        import anyio

        with tempfile.TemporaryFile("w+", errors="replace") as log:
            try:
                with anyio.CancelScope() as self._scope:
                    if self._enough.is_set():
                        return  # closed before it began
                    async with self._server.client(log) as client:
                        self.listed = await _all_tools(client)
                        self._client = client
                        self._known.set()
                        await self._enough.wait()
            except Exception as error:  # noqa: BLE001 - told to whoever waits for the connection
                self._problem = f"the MCP server {self._server.name} cannot be reached: "
                self._problem += f"{_in_words(error)}{_tail(log)}"
            finally:
                self.ended = True
                self._known.set()


async def _all_tools(client: Client) -> list[Tool]:
    found, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            return found


def _in_words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _tail(log: TextIO) -> str:
    log.seek(0)
    said = log.read().strip()[-TAIL_CHARACTERS:]
    return f"\nits last lines:\n{said}" if said else ""


def text_of(result: CallToolResult) -> str:
    """A result as text: its text parts, a word for each other part, or else its structure."""
    parts = [_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        return as_text(result.structured_content)
    return "\n".join(parts)


def _part(part: Any) -> str:
    text = getattr(part, "text", None)
    if text is None:
        text = getattr(getattr(part, "resource", None), "text", None)
    return f"[{part.type}]" if text is None else str(text)
