"""The KV cache: use with a word, two hit rates apart, preemptions that are called what they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.unit.widgets.pictures.scenes import (
    blank_view,
    fact,
    make_block,
    make_replica,
    make_sample,
    make_view,
    part,
    put,
    replica_names,
)
from widgets.pictures.cache import cache_picture
from workbench.types import EngineFigures


def view_of(*use, **known):
    replicas = tuple(
        make_replica(
            f"replica-{n}", engine=None if share is None else EngineFigures(kv_cache_usage=share)
        )
        for n, share in enumerate(use)
    )
    return make_view(len(use), sample=make_sample(replicas), **known)


def test_use_comes_with_a_word_and_what_is_silent_has_no_bar():
    bars = part(cache_picture(view_of(0.5, 0.9, 0.98, None)), "KV cache in use, now")
    assert [(bar.value, bar.text) for bar in bars.bars] == [
        (0.5, "50.0% ok"), (0.9, "90.0% high"), (0.98, "98.0% full"), (None, "no data"),
    ]  # fmt: skip
    assert [(level.value, level.word) for level in bars.levels] == [(0.9, "high"), (0.98, "full")]
    assert (bars.unit, bars.limit) == ("share", 1.0)


@pytest.mark.parametrize(
    ("share", "text", "tone"),
    [
        (0.4, "40.0% ok (replica-1)", "plain"),
        (0.93, "93.0% high (replica-1)", "warn"),
        (0.99, "99.0% full (replica-1)", "bad"),
    ],
)
def test_the_fullest_cache_is_named(share, text, tone):
    found = fact(cache_picture(view_of(0.1, share)), "fullest")
    assert (found.text, found.tone) == (text, tone)


@pytest.mark.parametrize(
    ("rate", "word", "tone"),
    [(0.0, "none", "plain"), (0.0006, "some", "warn"), (0.3, "some", "warn"), (0.5, "many", "bad")],
)
def test_preemptions_are_summed_over_replicas_and_called_what_they_are(rate, word, tone):
    block = put(make_block(replica_names(2)), "preemptions_per_s", np.full((60, 2), rate))
    found = fact(cache_picture(view_of(0.1, 0.1, block=block)), "preemptions")
    assert found.text.endswith(word)
    assert found.tone == tone


def test_no_figure_of_preemptions_is_not_none_of_them():
    for column, label in (("preemptions_per_s", "preemptions"), ("evictions_per_s", "evicted")):
        block = put(make_block(replica_names(2)), column, np.full((60, 2), math.nan))
        found = fact(cache_picture(view_of(0.1, 0.1, block=block)), label)
        assert (found.text, found.tone) == ("–", "plain")


def test_predicted_and_measured_hit_rates_are_never_in_one_chart():
    block = put(make_block(), "predicted_hit_rate", np.full(60, 0.8))
    block = put(block, "prefix_hit_rate", np.full(60, 0.6))
    picture = cache_picture(make_view(block=block))
    assert fact(picture, "hit rate, predicted").text == "80.0%"
    assert fact(picture, "hit rate, by the engines").text == "60.0%"
    assert part(picture, "Prefix-cache hit rate, predicted").source == "books"
    assert part(picture, "Prefix-cache hit rate, by the engines").source == "engine"
    assert "60.0% of prompt tokens" in picture.words


def test_the_levels_are_on_the_chart_over_time_too():
    chart = next(p for p in cache_picture(make_view()).parts if p.title == "KV cache in use")
    assert chart.kind == "lines"
    assert [level.word for level in chart.levels] == ["high", "full"]


def test_of_many_replicas_the_fullest_have_bars_and_the_silent_are_counted():
    use = [0.001 * n for n in range(255)]
    bars = part(cache_picture(view_of(*use, None)), "KV cache in use, now")
    assert [bar.name for bar in bars.bars] == [f"replica-{n}" for n in range(231, 255)]
    assert "24 highest of 256 replicas" in bars.note
    assert "1 without data" in bars.note


def test_words_count_how_full_they_are():
    words = cache_picture(view_of(0.5, 0.95, 0.99, 0.99, None)).words
    assert "50.0% to 99.0% in use; 2 full, 1 high, 1 ok" in words
    assert "1 replica without data" in words


def test_before_the_first_sample():
    picture = cache_picture(blank_view())
    assert fact(picture, "fullest").text == "–"
    assert "no data" in picture.words
    picture.to_json()
