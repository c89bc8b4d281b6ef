"""A rollout in a saved notebook: what it shows, and that a sanitiser has nothing to take away."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings

from tests.unit.showing.rollouts import EVIL, built, conversation, output, trajectories
from workbench import decoding
from workbench.rollout.trajectory import TrajectoryBuilder
from workbench.showing.rollout import page
from workbench.showing.runs import MAX_TOKENS, MAX_TOLD
from workbench.trajectory import RolloutStatus, ToolCall
from workbench.types import VersionSpan

WORDS = {1: "<|user|>", 2: "\n", 3: " two", 4: " plus", 5: "<b>", 6: "\u202e", 7: " four"}
COLOUR = r"(#[0-9a-f]{6,8}|rgba\(\d+, \d+, \d+, [0-9.]+\))"
SIZE = r"\d+(px|em|%)?"
KEPT = {
    "background-color": COLOUR,
    "border": rf"{SIZE} solid {COLOUR}",
    "border-left": rf"{SIZE} solid {COLOUR}",
    "cursor": "pointer",
    "display": "inline-block",
    "font-family": "monospace|sans-serif",
    "font-size": SIZE,
    "line-height": "[0-9.]+",
    "margin": rf"{SIZE}( {SIZE})*",
    "opacity": r"0\.\d+",
    "overflow-wrap": "break-word",
    "overflow-x": "auto",
    "padding": rf"{SIZE}( {SIZE})*",
    "padding-left": SIZE,
    "text-align": "left",
    "vertical-align": "top",
    "white-space": "pre-wrap",
}
"""Styles that JupyterLab 4.6 keeps in an untrusted notebook, as its own patterns say."""
TAGS = {"bdi", "details", "div", "em", "pre", "span", "strong", "summary", "sup", "table", "tbody",
        "td", "th", "thead", "tr", "u"}  # fmt: skip


class Page(HTMLParser):
    """Holds that the HTML is whole and has nothing that would be stripped."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.titles: list[str] = []
        self.tags: list[str] = []
        self.folded: list[bool] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS
        self.open.append(tag)
        self.tags.append(tag)
        self.folded += [not attrs] if tag == "details" else []
        for name, value in attrs:
            assert name in {"style", "title", "open"}
            if name == "title":
                self.titles.append(value)
            for declaration in value.split(";") if name == "style" else ():
                key, setting = declaration.split(":")
                assert re.fullmatch(KEPT[key.strip()], setting.strip()), declaration

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def known(monkeypatch):
    """A tokenizer that this process has loaded."""
    monkeypatch.setattr(decoding, "_known", {})
    decoding.remember("tiny", lambda ids: "".join(WORDS.get(i, "?") for i in ids))


def test_a_rollout_is_told_turn_by_turn():
    shown = Page(conversation()._repr_html_())
    for words in ("batch/task/0", "done", "reward 0.75", "reward: right 0.5", "ended by answer",
                  "attempts 2", "policy version 3–4", "seed 11", "Note: the prompt was cut",
                  "What is two plus two?", '{"a": 2}', "→ 4", "well-formed, 0.25 s",
                  "12 characters of its result cut"):  # fmt: skip
        assert words in shown.text
    first, second = shown.text.index("Turn 1 of 2"), shown.text.index("Turn 2 of 2")
    assert first < shown.text.index("What is two plus two?") < shown.text.index("I add.") < second
    assert first < shown.text.index("tool add") < second < shown.text.index("It is four.")
    assert shown.text.count("→ 4") == 1
    assert "tool4" not in shown.text.replace("\n", ""), "the message only repeats the result"
    assert shown.text.index("Messages beside the turns") < shown.text.index("Thank you.")


def test_a_branch_says_where_it_leaves_and_why_and_repeats_nothing():
    shown = Page(conversation()._repr_html_())
    assert "Segment 2 is a branch of segment 1, after its first 2 tokens: it thought again" in (
        shown.text
    )
    assert [title.split(",")[0] for title in shown.titles] == [
        "id 1", "id 2", "id 9", "id 3", "id 4", "id 8", "id 7",
    ]  # fmt: skip
    assert "7 of 7 tokens shown" in shown.text


def test_tokens_are_words_where_the_tokenizer_is_known_and_ids_elsewhere(known):
    builder = TrajectoryBuilder()
    builder.add_turn([1, 2, 5], output([3, 6], log_prob=-0.1))
    told = Page(page(built(builder, tokenizer="tiny")))
    assert "<|user|>↵\n<b> two[U+202E]" in told.text
    assert told.titles[-1] == "id 6, log p -0.100, version 3"
    for tokenizer in ("", "other"):
        shown = Page(page(built(builder, tokenizer=tokenizer)))
        assert "1 2 5 3 6 " in shown.text
        assert "ids are shown" in shown.text


def test_sampled_tokens_are_shaded_the_less_likely_the_darker():
    builder = TrajectoryBuilder()
    builder.add_turn([1], output([2], log_prob=-0.01))
    builder.add_turn([1, 2, 3], output([4], log_prob=-9.0))
    shades = {
        token: int(alpha, 16)
        for alpha, token in re.findall(
            r'background-color:#e69f00(..)" title="id (\d)', page(built(builder))
        )
    }
    assert shades.keys() == {"2", "4"}
    assert shades["2"] < 10 < 150 < shades["4"]


def test_a_new_version_is_marked_where_it_begins():
    html = page(conversation())
    assert re.findall(r'<sup>v(\d)</sup><span[^>]* title="id (\d)', html) == [("4", "4")]


def test_a_version_that_took_over_between_turns_is_marked_once():
    builder, row = TrajectoryBuilder(), [1]
    for version, token in ((3, 2), (4, 6), (4, 7)):
        builder.add_turn(row, output([token], spans=(VersionSpan(version, 0, 1),)))
        row = [*row, token, 5]
    html = page(built(builder))
    assert re.findall(r'<sup>v(\d)</sup><span[^>]* title="id (\d)', html) == [("4", "6")]


def test_a_failure_shows_its_error_and_folds_its_traceback():
    failed = built(
        TrajectoryBuilder(), status=RolloutStatus.FAILED, reward=None, error="ToolError: luck",
        traceback="x" * 4000 + "\nLAST LINE",
    )  # fmt: skip
    shown = Page(page(failed))
    assert "ToolError: luck" in shown.text
    assert shown.folded == [True]
    assert "LAST LINE" in shown.text
    assert "characters before this" in shown.text
    assert "reward –" in shown.text


def test_of_a_long_rollout_the_first_and_the_last_turn_are_open():
    builder, row = TrajectoryBuilder(), [1]
    for _ in range(5):
        builder.add_turn(row, output([2, 3]))
        row = [*row, 2, 3, 4]
    shown = Page(page(built(builder)))
    assert shown.folded == [False, True, True, True, False]


def test_what_is_left_out_is_counted():
    builder = TrajectoryBuilder()
    builder.add_turn([5] * 5000, output([6] * 3000))
    shown = Page(page(built(builder)))
    assert f"[{5000 - MAX_TOLD:,} tokens told before these]" in shown.text
    assert f"{MAX_TOKENS:,} of 8,000 tokens shown" in shown.text
    assert f"[{3000 - MAX_TOKENS + MAX_TOLD:,} tokens not shown]" in shown.text


def test_the_largest_rollout_stays_small(known, monkeypatch):
    decoding.remember("evil", lambda ids: EVIL * 10)
    builder = TrajectoryBuilder()
    row: list[int] = []
    for number in range(300):
        row = [*row, 5] if number % 2 else [number]
        builder.add_turn(row, output([6] * 50), fork=EVIL * 20)
        builder.add_tool_call(ToolCall(
            number, EVIL * 20, {EVIL: EVIL * 200}, EVIL * 200, well_formed=False, error=EVIL * 200
        ))  # fmt: skip
    builder.messages += [{"role": EVIL, "content": EVIL * 500}] * 900
    builder.notes += [EVIL * 50] * 50
    builder.extra |= {f"{EVIL}{i}": EVIL * 50 for i in range(50)}
    many = {f"{EVIL}{i}": 0.5 for i in range(50)}
    html = page(built(
        builder, tokenizer="evil", rollout_id=EVIL * 9, agent=EVIL * 9, group=EVIL * 9,
        reward=None, reward_parts=many, status=RolloutStatus.FAILED, error=EVIL * 99,
        traceback=EVIL * 999,
    ))  # fmt: skip
    assert len(html.encode()) < 300_000
    shown = Page(html)
    assert "and 240 more turns" in shown.text
    assert "messages not shown: no room" in shown.text


@settings(max_examples=150, deadline=None)
@given(trajectories())
def test_any_rollout_is_shown_whole_and_as_text(trajectory):
    html = page(trajectory)
    shown = Page(html)
    assert len(html.encode()) < 300_000
    assert "\u202e" not in html
    assert "\x1b" not in html
    for turn in range(1, trajectory.num_turns + 1):
        assert f"Turn {turn} of {trajectory.num_turns}" in shown.text
