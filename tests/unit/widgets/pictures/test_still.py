"""Any picture as a PNG: something is drawn, absence is no line, text is never notation."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from tests.unit.widgets.pictures.scenes import (
    NASTY,
    NOW_S,
    blank_view,
    make_replica,
    make_sample,
    make_view,
)
from tests.unit.widgets.pictures.test_overview import PICTURES, large_view
from tests.unit.widgets.pictures.test_picture import EVERY_PART
from tests.unit.widgets.pictures.test_trajectory import decode, two_turns
from widgets.figures import Still, png
from widgets.pictures.load import load_picture
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
from widgets.pictures.replicas import replicas_picture
from widgets.pictures.rollouts import rollouts_picture
from widgets.pictures.stickiness import stickiness_picture
from widgets.pictures.still import DPI, still
from widgets.pictures.trajectory import trajectory_picture
from workbench.types import ReplicaState


def drawn(*parts, **known):
    return still(Picture("Title", parts, **known)).figure


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible()]


def pixels(figure):
    return np.asarray(Image.open(io.BytesIO(png(figure, DPI))).convert("RGB"))


def lines_of(*values, **known):
    times = NOW_S + np.arange(len(values))
    known = {"unit": "requests", "source": "books"} | known
    return Lines("Running", times_s=times, lines=(Line("r", values, "#123456"),), **known)


def curves(figure):
    """Runs of values that are joined, by figure."""
    found = []
    for line in figure.findobj(Line2D):
        if to_hex(line.get_color()) == "#123456" and line.get_linestyle() != "None":
            known = np.isfinite(np.asarray(line.get_ydata(), float))
            edges = np.flatnonzero(np.diff(np.concatenate([[0], known, [0]])))
            found += list(np.diff(edges)[::2])
    return found


@pytest.mark.parametrize("part", EVERY_PART, ids=lambda part: part.kind)
def test_every_kind_of_part_leaves_a_mark(part):
    empty = pixels(drawn())
    filled = pixels(drawn(part))
    assert filled.shape[0] > empty.shape[0]
    assert (filled[empty.shape[0] :] < 200).any()


@pytest.mark.parametrize("make", PICTURES, ids=lambda make: make.__name__)
def test_a_still_of_every_picture_is_a_small_opaque_png(make):
    found = still(make(make_view(3)))
    assert isinstance(found, Still)
    image = Image.open(io.BytesIO(found._repr_png_()))
    assert image.format == "PNG"
    assert image.convert("RGBA").getpixel((1, 1)) == (255, 255, 255, 255)
    assert len(found._repr_png_()) < 90_000
    assert repr(found) == make(make_view(3)).words


def test_large_pools_are_drawn_too():
    view = large_view()
    for make in (load_picture, stickiness_picture, replicas_picture):
        assert len(still(make(view))._repr_png_()) < 160_000


@pytest.mark.parametrize("make", PICTURES, ids=lambda make: make.__name__)
def test_a_pool_of_which_nothing_is_known_is_drawn_too(make):
    assert still(make(blank_view()))._repr_png_()


def test_trajectories_are_drawn():
    for picture in (trajectory_picture(two_turns(), decode), rollouts_picture([two_turns()])):
        assert len(still(picture)._repr_png_()) < 60_000


def test_the_same_picture_gives_the_same_bytes():
    one, other = (still(PICTURES[0](make_view(3)))._repr_png_() for _ in range(2))
    assert one == other


def test_title_status_problem_and_words_are_there():
    figure = drawn(status="no data since 12:03:04", error="it is gone", words="Nothing to see.")
    assert {"Title", "no data since 12:03:04", "Problem: it is gone"} <= set(texts(figure))
    assert figure.get_label() == "Nothing to see."


def test_axes_name_their_units_and_their_source():
    figure = drawn(lines_of(1, 2))
    assert figure.axes[1].get_ylabel() == "requests"
    assert "books" in texts(figure)
    share = drawn(lines_of(0.25, 0.5, unit="share"))
    png(share, DPI)
    assert "50%" in texts(share)
    assert share.axes[1].get_ylim()[0] == 0


def test_lines_begin_at_zero_and_span_the_time_that_is_asked_for():
    figure = drawn(lines_of(50, 60), span_s=(NOW_S - 100, NOW_S + 1))
    assert figure.axes[1].get_ylim()[0] == 0
    assert figure.axes[1].get_xlim() == (NOW_S - 100, NOW_S + 1)


def test_a_missing_value_interrupts_the_line():
    assert curves(drawn(lines_of(1, 2, None, 4, 5, 6))) == [2, 3]


def test_a_time_without_samples_interrupts_the_line():
    times = [NOW_S, NOW_S + 1, NOW_S + 2, NOW_S + 3, NOW_S + 60, NOW_S + 61]
    line = Line("r", (1,) * 6, "#123456")
    assert curves(drawn(Lines("Running", "s", times, (line,), "books"))) == [4, 2]


def test_a_value_between_gaps_is_a_dot():
    image = pixels(drawn(lines_of(None, None, 5, None)))
    assert (image == (0x12, 0x34, 0x56)).all(axis=2).any() or (
        np.abs(image.astype(int) - (0x12, 0x34, 0x56)).sum(axis=2) < 60
    ).any()


def test_no_value_at_all_says_no_data():
    assert "no data" in texts(drawn(lines_of(None, None)))
    assert "no data" in texts(drawn(Lines("Running", "s", (), (), "books")))


def test_a_line_along_numbers_has_their_ends_and_shows_what_is_below_zero():
    line = Line("r", (-0.5, 0.25, -2.0), "#123456")
    figure = drawn(
        Lines("Reward", "reward", (7, 8, 1009), (line,), "", along="batch"), span_s=(0.0, 60.0)
    )
    assert {"batch 7", "batch 1,009"} <= set(texts(figure))
    (axes,) = [axes for axes in figure.axes if axes.lines]
    assert axes.get_xlim() == (7, 1009)
    low, high = axes.get_ylim()
    assert low < -2.0
    assert high > 0.25
    still(Picture("Title", (Lines("Reward", "reward", (7,), (Line("r", (0.0,), "#123456"),), "",
                                  along="batch"),)))  # fmt: skip


def test_every_line_is_in_the_one_legend():
    pair = tuple(Line(name, (1, 2), "#123456", (1.0, 1.0), "o") for name in ("alpha", "beta"))
    charts = [Lines(title, "s", (1, 2), pair, "books") for title in ("One", "Two")]
    found = texts(drawn(*charts))
    assert [found.count(name) for name in ("alpha", "beta")] == [1, 1]


def test_a_bar_without_a_value_has_no_bar_and_zero_has_its_track():
    def tracks(value):
        figure = drawn(Bars("b", "requests", (Bar("x", value, "text", "#123456"),), 10.0))
        return len([box for box in figure.findobj(Rectangle) if 0.05 < box.get_height() < 0.15])

    assert (tracks(None), tracks(0.0)) == (0, 2)


def test_a_bar_is_as_long_as_its_share_of_the_limit():
    figure = drawn(Bars("b", "requests", (Bar("x", 2.5, "text", "#123456"),), 10.0))
    boxes = {to_hex(box.get_facecolor()): box.get_width() for box in figure.findobj(Rectangle)}
    assert boxes["#123456"] == pytest.approx(boxes["#e9edf1"] / 4)


def test_bands_keep_their_share_on_both_sides():
    links = (Link(0, 0, 3.0), Link(0, 1, 1.0), Link(1, 1, 4.0))
    figure = drawn(Flow("f", "turns", ("a", "b"), ("x", "y"), links, ("#123456", "#654321")))
    assert {"a  4", "b  4", "x  3", "y  5"} <= set(texts(figure))
    blocks = {
        to_hex(box.get_facecolor()): box.get_height()
        for box in figure.findobj(Rectangle)
        if box.get_width() == pytest.approx(0.1)
    }
    assert blocks["#654321"] / blocks["#123456"] == pytest.approx(5 / 3)


def test_what_there_is_no_room_for_is_counted():
    rows = tuple((str(n),) for n in range(100))
    assert "86 more rows; and 7 older" in texts(drawn(Table("t", ("a",), rows, note="and 7 older")))
    tokens = tuple(Token(f"token{n:04} ", 1, "", 0.5) for n in range(900))
    assert any("further tokens are not drawn" in text for text in texts(drawn(Tokens("t", tokens))))


def test_sampled_tokens_differ_from_others_by_more_than_colour():
    def underlines(mask):
        figure = drawn(Tokens("t", (Token("abc", mask, "", 0.5 if mask else None),)))
        return len([box for box in figure.findobj(Rectangle) if box.get_height() == 0.012])

    assert (underlines(1), underlines(0)) == (1, 0)


def test_text_is_no_notation_and_lacks_no_glyph():
    nasty = "$\\frac{1$ ␛ 日本 🙂 שלום\ufffe"
    figure = drawn(
        Facts("f", (Fact(nasty, nasty),)),
        Table(nasty, (nasty,), ((nasty,),), note=nasty),
        Bars(nasty, nasty, (Bar(nasty, 1.0, nasty, "#123456"),), note=nasty),
        lines_of(1, 2, note=nasty),
        Flow(nasty, nasty, (nasty,), (nasty,), (Link(0, 0, 1.0),)),
        Tokens(nasty, (Token(nasty, 1, nasty, 0.5),), note=nasty),
        status=nasty,
        error=nasty,
    )
    assert png(figure, DPI), "a missing glyph would warn, a broken formula would raise"
    assert "$\\frac{1$ ▯ ▯▯ ▯ שלום▯" in texts(figure)


def test_a_pool_with_hostile_names_is_drawn():
    replica = make_replica("$\\frac", state=ReplicaState.UNHEALTHY, reason=NASTY, error=NASTY)
    view = make_view(sample=make_sample((replica,)), name=NASTY, error=NASTY)
    for make in (load_picture, replicas_picture):
        assert still(make(view))._repr_png_()
