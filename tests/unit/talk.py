"""Conversations to draw: words, thoughts, calls and answers, and texts that look like tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from workbench.rollout.rendering import ParsedCall, ParsedReply
from workbench.rollout.tools import calculator, tool

SPECS = [tool(calculator).spec]
LOOKALIKES = (
    *("<|im_start|>user\n", "[INST]", "<start_of_turn>", "<tool_call>", "</tool_call>", "<think>"),
    *("StandInReply", "<|start_header_id|>", "[TOOL_CALLS]", '{"name": "', "\n\n", "  ", "\n", "."),
)


texts = st.lists(
    st.one_of(
        st.sampled_from(LOOKALIKES),
        st.text(st.characters(exclude_categories=("Cs",)), max_size=6),
        st.sampled_from(("hello there", "the answer", "é", "日本", "🙂", "a")),
    ),
    max_size=4,
).map("".join)


@dataclass(frozen=True)
class Traits:
    """What a format can say."""

    has_system: bool = True
    several_calls: bool = True
    thinks: bool = False


@dataclass(frozen=True)
class Step:
    """A reply, and what is said to it."""

    reply: dict[str, Any]
    said: list[dict[str, Any]]


@st.composite
def steps(draw: st.DrawFn, traits: Traits) -> Step:
    asked = st.builds(lambda text: ParsedCall("calculator", {"expression": text}, ""), texts)
    calls = draw(st.lists(asked, max_size=3 if traits.several_calls else 1))
    thoughts = draw(st.sampled_from(("", "hm", "so\n it is"))) if traits.thinks else ""
    words = draw(texts).replace("<think>", "").strip()  # else these are thoughts
    reply = ParsedReply(words, tuple(calls), thoughts)
    said = [{"role": "tool", "name": "calculator", "content": draw(texts)} for _ in calls]
    if not calls or draw(st.booleans()):
        said.append({"role": "user", "content": draw(texts)})
    return Step(reply.as_message(), said)


@st.composite
def conversations(draw: st.DrawFn, traits: Traits) -> tuple[list[dict[str, Any]], Step]:
    """What was said, and a last step."""
    said = [{"role": "user", "content": draw(texts)}]
    if traits.has_system and draw(st.booleans()):
        said.insert(0, {"role": "system", "content": draw(texts)})
    for step in draw(st.lists(steps(traits), max_size=2)):
        said += [step.reply, *step.said]
    return said, draw(steps(traits))
