"""Figures say how many values of them become one; nothing is guessed."""

from __future__ import annotations

import pandas as pd
import pytest

from workbench.errors import ConfigError
from workbench.metrics.aggregation import Aggregation, MeanBy, aggregate

FRAME = pd.DataFrame(
    {
        "reward_sum": [1.0, 2.0, 6.0],
        "max_wait_mean": [3.0, None, 1.0],
        "tokens": [10, 0, 30],
        "kl": [0.1, 5.0, 0.3],
        "note": ["a", "b", None],
        "empty": [None, None, None],
    }
)
DECLARED = {
    "reward_sum": Aggregation.MEAN,
    "max_wait_mean": Aggregation.MIN,
    "tokens": Aggregation.SUM,
    "kl": MeanBy("tokens"),
    "note": Aggregation.LAST,
    "empty": Aggregation.MAX,
    "elsewhere": Aggregation.SUM,
}


def test_each_column_becomes_one_as_it_declared_whatever_its_name_says():
    found = aggregate(FRAME, DECLARED)
    assert list(found.index) == list(FRAME.columns)
    assert found["reward_sum"] == 3.0
    assert found["max_wait_mean"] == 1.0
    assert found["tokens"] == 40
    assert found["kl"] == pytest.approx((10 * 0.1 + 30 * 0.3) / 40)
    assert found["note"] == "b"
    assert found["empty"] is None
    assert aggregate(FRAME[["tokens"]], {"tokens": Aggregation.MAX})["tokens"] == 30


def test_a_column_that_nobody_declared_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"frame: nobody declared kl, note \(allowed: "):
        aggregate(FRAME, {k: v for k, v in DECLARED.items() if k not in {"kl", "note"}})


def test_a_mean_needs_the_column_that_weighs_it():
    with pytest.raises(ConfigError, match="kl is weighed by tokens, which it lacks"):
        aggregate(FRAME[["kl"]], DECLARED)
    with pytest.raises(ConfigError, match="tokens: below 0, and weighs kl"):
        aggregate(FRAME.assign(tokens=[-1, 1, 1]), DECLARED)
    nothing = aggregate(FRAME.assign(tokens=0), DECLARED)
    assert nothing["kl"] is None


def test_a_missing_value_weighs_nothing():
    frame = pd.DataFrame({"kl": [None, 0.5], "tokens": [100, 1]})
    assert aggregate(frame, DECLARED)["kl"] == 0.5
