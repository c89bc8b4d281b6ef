"""Rates come from counters; what nobody can know has no value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.unit.metrics.pools import START_S, a_replica, a_sample
from workbench.metrics import buckets
from workbench.metrics.columns import POOL_COLUMNS, REPLICA_COLUMNS
from workbench.metrics.rates import derive


def figures(before, after):
    """The rows by name: of each replica, and of the pool."""
    ids, replicas, pool = derive(before, after)
    rows = {
        replica_id: dict(zip([c.name for c in REPLICA_COLUMNS], row, strict=True))
        for replica_id, row in zip(ids, replicas.tolist(), strict=True)
    }
    return rows, dict(zip([c.name for c in POOL_COLUMNS], pool.tolist(), strict=True))


def one(engine_before, engine_after, *, load=(None, None), elapsed_s=4.0):
    rows, _ = figures(
        a_sample(START_S, a_replica(engine=engine_before, load=load[0]), books={}),
        a_sample(START_S + elapsed_s, a_replica(engine=engine_after, load=load[1]), books={}),
    )
    return rows["replica-0"]


def ttft(*values_s):
    counts = buckets.empty_counts()
    for value_s in values_s:
        buckets.count(counts, value_s)
    return tuple(counts)


def nan(value):
    return math.isnan(value)


def test_readings_need_no_sample_before():
    replica = a_replica(
        load={"in_flight": 3, "in_flight_tokens": 700, "sessions": 5},
        engine={"running": 2, "waiting": 1, "kv_cache_usage": 0.25},
    )
    books = {"sessions": 6, "queued": 4, "clients": 2}
    rows, pool = figures(None, a_sample(START_S, replica, books=books))
    readings = {
        "in_flight": 3, "in_flight_tokens": 700, "sessions": 5,
        "running": 2, "waiting": 1, "kv_cache_usage": 0.25,
    }  # fmt: skip
    assert {name: v for name, v in rows["replica-0"].items() if not nan(v)} == readings
    assert {name: v for name, v in pool.items() if not nan(v)} == books
    rates = {c.name for c in REPLICA_COLUMNS if c.is_rate}
    assert rates == rows["replica-0"].keys() - readings.keys()
    assert {c.name for c in POOL_COLUMNS if c.is_rate} == pool.keys() - books.keys()


def test_rates_are_growth_over_the_time_in_between():
    before = {
        "generation_tokens": 100, "prompt_tokens": 1000, "cached_prompt_tokens": 500,
        "num_preempted": 1, "evicted_blocks": 10, "ttft_counts": ttft(30.0),
    }  # fmt: skip
    after = {
        "generation_tokens": 180, "prompt_tokens": 1200, "cached_prompt_tokens": 550,
        "num_preempted": 3, "evicted_blocks": 30, "ttft_counts": ttft(30.0, *[0.09] * 10),
    }  # fmt: skip
    load = ({"acquired": 10, "failures": 1}, {"acquired": 30, "failures": 2})
    row = one(before, after, load=load)
    assert row["turns_per_s"] == 5.0
    assert row["failures_per_s"] == 0.25
    assert row["generation_tokens_per_s"] == 20.0
    assert row["prompt_tokens_per_s"] == 50.0
    assert row["prefix_hit_rate"] == 0.25
    assert row["preemptions_per_s"] == 0.5
    assert row["evictions_per_s"] == 5.0
    assert 0.075 < row["ttft_p95_s"] <= 0.1, "the slow one was before"


def test_what_the_pool_did_as_a_whole():
    before = {
        "acquired": 100, "sticky": 60, "first_touch": 20, "moves": 5,
        "known_prompt_tokens": 1000, "predicted_cached_tokens": 400,
    }  # fmt: skip
    after = {
        "acquired": 120, "sticky": 75, "first_touch": 20, "moves": 10,
        "known_prompt_tokens": 1200, "predicted_cached_tokens": 500,
    }  # fmt: skip
    _, pool = figures(a_sample(START_S, books=before), a_sample(START_S + 5, books=after))
    assert pool["turns_per_s"] == 4.0
    assert pool["sticky_rate"] == 0.75
    assert pool["moves_per_s"] == 1.0
    assert pool["predicted_hit_rate"] == 0.5
    assert nan(pool["generation_tokens_per_s"]), "no engine reported"


def test_where_nothing_was_asked_no_share_has_a_value():
    row = one({}, {})
    assert row["generation_tokens_per_s"] == row["prompt_tokens_per_s"] == 0.0
    assert nan(row["prefix_hit_rate"])
    assert nan(row["ttft_p95_s"])
    assert nan(row["evictions_per_s"]), "an engine that does not say has no zero"
    _, pool = figures(a_sample(START_S, books={}), a_sample(START_S + 5, books={}))
    assert pool["turns_per_s"] == 0.0
    assert nan(pool["sticky_rate"])
    assert nan(pool["predicted_hit_rate"])
    only_new = {"acquired": 3, "first_touch": 3}
    _, pool = figures(a_sample(START_S, books={}), a_sample(START_S + 5, books=only_new))
    assert nan(pool["sticky_rate"]), "nobody had a pin to stay with"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"generation_tokens": 9}, {"generation_tokens": 3, "prompt_tokens": 8}),
        ({"evicted_blocks": 9}, {"evicted_blocks": 3, "prompt_tokens": 8}),
        ({"ttft_counts": ttft(1, 1)}, {"ttft_counts": ttft(1), "prompt_tokens": 8}),
        (None, {"prompt_tokens": 8}),
    ],
)
def test_an_engine_that_began_anew_has_readings_and_no_rate(before, after):
    load = ({"acquired": 1}, {"acquired": 5})
    row = one(before, after | {"running": 2}, load=load)
    engine = [c.name for c in REPLICA_COLUMNS if c.is_rate and c.source == "engine"]
    assert all(nan(row[name]) for name in engine)
    assert row["running"] == 2
    assert row["turns_per_s"] == 1.0, "the books went on"


def test_a_replica_that_does_not_answer_keeps_its_books():
    row = one({"running": 1}, None, load=({"acquired": 1}, {"acquired": 5, "in_flight": 4}))
    by_engine = {c.name for c in REPLICA_COLUMNS if c.source == "engine"}
    assert {name for name, value in row.items() if nan(value)} == by_engine
    assert row["in_flight"] == 4


def test_a_balancer_that_began_anew_has_no_rate_even_where_its_counters_are_higher():
    replica = a_replica(load={"acquired": 50}, engine={"generation_tokens": 10})
    more = a_replica(load={"acquired": 70}, engine={"generation_tokens": 20})
    rows, pool = figures(
        a_sample(START_S, replica, books={"epoch": 1, "acquired": 50}),
        a_sample(START_S + 5, more, books={"epoch": 2, "acquired": 70}),
    )
    assert nan(pool["turns_per_s"])
    assert nan(rows["replica-0"]["turns_per_s"])
    assert pool["generation_tokens_per_s"] == 2.0, "the engines went on"


def test_while_the_balancer_does_not_answer_the_engines_do():
    replica = a_replica(engine={"generation_tokens": 10, "running": 1})
    more = a_replica(engine={"generation_tokens": 20, "running": 1})
    rows, pool = figures(
        a_sample(START_S, replica, books={"acquired": 5}), a_sample(START_S + 5, more)
    )
    assert nan(pool["sessions"])
    assert nan(rows["replica-0"]["in_flight"])
    assert pool["generation_tokens_per_s"] == 2.0


def test_the_pool_counts_those_engines_that_reported():
    def at(time_s, tokens, cached, *values_s):
        engine = {
            "generation_tokens": tokens, "prompt_tokens": tokens,
            "cached_prompt_tokens": cached, "ttft_counts": ttft(*values_s),
        }  # fmt: skip
        silent = a_replica(
            "replica-2", engine={"generation_tokens": tokens} if not tokens else None
        )
        return a_sample(
            time_s, a_replica("replica-0", engine=engine), a_replica("replica-1", engine=engine),
            silent, books={},
        )  # fmt: skip

    _, pool = figures(at(START_S, 0, 0), at(START_S + 5, 50, 20, *[0.02] * 20))
    assert pool["generation_tokens_per_s"] == 20.0
    assert pool["prefix_hit_rate"] == pytest.approx(0.4)
    assert 0.015 < pool["ttft_p95_s"] <= 0.025


def test_the_slowest_of_a_pool_are_among_all_its_first_tokens():
    def at(time_s, quick, slow):
        return a_sample(
            time_s,
            a_replica("replica-0", engine={"ttft_counts": ttft(*[0.02] * quick)}),
            a_replica("replica-1", engine={"ttft_counts": ttft(*[3.0] * slow)}),
        )

    _, pool = figures(at(START_S, 0, 0), at(START_S + 5, 90, 10))
    assert 2.5 < pool["ttft_p95_s"] <= 3.5


def test_two_samples_of_one_moment_have_no_rate_between_them():
    sample = a_sample(START_S, a_replica(engine={}, load={}), books={})
    rows, pool = figures(sample, sample)
    assert nan(rows["replica-0"]["generation_tokens_per_s"])
    assert nan(pool["turns_per_s"])


def test_rows_are_in_the_order_of_the_pool_and_of_single_precision():
    replicas = [a_replica(f"replica-{i}", load={"in_flight": i}) for i in (3, 1, 2)]
    ids, rows, pool = derive(None, a_sample(START_S, *replicas, books={}))
    assert ids == ("replica-3", "replica-1", "replica-2")
    assert rows[:, 0].tolist() == [3, 1, 2]
    assert rows.dtype == pool.dtype == np.float32
    assert derive(None, a_sample(START_S))[1].shape == (0, len(REPLICA_COLUMNS))
