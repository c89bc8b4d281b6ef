"""Policies side by side: absence stays absence, and the words say what the picture shows."""

from __future__ import annotations

import math

import pandas as pd

from widgets.figures import png
from widgets.study import hit_rate, policy_figure


def make_turns(**columns) -> pd.DataFrame:
    rows = [
        {
            "policy": policy, "turn": turn, "replica_id": f"replica-{(turn + shift) % 2}",
            "prompt_tokens": 100 * turn, "cached_tokens": cached * (turn - 1),
            "first_token_s": 0.1 * turn,
        }
        for policy, shift, cached in (("sticky", 0, 100), ("random", 1, 40))
        for turn in (1, 2, 3)
    ]  # fmt: skip
    return pd.DataFrame(rows).assign(**columns)


def test_the_words_give_each_policys_hit_rate_and_median_wait():
    words = policy_figure(make_turns()).get_label()
    assert "sticky: 50% cached, median first token after 0.20 s" in words
    assert "random: 20% cached" in words


def test_turns_whose_hits_are_unknown_count_neither_way():
    turns = make_turns()
    turns.loc[2, "cached_tokens"] = None
    assert hit_rate(turns[:3]) == 100 / 300
    unknown = make_turns(cached_tokens=None)
    assert math.isnan(hit_rate(unknown))
    assert "no data on the cache" in policy_figure(unknown).get_label()


def test_no_turns_and_strange_names_make_a_picture_too():
    assert "no data" in policy_figure(make_turns()[:0]).get_label()
    strange = make_turns(policy="$x_{$<script>", replica_id=None, first_token_s=None)
    assert png(policy_figure(strange)).startswith(b"\x89PNG")
    assert png(policy_figure(strange)) == png(policy_figure(strange))
