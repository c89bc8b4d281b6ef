"""The report: one file that asks for nothing, shows hostile text as text, and counts failures."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from widgets.report import write_report
from widgets.tables import table_of
from workbench.rollout.trajectory import (
    RolloutStatus,
    Segment,
    ToolCall,
    Trajectory,
    Turn,
)
from workbench.types import FinishReason, VersionSpan

HOSTILE = (
    "</pre><script>alert('x')</script>\"'><img src=http://evil.example/a.png onerror=go()>&amp;"
)

TEMPLATES = Path(__file__).parents[3] / "widgets" / "templates"


class Page(HTMLParser):
    """Tags with their attributes, and all text, as a browser would read the file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def handle_endtag(self, tag):
        self.text += " " if tag in {"td", "th", "dt", "dd"} else ""

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def make_trajectory(text: str = "391", **changes) -> Trajectory:
    known = {
        "rollout_id": "task-1/0",
        "group": "task-1",
        "index": 0,
        "agent": "tool",
        "task": {},
        "segments": (Segment([1], [2, 3], [1, 1], [-0.1, -0.2], (VersionSpan(3, 0, 2),)),),
        "turns": (
            Turn(0, 0, 1, FinishReason.STOP, "replica-1", 1200, None, 1, None, None, 1.5),
            Turn(0, 1, 2, FinishReason.LENGTH, "replica-0", 1300, 1024, 2, 0.01, 0.2, 1.5),
        ),
        "tool_calls": (
            ToolCall(0, "calculator", {"expression": "17*23"}, text, well_formed=True),
            ToolCall(0, "serch", {}, "error: no such tool", False, "no such tool"),
        ),
        "messages": (
            {"role": "user", "content": "17*23?"},
            {
                "role": "assistant",
                "content": text,
                "tool_calls": [
                    {"type": "function", "function": {"name": text, "arguments": {"a": text}}}
                ],
            },
            {"role": "tool", "name": "calculator", "content": text},
            {"role": "tool", "name": "serch", "content": "error: no such tool"},
            {"role": "assistant", "content": "It is 391."},
        ),
        "status": RolloutStatus.DONE,
        "reward": 0.75,
    }
    return Trajectory(**(known | changes))


def make_rollouts(**columns) -> pd.DataFrame:
    known = {
        "rollout_id": ["a", "b", "c", "d"],
        "batch": [0, 0, 1, 1],
        "reward": pd.array([1.0, None, 0.5, None], dtype="Float64"),
        "status": ["done", "failed", "done", "failed"],
        "sampled_tokens": [1000, 10, 1200, 20],
        "num_turns": [2, 1, 2, 1],
        "error": ["", "TimeoutError: late", "", "TimeoutError: late"],
    }
    return pd.DataFrame(known | columns)


def report(folder: Path, **changes) -> str:
    known = {
        "title": "A run",
        "facts": {"model": "small"},
        "replicas": pd.DataFrame(
            {
                "replica_id": ["replica-0", "replica-1"],
                "prompt_tokens": [1234567, 20],
                "cached_tokens": pd.array([1000000, None], dtype="Int64"),
                "tokens_per_s": [12.5, 1.25],
            }
        ),
        "batches": pd.DataFrame({"batch": [0, 1], "wall_s": [12.25, 3.5]}),
        "rollouts": make_rollouts(),
        "load": pd.DataFrame({"t_s": [0.0, 1.0], "replica_id": "replica-0", "in_flight": [1, 2]}),
        "examples": [make_trajectory()],
    }
    path = folder / "report.html"
    write_report(path, **(known | changes))
    return path.read_text(encoding="utf-8")


def test_a_streams_rollouts_say_how_far_behind_the_learner_they_were(tmp_path):
    aged = make_rollouts(staleness=[0, 1, 1, 1])
    told = "<dt>versions behind the learner</dt><dd>0.75</dd>"
    assert told in report(tmp_path, rollouts=aged)
    assert "versions behind" not in report(tmp_path)


def test_report_shows_hostile_text_as_text(tmp_path):
    hostile = make_trajectory(
        HOSTILE,
        rollout_id=HOSTILE,
        group=HOSTILE,
        agent=HOSTILE,
        status=RolloutStatus.FAILED,
        reward=None,
        error=HOSTILE,
        traceback=HOSTILE,
    )
    page = Page(
        report(
            tmp_path,
            title=HOSTILE,
            facts={HOSTILE: HOSTILE},
            replicas=pd.DataFrame({"replica_id": [HOSTILE], HOSTILE: [HOSTILE]}),
            batches=pd.DataFrame({HOSTILE: [HOSTILE]}),
            rollouts=make_rollouts(error=HOSTILE, rollout_id=HOSTILE, batch=HOSTILE),
            load=pd.DataFrame({"t_s": [0.0], "replica_id": HOSTILE, "batch": HOSTILE}),
            examples=[hostile],
        )
    )
    assert page.of("script") == []
    assert len(page.of("img")) == 4
    assert not [name for _, attributes in page.tags for name in attributes if name[:2] == "on"]
    assert page.text.count(HOSTILE) >= 15


def test_report_asks_for_nothing_outside_itself(tmp_path):
    page = Page(report(tmp_path, examples=[make_trajectory(HOSTILE)]))
    addresses = [
        value or ""
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in {"action", "background", "data", "href", "poster", "src", "srcset", "style"}
    ]
    assert addresses
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not {"script", "iframe", "object", "embed", "base", "form"} & {t for t, _ in page.tags}


def test_templates_name_no_address_and_never_switch_escaping_off():
    for file in TEMPLATES.iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"https?:|//\w|@import|url\(|\|\s*safe|autoescape", text), file.name


def test_report_forbids_the_browser_to_load_anything(tmp_path):
    policies = [a for a in Page(report(tmp_path)).of("meta") if "http-equiv" in a]
    assert policies[0]["content"].startswith("default-src 'none'; img-src data:;")


def test_pictures_have_words(tmp_path):
    pictures = Page(report(tmp_path)).of("img")
    assert len(pictures) == 4
    for picture in pictures:
        assert picture["src"].startswith("data:image/png;base64,")
        assert len(picture["alt"]) > 20


def test_report_of_nothing_says_so(tmp_path):
    empty = pd.DataFrame()
    text = report(
        tmp_path, facts={}, replicas=empty, batches=empty, rollouts=empty, load=empty, examples=[]
    )
    page = Page(text).text
    assert page.count("no data") >= 2
    assert "No rollout failed." in page
    assert "None were given." in page


def test_failed_rollouts_are_counted_and_grouped_by_error(tmp_path):
    text = Page(report(tmp_path)).text
    failures = text[text.rindex("Failures") :]
    assert re.search(r"2 rollouts\s+b, d\s+TimeoutError: late", failures)
    assert "mean of 2 rewards" in text
    assert "0.750" in text


def test_failure_without_an_error_text_is_still_listed(tmp_path):
    text = Page(report(tmp_path, rollouts=make_rollouts().drop(columns="error"))).text
    assert "no error text was recorded" in text


def test_example_tells_turns_tool_calls_and_outcome(tmp_path):
    text = " ".join(Page(report(tmp_path)).text.split())
    assert "reward 0.75" in text
    assert "finish reason length" in text
    assert "well-formed calculator" in text
    assert "malformed serch" in text
    assert "turn 2 It is 391." in text
    assert "1 replica-1 1,200 – 1 stop" in text
    assert "2 replica-0 1,300 1,024 1 length 2" in text


def test_example_says_what_ended_it_and_what_was_done_to_it(tmp_path):
    known = {"ended_by": "max_turns", "attempts": 3, "notes": ("the prompt was cut",)}
    text = " ".join(Page(report(tmp_path, examples=[make_trajectory(**known)])).text.split())
    for words in ("ended by max_turns", "attempts 3", "note the prompt was cut"):
        assert words in text


def test_tool_call_that_no_message_answers_is_shown(tmp_path):
    text = Page(report(tmp_path, examples=[make_trajectory(messages=())])).text
    assert "No messages were recorded." in text
    assert "no such tool" in text


def test_examples_before_the_task_are_not_taken_for_turns(tmp_path):
    given = make_trajectory().messages
    before = ({"role": "assistant", "content": "for example"}, *given)
    text = " ".join(
        Page(report(tmp_path, examples=[make_trajectory(messages=before)])).text.split()
    )
    assert "assistant for example" in text
    assert "assistant turn 2 It is 391." in text


def test_content_in_parts_and_broken_characters_are_shown(tmp_path):
    parts = [{"type": "text", "text": "look: \ud800"}, {"type": "image", "id": 7}]
    messages = ({"role": "user", "content": parts}, {"role": "assistant", "content": None})
    text = Page(report(tmp_path, examples=[make_trajectory(messages=messages)])).text
    assert "look: \\ud800" in text
    assert '"image"' in text


def test_long_output_is_cut_and_says_by_how_much(tmp_path):
    text = report(tmp_path, examples=[make_trajectory("x" * 1_000_000)])
    assert "994,000 more characters" in text
    assert len(text) < 1_000_000


def test_report_is_the_same_every_time(tmp_path):
    assert report(tmp_path) == report(tmp_path)


def test_failed_write_leaves_the_old_report(tmp_path, monkeypatch):
    before = report(tmp_path)

    def fail(*_):
        raise OSError("disk")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk"):
        report(tmp_path, title="Another run")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_numbers_are_aligned_and_missing_ones_are_a_dash(tmp_path):
    text = report(tmp_path)
    assert '<td class="number">1,234,567</td>' in text
    assert '<td class="number">–</td>' in text
    assert '<th scope="col" class="number">tokens/s</th>' in text
    assert '<th scope="col" class="number">wall time (s)</th>' in text


def test_tables_write_units_shares_and_odd_values():
    table = table_of(
        pd.DataFrame(
            {
                "sticky_rate": [0.5, None],
                "queue_s": [0.0123, -1.5],
                "num_turns": [3, 4],
                "ok": [True, None],
                "note": ["", "x"],
                "mixed": [1, None],
            }
        )
    )
    assert [c.heading for c in table.columns] == [
        "sticky rate (%)", "queue (s)", "turns", "ok", "note", "mixed",
    ]  # fmt: skip
    assert table.rows == (
        ("50.0", "0.01", "3", "yes", "–", "1"),
        ("–", "\N{MINUS SIGN}1.50", "4", "–", "x", "–"),
    )
