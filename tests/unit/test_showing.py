"""What an object shows: always text and a table, and a live view where there can be one."""

from __future__ import annotations

import pytest

from workbench import showing
from workbench.showing import bundle, percent, table

LIVE = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}}


class Thing:
    def __repr__(self):
        return "Thing()"

    def _repr_html_(self):
        return "<b>thing</b>"


@pytest.fixture
def live(monkeypatch):
    """What the view ``live`` does."""

    def set_view(function):
        monkeypatch.setattr(showing, "view", {"live": function}.__getitem__)

    return set_view


def test_a_live_front_end_gets_all_three(live):
    live(lambda kind, subject: LIVE if (kind, repr(subject)) == ("pool", "Thing()") else None)
    shown = bundle("pool", Thing())
    assert shown == {"text/plain": "Thing()", "text/html": "<b>thing</b>", **LIVE}
    assert bundle("other", Thing()).keys() == {"text/plain", "text/html"}


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["text/plain"], None, ["text/plain"]),
        (None, ["text/html"], ["text/plain", *LIVE]),
        (["text/plain", "text/html"], ["text/plain"], ["text/html"]),
        ([], None, []),
    ],
)
def test_what_is_asked_for_is_what_there_is(live, include, exclude, expected):
    live(lambda *_: LIVE)
    assert list(bundle("pool", Thing(), include, exclude)) == expected


def test_a_view_that_fails_is_missing_and_no_more(live):
    def broken(kind, subject):
        raise RuntimeError("no browser")

    live(broken)
    assert bundle("pool", Thing()).keys() == {"text/plain", "text/html"}


def test_a_table_escapes_and_shows_what_is_missing_as_missing():
    html = table("a <b>", [{"n": 12345, "none": None, "text": "<i>"}], "x & y")
    assert "12,345" in html
    assert "–" in html
    assert "&lt;i&gt;" in html
    assert "a &lt;b&gt;" in html
    assert "x &amp; y" in html
    assert "<table" not in table("empty", [])
    assert (percent(None), percent(0.256)) == ("–", "26%")
