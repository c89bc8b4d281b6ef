"""A process's place in a cluster: shared by all who use it, left by the last of them."""

from __future__ import annotations

import functools
import os
import socket
import threading

import pytest
import ray
from ray._private import ray_constants

from workbench.cluster import connection, joining
from workbench.cluster.connection import connect
from workbench.cluster.vigil import Vigil
from workbench.errors import ConfigError, PoolError

HERE = "127.0.0.1:4000"
QUICK = functools.partial(Vigil, period_s=0.001)


class Cluster:
    """Stands for Ray in this process."""

    def __init__(self):
        self.address = None
        self.joined = []
        self.left = threading.Semaphore(0)
        self.answers = True

    def join(self, address):
        self.joined.append(address)
        self.address = address or HERE

    def shutdown(self):
        self.address = None
        self.left.release()

    @property
    def times_left(self):
        return self.left._value


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(connection, "_place", None)
    monkeypatch.setattr(connection, "join", made.join)
    monkeypatch.setattr(connection, "answers", lambda _: made.answers)
    monkeypatch.setattr(connection, "cluster_address", lambda: made.address)
    monkeypatch.setattr(connection, "check_same", lambda address: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: made.address is not None)
    monkeypatch.setattr(ray, "shutdown", made.shutdown)
    yield made
    vigil = connection.current_vigil()
    if vigil is not None:
        vigil.stop()


def test_the_last_who_uses_it_leaves_it(cluster):
    one, other = connect(), connect()
    one.close()
    one.close()
    assert cluster.times_left == 0
    other.close()
    assert cluster.times_left == 1
    assert cluster.joined == [None]


def test_what_was_not_begun_here_is_not_ended_here(cluster):
    cluster.address = HERE
    connect().close()
    assert cluster.times_left == 0


def test_an_address_goes_before_the_environment(cluster, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:1")
    connect("there:2").close()
    connect().close()
    assert cluster.joined == ["there:2", "elsewhere:1"]


@pytest.mark.parametrize(("address", "is_watched"), [(None, False), ("local", False), (HERE, True)])
def test_a_head_is_watched_where_it_is_not_this_process_own(cluster, address, is_watched):
    joined = connect(address)
    assert (connection.current_vigil() is not None) is is_watched
    joined.close()
    assert connection.current_vigil() is None


def test_a_cluster_that_is_gone_is_left_before_another_is_joined(cluster, monkeypatch):
    monkeypatch.setattr(connection, "Vigil", QUICK)
    old = connect(HERE)
    vigil = connection.current_vigil()
    cluster.answers = False
    assert cluster.left.acquire(timeout=20)
    assert vigil.gone
    cluster.answers = True
    new = connect("127.0.0.1:5000")
    assert connection.current_vigil() is not vigil
    old.close()  # it has nothing any more that it could give up
    assert cluster.address == "127.0.0.1:5000"
    new.close()
    assert cluster.address is None


def test_who_joins_waits_until_what_is_gone_is_left(cluster, monkeypatch):
    leaving, may_leave = threading.Event(), threading.Event()

    def leave():
        leaving.set()
        may_leave.wait(20)
        cluster.shutdown()

    monkeypatch.setattr(connection, "Vigil", QUICK)
    monkeypatch.setattr(ray, "shutdown", leave)
    connect(HERE)
    vigil = connection.current_vigil()
    cluster.answers = False
    assert leaving.wait(20)
    monkeypatch.setattr(vigil, "join", lambda join=vigil.join: (may_leave.set(), join()))
    cluster.answers = True
    connect("127.0.0.1:5000").close()
    assert cluster.joined == [HERE, "127.0.0.1:5000"]


def test_who_held_what_somebody_else_ended_does_not_end_what_came_after(cluster):
    old = connect()
    cluster.shutdown()  # as a user may
    new = connect()
    old.close()
    assert cluster.address == HERE
    new.close()
    assert cluster.address is None


def test_closing_what_is_gone_waits_for_nothing(cluster, monkeypatch):
    leaving = threading.Event()
    monkeypatch.setattr(connection, "Vigil", QUICK)
    monkeypatch.setattr(ray, "shutdown", lambda: leaving.wait(20))
    old = connect(HERE)
    vigil = connection.current_vigil()
    cluster.answers = False
    assert vigil._gone.wait(20)
    old.close()
    leaving.set()
    vigil.join()


def test_a_process_is_in_one_cluster_only(monkeypatch):
    class Context:
        gcs_address = HERE

    monkeypatch.setattr(ray, "get_runtime_context", Context)
    for same in ("auto", HERE, "localhost:4000"):
        joining.check_same(same)
    for other in ("127.0.0.1:4001", "192.0.2.99:4000", "no.such.host.invalid:4000"):
        with pytest.raises(ConfigError, match=f"in the Ray cluster at {HERE} already"):
            joining.check_same(other)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("known", [None, "1"])
def test_staying_on_loopback_ends_with_the_start(monkeypatch, enabled, known):
    variable = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    monkeypatch.delenv(variable, raising=False)
    if known is not None:
        monkeypatch.setenv(variable, known)
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)

    def fails():
        with joining._loopback(enabled=enabled):
            assert ray_constants.ENABLE_RAY_CLUSTER is not enabled
            assert os.environ.get(variable) == ("0" if enabled else known)
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - any
        fails()
    assert ray_constants.ENABLE_RAY_CLUSTER is True
    assert os.environ.get(variable) == known


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("nonsense", "allowed: host:port of a Ray head"),
        ("host:", "allowed: host:port of a Ray head"),
        ("127.0.0.1:1", "nothing answers at '127.0.0.1:1'"),
    ],
)
def test_an_address_where_no_cluster_is_is_refused_before_ray_tries(
    monkeypatch, address, complaint
):
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray tried"))
    with pytest.raises(ConfigError, match=complaint):
        joining.join(address)


def test_what_ray_says_when_it_cannot_be_joined_or_started_is_passed_on(monkeypatch):
    def refuse(**_):
        raise ConnectionError("wrong token")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(ray, "shutdown", lambda: None)  # the cluster of a whole run is there, too
    monkeypatch.setattr(joining, "_show_token", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with pytest.raises(ConfigError, match="does not let this process in: wrong token"):
            joining.join(address)
    with pytest.raises(PoolError, match="did not start on this machine: wrong token"):
        joining.join(None)
