"""A sample as Prometheus reads it: families of metrics named ``workbench_…``. Pure.

One name per figure, with its unit. What vLLM exports itself (running, waiting, KV cache, tokens,
times to first token) has vLLM's names and is not said again here. A figure that nobody knows is
missing, never zero. There is a series per pool, replica and known batch or stream of rollouts;
never one per session, client or request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from workbench.metrics.exported_streams import STREAM, STREAMS, Figure, stream_families
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from workbench.metrics.samples import RolloutSnapshot, Sample

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Of what :func:`render` makes."""

POOL = ("pool",)
REPLICA = ("pool", "replica")
BATCH = ("pool", "batch", "agent")

Rows = list[tuple[tuple[str, ...], object]]
"""Values of the labels, and the object that has the figures; None where it is not known."""


BOOKS = (
    Figure("sessions", "workbench_sessions", "Sessions known, pinned or not."),
    Figure("clients", "workbench_clients", "Clients that were heard of lately."),
    Figure("queued", "workbench_queued_turns", "Turns that wait for a replica."),
    Figure("epoch", "workbench_balancer_epoch", "Which life of the balancer this is."),
    Figure("acquired", "workbench_turns_total", "Leases given."),
    Figure("sticky", "workbench_sticky_turns_total", "Leases given where the session was pinned."),
    Figure("first_touch", "workbench_first_turns_total", "Leases given to sessions without a pin."),
    Figure("moves", "workbench_session_moves_total", "Pins that changed their replica."),
    Figure("failures", "workbench_failed_requests_total", "Requests that failed on a replica."),
    Figure(
        "known_prompt_tokens",
        "workbench_reported_prompt_tokens_total",
        "Prompt tokens of the turns whose usage clients reported.",
    ),
    Figure(
        "predicted_cached_tokens",
        "workbench_predicted_cached_prompt_tokens_total",
        "Reported prompt tokens that the session's turn before left on the same replica.",
    ),
    Figure(
        "cached_tokens",
        "workbench_cached_prompt_tokens_total",
        "Reported prompt tokens that were cached, as engines told clients.",
    ),
)
"""Of the balancer, over all replicas."""

LOAD = (
    Figure("in_flight", "workbench_replica_in_flight_requests", "Requests leased out."),
    Figure(
        "in_flight_tokens",
        "workbench_replica_in_flight_prompt_tokens",
        "Prompt tokens of the requests leased out.",
    ),
    Figure(
        "peak_in_flight",
        "workbench_replica_peak_in_flight_requests",
        "The most requests that were ever leased out together.",
    ),
    Figure(
        "capacity",
        "workbench_replica_capacity_requests",
        "Requests that may be leased out together; missing where there is no limit.",
    ),
    Figure("sessions", "workbench_replica_sessions", "Sessions pinned here."),
    Figure("acquired", "workbench_replica_turns_total", "Leases given on this replica."),
    Figure(
        "moved_here",
        "workbench_replica_moved_sessions_total",
        "Sessions that came from another replica.",
    ),
    Figure("failures", "workbench_replica_failed_requests_total", "Requests that failed on it."),
)
"""Of the balancer, by replica."""

STATUS = (
    Figure(
        "restarts",
        "workbench_replica_restarts",
        "How often it was replaced since it last ran well for a while.",
    ),
    Figure("version", "workbench_replica_policy_version", "Policy version of its weights."),
    Figure("start_s", "workbench_replica_startup_seconds", "From the order to start to ready."),
)
"""Of the controller, by replica."""

ENGINE = (
    Figure(
        "external",
        "workbench_replica_external_requests",
        "Requests in the engine that came past the balancer.",
    ),
    Figure(
        "stalled_s",
        "workbench_replica_stalled_seconds",
        "Since the engine's last step, while it has requests that it may serve.",
    ),
    Figure(
        "evicted_blocks",
        "workbench_replica_evicted_blocks_total",
        "Blocks that left the prefix cache to make room.",
    ),
)
"""Of the engine, by replica: what vLLM does not export."""

ROLLOUTS = (
    Figure("running", "workbench_rollouts_running", "Rollouts that run now."),
    Figure(
        "wall_s", "workbench_rollouts_elapsed_seconds", "Since the batch began, until it ended."
    ),
    Figure("mean_reward", "workbench_rollouts_mean_reward", "Of the rollouts that have a reward."),
    Figure(
        "sampled_tokens",
        "workbench_rollouts_sampled_tokens_total",
        "Tokens sampled in rollouts that ended.",
    ),
)
"""Of a batch of rollouts."""


class SampleCollector(Collector):
    """For a ``prometheus_client`` registry.

    Args:
        latest: the newest sample, such as ``lambda: feed.latest``; None before the first.
    """

    def __init__(self, latest: Callable[[], Sample | None]) -> None:
        self._latest = latest

    def describe(self) -> list[Metric]:
        """Nothing: registering does not ask for a sample."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The families of the newest sample."""
        sample = self._latest()
        return [] if sample is None else families(sample)


def render(sample: Sample | None) -> bytes:
    """A sample in Prometheus' text format, version 0.0.4; empty where there is none."""
    return generate_latest(SampleCollector(lambda: sample))


def families(sample: Sample) -> Iterator[Metric]:
    """Every family of which the sample knows something."""
    pool, replicas = sample.pool, sample.pool.replicas
    name = pool.name
    ids = [(name, replica.status.replica_id) for replica in replicas]
    groups: list[tuple[Sequence[Figure], tuple[str, ...], Rows]] = [
        (BOOKS, POOL, [((name,), pool.routing)]),
        (LOAD, REPLICA, list(zip(ids, [replica.load for replica in replicas], strict=True))),
        (STATUS, REPLICA, list(zip(ids, [replica.status for replica in replicas], strict=True))),
        (ENGINE, REPLICA, list(zip(ids, [replica.engine for replica in replicas], strict=True))),
        (ROLLOUTS, BATCH, [(_batch(name, run), run) for run in sample.runs]),
        (STREAMS, STREAM, [((name, run.name), run.stream) for run in sample.runs]),
    ]
    everything = [_facts(sample), _states(sample), _planned(sample), _ends(sample)]
    everything += [
        [_family(figure, labels, rows) for figure in figures] for figures, labels, rows in groups
    ]
    for some in everything:
        yield from (family for family in some if family.samples)
    yield from stream_families(sample)


def _family(figure: Figure, labels: tuple[str, ...], rows: Rows) -> Metric:
    is_counter = figure.name.endswith("_total")
    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    family = kind(figure.name, figure.about, labels=labels)
    for values, subject in rows:
        value = None if subject is None else getattr(subject, figure.field)
        if value is not None:
            family.add_metric(values, value)
    return family


def _facts(sample: Sample) -> list[Metric]:
    """What is known of the pool itself, and when."""
    pool = sample.pool
    info = GaugeMetricFamily(
        "workbench_pool_info",
        "Always 1; what the pool is made of is in the labels.",
        labels=("pool", "model", "device", "policy"),
    )
    policy = pool.routing.policy if pool.routing else ""
    info.add_metric((pool.name, pool.model, pool.device, policy), 1)
    taken = GaugeMetricFamily(
        "workbench_sample_timestamp_seconds", "When these figures were read.", labels=POOL
    )
    taken.add_metric((pool.name,), sample.time_s)
    heard = GaugeMetricFamily(
        "workbench_replica_report_timestamp_seconds",
        "When its engine last reported.",
        labels=REPLICA,
    )
    for replica_id, time_s in sample.heard_s:
        heard.add_metric((pool.name, replica_id), time_s)
    return [info, taken, heard]


def _states(sample: Sample) -> list[Metric]:
    family = GaugeMetricFamily(
        "workbench_replica_state",
        "1 for the state that the replica is in, 0 for the others.",
        labels=(*REPLICA, "state"),
    )
    for replica in sample.pool.replicas:
        status = replica.status
        for state in ReplicaState:
            labels = (sample.pool.name, status.replica_id, state.value)
            family.add_metric(labels, status.state is state)
    return [family]


def _planned(sample: Sample) -> list[Metric]:
    """Of batches: nobody knows it of a stream."""
    family = GaugeMetricFamily("workbench_rollouts_planned", "Rollouts of the batch.", labels=BATCH)
    for run in sample.runs:
        if run.stream is None:
            family.add_metric(_batch(sample.pool.name, run), run.total)
    return [family]


def _ends(sample: Sample) -> list[Metric]:
    family = CounterMetricFamily(
        "workbench_rollouts_ended_total", "Rollouts that ended.", labels=(*BATCH, "status")
    )
    for run in sample.runs:
        for status in ("done", "failed", "cancelled"):
            family.add_metric((*_batch(sample.pool.name, run), status), getattr(run, status))
    return [family]


def _batch(pool: str, run: RolloutSnapshot) -> tuple[str, str, str]:
    return pool, run.name, run.agent
