"""Pictures in a real browser: reading them, and what the reader asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from tests.ui import scenes
from tests.ui.scenes import NOW_S, at, chart, show
from widgets.pictures.picture import Fact, Facts, Line, Lines, Picture

# ---------------------------------------------------------------------------- reading it


def test_pointing_at_one_chart_reads_all_of_them_at_that_moment(page):
    scene = show(page, scenes.load())
    before = scene.texts(".legend .value")
    page.mouse.move(*at(chart(page, "In flight"), 0.5))
    expect(page.locator(".cross")).to_have_count(3)
    times = page.locator(".cross-time").all_text_contents()
    assert len(set(times)) == 1
    assert times[0] in {"12:00:33", "12:00:34", "12:00:35"}
    assert scene.texts(".legend .value") != before
    page.mouse.move(5, 5)
    expect(page.locator(".cross")).to_have_count(0)
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
    scene = show(page, scenes.picture(scenes.facts()))
    page.clock.pause_at(NOW_S + 60)  # from here on time is the test's
    assert scene.texts(".status")[0].startswith("no news since 12:03:")
    later = scenes.picture(scenes.facts(), span_s=(NOW_S - 240, NOW_S + 60)).to_json()
    page.evaluate("(picture) => window.model.receive({ picture })", later)
    page.clock.run_for(9_000)
    assert scene.texts(".status") == ["live"]
    page.clock.run_for(6_000)
    assert scene.texts(".status") == ["no news since 12:04:04"]


def test_what_is_taken_away_listens_to_nothing(page):
    show(page, scenes.load())
    page.evaluate("() => window.end()")
    left = "() => Object.values(window.model.heard).flat().length"
    assert page.evaluate(left) == 0
