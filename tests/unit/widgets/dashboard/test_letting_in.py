"""Who is let in to a dashboard, and what strangers are told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from bokeh.util.token import get_token_payload

from tests.unit.widgets.dashboard.pools import MadePool
from tests.unit.widgets.dashboard.wire import PASSWORD, SOCKET, ask, log_in
from widgets.dashboard import Dashboard, keys, serve

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def pool() -> MadePool:
    return MadePool()


@pytest.fixture(scope="module")
def open_(pool: MadePool) -> Iterator[Dashboard]:
    with serve(pool.feed) as dashboard:
        yield dashboard


@pytest.fixture(scope="module")
def locked(pool: MadePool) -> Iterator[Dashboard]:
    with serve(pool.feed, prefix="lab", password=PASSWORD) as dashboard:
        yield dashboard


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "WRONG_S", 0.0)


def test_loopback_is_open(open_: Dashboard) -> None:
    assert open_.password is None
    assert ask(open_, "/overview").status == 200


@pytest.mark.parametrize("path", ["/overview", "/static/js/bokeh.min.js", "/download/history.csv"])
def test_a_name_that_points_here_by_trickery_is_refused(open_: Dashboard, path: str) -> None:
    answer = ask(open_, path, Host="evil.example")
    assert answer.status == 403
    assert "open it as 127.0.0.1" in answer.text


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://127.0.0.1:{port}", 101), ("https://evil.example", 403), ("null", 403), ("", 101)],
)
def test_only_our_own_pages_may_open_a_websocket(
    open_: Dashboard, origin: str, status: int
) -> None:
    headers = {"Origin": origin.format(port=open_.port)} if origin else {}
    assert ask(open_, "/overview/ws", **SOCKET, **headers).status == status


@pytest.mark.parametrize(
    "path",
    ["overview", "plots", "plot/load", "download/pool.zip", "static/js/bokeh.min.js",
     "overview/metadata", "overview/autoload.js?bokeh-autoload-element=x", "nonsense", ""],
)  # fmt: skip
def test_nothing_is_told_without_the_password(locked: Dashboard, path: str) -> None:
    answer = ask(locked, f"/lab/{path}")
    assert answer.status == 302
    assert answer.headers["Location"].partition("?")[0] in {"./login", "../login", "../../login"}
    assert not answer.text


def test_no_websocket_without_the_cookie(locked: Dashboard) -> None:
    own = f"http://127.0.0.1:{locked.port}"
    assert ask(locked, "/lab/overview/ws", **SOCKET, Origin=own).status == 403


@pytest.mark.parametrize("path", ["/lab/liveness", "/lab/login", "/lab/logout"])
def test_what_strangers_see_tells_nothing_of_the_pool(locked: Dashboard, path: str) -> None:
    answer = ask(locked, path)
    assert answer.status in {200, 302}
    assert locked.password not in answer.text
    assert not re.search(r"replica|session|\blab\b", answer.text)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize(
    "password",
    ["", "wrong", PASSWORD + " ", PASSWORD.upper(), "\ud800".encode("utf-8", "replace").decode()],
)
def test_a_wrong_password_stays_outside(locked: Dashboard, password: str) -> None:
    answer = log_in(locked, password, root="/lab")
    assert answer.status == 401
    assert "not the password" in answer.text
    assert "Set-Cookie" not in answer.headers


def test_wrong_passwords_wait_in_line(locked: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds_s: float) -> None:
        waits.extend([seconds_s] if seconds_s else [])

    monkeypatch.setattr(keys.asyncio, "sleep", sleep)
    for _ in range(3):
        log_in(locked, "wrong", root="/lab")
    assert waits == [keys.WRONG_S] * 3


def test_the_password_opens_every_door(locked: Dashboard) -> None:
    answer = log_in(locked, PASSWORD, "plot/load", root="/lab")
    assert answer.status == 302
    assert answer.headers["Location"] == "./plot/load"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Path" not in cookie  # so that it holds for whatever path a proxy puts in front
    pair = cookie.partition(";")[0]
    page = ask(locked, "/lab/overview", Cookie=pair)
    assert page.status == 200
    token = re.search(r'"token":"([^"]+)"', page.text)
    assert token
    told = get_token_payload(token[1])  # the page's own scripts may read it, and never the cookie
    assert not told.get("cookies")
    assert not told.get("headers")
    assert ask(locked, "/lab/overview/ws", **SOCKET, Cookie=pair).status == 101
    assert ask(locked, "/lab/overview", Cookie=pair, Host="any.example").status == 200
    name, _, value = pair.partition("=")
    assert ask(locked, "/lab/overview", Cookie=f"{name}={value[:-3]}abc").status == 302


@pytest.mark.parametrize(
    "page", ["//evil.example", "https://evil.example", "../..", "x\r\nSet-Cookie: a=b"]
)
def test_logging_in_leads_to_our_own_pages_only(locked: Dashboard, page: str) -> None:
    path = f"/lab/login?{urlencode({'next': page})}"
    answer = ask(locked, path, "POST", urlencode({"password": PASSWORD}))
    assert answer.headers["Location"] == "./overview"


def test_logging_out_forgets(locked: Dashboard) -> None:
    answer = ask(locked, "/lab/logout")
    assert answer.headers["Location"] == "./login"
    assert "expires=" in answer.headers["Set-Cookie"].lower()
    assert '""' in answer.headers["Set-Cookie"]


def test_other_pages_cannot_send_the_form(locked: Dashboard) -> None:
    answer = ask(locked, "/lab/login", "POST", "password=x", Origin="https://evil.example")
    assert answer.status == 403


def test_every_other_address_needs_a_password(pool: MadePool) -> None:
    with serve(pool.feed, address="0.0.0.0") as dashboard:
        assert dashboard.password
        assert ask(dashboard, "/overview").status == 302
        assert log_in(dashboard, dashboard.password).status == 302
        assert dashboard.password not in repr(dashboard) + dashboard._repr_html_()
        assert "0.0.0.0" not in dashboard.url


def test_what_the_server_would_show_to_every_site_is_not_offered(open_: Dashboard) -> None:
    path = "/overview/autoload.js?bokeh-autoload-element=x"
    assert ask(open_, path, Origin="https://evil.example").status == 403
