"""The page that manages a pool: it is there for those who may, and no address does anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.widgets.dashboard.wire import PASSWORD, SOCKET, ask, log_in
from tests.unit.widgets.managed import MadeVerbs
from widgets.browser import control_esm, esm
from widgets.dashboard import Dashboard, serve
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

LINK = 'href="./control"'


@pytest.fixture(scope="module")
def verbs() -> MadeVerbs:
    return MadeVerbs()


@pytest.fixture(scope="module")
def managed(verbs: MadeVerbs) -> Iterator[Dashboard]:
    with serve(verbs, control=verbs) as dashboard:
        yield dashboard


@pytest.fixture(scope="module")
def locked(verbs: MadeVerbs) -> Iterator[Dashboard]:
    with serve(verbs, control=verbs, password=PASSWORD) as dashboard:
        yield dashboard


def test_without_verbs_there_is_no_page_and_no_word_of_it(verbs: MadeVerbs) -> None:
    with serve(verbs) as dashboard:  # what it shows could manage the pool; that is not enough
        for path in ("/control", "/control/ws", "/plot/control"):
            assert ask(dashboard, path).status == 404
        for path in ("/overview", "/plots"):
            assert "control" not in ask(dashboard, path).text.lower()
        with pytest.raises(ConfigError, match="page: 'control'"):
            dashboard.page_url("control")
    assert "replicarow_js" in control_esm()
    assert "replicarow_js" not in esm()


def test_with_verbs_every_page_leads_to_it(managed: Dashboard) -> None:
    for path in ("/overview", "/plots", "/control"):
        assert LINK in ask(managed, path).text
    assert managed.page_url("control") == f"{managed.url}control"
    assert ask(managed, "/plot/control").status == 404


def test_what_is_no_verbs_is_refused(verbs: MadeVerbs) -> None:
    with pytest.raises(ConfigError, match="control: Feed cannot manage a pool"):
        serve(verbs, control=verbs.feed)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "query",
    ["asks=%7B%22a%22%3A%7B%22verb%22%3A%22resume%22%7D%7D", "verb=resume", "log=replica-0"],
)
def test_no_address_does_anything(
    managed: Dashboard, verbs: MadeVerbs, method: str, query: str
) -> None:
    answer = ask(managed, f"/control?{query}", method, "" if method == "GET" else query)
    assert answer.status == (200 if method == "GET" else 405)
    assert verbs.asked == []


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_pages_from_elsewhere_cannot_open_the_way_for_orders(
    managed: Dashboard, origin: str
) -> None:
    assert ask(managed, "/control/ws", **SOCKET, Origin=origin).status == 403
    own = f"http://127.0.0.1:{managed.port}"
    assert ask(managed, "/control/ws", **SOCKET, Origin=own).status == 101


def test_it_asks_for_the_password_and_logging_in_leads_there(locked: Dashboard) -> None:
    page = ask(locked, "/control")
    assert page.status == 302
    assert not page.text
    assert ask(locked, "/control/ws", **SOCKET).status == 403
    answer = log_in(locked, PASSWORD, "control")
    assert answer.headers["Location"] == "./control"
    pair = answer.headers["Set-Cookie"].partition(";")[0]
    assert ask(locked, "/control", Cookie=pair).status == 200
    assert ask(locked, "/control/ws", **SOCKET, Cookie=pair).status == 101


def test_every_other_address_needs_a_password(verbs: MadeVerbs) -> None:
    with serve(verbs, control=verbs, address="0.0.0.0") as dashboard:
        assert dashboard.password
        assert ask(dashboard, "/control").status == 302


def test_a_closed_dashboard_hears_nothing_of_orders_any_more(verbs: MadeVerbs) -> None:
    dashboard = serve(verbs, control=verbs)
    desk = dashboard._site._room.desk  # type: ignore[union-attr]
    before = len(desk._changed)
    dashboard.close()
    assert len(desk._changed) == before - 1
