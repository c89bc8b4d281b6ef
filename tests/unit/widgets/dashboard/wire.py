"""Requests to a dashboard, as any program can make them."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from widgets.dashboard import Dashboard

PASSWORD = "correct horse"
SOCKET = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "bokeh, token",
}


class Answer:
    """A response that was read to its end."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.data = b"" if response.status == 101 else response.read()
        self.text = self.data.decode(errors="replace")


def ask(
    dashboard: Dashboard, path: str, method: str = "GET", body: str = "", **headers: str
) -> Answer:
    """One request; underscores in names of headers stand for dashes."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if body:
        given["Content-Type"] = "application/x-www-form-urlencoded"
    connection = HTTPConnection("127.0.0.1", dashboard.port, timeout=20)
    try:
        connection.request(method, path, body or None, given)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def log_in(
    dashboard: Dashboard, password: str, next_page: str = "overview", root: str = ""
) -> Answer:
    return ask(
        dashboard, f"{root}/login?next={next_page}", "POST", urlencode({"password": password})
    )
