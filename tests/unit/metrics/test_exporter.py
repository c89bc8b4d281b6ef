"""A sample as Prometheus reads it: what is known, under one name, and nothing that is not."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.metrics.pools import START_S, a_replica, a_sample
from tests.unit.metrics.test_runs import a_run
from workbench.grafana import dashboard
from workbench.metrics.exporter import CONTENT_TYPE, SampleCollector, render
from workbench.metrics.samples import Activity, SessionTurns
from workbench.metrics.streams import DropCount, PublishMark, StreamSnapshot
from workbench.types import ReplicaState, ReplicaStatus

BOOKS = {
    "sessions": 7, "acquired": 40, "sticky": 25, "first_touch": 10, "moves": 5, "queued": 3,
    "failures": 2, "clients": 4, "known_prompt_tokens": 900, "predicted_cached_tokens": 600,
    "cached_tokens": 550,
}  # fmt: skip
LOAD = {
    "in_flight": 6, "in_flight_tokens": 120, "sessions": 5, "acquired": 30, "capacity": 8,
    "moved_here": 1, "failures": 2,
}  # fmt: skip
ENGINE = {"running": 4, "external": 1, "stalled_s": 2.5, "evicted_blocks": 11}


def everything():
    """A sample in which nothing is missing."""
    status = ReplicaStatus(
        "replica-0", ReplicaState.DRAINING, "", version=12, restarts=2, start_s=15.5
    )
    known = replace(a_replica(load=LOAD, engine=ENGINE), status=status)
    run = replace(
        a_run("night", total=9, running=2, done=4, failed=2, cancelled=1),
        mean_reward=-0.25, sampled_tokens=77, wall_s=8.0,
    )  # fmt: skip
    return a_sample(
        START_S, known, books=BOOKS, runs=(run, a_stream()), heard_s=(("replica-0", START_S - 1),)
    )


def a_stream(**known):
    """Of which nobody knows how many rollouts there will be."""
    mark = PublishMark(START_S - 9, 6, "keep", 0.25, 1.5, "ConnectionError: refused")
    fields = {
        "state": "publishing", "waits_for": "", "error": "", "version": 6, "pool_version": 5,
        "max_staleness": 2, "window": 24, "running": ((4, 2), (5, 7)), "queued": ((4, 1), (5, 3)),
        "handed": 4, "uncommitted": 3, "begun": 75, "ended": 60, "consumed": 48, "batches": 12,
        "ages": ((0, 12), (1, 30), (16, 1), (40, 5)),
        "drops": (DropCount("too_old", 3, 12, 4800, 1500, 0.3, 3),
                  DropCount("filtered", 5, 20, 2000, 600, 5.0, 5)),
        "publishes": (PublishMark(START_S - 30, 5, "keep", 9.0, 9.0), mark),
    }  # fmt: skip
    return replace(a_run("flow", total=0), stream=StreamSnapshot(**(fields | known)))


def read(sample):
    """By name and labels, as a Prometheus server has them."""
    return {
        (s.name, *sorted(s.labels.items())): s.value
        for family in text_string_to_metric_families(render(sample).decode())
        for s in family.samples
    }


def names(sample):
    return {key[0] for key in read(sample)}


def test_every_figure_arrives_under_its_name_with_its_labels():
    figures = {key: n for key, n in read(everything()).items() if not of_the_stream(key)}
    pool, replica = ("pool", "lab"), ("replica", "replica-0")
    batch = (("agent", "test"), ("batch", "night"), pool)
    of_pool = {
        "workbench_sessions": 7, "workbench_turns_total": 40, "workbench_sticky_turns_total": 25,
        "workbench_first_turns_total": 10, "workbench_session_moves_total": 5,
        "workbench_queued_turns": 3, "workbench_failed_requests_total": 2, "workbench_clients": 4,
        "workbench_reported_prompt_tokens_total": 900, "workbench_balancer_epoch": 1,
        "workbench_predicted_cached_prompt_tokens_total": 600,
        "workbench_cached_prompt_tokens_total": 550, "workbench_sample_timestamp_seconds": START_S,
    }  # fmt: skip
    of_replica = {
        "in_flight_requests": 6, "in_flight_prompt_tokens": 120, "peak_in_flight_requests": 9,
        "capacity_requests": 8, "sessions": 5, "turns_total": 30, "moved_sessions_total": 1,
        "failed_requests_total": 2, "restarts": 2, "policy_version": 12, "startup_seconds": 15.5,
        "external_requests": 1, "stalled_seconds": 2.5, "evicted_blocks_total": 11,
        "report_timestamp_seconds": START_S - 1,
    }  # fmt: skip
    of_batch = {
        "planned": 9, "running": 2, "mean_reward": -0.25, "sampled_tokens_total": 77,
        "elapsed_seconds": 8,
    }  # fmt: skip
    expected = {(name, pool): value for name, value in of_pool.items()}
    expected |= {
        (f"workbench_replica_{name}", pool, replica): value for name, value in of_replica.items()
    }
    expected |= {(f"workbench_rollouts_{name}", *batch): value for name, value in of_batch.items()}
    for status, count in (("done", 4), ("failed", 2), ("cancelled", 1)):
        expected["workbench_rollouts_ended_total", *batch, ("status", status)] = count
    for state in ReplicaState:
        is_so = state is ReplicaState.DRAINING
        expected["workbench_replica_state", pool, replica, ("state", state.value)] = is_so
    policy = ("policy", "sticky-least-loaded")
    expected["workbench_pool_info", ("device", "cpu"), ("model", "tiny"), policy, pool] = 1
    assert figures == expected


def of_the_stream(key):
    return ("stream", "flow") in key or ("batch", "flow") in key


def test_a_stream_is_told_by_groups_versions_causes_and_ages():
    figures = {key: n for key, n in read(everything()).items() if ("stream", "flow") in key}
    labels = (("pool", "lab"), ("stream", "flow"))
    expected = {
        "learner_version": 6, "pool_version": 5, "max_staleness_versions": 2,
        "in_flight_groups": 9, "queued_groups": 4, "window_groups": 24, "handed_groups": 4,
        "uncommitted_groups": 3, "consumed_groups": 48, "begun_groups_total": 75,
        "ended_groups_total": 60, "batches": 12, "publish_timestamp_seconds": START_S - 9,
        "publish_stopped_seconds": 0.25, "publish_seconds": 1.5, "publish_failed": 1,
    }  # fmt: skip
    expected = {(f"workbench_stream_{name}", *labels): n for name, n in expected.items()}
    for cause, groups, tokens in (("too_old", 3, 4800), ("filtered", 5, 2000)):
        names = ("cause", cause), *labels
        expected["workbench_stream_dropped_groups_total", *names] = groups
        expected["workbench_stream_dropped_tokens_total", *names] = tokens
    for age, groups in (("0", 12), ("1", 30), ("16+", 6)):
        expected["workbench_stream_taken_groups", *labels[:1], ("staleness", age), labels[1]] = (
            groups
        )
    for state in ("running", "paused", "publishing", "ended", "failed"):
        key = ("workbench_stream_state", labels[0], ("state", state), labels[1])
        expected[key] = state == "publishing"
    assert figures == expected


def test_of_a_stream_nobody_knows_how_many_rollouts_are_planned_nor_a_bound_that_is_none():
    endless = a_sample(START_S, runs=(a_stream(max_staleness=None, publishes=(), ages=()),))
    known = names(endless)
    assert "workbench_rollouts_running" in known
    assert not {
        "workbench_rollouts_planned", "workbench_stream_max_staleness_versions",
        "workbench_stream_publish_seconds", "workbench_stream_taken_groups",
    } & known  # fmt: skip


def test_what_is_not_known_is_missing_and_not_zero():
    nothing = a_sample(START_S, a_replica(), runs=(a_run(),))
    assert names(nothing) == {
        "workbench_pool_info", "workbench_sample_timestamp_seconds", "workbench_replica_state",
        "workbench_replica_restarts", "workbench_replica_policy_version",
        "workbench_rollouts_planned", "workbench_rollouts_running",
        "workbench_rollouts_ended_total", "workbench_rollouts_sampled_tokens_total",
        "workbench_rollouts_elapsed_seconds",
    }  # fmt: skip
    assert "# TYPE workbench_sessions" not in render(nothing).decode()
    half = a_sample(START_S, a_replica(load={}, engine={}), a_replica("replica-1"), books={})
    absent = ("capacity_requests", "evicted_blocks_total", "startup_seconds")
    assert not {f"workbench_replica_{name}" for name in absent} & names(half)
    assert [k for k in read(half) if k[0] == "workbench_replica_external_requests"] == [
        ("workbench_replica_external_requests", ("pool", "lab"), ("replica", "replica-0"))
    ]
    assert render(None) == b""


def test_counters_are_told_from_readings():
    kinds = {f.name: f.type for f in text_string_to_metric_families(render(everything()).decode())}
    totals = {
        name.removesuffix("_total") for name in names(everything()) if name.endswith("_total")
    }
    assert {name for name, kind in kinds.items() if kind == "counter"} == totals
    assert {kind for name, kind in kinds.items() if name not in totals} == {"gauge"}


def test_the_number_of_series_does_not_grow_with_sessions():
    hot = tuple(SessionTurns(f"s{i}", "replica-0", 1) for i in range(30))
    busy = replace(everything(), activity=Activity(9, 0, hot, (("replica-0", 500),)))
    assert render(busy) == render(everything())


def test_names_with_quotes_and_line_ends_do_not_break_the_page():
    odd = 'a "b"\\c\nd'
    sample = a_sample(START_S, runs=(a_run(odd),))
    assert ("batch", odd) in next(k for k in read(sample) if k[0] == "workbench_rollouts_running")


def test_a_registry_follows_the_newest_sample():
    latest = [None]
    registry = CollectorRegistry()
    registry.register(SampleCollector(lambda: latest[0]))
    assert generate_latest(registry) == b""
    latest[0] = everything()
    assert generate_latest(registry) == render(everything())
    assert "version=0.0.4" in CONTENT_TYPE


# -- the dashboard -----------------------------------------------------------------------------


def expressions():
    targets = [t for panel in dashboard()["panels"] for t in panel.get("targets", ())]
    variables = [v["definition"] for v in dashboard()["templating"]["list"] if "definition" in v]
    return [target["expr"] for target in targets] + variables


def test_every_figure_of_ours_on_the_dashboard_is_exported():
    asked = set(re.findall(r"\bworkbench_\w+", " ".join(expressions())))
    assert len(asked) > 25
    assert asked <= names(everything())


def test_every_figure_of_the_engine_on_the_dashboard_is_one_of_vllms():
    """By its source: importing it takes seconds."""
    root = Path(importlib.util.find_spec("vllm").submodule_search_locations[0])
    sources = "".join(path.read_text() for path in (root / "v1" / "metrics").glob("*.py"))
    exported = set(re.findall(r'"(vllm:\w+)"', sources))
    asked = set(re.findall(r"vllm:\w+", " ".join(expressions())))
    assert len(asked) > 8
    assert {re.sub("_(total|bucket)$", "", name) for name in asked} <= exported


def test_the_cache_is_orange_from_90_and_red_from_98_percent():
    panels = {p["title"]: p for p in dashboard()["panels"] if p["type"] == "timeseries"}
    defaults = panels["KV cache in use"]["fieldConfig"]["defaults"]
    steps = [(s["color"], s["value"]) for s in defaults["thresholds"]["steps"]]
    assert steps == [("green", None), ("orange", 0.90), ("red", 0.98)]


def test_panels_lie_side_by_side():
    """A panel over another one is not seen, and Grafana drops one of two with the same id."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for place in (panel["gridPos"] for panel in panels):
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_documentation_lists_every_figure():
    text = (Path(__file__).parents[3] / "docs" / "prometheus.md").read_text()
    assert set(re.findall(r"\bworkbench_\w+", text)) == names(everything())
