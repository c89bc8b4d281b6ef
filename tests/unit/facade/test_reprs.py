"""What the façade's objects show: quick, whatever state the pool is in, and never an error."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest

from workbench.aio import LoopThread
from workbench.config import PoolConfig
from workbench.errors import BalancerLostError, ConfigError, PoolClosedError, PoolError
from workbench.facade import reach as reaching
from workbench.facade.looks import pool_html, pool_text
from workbench.facade.reach import Reach
from workbench.facade.replica import Replica
from workbench.facade.routing import Routing
from workbench.types import (
    EngineFigures,
    PoolSnapshot,
    ReplicaLoad,
    ReplicaSnapshot,
    ReplicaState,
    ReplicaStatus,
    RoutingSnapshot,
)

LOAD = ReplicaLoad(
    "replica-0", ReplicaState.READY, in_flight=3, peak_in_flight=3, sessions=2, acquired=9
)
BOOKS = RoutingSnapshot(
    1, "sticky", (LOAD,), sessions=2, acquired=9, sticky=6, first_touch=3, moves=0, queued=1
)
STATUS = ReplicaStatus("replica-0", ReplicaState.READY, "", pid=42, node="n1", log_path="/r0.log")


def pool(engine: EngineFigures | None = None) -> PoolSnapshot:
    return PoolSnapshot("lab", "model", "cpu", (ReplicaSnapshot(STATUS, LOAD, engine),), BOOKS)


class Manager:
    """Stands for a pool's manager; ``answer`` is what the pool or its books are."""

    def __init__(self, answer, books=BOOKS):
        self.config = SimpleNamespace(name="lab", sample_s=1.0)
        self._answer = answer
        self._books = books

    async def snapshot(self):
        return await _answered(self._answer)

    async def ask_balancer(self, *_):
        return await _answered(self._books)

    async def read_history(self, _):
        raise AssertionError("a closed way was gone")

    async def log_tail(self, replica_id, lines):
        return f"{lines} lines of {replica_id}"


async def _answered(answer):
    if isinstance(answer, Exception):
        raise answer
    if answer == "hangs":
        await asyncio.Event().wait()
    return answer


@pytest.fixture
def reach():
    loop = LoopThread("test-io")
    yield lambda *args: Reach(Manager(*args), loop)
    loop.close()


def test_a_replica_shows_what_was_booked_beside_what_its_engine_says(reach):
    replica = Replica(reach(pool(EngineFigures(running=7))), "replica-0")
    assert repr(replica) == "Replica('replica-0', ready, 3 in flight, 7 running)"
    html = replica._repr_html_()
    assert ">3<" in html
    assert ">7<" in html
    assert "/r0.log" in html
    assert replica.status.pid == 42
    assert replica.load == LOAD
    assert replica.engine == EngineFigures(running=7)
    assert replica.log_tail(3) == "3 lines of replica-0"


def test_a_replica_that_does_not_report_shows_no_figures_and_not_zero(reach):
    replica = Replica(reach(pool()), "replica-0")
    assert repr(replica).endswith("3 in flight, no figures from its engine)")
    assert ">0<" not in replica._repr_html_()
    assert replica.engine is None


def test_a_replica_that_left(reach):
    replica = Replica(reach(pool()), "replica-9")
    assert repr(replica) == "Replica('replica-9', not in the pool any more)"
    with pytest.raises(ConfigError, match=r"'replica-9' \(allowed: replica-0\)"):
        _ = replica.status


@pytest.mark.parametrize("lines", [0, True, "all"])
def test_a_log_has_whole_lines(reach, lines):
    with pytest.raises(ConfigError, match="lines: "):
        Replica(reach(pool()), "replica-0").log_tail(lines)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (PoolClosedError("gone"), "closed"),
        (BalancerLostError("the balancer cannot be reached"), "the balancer cannot be reached"),
        (PoolError("x < y"), "x < y"),
        (RuntimeError(), "RuntimeError"),
        ("hangs", "no answer within 0.05 s"),
    ],
)
def test_what_cannot_be_seen_is_said_in_words(reach, answer, told, monkeypatch):
    if answer == "hangs":
        monkeypatch.setattr(reaching, "LOOK_S", 0.05)
    for shown in (Replica(reach(answer), "replica-0"), Routing(reach(pool(), answer))):
        assert told in repr(shown)
        assert told.replace("<", "&lt;") in shown._repr_html_()
        assert {"text/plain", "text/html"} <= shown._repr_mimebundle_().keys()


def test_what_was_closed_says_so_and_starts_nothing(reach):
    closed = reach("hangs", "hangs")
    closed.closed = True
    assert repr(Routing(closed)) == "Routing(closed)"
    assert repr(Replica(closed, "replica-0")) == "Replica('replica-0', closed)"


def test_a_repr_on_the_loop_itself_does_not_wait_for_itself(reach):
    way = reach(pool())

    async def shown():
        return repr(Replica(way, "replica-0"))

    assert "own loop" in way.loop.run(shown())


def test_a_closed_way_leads_nowhere_and_its_feed_says_so(reach):
    way = reach(pool())
    way.closed = True
    with pytest.raises(PoolClosedError, match="'lab' was closed"):
        way.call(way.manager.snapshot())
    assert not way.feed.pull()
    assert way.feed.closed


def test_a_pool_in_a_line_counts_those_that_serve_and_says_whose_it_is():
    starting = ReplicaSnapshot(ReplicaStatus("replica-1", ReplicaState.STARTING, "x"), None, None)
    seen = dataclasses.replace(pool(), replicas=(*pool().replicas, starting))
    assert pool_text("m", seen) == "Workbench('m', 1/2 replicas ready on cpu, 3 in flight)"
    assert pool_text("m", seen, attached_to="lab").endswith("3 in flight, attached to 'lab')")
    blind = dataclasses.replace(seen, routing=None)
    assert pool_text("m", blind).endswith("on cpu, no books)"), "which is not: nothing in flight"
    assert (
        pool_text("m", "closed", attached_to="lab") == "Workbench('m', closed, attached to 'lab')"
    )


def test_a_pool_as_a_table_has_a_row_for_each_replica():
    config = PoolConfig(model="a<b", name="lab")
    html = pool_html(config, pool(EngineFigures(running=7)), attached=True)
    assert "a&lt;b" in html
    assert "lab, attached, on cpu" in html
    assert ">7<" in html
    assert "lab, x &lt; y" in pool_html(config, "x < y", attached=False)
