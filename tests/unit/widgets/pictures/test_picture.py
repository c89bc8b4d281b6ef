"""Pictures as JSON: no NaN, few digits, every kind of part."""

from __future__ import annotations

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from widgets.pictures.picture import (
    Bar,
    Bars,
    Fact,
    Facts,
    Flow,
    Level,
    Line,
    Lines,
    Link,
    Picture,
    Table,
    Token,
    Tokens,
    rounded,
)

EVERY_PART = (
    Lines("l", "s", [1.234567], (Line("a", [math.nan], "#000000", (1.0,), "o"),), "books",
          (Level(0.9, "high"),)),
    Bars("b", "s", (Bar("a", math.nan, "no data", "#000000"), Bar("b", 1 / 3, "x", "#000000"))),
    Facts("f", (Fact("a", "1"),)),
    Table("t", ("a",), (("1",),), (True,), key=0),
    Flow("w", "turns", ("a",), ("b",), (Link(0, 0, 2.0),), ("#000000",)),
    Tokens("k", (Token("a", 1, "id 3", 0.25), Token("b", 0))),
)  # fmt: skip
LINES, BARS, FACTS, TABLE, FLOW, TOKENS = range(6)


def sent(**known):
    picture = Picture("p", EVERY_PART, **known)
    return json.loads(picture.to_json(), parse_constant=lambda name: 1 / 0)  # NaN is no JSON


def test_every_part_says_its_kind_and_travels_with_its_fields():
    parts = sent()["parts"]
    assert [part["kind"] for part in parts] == [
        "lines", "bars", "facts", "table", "flow", "tokens",
    ]  # fmt: skip
    assert parts[LINES]["lines"][0]["marker"] == "o"
    assert parts[LINES]["levels"] == [{"value": 0.9, "word": "high"}]
    assert parts[FLOW]["links"] == [{"source": 0, "target": 0, "value": 2.0}]
    assert parts[TABLE]["key"] == 0
    assert parts[TOKENS]["tokens"][1] == {
        "text": "b", "mask": 0, "hint": "", "shade": None, "mark": "",
    }  # fmt: skip


def test_what_is_missing_is_null_and_never_a_number():
    parts = sent()["parts"]
    assert parts[LINES]["lines"][0]["values"] == [None]
    assert parts[BARS]["bars"][0]["value"] is None


def test_numbers_have_five_digits_and_times_two_decimals():
    picture = sent(span_s=(1.23456, 1_764_453_123.98765))
    assert picture["parts"][BARS]["bars"][1]["value"] == 0.33333
    assert picture["parts"][LINES]["times_s"] == [1.23]
    assert picture["span_s"] == [1.23, 1_764_453_123.99]


def test_charts_with_the_times_of_the_one_before_do_not_repeat_them():
    def lines(*times_s):
        return Lines("Running", "requests", times_s, (), "engine")

    picture = Picture("Pool", (lines(1, 2), Facts("f", ()), lines(1, 2), lines(1, 3)))
    parts = json.loads(picture.to_json())["parts"]
    assert [part.get("times_s", "none") for part in parts] == [[1, 2], "none", None, [1, 3]]


def test_values_may_come_as_arrays_and_lists_with_none_and_are_kept_alike():
    of_array = Line("a", np.array([1.5, np.nan, 2], np.float32), "#000000")
    assert of_array == Line("a", [1.5, None, 2.0], "#000000")
    assert hash(of_array) == hash(Line("a", (1.5, None, 2.0), "#000000"))


def test_whole_numbers_keep_all_their_digits_and_lose_the_point():
    assert rounded([1_234_567.0, 3.0]) == (1_234_567, 3)
    assert '"values":[12,3]' in Picture(
        "", (Lines("l", "s", [1, 2], (Line("a", [12.0, 3.0], "#0"),), "books"),)
    ).to_json().replace(" ", "")


def test_an_empty_series_and_one_without_values():
    assert rounded([]) == ()
    assert rounded([math.nan, math.inf, None]) == (None, None, None)


@given(st.lists(st.floats() | st.none(), max_size=20))
def test_rounding_keeps_what_is_known_to_a_ten_thousandth(values):
    for before, after in zip(values, rounded(values), strict=True):
        if before is None or not math.isfinite(before):
            assert after is None
        else:
            assert after is not None
            assert math.isclose(after, before, rel_tol=1e-4, abs_tol=1e-15)
