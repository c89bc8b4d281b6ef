"""What a notebook keeps of a live widget: a still, a line of text, the module that draws it."""

from __future__ import annotations

import base64
from types import SimpleNamespace

import pytest

from tests.unit.widgets.feeds import PoolFeed
from tests.unit.widgets.pictures.scenes import make_run, make_stream_run
from tests.unit.widgets.wires import shown
from widgets import (
    KVCacheUsage,
    ReplicaLoad,
    RolloutProgress,
    SessionStickiness,
    StalenessView,
)
from widgets.browser import esm
from widgets.figures import Still
from widgets.live_view import VIEW_TYPE

POOL_VIEWS = (KVCacheUsage, ReplicaLoad, RolloutProgress, SessionStickiness, StalenessView)


@pytest.mark.parametrize("kind", POOL_VIEWS)
def test_a_notebook_keeps_a_still_and_a_line_of_text(pool, kind):
    view = kind(pool)
    data, metadata = view._repr_mimebundle_(include=None, exclude=None)
    assert set(data) == {VIEW_TYPE, "image/png", "text/plain"}
    assert data[VIEW_TYPE]["model_id"] == view.comm.comm_id
    assert data["image/png"].startswith(b"\x89PNG")
    assert len(base64.b64encode(data["image/png"])) < 100_000
    assert metadata["image/png"]["alt"] == shown(view)["words"]
    view.close()


def test_include_and_exclude_are_kept_to(pool):
    view = ReplicaLoad(pool)
    assert set(view._repr_mimebundle_(include=["text/plain"], exclude=None)[0]) == {"text/plain"}
    assert view.comm is None, "nobody displays it"
    data, metadata = view._repr_mimebundle_(include=None, exclude=["image/png"])
    assert set(data) == {VIEW_TYPE, "text/plain"}
    assert not metadata
    view.close()


def test_reprs_name_the_pool_and_its_figures(pool):
    assert [repr(kind(pool)) for kind in POOL_VIEWS] == [
        "KVCacheUsage('lab', 2 replicas, fullest 42%)",
        "ReplicaLoad('lab', 2 replicas, 6 in flight)",
        "RolloutProgress('lab', 0 batches)",
        "SessionStickiness('lab', 30 sessions, 30 moves)",
        "StalenessView('lab', 0 streams)",
    ]
    pool.closed = True
    assert repr(ReplicaLoad(pool)) == "ReplicaLoad('lab', 2 replicas, 6 in flight, closed)"
    assert repr(ReplicaLoad(PoolFeed(seconds=0))) == "ReplicaLoad('lab', no data yet)"


def test_a_stream_shows_itself_and_another_by_its_name(pool):
    pool.runs = (make_run("batch"), make_stream_run("a"), make_stream_run("b", consumed=8))
    pool.make()
    pool.pull()
    own = SimpleNamespace(feed=pool, name="a", get_batch=print)
    assert "Stream a (tool)" in titles(StalenessView(own))
    assert "Stream a (tool)" in titles(RolloutProgress(own))
    assert "Stream b (tool)" in titles(StalenessView(own, stream="b"))
    assert "Stream b (tool)" in titles(StalenessView(pool))
    pool.runs = pool.runs[:2]
    pool.make()
    pool.pull()
    assert repr(StalenessView(pool)) == "StalenessView('lab', a: 48 groups in 12 batches)"
    progress = "RolloutProgress('lab', 1 batch, 1 stream, 334 rollouts ended)"
    assert repr(RolloutProgress(pool)) == progress


def titles(view):
    return [part.title for part in view._picture().parts]


def test_a_snapshot_is_a_still_of_the_present(pool):
    pool.make(in_flight=17)
    still = ReplicaLoad(pool).snapshot()
    assert isinstance(still, Still)
    assert "34 requests in flight" in repr(still)


def test_the_module_stands_alone():
    text = esm()
    assert "import " not in "\n".join(line[:7] for line in text.splitlines())
    assert text.count("export ") == 1
    assert "innerHTML" not in text
    assert "http://www.w3.org/2000/svg" in text
    assert text.count("http") == 1
