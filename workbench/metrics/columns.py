"""The figures that a history keeps, each with its unit and its source.

*Books* are what the balancer leased out, *engine* is what the engines report of themselves; the
two are never mixed in one figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a history."""

    name: str
    label: str
    unit: str
    """As on an axis; ``share`` for 0–1."""
    source: Literal["books", "engine"]
    is_rate: bool = False
    """Made from counters over an interval. Others are readings of a moment."""


REPLICA_COLUMNS = (
    Column("in_flight", "in flight", "requests", "books"),
    Column("in_flight_tokens", "prompt tokens in flight", "tokens", "books"),
    Column("sessions", "pinned sessions", "sessions", "books"),
    Column("turns_per_s", "turns", "turns/s", "books", is_rate=True),
    Column("failures_per_s", "failed requests", "requests/s", "books", is_rate=True),
    Column("running", "running", "requests", "engine"),
    Column("waiting", "waiting", "requests", "engine"),
    Column("kv_cache_usage", "KV cache in use", "share", "engine"),
    Column("generation_tokens_per_s", "sampled", "tokens/s", "engine", is_rate=True),
    Column("prompt_tokens_per_s", "prompt", "tokens/s", "engine", is_rate=True),
    Column("prefix_hit_rate", "prefix-cache hit rate", "share", "engine", is_rate=True),
    Column("preemptions_per_s", "preemptions", "requests/s", "engine", is_rate=True),
    Column("evictions_per_s", "evicted blocks", "blocks/s", "engine", is_rate=True),
    Column("ttft_p95_s", "time to first token, p95", "s", "engine", is_rate=True),
)
"""Of each replica."""

POOL_COLUMNS = (
    Column("sessions", "sessions", "sessions", "books"),
    Column("queued", "queued", "turns", "books"),
    Column("clients", "clients", "clients", "books"),
    Column("turns_per_s", "turns", "turns/s", "books", is_rate=True),
    Column("sticky_rate", "turns that stayed", "share", "books", is_rate=True),
    Column("moves_per_s", "moves", "moves/s", "books", is_rate=True),
    Column("predicted_hit_rate", "hit rate, predicted", "share", "books", is_rate=True),
    Column("prefix_hit_rate", "hit rate, by the engines", "share", "engine", is_rate=True),
    Column("generation_tokens_per_s", "sampled", "tokens/s", "engine", is_rate=True),
    Column("ttft_p95_s", "time to first token, p95", "s", "engine", is_rate=True),
)
"""Of the pool as a whole. A rate over an interval in which nothing was asked has no value."""
