"""A replica's own HTTP: who may ask what, and what is counted."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from tests.unit.inprocess import WAIT_S, until
from workbench.engines.http import HttpServer, replica_app
from workbench.errors import ConfigError, ReplicaDiedError

METRICS = b"tokens 3\n", "text/plain; version=1.0.0; charset=utf-8"


@asynccontextmanager
async def serving(app, host="127.0.0.1", key=None):
    server = HttpServer(app, host, key)
    await server.start()
    try:
        async with httpx.AsyncClient(
            base_url=server.address, timeout=WAIT_S, trust_env=False
        ) as client:
            yield server, client
    finally:
        await server.close()


class Engine:
    death: ReplicaDiedError | None = None

    def check(self):
        if self.death:
            raise self.death


async def test_health_is_the_engines_and_metrics_are_as_they_were_given():
    engine = Engine()
    async with serving(replica_app(engine.check, lambda: METRICS)) as (_, client):
        well = await client.get("/health")
        metrics = await client.get("/metrics")
        engine.death = ReplicaDiedError("replica-3", "out of memory")
        ill = await client.get("/health")
        assert (await client.get("/v1/models")).status_code == 404
    assert (well.status_code, well.json()["status"]) == (200, "ok")
    assert (ill.status_code, ill.json()["status"]) == (503, "unhealthy")
    assert "replica-3 died: out of memory" in ill.json()["error"]
    assert (metrics.status_code, metrics.content) == (200, METRICS[0])
    assert metrics.headers["content-type"] == METRICS[1]


@pytest.mark.parametrize(
    "shown",
    [{}, {"authorization": "Bearer other"}, {"authorization": "secret"}, {"x-key": "secret"}],
)
async def test_all_but_health_asks_for_the_key(shown):
    app = replica_app(Engine().check, lambda: METRICS)
    async with serving(app, key="secret") as (server, client):
        assert (await client.get("/health")).status_code == 200
        for path in ("/metrics", "/v1/models", "/", "/health/../metrics", "/health/"):
            assert (await client.get(path, headers=shown)).status_code == 401
        right = {"authorization": "Bearer secret"}
        assert (await client.get("/metrics", headers=right)).status_code == 200
        assert server.in_flight == 0


async def test_a_websocket_asks_for_the_key_too():
    upgrade = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    reached = []

    async def talk(socket):
        reached.append(socket)
        await socket.accept()
        await socket.close()

    app = Starlette(routes=[WebSocketRoute("/v1/realtime", talk)])
    async with serving(app, key="secret") as (_, client):
        assert (await client.get("/v1/realtime", headers=upgrade)).status_code in {401, 403}
    assert reached == []


async def test_an_ipv6_address_is_one_that_a_browser_takes():
    if not _has_ipv6():
        pytest.skip("no IPv6 here")
    app = replica_app(Engine().check, lambda: METRICS)
    async with serving(app, host="::1") as (server, client):
        assert server.address.startswith("http://[::1]:")
        assert (await client.get("/health")).status_code == 200


def _has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["203.0.113.7", "no such name"])
async def test_an_address_that_is_not_this_machines_is_refused_by_its_field(host):
    with pytest.raises(ConfigError) as refused:
        await HttpServer(replica_app(Engine().check, lambda: METRICS), host).start()
    assert refused.value.field == "host"
    assert host in str(refused.value)


class Gate:
    """Routes that answer when they are let."""

    def __init__(self):
        self.open = asyncio.Event()

    async def wait(self, _):
        await self.open.wait()
        return PlainTextResponse("done")

    async def stream(self, _):
        async def lines():
            yield "first\n"
            await self.open.wait()
            yield "last\n"

        return StreamingResponse(lines())

    async def fail(self, _):
        raise ReplicaDiedError("replica-0")

    @property
    def app(self):
        return Starlette(
            routes=[
                Route("/v1/wait", self.wait),
                Route("/v1/stream", self.stream),
                Route("/v1/fail", self.fail),
                Route("/metrics", self.wait),
            ]
        )


async def test_requests_count_until_they_were_answered_to_the_end_and_only_those_for_the_model():
    gate = Gate()
    async with serving(gate.app) as (server, client):
        metrics = asyncio.ensure_future(client.get("/metrics"))
        waiting = [asyncio.ensure_future(client.get("/v1/wait")) for _ in range(2)]
        async with client.stream("GET", "/v1/stream") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "first"
            await until(lambda: server.in_flight == 3)
            gate.open.set()
            assert [line async for line in lines] == ["last"]
        assert {answer.text for answer in await asyncio.gather(metrics, *waiting)} == {"done"}
        await until(lambda: server.in_flight == 0)


async def test_what_fails_or_is_given_up_counts_no_longer(caplog):
    gate = Gate()
    async with serving(gate.app) as (server, client):
        assert (await client.get("/v1/fail")).status_code == 500
        assert server.in_flight == 0
        async with client.stream("GET", "/v1/stream") as stream:
            await anext(stream.aiter_lines())
            assert server.in_flight == 1
        await until(lambda: server.in_flight == 0)


async def test_closing_cuts_off_what_is_open_and_gives_the_address_back():
    gate = Gate()
    server = HttpServer(gate.app, "127.0.0.1")
    await server.close()  # it never listened
    await server.start()
    async with httpx.AsyncClient(base_url=server.address, timeout=None, trust_env=False) as client:
        waiting = asyncio.ensure_future(client.get("/v1/wait"))
        await until(lambda: server.in_flight == 1)
        async with asyncio.timeout(WAIT_S):
            await server.close()
            await server.close()
            with pytest.raises(httpx.TransportError):
                await waiting
        gate.open.set()
        await until(lambda: server.in_flight == 0)
        with pytest.raises(httpx.ConnectError):
            await client.get("/health")
