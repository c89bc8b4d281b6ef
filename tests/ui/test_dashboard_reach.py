"""The dashboard behind passwords and proxies, in a real browser."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Error, expect

from tests.ui.viewing import picture, pool, proxy
from widgets.dashboard import serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.ui.proxy import Proxy
    from tests.unit.widgets.dashboard.pools import MadePool

__all__ = ["pool", "proxy"]  # fixtures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PASSWORD = "correct horse"


def test_the_password_is_asked_for(page: Page, pool: MadePool) -> None:
    with serve(pool.feed, password=PASSWORD, prefix="lab") as dashboard:
        page.goto(dashboard.page_url("plot/load"))
        page.get_by_label("Password").fill("wrong password")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("This is not the password.")).to_be_visible()
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/lab/plot/load")
        expect(picture(page, "Replica load")).to_be_visible()
        page.goto(dashboard.page_url("overview"))
        page.get_by_role("link", name="Log out").click()
        page.wait_for_url("**/lab/login")
        page.goto(dashboard.page_url("overview"))
        expect(page.get_by_label("Password")).to_be_visible()


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_it_works_behind_a_proxy_that_it_does_not_know(
    page: Page, pool: MadePool, proxy: Proxy, password: str | None
) -> None:
    with serve(pool.feed, password=password, link="/proxy/{port}/{page}") as dashboard:
        page.goto(f"http://localhost:{proxy.port}{dashboard.page_url('overview')}")
        if password:
            page.get_by_label("Password").fill(password)
            page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("6 requests").first).to_be_visible()
        pool.step(in_flight=21)
        expect(page.get_by_text("42 requests").first).to_be_visible()
        page.get_by_role("link", name="Plots").click()
        page.get_by_role("link", name="Replica load").click()
        expect(picture(page, "Replica load")).to_be_visible()
        assert all(path.startswith(f"/proxy/{dashboard.port}/") for path in proxy.paths)


@pytest.fixture
def jupyter(tmp_path: Path) -> Iterator[str]:
    """The address of a Jupyter server with jupyter-server-proxy, as JupyterHub would start it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "HOME")
    command = [
        sys.executable, "-m", "jupyter_server", f"--port={port}", "--ip=127.0.0.1", "--no-browser",
        "--allow-root", "--ServerApp.base_url=/user/alice/", "--ServerApp.token=a-token",
        "--ServerApp.jpserver_extensions={'jupyter_server_proxy': True}",
    ]  # fmt: skip
    with (tmp_path / "jupyter.log").open("w") as log:
        server = subprocess.Popen(
            command,
            env={**os.environ, **dict.fromkeys(names, str(tmp_path))},
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_it_works_behind_jupyterhubs_proxy(
    page: Page,
    pool: MadePool,
    jupyter: str,
    password: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/alice/")
    with serve(pool.feed, password=password) as dashboard:
        until_up(page, f"{jupyter}/user/alice/api?token=a-token")
        page.goto(f"{jupyter}/user/alice/?token=a-token")
        page.goto(f"{jupyter}{dashboard.page_url('overview')}")
        if password:
            page.get_by_label("Password").fill(password)
            page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("6 requests").first).to_be_visible()
        pool.step(in_flight=21)
        expect(page.get_by_text("42 requests").first).to_be_visible()
        page.get_by_role("link", name="Cache").click()
        expect(picture(page, "KV")).to_be_visible()


def until_up(page: Page, address: str) -> None:
    for _ in range(600):
        try:
            page.goto(address)
        except Error:
            page.wait_for_timeout(100)
        else:
            return
    raise AssertionError(f"nobody answers at {address}")
