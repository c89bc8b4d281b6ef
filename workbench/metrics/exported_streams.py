"""What is exported of streams of rollouts. Pure.

A group that is taken back from a consumer that ended is not consumed any more, so what was consumed
is a reading and no counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from workbench.metrics.samples import Sample
    from workbench.metrics.streams import PublishMark, StreamSnapshot

STREAM = ("pool", "stream")

STATES = ("running", "paused", "publishing", "ended", "failed")

MOST_STALE = 16
"""From here on one series, ``16+``, has them all, so that there are never many."""


@dataclass(frozen=True, slots=True)
class Figure:
    """How one field of a snapshot is exported. Those whose name ends in ``_total`` are counters."""

    field: str
    name: str
    about: str


STREAMS = (
    Figure("version", "workbench_stream_learner_version", "The learner's policy version."),
    Figure(
        "pool_version",
        "workbench_stream_pool_version",
        "Policy version that groups which begin now are played with.",
    ),
    Figure(
        "max_staleness",
        "workbench_stream_max_staleness_versions",
        "The bound on staleness; missing where there is none.",
    ),
    Figure("in_flight", "workbench_stream_in_flight_groups", "Groups that are being played."),
    Figure("in_queue", "workbench_stream_queued_groups", "Groups that wait to be taken."),
    Figure(
        "window",
        "workbench_stream_window_groups",
        "Groups that may be on their way or taken between two versions.",
    ),
    Figure("handed", "workbench_stream_handed_groups", "Groups taken since the last version."),
    Figure(
        "uncommitted",
        "workbench_stream_uncommitted_groups",
        "Groups taken whose taker has not said that it is done with them.",
    ),
    Figure(
        "consumed",
        "workbench_stream_consumed_groups",
        "Groups taken so far; those that were taken back are not counted.",
    ),
    Figure("begun", "workbench_stream_begun_groups_total", "Groups begun, each time."),
    Figure("ended", "workbench_stream_ended_groups_total", "Groups that ended and were queued."),
    Figure("batches", "workbench_stream_batches", "Batches taken so far."),
)
"""Of a stream."""


def stream_families(sample: Sample) -> Iterator[Metric]:
    """What there is of streams by cause, staleness and publish; empty families are left out."""
    streams = [((sample.pool.name, run.name), run.stream) for run in sample.runs if run.stream]
    families = (_States(), _Ages(), _Drops(), _Publishes())
    for labels, stream in streams:
        for family in families:
            family.add(labels, stream)
    for family in families:
        yield from (one for one in family.made if one.samples)


class _States:
    """1 for the state that a stream is in."""

    def __init__(self) -> None:
        self._states = GaugeMetricFamily(
            "workbench_stream_state",
            "1 for the state that the stream is in, 0 for the others.",
            labels=(*STREAM, "state"),
        )
        self.made: list[Metric] = [self._states]

    def add(self, labels: tuple[str, str], stream: StreamSnapshot) -> None:
        for state in STATES:
            self._states.add_metric((*labels, state), stream.state == state)


class _Ages:
    """How old groups were when they were taken."""

    def __init__(self) -> None:
        self._groups = GaugeMetricFamily(
            "workbench_stream_taken_groups",
            "Groups taken, by how many versions their oldest token was behind the learner.",
            labels=(*STREAM, "staleness"),
        )
        self.made: list[Metric] = [self._groups]

    def add(self, labels: tuple[str, str], stream: StreamSnapshot) -> None:
        counts: dict[str, int] = {}
        for age, groups in stream.ages:
            name = str(age) if age < MOST_STALE else f"{MOST_STALE}+"
            counts[name] = counts.get(name, 0) + groups
        for name, groups in counts.items():
            self._groups.add_metric((*labels, name), groups)


class _Drops:
    """What was not handed out, by cause."""

    def __init__(self) -> None:
        cause = (*STREAM, "cause")
        self._groups = CounterMetricFamily(
            "workbench_stream_dropped_groups_total", "Groups that were not taken.", labels=cause
        )
        self._tokens = CounterMetricFamily(
            "workbench_stream_dropped_tokens_total", "Tokens sampled in them.", labels=cause
        )
        self.made: list[Metric] = [self._groups, self._tokens]

    def add(self, labels: tuple[str, str], stream: StreamSnapshot) -> None:
        for drop in stream.drops:
            self._groups.add_metric((*labels, drop.cause), drop.groups)
            self._tokens.add_metric((*labels, drop.cause), drop.sampled_tokens)


class _Publishes:
    """The last publish: a snapshot has the last hundred only, whose sum is no count."""

    def __init__(self) -> None:
        def gauge(name: str, about: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"workbench_stream_{name}", about, labels=STREAM)

        self._at = gauge("publish_timestamp_seconds", "When the last publish was over.")
        self._still = gauge(
            "publish_stopped_seconds",
            "The longest that a replica stood still for it.",
        )
        self._took = gauge("publish_seconds", "How long the last publish took.")
        self._failed = gauge("publish_failed", "1 where no replica took its weights, else 0.")
        self.made: list[Metric] = [self._at, self._still, self._took, self._failed]

    def add(self, labels: tuple[str, str], stream: StreamSnapshot) -> None:
        if not stream.publishes:
            return
        mark: PublishMark = stream.publishes[-1]
        self._at.add_metric(labels, mark.time_s)
        self._still.add_metric(labels, mark.stopped_s)
        self._took.add_metric(labels, mark.total_s)
        self._failed.add_metric(labels, bool(mark.error))
