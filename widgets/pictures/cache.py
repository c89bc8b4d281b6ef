"""The KV cache: how full it is, how much of prompts it serves, what falls out of it. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from widgets.drawing import count
from widgets.pictures.picture import Fact, Facts, Level
from widgets.pictures.series import Amount, choose, replica_bars, replica_lines, total_lines
from widgets.pictures.text import measured, percent, short
from widgets.theme import COLOURS, KV_FULL, KV_HIGH, MISSING, kv_word

if TYPE_CHECKING:
    from typing import Literal

    from widgets.pictures.picture import Bars, Picture
    from widgets.pictures.view import FeedView

TITLE = "KV-cache usage"
LEVELS = (Level(KV_HIGH, "high"), Level(KV_FULL, "full"))
PREEMPTIONS_SOME, PREEMPTIONS_MANY = 0.001, 1.0
"""Per second, from which on there are some, and many; vLLM's own dashboards use the same."""


def cache_picture(view: FeedView) -> Picture:
    """How full each replica's KV cache is, what it serves, what is evicted and pushed out."""
    shown = choose(view)
    parts = (
        _facts(view),
        cache_bars(view),
        replica_lines(view, shown, "kv_cache_usage", levels=LEVELS),
        total_lines(
            view, "predicted_hit_rate", COLOURS[0], title="Prefix-cache hit rate, predicted"
        ),
        replica_lines(
            view, shown, "prefix_hit_rate", title="Prefix-cache hit rate, by the engines"
        ),
        replica_lines(view, shown, "evictions_per_s"),
        replica_lines(view, shown, "preemptions_per_s"),
    )
    return view.picture(TITLE, parts, _words(view))


def cache_bars(view: FeedView) -> Bars:
    """The share of its KV cache that each replica uses, with a word for how full that is."""
    engines = view.engines()
    amounts = {}
    for replica in view.replicas:
        engine = engines.get(replica.status.replica_id)
        use = engine.kv_cache_usage if engine else None
        word = kv_word(use)
        text = word if use is None else f"{percent(use)} {word}"
        amounts[replica.status.replica_id] = Amount(use, text)
    return replica_bars(
        view, amounts, title="KV cache in use, now", unit="share", limit=1.0, levels=LEVELS
    )


def fullest(view: FeedView) -> Fact:
    """The replica whose KV cache is the fullest."""
    label = "fullest KV cache"
    use = {replica_id: engine.kv_cache_usage for replica_id, engine in view.engines().items()}
    if not use:
        return Fact(label, MISSING)
    replica_id = max(use, key=lambda replica_id: use[replica_id])
    word = kv_word(use[replica_id])
    tone: Literal["plain", "warn", "bad"] = (
        "bad" if word == "full" else "warn" if word == "high" else "plain"
    )
    return Fact(label, f"{percent(use[replica_id])} {word} ({short(replica_id)})", tone)


def _facts(view: FeedView) -> Facts:
    evictions = _sum(view, "evictions_per_s")
    return Facts(
        "KV caches now",
        (
            fullest(view),
            Fact("hit rate, predicted (books)", percent(view.total("predicted_hit_rate"))),
            Fact("hit rate, by the engines", percent(view.total("prefix_hit_rate"))),
            Fact("evicted", measured(evictions, "blocks/s", 1)),
            _preemptions(view),
        ),
    )


def _preemptions(view: FeedView) -> Fact:
    rate = _sum(view, "preemptions_per_s")
    text = measured(rate, "requests/s", 3)
    if rate >= PREEMPTIONS_MANY:
        return Fact("preemptions", f"{text}, many", "bad")
    if rate >= PREEMPTIONS_SOME:
        return Fact("preemptions", f"{text}, some", "warn")
    return Fact("preemptions", text if math.isnan(rate) else f"{text}, none")


def _sum(view: FeedView, column: str) -> float:
    """Over all replicas that say; NaN when none does."""
    values = view.by_replica(column).values()
    return float(np.sum(list(values))) if values else float("nan")


def _words(view: FeedView) -> str:
    use = [engine.kv_cache_usage for engine in view.engines().values()]
    if not use:
        return f"KV caches of {count(len(view.replicas), 'replica')}: no data."
    words = [kv_word(share) for share in use]
    full, high = words.count("full"), words.count("high")
    silent = len(view.replicas) - len(use)
    text = (
        f"KV caches of {count(len(use), 'replica')}: {min(use):.1%} to {max(use):.1%} in use; "
        f"{full:,} full, {high:,} high, {words.count('ok'):,} ok."
    )
    rate = view.total("prefix_hit_rate")
    if not math.isnan(rate):
        text += f" Engines served {rate:.1%} of prompt tokens from their prefix caches."
    return text + (f" {count(silent, 'replica')} without data." if silent else "")
