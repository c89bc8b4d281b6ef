"""An MCP server to be tested against: counts, fails, hangs, dies. Run it as a program."""

import os
import signal
import socket
import sys

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("counting")
count = 0


@server.tool()
def add(step: int = 1) -> int:
    """Count on.

    Args:
        step: By how much.
    """
    global count  # noqa: PLW0603 - the state of this process
    count += step
    return count


@server.tool()
def describe() -> dict[str, int]:
    """Tell the count with its name."""
    return {"count": count}


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("it cannot be done")


@server.tool()
async def hang() -> str:
    """Hang."""
    await anyio.sleep_forever()


@server.tool()
def die() -> str:
    """End the server, in the middle of everything."""
    os.kill(os.getpid(), signal.SIGKILL)


@server.tool()
def process() -> int:
    """Tell which process this is."""
    return os.getpid()


def serve_http(port: int) -> None:
    """On this port, 0 for one of the system's choice; it is the first line that is written."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", port))
    print(listening.getsockname()[1], flush=True)  # noqa: T201
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        serve_http(int(sys.argv[2]))
    elif sys.argv[1:] == ["broken"]:
        sys.exit("this server has a bad day")
    else:
        server.run("stdio")
