"""A dashboard over the wire: its pages, its tables, its addresses, how it begins and ends."""

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
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pandas as pd
import pytest

from tests.unit.widgets.dashboard.pools import EVIL, MadePool
from tests.unit.widgets.dashboard.wire import PASSWORD, SOCKET, ask, log_in
from widgets.dashboard import Dashboard, serve
from workbench.errors import ConfigError
from workbench.metrics.feed import Feed
from workbench.types import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        ({"address": "no host"}, "address"),
        ({"link": "/x"}, "link"),
    ],
)
def test_wrong_arguments_start_nothing(pool: MadePool, options: dict, field: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConfigError) as caught:
        serve(pool.feed, **options)
    assert caught.value.field == field
    assert not set(threading.enumerate()) - before


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
