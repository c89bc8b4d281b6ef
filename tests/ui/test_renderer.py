"""Pictures in a real browser: what is drawn, what is asked for, and that text stays text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.ui import scenes
from tests.ui.scenes import EVIL, NOW_S, Scene, show
from tests.unit.widgets.pictures import scenes as pools
from widgets.pictures.cache import cache_picture
from widgets.pictures.load import load_picture
from widgets.pictures.overview import overview_picture
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
from widgets.pictures.progress import progress_picture
from widgets.pictures.stickiness import stickiness_picture

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# ---------------------------------------------------------------------------- what is drawn


def chart(page: Page, title: str) -> Locator:
    return page.locator(f'.part:has(.part-title:text-is("{title}"))')


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
    assert [text.split()[0] for text in texts] == ["42.0%", "93.0%", "0.0%", "99.0%"]


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


# ---------------------------------------------------------------------------- reading it


def at(part: Locator, share: float) -> tuple[float, float]:
    """Where a share of a chart's width is, in the page."""
    box = part.locator(".plot").bounding_box()
    return box["x"] + 44 + share * (box["width"] - 44 - 34), box["y"] + 60


def test_pointing_at_one_chart_reads_all_of_them_at_that_moment(page):
    scene = show(page, scenes.load())
    before = scene.texts(".legend .value")
    page.mouse.move(*at(chart(page, "In flight"), 0.5))
    assert page.locator(".cross").count() == 3
    times = page.locator(".cross-time").all_text_contents()
    assert len(set(times)) == 1
    assert times[0] in {"12:00:33", "12:00:34", "12:00:35"}
    assert scene.texts(".legend .value") != before
    page.mouse.move(5, 5)
    assert page.locator(".cross").count() == 0
    assert scene.texts(".legend .value") == before


def test_updates_keep_what_did_not_change_the_scroll_and_the_pointer(page):
    page.set_viewport_size({"width": 1200, "height": 1600})
    scene = show(page, scenes.picture(scenes.lines(), scenes.bars(), scenes.table(60)))
    mark = "() => { const root = document.querySelector('#place > div').shadowRoot; "
    page.evaluate(mark + "root.querySelector('.part-table .scroll').scrollTop = 300; }")
    page.evaluate(mark + "window.bar = root.querySelector('.bar'); }")
    page.evaluate(mark + "window.row = root.querySelectorAll('tr')[9]; }")
    page.mouse.move(*at(chart(page, "In flight"), 0.5))
    cross = page.locator(".cross-time").text_content()
    moved = replace(scenes.lines(), times_s=[time + 5 for time in scenes.lines().times_s])
    scene.receive(
        scenes.picture(
            moved, scenes.bars(), scenes.table(61), span_s=(NOW_S - 295, NOW_S + 5)
        )
    )  # fmt: skip
    top = page.evaluate(mark + "return root.querySelector('.part-table .scroll').scrollTop; }")
    assert top == 300
    same = "return window.bar === root.querySelector('.bar') && window.row.isConnected; }"
    assert page.evaluate(mark + same)
    assert page.locator(".cross-time").text_content() == cross
    assert page.locator("tbody tr").count() == 61


def test_figures_that_change_push_nothing_about(page):
    def seen(value: float) -> Picture:
        line = Line("replica-0", [value, value], "#0072B2")
        return scenes.picture(
            Lines("Speed", "tokens/s", [NOW_S - 1, NOW_S], (line,), "engine"),
            Facts("f", (Fact("sampled", f"{value:,.0f} tokens/s"), Fact("waiting", "0"))),
        )

    scene = show(page, seen(123456.0))
    second = page.locator(".fact").nth(1)
    before = second.bounding_box()
    scene.receive(seen(7.0))
    assert second.bounding_box() == pytest.approx(before, abs=0.5)


def test_a_picture_can_be_heard_and_every_button_has_a_name(page):
    show(page, scenes.picture(scenes.lines(), actions=("back",)))
    image = page.get_by_role("img", name="4 replicas. 21 requests in flight")
    assert image.count() == 1
    names = [button.get_attribute("aria-label") for button in page.get_by_role("button").all()]
    assert names == ["back", *(f"show the last {length}" for length in
                               ("1 min", "5 min", "15 min", "1 h", "1 day")),
                     "keep this picture still"]  # fmt: skip
    for _ in names:
        page.keyboard.press("Tab")
    focused = "() => document.activeElement.shadowRoot.activeElement.textContent"
    assert page.evaluate(focused) == "Pause"


# ---------------------------------------------------------------------------- asking


def test_window_buttons_show_at_once_what_is_there_and_ask_for_the_rest(page):
    scene = show(page, scenes.load())
    page.get_by_role("button", name="show the last 1 min").click()
    scene.settle()
    assert scene.sent() == [{"window": {"length_s": 60}}]
    ticks = chart(page, "In flight").locator(".plot .middle").all_text_contents()
    assert "12:02:30" in ticks
    pressed = page.locator("[aria-pressed=true]").all_inner_texts()
    assert pressed == ["1 min"]


def test_dragging_zooms_and_follow_returns(page):
    scene = show(page, scenes.load())
    part = chart(page, "In flight")
    page.mouse.move(*at(part, 0.25))
    page.mouse.down()
    page.mouse.move(*at(part, 0.5), steps=4)
    assert part.locator(".selection").count() == 1
    page.mouse.up()
    scene.settle()
    (sent,) = scene.sent()
    asked = sent["window"]
    assert asked["start_s"] == pytest.approx(NOW_S - 225, abs=2)
    assert asked["end_s"] == pytest.approx(NOW_S - 150, abs=2)
    assert part.locator(".selection").count() == 0
    ticks = part.locator(".plot .middle").all_text_contents()
    assert "12:00:00" in ticks
    assert "12:02:00" not in ticks
    assert page.locator("[aria-pressed=true]").count() == 0
    page.get_by_role("button", name="follow what happens").click()
    scene.settle()
    assert scene.sent()[-1] == {"window": {"length_s": 300}}
    assert page.get_by_role("button", name="keep this picture still").count() == 1


def test_a_click_that_does_not_drag_asks_for_nothing(page):
    scene = show(page, scenes.load())
    page.mouse.click(*at(chart(page, "In flight"), 0.5))
    assert scene.sent() == []


def test_paused_the_picture_stays_while_python_goes_on(page):
    scene = show(page, scenes.picture(Facts("f", (Fact("running", "1"),))))
    page.get_by_role("button", name="keep this picture still").click()
    scene.settle()
    assert scene.texts(".status") == ["paused at 12:03:04"]
    for number in ("2", "3"):
        scene.receive(scenes.picture(Facts("f", (Fact("running", number),))))
    assert scene.texts("dd") == ["1"]
    page.get_by_role("button", name="follow what happens").click()
    scene.settle()
    assert (scene.texts("dd"), scene.texts(".status")) == (["3"], ["live"])
    assert scene.sent() == [{"paused": True}, {"paused": False}]


def test_a_row_is_chosen_by_pointer_or_keyboard_and_back_leaves_it(page):
    scene = show(page, scenes.picture(scenes.table(), span_s=None))
    page.locator("tbody tr").nth(3).locator("td").nth(1).click()
    page.get_by_role("button", name="open rollout-1").press("Enter")
    scene.settle()
    assert scene.sent() == [{"selected": "rollout-3"}, {"selected": "rollout-1"}]
    assert page.locator("tr.chosen td").first.inner_text() == "rollout-1"
    scene.receive(scenes.picture(scenes.tokens(), actions=("back",), span_s=None))
    page.get_by_role("button", name="back").click()
    assert scene.sent()[-1] == {"selected": ""}


def test_who_hears_nothing_says_so_and_nothing_else_does(page):
    page.clock.install(time=NOW_S)
    live = scenes.picture(scenes.facts())
    scene = show(page, live)
    page.clock.run_for(8_000)
    assert scene.texts(".status") == ["live"]
    page.clock.run_for(6_000)
    assert scene.texts(".status") == ["no news since 12:03:04"]
    page.clock.run_for(1_000)
    scene.page.evaluate("(picture) => window.model.receive({ picture })",
                        replace(live, span_s=(NOW_S - 280, NOW_S + 20)).to_json())  # fmt: skip
    page.clock.run_for(100)
    assert scene.texts(".status") == ["live"]


def test_what_is_taken_away_listens_to_nothing(page):
    show(page, scenes.load())
    page.evaluate("() => window.end()")
    left = "() => Object.values(window.model.heard).flat().length"
    assert page.evaluate(left) == 0


# ---------------------------------------------------------------------------- room, light, time

OVERLAPS = """() => {
  const root = document.querySelector("#place > div").shadowRoot;
  const found = [];
  for (const plot of root.querySelectorAll(".plot")) {
    const texts = [...plot.querySelectorAll("text")].filter((text) => text.textContent);
    const boxes = texts.map((text) => text.getBoundingClientRect());
    boxes.forEach((one, i) => boxes.slice(i + 1).forEach((other, j) => {
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 1 && high > 2) {
        found.push(`${texts[i].textContent} | ${texts[i + 1 + j].textContent}`);
      }
    }));
  }
  const edge = root.querySelector(".picture").getBoundingClientRect().right;
  for (const part of root.querySelectorAll(".part, header, .label")) {
    if (part.closest(".scroll") === null && part.getBoundingClientRect().right > edge + 1) {
      found.push(`beyond the edge: ${part.textContent.slice(0, 40)}`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  return found;
}"""


def gallery() -> dict[str, Picture]:
    view = pools.make_view(3)
    many = pools.make_view(256)
    return {
        "load": scenes.load(),
        "kinds": scenes.picture(
            scenes.histogram(), scenes.flow(), scenes.table(), scenes.tokens(), actions=("back",)
        ),
        "pool-load": load_picture(view),
        "pool-load-256": load_picture(many),
        "pool-cache": cache_picture(view),
        "pool-stickiness": stickiness_picture(view),
        "pool-progress": progress_picture(view),
        "pool-overview-256": overview_picture(many),
        "nothing-yet": overview_picture(pools.blank_view()),
    }


@pytest.mark.parametrize("width", [480, 700, 1200])
@pytest.mark.parametrize("name", gallery())
def test_nothing_overlaps(page, screenshots, name, width):
    page.set_viewport_size({"width": width, "height": 900})
    show(page, gallery()[name], dark=width == 700, window={"length_s": 60})
    page.screenshot(path=screenshots / f"picture-{name}-{width}.png", full_page=True)
    assert page.evaluate(OVERLAPS) == []


CONTRAST = """() => {
  const root = document.querySelector("#place > div").shadowRoot;
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const parts = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const paper = light(getComputedStyle(root.querySelector(".picture")).backgroundColor);
  const found = {};
  for (const name of [".status", "h3", ".label", ".note", "dt", ".warn dd", ".bad dd", ".error"]) {
    const element = root.querySelector(name);
    const style = getComputedStyle(element);
    const ink = light(name === ".label" ? style.fill : style.color);
    found[name] = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  }
  return found;
}"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_in_light_and_dark(page, dark):
    show(page, replace(scenes.load(), error="the balancer does not answer"), dark=dark)
    for name, ratio in page.evaluate(CONTRAST).items():
        assert ratio >= 4.5, f"{name}: {ratio:.1f}"


def test_a_page_that_follows_the_system_is_followed(page):
    page.emulate_media(color_scheme="dark")
    show(page, scenes.load())
    paper = "() => getComputedStyle(document.querySelector('#place > div').shadowRoot" \
            ".querySelector('.picture')).backgroundColor"  # fmt: skip
    assert page.evaluate(paper) == "rgb(255, 255, 255)", "a page without a scheme is light"
    page.evaluate("() => { document.documentElement.style.colorScheme = 'light dark'; }")
    assert page.evaluate(paper) == "rgb(20, 24, 28)"


UPDATE_MS = """async (pictures) => {
  const times = [];
  for (const picture of pictures) {
    let start;
    requestAnimationFrame(() => { start = performance.now(); });
    window.model.receive({ picture });
    await new Promise((done) => requestAnimationFrame(() => {
      document.body.getBoundingClientRect();
      times.push(performance.now() - start);
      done();
    }));
  }
  return times.sort((one, other) => one - other);
}"""


@pytest.mark.parametrize("name", ["pool-load", "pool-load-256", "pool-overview-256"])
def test_updates_are_quick(page, name, record_property):
    """Reported, not held: a machine that does something else says nothing about this."""
    picture = gallery()[name]
    scene = Scene(page)
    show(page, picture)
    moved = [shifted(picture, second).to_json() for second in range(1, 31)]
    times: list[float] = scene.page.evaluate(UPDATE_MS, moved)
    record_property("median_ms", times[15])
    print(f"{name}: {times[15]:.1f} ms in the median, {times[-2]:.1f} ms at most but one")  # noqa: T201
    assert len(times) == 30


def shifted(picture: Picture, second: int) -> Picture:
    """The picture a moment later."""
    start_s, end_s = picture.span_s or (0.0, 0.0)
    parts: list[Any] = [
        replace(part, times_s=[time + second for time in part.times_s])
        if isinstance(part, Lines)
        else part
        for part in picture.parts
    ]
    return replace(picture, parts=tuple(parts), span_s=(start_s + second, end_s + second))
