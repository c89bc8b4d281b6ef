"""Rollouts in a real browser: found, sorted, turned, opened, stepped through and compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.ui.scenes import EVIL, Scene, show
from tests.ui.test_renderer_looks import OVERLAPS
from tests.unit.showing.rollouts import built, conversation, output
from widgets.pictures.asking import asked_of
from widgets.pictures.rollouts import browse
from workbench.rollout.trajectory import TrajectoryBuilder
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from workbench.trajectory import Trajectory

WORDS = {1: "<|im_start|>user\n", 2: " What is two plus", 3: " I", 4: " add", 5: ".", 7: " four",
         8: " <result>4</result>\n", 9: " two?<|im_end|>\n"}  # fmt: skip


def decode(ids: Any) -> str:
    return "".join(WORDS.get(number, f" word{number}") for number in ids)


def some(count: int = 120) -> list[Trajectory]:
    """Groups of four; every seventh failed."""
    rows = []
    for n in range(count):
        failed = n % 7 == 6
        rows.append(replace(
            conversation(),
            rollout_id=f"batch/task-{n // 4}/{n % 4}", group=f"task-{n // 4}", index=n % 4,
            status=RolloutStatus.FAILED if failed else RolloutStatus.DONE,
            reward=None if failed else round((n * 37 % 100) / 100, 2),
            error=f"ToolTimeout: {EVIL}" if failed else "", ended_by="" if failed else "answer",
            traceback="Traceback (most recent call last):\n  File \"tool.py\", line 3" * failed,
        ))  # fmt: skip
    return rows


class Browsing:
    """Plays the side of Python: whatever the browser asks for is answered."""

    def __init__(self, page: Page, rows: list[Trajectory], **how: Any) -> None:
        self.rows = rows
        self.answered = 0
        self.state: dict[str, Any] = {"selected": "", "asked": {}}
        self.scene: Scene = show(page, self._picture(), asked={}, **how)

    def _picture(self) -> Any:
        asked = asked_of(self.state["asked"])
        return browse(self.rows, self.state["selected"], asked, lambda row: decode)

    def answer(self) -> None:
        """What was asked for since; waits until something was."""
        self.scene.page.wait_for_function(
            "(known) => window.model.sent.length > known", arg=self.answered
        )
        sent = self.scene.sent()
        self.answered = len(sent)
        for changes in sent:
            self.state |= changes
        self.scene.receive(self._picture())


def rows_of(page: Page) -> Any:
    return page.locator("tbody tr")


def test_what_is_typed_and_chosen_finds_rollouts_from_their_first_page(page: Page) -> None:
    seen = Browsing(page, some())
    page.get_by_role("button", name="next page").click()
    seen.answer()
    expect(page.get_by_role("status").last).to_have_text("51 to 100 of 120")
    page.get_by_placeholder("search id").press_sequentially("TIMEOUT")
    seen.answer()
    assert seen.state["asked"] == {"page": "0", "find": "TIMEOUT"}
    expect(rows_of(page)).to_have_count(17)
    assert page.get_by_placeholder("search id").input_value() == "TIMEOUT"
    page.get_by_placeholder("search id").fill("")
    seen.answer()
    page.get_by_label("status").select_option("failed")
    seen.answer()
    expect(rows_of(page)).to_have_count(17)
    page.get_by_label("status").select_option("")
    seen.answer()
    page.get_by_label("reward from").fill("0.9")
    seen.answer()
    expect(rows_of(page).first).to_contain_text("0.9")
    page.get_by_label("to", exact=True).fill("0.1")
    seen.answer()
    expect(page.get_by_text("none fits what is asked for")).to_be_visible()
    assert page.evaluate("window.broken") is None


def test_who_types_is_not_interrupted_by_news(page: Page) -> None:
    seen = Browsing(page, some())
    field = page.get_by_placeholder("search id")
    field.press_sequentially("bat")
    seen.scene.receive(browse(seen.rows[:50], "", asked_of({}), lambda row: None))
    assert field.input_value() == "bat"
    assert page.evaluate("() => document.activeElement.shadowRoot.activeElement.type") == "search"


def test_a_click_on_a_head_sorts_and_the_next_one_turns_it_around(page: Page) -> None:
    seen = Browsing(page, some())
    head = page.get_by_role("columnheader", name="reward")
    for order, first in (("descending", "0.980"), ("ascending", "0.000"), ("none", None)):
        head.get_by_role("button").click()
        seen.answer()
        expect(head).to_have_attribute("aria-sort", order)
        if first:
            expect(rows_of(page).first.locator("td").nth(3)).to_have_text(first)
    expect(rows_of(page).first).to_contain_text("batch/task-29/3")


def test_an_opened_rollout_is_stepped_through_with_buttons_and_keys(page: Page) -> None:
    seen = Browsing(page, some())
    title = page.locator("h3")
    page.get_by_role("button", name="open batch/task-29/2").click()
    seen.answer()
    expect(title).to_have_text("Rollout batch/task-29/2")
    expect(page.get_by_role("button", name="previous turn")).to_have_attribute(
        "aria-disabled", "true"
    )
    page.get_by_role("button", name="next turn").click()
    seen.answer()
    expect(title).to_have_text("Rollout batch/task-29/2, turn 1 of 2")
    page.keyboard.press("ArrowRight")  # where the focus is now
    seen.answer()
    expect(title).to_have_text("Rollout batch/task-29/2, turn 2 of 2")
    page.keyboard.press("ArrowRight")  # there is no more
    page.keyboard.press("ArrowLeft")
    seen.answer()
    expect(title).to_have_text("Rollout batch/task-29/2, turn 1 of 2")
    page.keyboard.press("Shift+ArrowRight")
    seen.answer()
    expect(title).to_have_text("Rollout batch/task-29/1")
    page.get_by_role("button", name="open turn 2").click()
    seen.answer()
    expect(title).to_have_text("Rollout batch/task-29/1, turn 2 of 2")
    page.get_by_role("button", name="back").click()
    seen.answer()
    expect(title).to_have_text("Rollouts")
    page.get_by_role("button", name="open batch/task-29/0").click()
    seen.answer()
    expect(title).to_have_text("Rollout batch/task-29/0")  # from its beginning
    page.keyboard.press("ArrowRight")
    seen.answer()
    page.get_by_role("button", name="all turns").click()
    seen.answer()
    expect(title).to_have_text("Rollout batch/task-29/0")


def test_arrows_among_tokens_stay_among_tokens(page: Page) -> None:
    seen = Browsing(page, some(), selected="batch/task-29/1")
    seen.state["selected"] = "batch/task-29/1"
    seen.scene.receive(seen._picture())
    tokens = page.locator(".tokens").first
    tokens.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".token.current")).to_have_count(1)
    assert seen.scene.sent() == []


def test_a_group_is_compared_and_one_of_it_opened(page: Page, screenshots: Path) -> None:
    rows = some(8)
    builder = TrajectoryBuilder()
    builder.messages += [{"role": "assistant", "content": f"Five, {EVIL}\nI am sure."}]
    builder.add_turn([1, 2, 9], output([3, 5, 7]))
    rows[6] = built(builder, rollout_id="batch/task-1/2", group="task-1", index=2, reward=0.0)
    seen = Browsing(page, rows)
    page.get_by_role("button", name="open batch/task-1/3").click()
    seen.answer()
    page.get_by_role("button", name="compare group").click()
    seen.answer()
    expect(page.locator("h3")).to_have_text("Group task-1")
    expect(rows_of(page)).to_have_count(4)
    expect(rows_of(page).nth(2)).to_contain_text("at token 4, turn 1: “.")
    assert page.evaluate("window.broken") is None
    page.screenshot(path=screenshots / "rollouts-compared.png", full_page=True)
    page.get_by_role("button", name="open batch/task-1/1").click()
    seen.answer()
    expect(page.locator("h3")).to_have_text("Rollout batch/task-1/1")
    page.get_by_role("button", name="back").click()
    seen.answer()
    expect(page.locator("h3")).to_have_text("Group task-1")
    page.get_by_role("button", name="all rollouts").click()
    seen.answer()
    expect(rows_of(page)).to_have_count(8)


@pytest.mark.parametrize("width", [480, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_rollouts_fit_and_are_photographed(
    page: Page,
    screenshots: Path,
    width: int,
    dark: bool,
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    rows = some()
    places = {
        "list": ("", {}),
        "sorted": ("", {"sort": "-reward", "status": "done", "find": "batch"}),
        "opened": ("batch/task-29/3", {}),
        "failed": ("batch/task-29/2", {}),
        "turn": ("batch/task-29/3", {"turn": "1"}),
        "branch": ("batch/task-29/3", {"turn": "2"}),
        "group": ("", {"compare": "task-29"}),
    }
    for name, (selected, asked) in places.items():
        picture = browse(rows, selected, asked_of(asked), lambda row: decode)
        show(page, picture, dark=dark, selected=selected, asked=asked)
        shade = "dark" if dark else "light"
        path = screenshots / f"rollouts-{name}-{shade}-{width}.png"
        page.screenshot(path=path, full_page=True)
        assert page.evaluate(OVERLAPS) == [], name


SHOW = """(html) => { document.body.innerHTML = html; }"""


@pytest.mark.parametrize("width", [480, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_a_rollout_without_scripts_is_photographed(
    page: Page,
    screenshots: Path,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    dark: bool,
) -> None:
    from workbench import decoding

    monkeypatch.setattr(decoding, "_known", {"tiny": decode})
    page.set_viewport_size({"width": width, "height": 900})
    page.set_content("<!doctype html><html><body></body></html>")
    if dark:
        page.evaluate("() => { document.body.style.cssText = 'background: #111; color: #fff'; }")
    failed = replace(some(7)[6], tokenizer="tiny", notes=(EVIL,))
    for name, row in {"done": replace(some(1)[0], tokenizer="tiny"), "failed": failed}.items():
        page.evaluate(SHOW, row._repr_html_())
        shade = "dark" if dark else "light"
        path = screenshots / f"trajectory-html-{name}-{shade}-{width}.png"
        page.screenshot(path=path, full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("window.broken") is None
