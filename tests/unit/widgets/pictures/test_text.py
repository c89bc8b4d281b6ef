"""Text from data stays what it is: visible, in one line, short; numbers keep their form."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.widgets.pictures.scenes import NASTY
from widgets.pictures.text import (
    clock,
    day,
    duration,
    measured,
    percent,
    prose,
    short,
    stretch,
    visible,
)


def test_control_and_direction_characters_get_visible_names():
    assert visible("a\nb\tc\x1b[31m\x7f") == "a␊b␉c␛[31m␡"
    assert visible("admin\u202egnp.exe") == "admin[U+202E]gnp.exe"
    assert visible("\u200b\ufeff\u2028\x85") == "[U+200B][U+FEFF][U+2028][U+0085]"


def test_markup_other_scripts_and_emoji_stay_as_they_are():
    for text in ("<script>$x$</script>", "שלום עליכם", "日本語", "👩\u200d💻", "नमस्ते"):
        assert visible(text) == text


@given(st.text())
def test_whatever_comes_can_be_sent_and_holds_no_line_end(text):
    shown = visible(text)
    shown.encode("utf-8")
    assert shown.splitlines() in ([shown], [])


def test_a_long_name_keeps_both_ends_and_a_long_text_its_beginning():
    assert short("rollout-" + "x" * 100 + "-17", 20) == "rollout-x…xxxxxxx-17"
    assert len(short(NASTY, 28)) < 60
    assert prose("y" * 500, 10) == "yyyyyyyyy…"
    assert short("as it is") == prose("as it is") == "as it is"


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_absence_is_a_dash(missing):
    assert [percent(missing), measured(missing, "s"), duration(missing)] == ["–", "–", "–"]


def test_numbers_have_units_and_fixed_decimals():
    assert percent(0.976) == "97.6%"
    assert percent(1.0) == "100.0%"
    assert measured(1234.4, "tokens/s") == "1,234 tokens/s"
    assert measured(0.1, "s", 2) == "0.10 s"


def test_durations_and_spans():
    assert [duration(s) for s in (0, 59.4, 61, 3900)] == ["0 s", "59 s", "1 min 01 s", "1 h 05 min"]
    assert [stretch(s) for s in (30, 300, 3600)] == ["30 s", "5 min", "1 h 00 min"]


def test_times_of_day_are_local(monkeypatch):
    monkeypatch.setenv("TZ", "UTC-3")
    time.tzset()
    try:
        assert clock(1_764_453_123) == "00:52:03"
        assert day(1_764_453_123) == "2025-11-30 00:52:03"
    finally:
        monkeypatch.undo()
        time.tzset()
