"""Any picture as HTML: well-formed, escaped, nothing that runs or is fetched."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.unit.widgets.pictures.scenes import (
    NASTY,
    blank_view,
    make_replica,
    make_sample,
    make_view,
)
from tests.unit.widgets.pictures.test_overview import PICTURES, large_view
from tests.unit.widgets.pictures.test_picture import EVERY_PART
from tests.unit.widgets.pictures.test_trajectory import decode, two_turns
from widgets.pictures.picture import (
    Bar,
    Bars,
    Fact,
    Facts,
    Flow,
    Line,
    Lines,
    Link,
    Picture,
    Table,
    Token,
    Tokens,
)
from widgets.pictures.still import html
from widgets.pictures.trajectory import trajectory_picture
from workbench.types import ReplicaState

ALLOWED = {"div", "span", "strong", "bdi", "table", "tbody", "tr", "td", "th", "pre"}
NOT_STRICT = re.compile(r"url\(|expression|javascript:|@import", re.IGNORECASE)


class Page(HTMLParser):
    """What a browser would see."""

    def __init__(self, text):
        super().__init__()
        self.open, self.styles, self.text, self.titles = [], [], "", []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        assert tag in ALLOWED, tag
        self.open.append(tag)
        for name, value in attributes:
            assert name in {"style", "title"}, name
            assert not NOT_STRICT.search(value), value
            (self.styles if name == "style" else self.titles).append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def page(*parts, **known):
    return Page(html(Picture("Title", parts, **known)))


@pytest.mark.parametrize("make", PICTURES, ids=lambda make: make.__name__)
def test_every_picture_is_plain_well_formed_html(make):
    for view in (make_view(3), blank_view(), large_view()):
        found = html(make(view))
        assert Page(found).text
        assert len(found) < 150_000


def test_it_takes_its_ink_from_the_notebook():
    found = html(Picture("Title", EVERY_PART, status="live"))
    assert "color: var(--jp-ui-font-color1, inherit)" in found
    colours = re.findall(r"[^-]color: ([^;\"]+)", found)
    assert all(value.startswith("var(") for value in colours)


def test_title_status_problem_and_words_are_there():
    text = page(status="no data since 12:03:04", error="it is gone", words="Nothing to see.").text
    for said in ("Title", "no data since 12:03:04", "Problem: it is gone", "Nothing to see."):
        assert said in text


def test_text_is_escaped_wherever_it_stands():
    bad = "<script>alert(1)</script>\"'&amp;"
    parts = (
        Facts(bad, (Fact(bad, bad, "bad"),)),
        Lines(bad, bad, (1,), (Line(bad, (1,), "#123456"),), "books", note=bad),
        Bars(bad, bad, (Bar(bad, 1.0, bad, "#123456"),), note=bad),
        Table(bad, (bad,), ((bad,),), note=bad),
        Flow(bad, bad, (bad,), (bad,), (Link(0, 0, 1.0),), note=bad),
        Tokens(bad, (Token(bad, 1, bad, 0.5),), note=bad),
    )
    found = Page(html(Picture(bad, parts, status=bad, error=bad, words=bad)))
    assert found.text.count(bad) == 4 + 3 + 4 + 5 + 4 + 5 + 3
    assert found.titles == [bad]


def test_hostile_pools_and_rollouts_are_plain_html_too():
    replica = make_replica("replica-0", state=ReplicaState.UNHEALTHY, reason=NASTY, error=NASTY)
    view = make_view(sample=make_sample((replica,)), name=NASTY, error=NASTY)
    for make in PICTURES:
        Page(html(make(view)))
    assert "\u202e" not in html(PICTURES[0](view))
    Page(html(trajectory_picture(two_turns(), decode)))


def test_a_lines_course_has_its_extremes_and_its_gaps():
    line = Line("r", (0, 4, None, 8), "#123456")
    text = page(Lines("Running", "requests", (1, 2, 3, 4), (line,), "engine")).text
    assert "▁▅\N{NO-BREAK SPACE}█" in text
    assert "requests, by the engines" in text
    lost = Line("r", (0.5, None), "#123456")
    assert "50.0%50.0%–" in page(Lines("Use", "share", (1, 2), (lost,), "books")).text


def test_a_line_along_numbers_says_which():
    line = Line("r", (0.5, 0.25), "#123456")
    text = page(Lines("Reward", "reward", (7, 1009), (line,), "", along="batch")).text
    assert "reward, batch 7 to 1,009" in text
    assert "batch" not in page(Lines("Reward", "reward", (), (), "", along="batch")).text


def test_bars_are_as_long_as_their_share():
    bars = (Bar("a", 2.5, "2.5", "#123456"), Bar("b", None, "no data", "#123456"))
    found = page(Bars("b", "requests", bars, 10.0))
    assert [style for style in found.styles if style.startswith("width: 25.0%")]
    assert sum("#123456" in style for style in found.styles) == 1
    assert "no data" in found.text


def test_what_there_is_no_room_for_is_counted():
    rows = tuple((str(n),) for n in range(100))
    assert "and 60 more rows" in page(Table("t", ("a",), rows)).text
    tokens = tuple(Token("x", 1, "", 0.5) for _ in range(700))
    assert "and 100 more tokens" in page(Tokens("t", tokens)).text
    assert "nothing yet" in page(Table("t", ("a",), ())).text


def test_a_warning_is_said_by_more_than_colour():
    plain, warned = (
        page(Facts("f", (Fact("kv", "95% high", tone),))) for tone in ("plain", "warn")
    )
    assert "95% high" in plain.text
    assert any("border-left" in style for style in warned.styles)
    assert not any("border-left" in style for style in plain.styles)
