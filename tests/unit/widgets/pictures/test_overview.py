"""A pool on one screen, and every picture of a large pool in few bytes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.unit.widgets.pictures.scenes import (
    NOW_S,
    blank_view,
    fact,
    make_activity,
    make_block,
    make_replica,
    make_run,
    make_sample,
    make_stream_run,
    make_view,
    part,
    replica_names,
)
from widgets.pictures.cache import cache_picture
from widgets.pictures.load import load_picture
from widgets.pictures.overview import overview_picture
from widgets.pictures.progress import progress_picture
from widgets.pictures.replicas import replicas_picture
from widgets.pictures.staleness import staleness_picture
from widgets.pictures.stickiness import stickiness_picture
from widgets.pictures.view import POINTS
from workbench.metrics.streams import PublishMark
from workbench.types import EngineFigures, ReplicaState

PICTURES = (
    overview_picture,
    load_picture,
    cache_picture,
    stickiness_picture,
    progress_picture,
    replicas_picture,
    staleness_picture,
)
LIMIT_BYTES = 100_000


def long_stream():
    """Everything that is kept of a stream, as long as it may be."""
    marks = tuple(
        PublishMark(NOW_S, 9000 + n, "keep", n / 7, n / 3, "E" * 999, ("replica-1",) * 99)
        for n in range(100)
    )
    return make_stream_run(
        version=9100, running=tuple((n, 9) for n in range(9000, 9101)), publishes=marks,
        queued=tuple((n, 9) for n in range(9000, 9101)), waits_for="w" * 999,
        curve=tuple((40_000 + n, 1 / (n + 3)) for n in range(500)),
        ages=tuple((n, 999) for n in range(100)),
    )  # fmt: skip


def large_view():
    """256 replicas whose figures need all their digits, 100,000 sessions, an hour's window."""
    ids = replica_names(256)
    random = np.random.default_rng(7)
    block = make_block(ids, POINTS)
    block.replicas[:] = random.random(block.replicas.shape) * 98_765.4
    block.pool[:] = random.random(block.pool.shape)
    replicas = tuple(
        make_replica(
            name,
            in_flight=int(random.integers(500)),
            state=ReplicaState.UNHEALTHY if n % 5 == 0 else ReplicaState.READY,
            reason="x" * 300 if n % 5 == 0 else "",
            engine=EngineFigures(running=999, waiting=999, kv_cache_usage=float(random.random())),
        )
        for n, name in enumerate(ids)
    )
    runs = tuple(make_run(f"batch-{n}", failures=(("E" * 99, 9),) * 20) for n in range(40))
    sample = make_sample(replicas, sessions=100_000, runs=(*runs, long_stream()))
    recent = make_activity(sessions=7000, replicas=256)
    return make_view(sample=sample, block=block, span_s=3600, recent=recent)


@pytest.mark.parametrize("make", PICTURES, ids=lambda make: make.__name__)
def test_a_picture_of_a_large_pool_is_small(make):
    assert len(make(large_view()).to_json().encode()) < LIMIT_BYTES


@pytest.mark.parametrize("count", [0, 1, 2, 8, 9, 256])
@pytest.mark.parametrize("make", PICTURES, ids=lambda make: make.__name__)
def test_every_picture_of_every_size_is_complete(make, count):
    picture = make(make_view(count))
    assert picture.title.endswith(": lab")
    assert picture.status == "live"
    assert picture.words.endswith(".")
    for lines in (p for p in picture.parts if p.kind == "lines"):
        assert lines.unit
        assert {len(line.values) for line in lines.lines} <= {len(lines.times_s)}
    json.loads(picture.to_json(), parse_constant=lambda name: 1 / 0)


@pytest.mark.parametrize("make", PICTURES, ids=lambda make: make.__name__)
def test_every_picture_says_why_there_is_no_news(make):
    picture = make(make_view(error="the controller does not answer"))
    assert picture.error == "the controller does not answer"
    assert picture.status.startswith("no data since")
    assert make(make_view(closed=True)).status.startswith("closed")
    assert make(blank_view()).status == "no data yet"


def test_one_screen_has_load_speed_caches_sessions_and_batches():
    picture = overview_picture(make_view(3))
    assert fact(picture, "in flight").text == "12 requests"
    assert fact(picture, "running").text == "9 requests"
    assert fact(picture, "fullest").text == "42.0% ok (replica-0)"
    assert part(picture, "Requests in flight").source == "books"
    assert part(picture, "Tokens sampled by the whole pool").unit == "tokens/s"
    assert len(part(picture, "KV cache in use").bars) == 3
    assert part(picture, "Rollouts that ended").bars[0].text == "34 of 64, 4 failed, 53 s left"
    assert picture.span_s == (NOW_S - 60, NOW_S)
