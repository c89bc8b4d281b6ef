"""Pictures in a real browser: what is drawn, and that text stays text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.ui import scenes
from tests.ui.scenes import EVIL, NOW_S, at, chart, show
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
)

# ---------------------------------------------------------------------------- what is drawn


def test_a_chart_has_its_series_units_levels_and_source(page):
    show(page, scenes.load())
    part = chart(page, "KV cache in use")
    assert part.locator("path.line").count() == 4 + 4  # in the plot and in the legend
    assert part.locator(".badge").inner_text() == "engine"
    assert part.locator(".axis-unit").text_content() == "percent"
    labels = part.locator(".plot text").all_text_contents()
    assert {"0%", "100%", "high", "full", "12:00", "local time, 29 Nov 2025"} <= set(labels)
    dashes = [line.get_attribute("stroke-dasharray") for line in part.locator("li path.line").all()]
    assert len(set(dashes)) == 4
    shapes = [mark.get_attribute("d") for mark in part.locator("li .marker").all()]
    assert len(set(shapes)) == 4
    assert chart(page, "In flight").locator(".badge").inner_text() == "books"


def test_gaps_stay_gaps_and_missing_values_are_dashes(page):
    show(page, scenes.load())
    part = chart(page, "In flight")
    paths = [line.get_attribute("d") for line in part.locator(".plot path.line").all()]
    assert [path.count("M") for path in paths] == [1, 2, 1, 1]
    assert part.locator(".legend .value").all_inner_texts() == ["1", "10", "–", "5"]


def test_a_gap_without_rows_is_a_gap_and_a_lonely_sample_a_dot(page):
    times = [NOW_S - 60 + i for i in range(20)] + [NOW_S - 20] + [NOW_S - 10 + i for i in range(10)]
    line = Line("replica-0", [float(i % 4) for i in range(31)], "#0072B2")
    show(page, scenes.picture(Lines("Waiting", "requests", times, (line,), "engine")))
    path = page.locator(".plot path.line").get_attribute("d")
    assert (path.count("M"), path.count("m-1.2,0h2.4")) == (3, 1)


def test_a_chart_along_numbers_has_no_clock_and_no_zoom(page):
    line = Line("r", [-0.5 + n / 50 for n in range(60)], "#0072B2")
    curve = Lines("Reward", "reward", list(range(7, 67)), (line,), "", along="batch")
    scene = show(page, scenes.picture(curve, scenes.lines()))
    part = chart(page, "Reward")
    labels = part.locator(".plot .label").all_text_contents()
    assert {"20", "40", "60", "batch", "\u22120.5"} <= set(labels)
    assert not [label for label in labels if ":" in label]
    assert part.locator(".badge").is_hidden()
    page.mouse.move(*at(part, 0.0))
    page.mouse.down()
    assert part.locator(".cross-time").text_content() == "7"
    page.mouse.move(*at(part, 0.9))
    page.mouse.up()
    scene.settle()
    assert part.locator(".selection").count() == 0
    assert scene.sent() == []
    assert chart(page, "In flight").locator(".cross-time").count() == 0


def test_no_data_is_said(page):
    empty = scenes.lines(series=0)
    show(page, scenes.picture(empty, Bars("none", "requests", ()), Flow("f", "turns", (), (), ())))
    assert chart(page, "In flight").locator(".absent").text_content() == "no data"
    assert page.get_by_text("nothing yet").count() == 2


def test_bars_have_lengths_by_value_and_none_without_one(page):
    show(page, scenes.picture(scenes.bars()))
    widths = [float(bar.get_attribute("width")) for bar in page.locator(".bar").all()]
    assert len(widths) == 3
    assert widths[0] / widths[1] == pytest.approx(0.42 / 0.93, abs=0.01)
    texts = page.locator(".part-bars .figure").all_text_contents()
    assert [text.split()[0] for text in texts] == ["42.0%", "93.0%", "no", "99.0%"]


def test_facts_tables_flows_and_tokens(page):
    scene = show(
        page, scenes.picture(scenes.facts(), scenes.table(3), scenes.flow(), scenes.tokens(30))
    )
    assert scene.texts("dd")[0] == "12 requests (3 of 4 report)"
    assert page.locator(".fact.warn, .fact.bad").count() == 2
    assert page.locator("tbody tr").count() == 3
    assert page.locator("tbody td.number").count() == 9
    assert page.locator(".band").count() == 11
    page.locator(".band").first.hover()
    assert scene.texts(".part-flow .readout") == ["session-0 → replica-0: 14 turns"]
    assert page.locator(".tokens .token").count() == 30
    assert page.locator(".tokens .sampled").count() == 7
    page.locator(".tokens .token").nth(25).hover()
    assert (
        page.locator(".part-tokens .readout").inner_text().startswith("token 25 · id 1025, log p")
    )
    page.locator(".tokens").press("ArrowRight")
    assert page.locator(".part-tokens .readout").inner_text().startswith("token 26")


def test_what_cannot_be_drawn_is_said_and_the_rest_is_drawn(page):
    good = scenes.picture(scenes.facts())
    scene = show(page, good)
    part = '{"kind":"hologram","title":"new"},{"kind":"bars","title":"broken"}'
    text = good.to_json().replace('"parts":[', f'"parts":[{part},')
    scene.page.evaluate("(picture) => window.model.receive({ picture })", text)
    scene.settle()
    assert "cannot be drawn here: hologram" in page.locator(".picture").inner_text()
    assert "cannot be drawn: " in chart(page, "broken").locator(".note").inner_text()
    assert page.locator(".fact").count() == 5


# ---------------------------------------------------------------------------- text is text


def hostile() -> Picture:
    """Markup wherever text can be."""
    times, colour = [NOW_S - 2, NOW_S - 1, NOW_S], 'url("http://192.0.2.1/x")'
    return Picture(
        EVIL,
        (
            Lines(EVIL, EVIL, times, (Line(EVIL, [1.0, 2.0, 3.0], colour, (), EVIL),), "books",
                  (Level(1.0, EVIL),), EVIL),
            Bars(EVIL, EVIL, (Bar(EVIL, 1.0, EVIL, colour),), None, (Level(0.5, EVIL),), EVIL),
            Facts(EVIL, (Fact(EVIL, EVIL),)),
            Table(EVIL, (EVIL, EVIL), ((EVIL, EVIL),), (False, True), EVIL, EVIL, 0),
            Flow(EVIL, EVIL, (EVIL,), (EVIL,), (Link(0, 0, 1.0),), (colour,), EVIL),
            Tokens(EVIL, (Token(EVIL, 1, EVIL, 0.5),), EVIL),
        ),
        status=EVIL,
        error=EVIL,
        span_s=(NOW_S - 10, NOW_S),
        words=EVIL,
        actions=(EVIL,),
    )  # fmt: skip


def test_text_is_shown_and_never_interpreted(page):
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    scene = show(page, hostile())
    for spot in (".part-bars .label", "tbody td", ".token", ".band", ".part-lines .plot"):
        page.locator(spot).first.hover()
    scene.receive(replace(hostile(), title=f"again {EVIL}"))
    for selector in ("h3", ".error", ".status", "dd", "dt", "th", ".token", ".note", "figcaption"):
        assert EVIL in page.locator(selector).last.text_content(), selector
    assert page.evaluate("() => window.broken") is None
    assert page.locator("img, script").count() == 0
    assert not problems
