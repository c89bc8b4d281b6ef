"""A dashboard over the wire: who is let in, what is told to whom, how it begins and ends."""

from __future__ import annotations

import gc
import io
import re
import socket
import subprocess
import sys
import threading
import weakref
import zipfile
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import pandas as pd
import pytest

from tests.unit.widgets.dashboard.pools import EVIL, MadePool
from widgets.dashboard import Dashboard, keys, serve
from workbench.errors import ConfigError
from workbench.metrics.feed import Feed
from workbench.types import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def pool() -> MadePool:
    pool = MadePool()
    pool.happen(EventKind.MOVED, EVIL)
    pool.happen(EventKind.ACQUIRED, "b")
    return pool


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


# -- who is let in ------------------------------------------------------------------------------


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
    assert pair.partition("=")[2] not in page.text
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


# -- pages --------------------------------------------------------------------------------------


def test_the_root_leads_to_the_first_page(open_: Dashboard, locked: Dashboard) -> None:
    assert ask(open_, "/").headers["Location"] == "./overview"
    pair = log_in(locked, PASSWORD, root="/lab").headers["Set-Cookie"].partition(";")[0]
    assert ask(locked, "/lab", Cookie=pair).headers["Location"] == "./lab/overview"
    assert ask(locked, "/lab/", Cookie=pair).headers["Location"] == "./overview"


def test_pages_have_one_address(open_: Dashboard) -> None:
    assert ask(open_, "/overview/").headers["Location"] == "../overview"
    assert ask(open_, "/plot/load/?a=b").headers["Location"] == "../load"
    assert ask(open_, "/nonsense").status == 404


def test_pages_point_to_nothing_outside_and_to_nothing_absolute(open_: Dashboard) -> None:
    for path in ("/overview", "/plot/load", "/plots"):
        text = ask(open_, path).text
        assert "Content-Security-Policy" in text
        links = re.findall(r"""(?:href|src)=["']([^"']*)""", text)
        assert links
        for link in links:
            assert not urlsplit(link).netloc
            assert not link.startswith("/")


def test_names_are_text(pool: MadePool) -> None:
    feed = MadePool().feed
    feed.name = f"</title>{EVIL}"
    with serve(feed) as dashboard:
        for path in ("/overview", "/plots", "/plot/load"):
            assert EVIL not in ask(dashboard, path).text
        assert EVIL not in dashboard._repr_html_()
        disposition = ask(dashboard, "/download/history.csv").headers["Content-Disposition"]
        assert re.fullmatch(r'attachment; filename="[\w.-]+\.csv"', disposition)


# -- taking away --------------------------------------------------------------------------------


def test_tables_can_be_taken_away(open_: Dashboard, pool: MadePool) -> None:
    csv = ask(open_, "/download/history.csv?length_s=10")
    assert csv.headers["Content-Type"].startswith("text/csv")
    history = pd.read_csv(io.BytesIO(csv.data))
    assert history["time"].nunique() == 11
    parquet = pd.read_parquet(io.BytesIO(ask(open_, "/download/history.parquet?length_s=10").data))
    assert parquet.shape == history.shape
    sessions = pd.read_csv(io.BytesIO(ask(open_, "/download/sessions.csv?find=session-11").data))
    assert sorted(sessions["session_id"]) == sorted(
        ["session-11", *(f"session-{n}" for n in range(110, 120))]
    )
    events = pd.read_csv(io.BytesIO(ask(open_, "/download/events.csv?kinds=moved").data))
    assert events["session_id"].tolist() == [EVIL]
    rollouts = pd.read_csv(io.BytesIO(ask(open_, "/download/rollouts.csv").data))
    assert len(rollouts) == 4


def test_everything_can_be_taken_away_and_opened_again(open_: Dashboard, tmp_path) -> None:
    data = ask(open_, "/download/pool.zip").data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    feed = Feed.open(folder)
    assert feed.name == "lab"
    with serve(feed) as dashboard:
        assert ask(dashboard, "/overview").status == 200


@pytest.mark.parametrize("query", ["length_s=nan", "length_s=-1", "length_s=x&start_s=1e400"])
def test_windows_that_make_no_sense_count_as_not_asked(open_: Dashboard, query: str) -> None:
    assert ask(open_, f"/download/history.csv?{query}").status == 200


def test_what_is_not_there_cannot_be_taken_away(open_: Dashboard) -> None:
    assert ask(open_, "/download/secrets.csv").status == 404
    pool = MadePool()
    with serve(pool.feed) as dashboard:
        pool.lose("the network is down")
        answer = ask(dashboard, "/download/sessions.csv")
        assert answer.status == 503
        assert answer.text == "the network is down"


# -- addresses ----------------------------------------------------------------------------------


def test_addresses(pool: MadePool, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(pool.feed, prefix="lab") as dashboard:
        url = f"http://127.0.0.1:{dashboard.port}/lab/"
        assert dashboard.url == url
        assert dashboard.page_url("plot/load") == f"{url}plot/load"
        assert repr(dashboard) == f"Dashboard('{url}overview')"
        with pytest.raises(ConfigError, match="overview, replicas"):
            dashboard.page_url("nonsense")
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/alice/")
    with serve(pool.feed) as dashboard:
        address = f"/user/alice/proxy/{dashboard.port}/cache"
        assert dashboard.page_url("cache") == address
        html = dashboard.show("cache", height=300)._repr_html_()
        assert f'<iframe src="{address}"' in html
        assert f'<a href="{address}"' in html
        assert 'height="300"' in html


def test_pages_at_the_link_may_use_it(pool: MadePool) -> None:
    with serve(pool.feed, link="https://lab.example/d/{page}") as dashboard:
        assert dashboard.page_url() == "https://lab.example/d/overview"
        given = {**SOCKET, "Origin": "https://lab.example"}
        assert ask(dashboard, "/overview/ws", **given).status == 101
        assert ask(dashboard, "/overview", Host="lab.example").status == 200
        assert ask(dashboard, "/overview", Host="evil.example").status == 403


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"port": "5006"}, "port"),
        ({"prefix": "a b"}, "prefix"),
        ({"password": "short"}, "password"),
        ({"address": ""}, "address"),
        ({"address": "192.0.2.1"}, "address"),
        ({"address": "no-such-host.invalid"}, "address"),
        ({"link": "/x"}, "link"),
    ],
)
def test_wrong_arguments_start_nothing(pool: MadePool, options: dict, field: str) -> None:
    before = threading.active_count()
    with pytest.raises(ConfigError) as caught:
        serve(pool.feed, **options)
    assert caught.value.field == field
    assert threading.active_count() == before


def test_a_source_without_figures() -> None:
    with pytest.raises(ConfigError, match="a Workbench, a LocalPool, a Feed"):
        serve(object())


# -- beginning and ending -----------------------------------------------------------------------


def test_a_port_that_is_taken_is_named(pool: MadePool, open_: Dashboard) -> None:
    with pytest.raises(ConfigError, match=rf"{open_.port} on 127.0.0.1 is in use") as caught:
        serve(pool.feed, port=open_.port)
    assert caught.value.field == "port"


def test_it_ends_and_may_begin_again_at_the_same_port(pool: MadePool) -> None:
    first = serve(pool.feed)
    assert ask(first, "/overview").status == 200
    first.close()
    first.close()
    assert first.closed
    assert repr(first).endswith("closed)")
    assert "<iframe" not in first._repr_html_()
    with pytest.raises(ConnectionError):
        ask(first, "/overview")
    with serve(pool.feed, port=first.port) as second:
        assert second.port == first.port
        assert ask(second, "/overview").status == 200


def test_what_ended_is_let_go(pool: MadePool) -> None:
    dashboard = serve(pool.feed)
    ask(dashboard, "/overview")
    site = weakref.ref(dashboard._site)
    dashboard.close()
    del dashboard
    gc.collect()
    assert site() is None


def test_nobody_looks_at_a_page_that_no_browser_opened(pool: MadePool) -> None:
    with serve(pool.feed) as dashboard:
        reads = pool.reads
        for _ in range(3):
            ask(dashboard, "/overview")
        assert not dashboard._site.gallery.viewers
        assert pool.reads == reads


def test_it_keeps_no_script_from_ending() -> None:
    script = (
        "from tests.unit.widgets.dashboard.pools import MadePool\n"
        "from widgets.dashboard import serve\n"
        "print(serve(MadePool().feed).url)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout.startswith("http://127.0.0.1:")
    assert not done.stderr


def test_importing_it_is_cheap() -> None:
    script = (
        "import sys, widgets.dashboard\n"
        "print([name for name in ('panel', 'bokeh', 'tornado', 'pandas', 'numpy', 'IPython')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_ipv6_where_there_is_one(pool: MadePool) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with serve(pool.feed, address="::1") as dashboard:
        assert dashboard.url == f"http://[::1]:{dashboard.port}/"
        assert dashboard.password is None
