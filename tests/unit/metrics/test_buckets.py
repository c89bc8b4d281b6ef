"""A histogram of times to first token, and quantiles of what was added to it."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.metrics.buckets import TTFT_BOUNDS_S, count, empty_counts, quantile

times = st.floats(0.0, 150.0)
shares = st.floats(0.0, 1.0)


def histogram(*values_s, to=()):
    counts = list(to) or empty_counts()
    for value_s in values_s:
        count(counts, value_s)
    return tuple(counts)


def test_buckets_reach_from_milliseconds_to_minutes():
    assert list(TTFT_BOUNDS_S) == sorted(set(TTFT_BOUNDS_S))
    assert (TTFT_BOUNDS_S[0], TTFT_BOUNDS_S[-1]) == (0.005, 120.0)
    steps = [upper / lower for lower, upper in pairwise(TTFT_BOUNDS_S)]
    assert 1.3 < min(steps) < max(steps) <= 2.0


def test_a_bound_belongs_to_the_bucket_that_it_ends():
    for place, bound_s in enumerate(TTFT_BOUNDS_S):
        assert histogram(bound_s)[place] == 1
        assert histogram(math.nextafter(bound_s, math.inf))[place + 1] == 1


def test_only_what_was_added_between_two_readings_counts():
    before = histogram(*[60.0] * 50)
    assert quantile(before, histogram(0.02, to=before), 0.95) < 0.1
    assert quantile(before, before, 0.95) is None
    assert quantile((), (), 0.95) is quantile((), empty_counts(), 0.95) is None


def test_the_first_reading_is_compared_with_nothing():
    assert quantile((), histogram(0.02), 1.0) == 0.025


def test_within_a_bucket_values_are_taken_to_be_spread_evenly():
    counts = histogram(*[0.6] * 4)
    assert [quantile((), counts, q) for q in (0.25, 0.5, 1.0)] == [0.5625, 0.625, 0.75]


def test_of_what_took_too_long_to_say_only_that_is_said():
    assert quantile((), histogram(0.1, 500.0, 900.0), 0.95) == TTFT_BOUNDS_S[-1]


def test_an_engine_that_started_anew_counts_from_nothing():
    before = histogram(*[60.0] * 50)
    after = histogram(*[0.02] * 3)
    assert quantile(before, after, 0.95) == quantile((), after, 0.95)


@given(before=st.lists(times), added=st.lists(times, min_size=1), q=shares)
def test_a_quantile_lies_in_the_bucket_of_the_value_that_it_stands_for(before, added, q):
    first = histogram(*before)
    answer = quantile(first, histogram(*added, to=first), q)
    value_s = sorted(added)[max(0, math.ceil(q * len(added)) - 1)]
    edges = (0.0, *TTFT_BOUNDS_S, math.inf)
    place = histogram(value_s).index(1)
    assert edges[place] <= answer <= min(edges[place + 1], TTFT_BOUNDS_S[-1])


@given(one=st.lists(times), other=st.lists(times), q=shares)
def test_histograms_of_two_engines_add_up(one, other, q):
    both = [a + b for a, b in zip(histogram(*one), histogram(*other), strict=True)]
    assert quantile((), both, q) == quantile((), histogram(*one, *other), q)


def test_readings_of_different_histograms_are_not_compared():
    with pytest.raises(ValueError, match="argument"):
        quantile([1, 2], empty_counts(), 0.5)
