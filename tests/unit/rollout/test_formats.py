"""Conversations in the chat formats of well-known models, continued to the token."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.unit import formats
from tests.unit.formats import FORMATS
from tests.unit.talk import SPECS, Traits, conversations, steps
from workbench.models import resolve_model
from workbench.rollout.rendering import Renderer, make_renderer

SMOLLM2 = "smollm2"
NAMES = [*FORMATS, SMOLLM2]


@functools.cache
def smollm2() -> Renderer:
    """A real tokenizer, with the template that it came with."""
    return make_renderer(str(resolve_model("smollm2-135m")))


def renderer(name: str) -> Any:
    return smollm2() if name == SMOLLM2 else formats.renderer(name)


def ends(name: str) -> set[int]:
    if name == SMOLLM2:
        return {2}
    return {formats.ids(name, end)[0] for end in (FORMATS[name].end, *FORMATS[name].ends)}


def traits(name: str) -> Traits:
    if name == SMOLLM2:
        return Traits()
    chosen = FORMATS[name]
    return Traits(chosen.has_system, chosen.several_calls, "think" in name)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data(), tools=st.sampled_from(((), SPECS)), is_cut=st.booleans())
def test_what_is_added_is_what_a_full_render_has_there(name, data, tools, is_cut):
    made = renderer(name)
    said, step = data.draw(conversations(traits(name)))
    prompt = made.prompt(said, tools)
    whole = made.prompt([*said, step.reply, *step.said], tools)
    assume(whole[: len(prompt)] == prompt)
    end = next(i for i in range(len(prompt), len(whole)) if whole[i] in ends(name))
    completion = whole[len(prompt) : end if is_cut else end + 1]
    bridge = made.extend(prompt, completion, step.said, tools)
    assert bridge.ids == whole, bridge.reason


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), tools=st.sampled_from(((), SPECS)))
def test_whatever_was_sampled_stays_a_prefix(name, data, tools):
    """Also ids that no text would be tokenised to, ends inside a turn, and half characters."""
    made = renderer(name)
    said, _ = data.draw(conversations(traits(name)))
    prompt = made.prompt(said, tools)
    for _ in range(2):
        sampled = st.one_of(st.integers(0, 300), st.sampled_from(sorted(ends(name))))
        completion = data.draw(st.lists(sampled, max_size=12))
        step = data.draw(steps(traits(name)))
        bridge = made.extend(prompt, completion, step.said, tools)
        said += [made.parse(completion).as_message(), *step.said]
        if bridge.ids is None:
            assert bridge.reason
            return
        assert bridge.ids[: len(prompt) + len(completion)] == [*prompt, *completion]
        prompt = bridge.ids


def test_the_example_in_the_docs_runs(capsys):
    text = (Path(__file__).parents[3] / "docs" / "rendering.md").read_text()
    exec(text.partition("```python\n")[2].partition("```")[0], {})
    assert "2<|im_end|>\n<|im_start|>user\nAre you sure?<|im_end|>" in capsys.readouterr().out


# -- what a turn ends with -------------------------------------------------------------------

USER = {"role": "user", "content": "Hi"}
TOOL = {"role": "tool", "name": "calculator", "content": "2"}


def added(name: str, completion: str, *said: dict[str, Any], tools: Any = ()) -> str:
    """What is added behind a completion, in words; it must be added."""
    made = renderer(name)
    prompt, done = made.prompt([USER], tools), formats.ids(name, completion)
    bridge = made.extend(prompt, done, said, tools)
    assert bridge.ids is not None, bridge.reason
    assert bridge.ids[: len(prompt) + len(done)] == [*prompt, *done]
    text: str = made.decode(bridge.ids[len(prompt) + len(done) :])
    return text


def reason(name: str, completion: str, *said: dict[str, Any], tools: Any = ()) -> str:
    """Why nothing can be added."""
    made = renderer(name)
    bridge = made.extend(made.prompt([USER], tools), formats.ids(name, completion), said, tools)
    assert bridge.ids is None
    return str(bridge.reason)


NEXT = {
    "chatml": "\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "llama": (
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "mistral": "[INST] Hi[/INST]",
    "gemma": "\n<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
    "deepseek": "<|User|>Hi<|Assistant|>",
}


@pytest.mark.parametrize("name", NEXT)
@pytest.mark.parametrize("words", ["ok", "", "it says <|im_end|", "two\n\n"])
def test_a_turn_is_closed_once_and_with_all_that_its_format_puts_behind(name, words):
    end = FORMATS[name].end
    assert added(name, words + end, USER) == NEXT[name]
    assert added(name, words, USER) == end + NEXT[name], "it was cut"


@pytest.mark.parametrize("name", ["chatml", "llama", "gemma"])
def test_a_turn_that_ended_with_another_of_its_models_ends_is_not_closed_twice(name):
    (other,) = FORMATS[name].ends
    assert added(name, f"ok{other}", USER) == NEXT[name]


def test_a_turn_that_ended_with_a_stop_string_is_closed():
    assert added("chatml", "ok STOP", USER) == f"<|im_end|>{NEXT['chatml']}"
    assert added("chatml", "ok<|im_start|>", USER) == f"<|im_end|>{NEXT['chatml']}"


def test_a_turn_that_ends_with_the_next_ones_header_does_not_get_it_twice():
    behind = "\nHi<|assistant|>\n"
    assert added("headers only", "ok<|user|>", USER) == behind
    assert added("headers only", "ok", USER) == f"<|user|>{behind}"
    assert added("headers only", "ok<|tool|>", USER) == f"<|user|>{behind}"


def test_answers_to_several_calls_and_what_a_user_says_then_come_in_one_go():
    assert added("chatml", "<|im_end|>", TOOL, TOOL, USER, tools=SPECS) == (
        "\n<|im_start|>user\n<tool_response>\n2\n</tool_response>"
        f"\n<tool_response>\n2\n</tool_response><|im_end|>{NEXT['chatml']}"
    )


def test_answers_go_to_the_user_in_one_message_where_roles_must_alternate():
    assert added("gemma", "<end_of_turn>", TOOL, TOOL, USER, tools=SPECS) == (
        "\n<start_of_turn>user\n<tool_response>2</tool_response>\n<tool_response>2"
        "</tool_response>\nHi<end_of_turn>\n<start_of_turn>model\n"
    )


def test_more_answers_than_a_template_has_calls_for_are_still_given():
    """One that refuses two calls in one turn takes what is said to them."""
    header = "<|start_header_id|>ipython<|end_header_id|>\n\n"
    text = added("llama", "<|eot_id|>", TOOL, TOOL, tools=SPECS)
    assert text.startswith(f'{header}"2"<|eot_id|>{header}"2"<|eot_id|>')


def test_an_answer_names_its_call_as_it_was_named():
    named = {**TOOL, "tool_call_id": "VvvODy9mT"}
    assert '"call_id": "VvvODy9mT"' in added("mistral", "</s>", named, tools=SPECS)
    assert '"call_id": "call00000"' in added("mistral", "</s>", TOOL, tools=SPECS)


@pytest.mark.parametrize("named", ["call", "answer"])
def test_a_call_and_its_answer_have_one_name_whoever_has_it(named):
    call: dict[str, Any] = {"type": "function", "function": {"name": "f", "arguments": {}}}
    answer = dict(TOOL)
    (call if named == "call" else answer)["id" if named == "call" else "tool_call_id"] = "VvvODy9mT"
    made = renderer("mistral")
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    text = made.decode(made.prompt([USER, asked, answer], SPECS))
    assert '"id": "VvvODy9mT"' in text
    assert '"call_id": "VvvODy9mT"' in text


@pytest.mark.parametrize("name", ["<|im_end|>", "{", ""])
def test_a_tool_that_the_model_made_up_may_have_any_name(name):
    """Also where a format names it behind the arguments, where the end is looked for."""
    behind = "}}{{- ', ' + call.function.name + '}\n</tool_call>'"
    template = formats.CHATML_WITH_TOOLS.replace("}}{{- '}\n</tool_call>'", behind)
    made = formats.with_template("chatml", template)
    prompt, done = made.prompt([USER], SPECS), formats.ids("chatml", "x<|im_end|>")
    longer = made.extend(prompt, done, [{**TOOL, "name": name}], SPECS).ids
    assert made.decode(longer[len(prompt) + len(done) :]).startswith(
        "\n<|im_start|>user\n<tool_response>\n2\n"
    )


# -- formats that rewrite what came before -----------------------------------------------------


def test_thoughts_stay_while_tools_answer_and_are_dropped_once_a_user_speaks():
    thought = "<think>\nhm\n</think>\n\nok<|im_end|>"
    assert added("thinking", thought, TOOL).startswith("\n<|im_start|>user\n<tool_response>")
    for said in ([USER], [TOOL, USER]):
        assert "thought" in reason("thinking", thought, *said)


def test_thoughts_of_an_earlier_turn_are_dropped_too_and_no_turn_without_them_forks():
    made = renderer("thinking")
    prompt = made.prompt([USER])
    thought = made.extend(prompt, formats.ids("thinking", "<think>hm</think>"), [TOOL]).ids
    done = formats.ids("thinking", "ok<|im_end|>")
    assert "thought" in made.extend(thought, done, [USER]).reason
    assert made.extend(thought, done, [TOOL]).ids is not None
    assert made.extend(prompt, done, [USER]).ids is not None


def test_thoughts_that_were_cut_are_closed_and_those_that_the_model_ended_are_not_continued():
    closed = "\n</think>\n\n<|im_end|>\n<|im_start|>user\n<tool_response>"
    assert added("thinking", "<think>\nhm", TOOL).startswith(closed)
    assert added("thinking always", "hm", TOOL).startswith(closed)
    assert added("thinking always", "hm", TOOL).endswith("assistant\n<think>\n")
    for name, words in (("thinking", "<think>hm<|im_end|>"), ("thinking always", "hm<|im_end|>")):
        assert "inside its thoughts" in reason(name, words, TOOL)


def test_tools_that_move_to_the_last_question_are_a_past_that_is_rewritten():
    assert "rewrites what came before" in reason("mistral", "ok</s>", USER, tools=SPECS)
    assert added("mistral", "ok</s>", USER) == NEXT["mistral"], "without tools none move"


def test_a_system_message_that_moves_to_the_last_question_is_a_past_that_is_rewritten():
    moving = formats.MISTRAL.replace("if loop.first %}{{- system", "if loop.last %}{{- system")
    made = formats.with_template("mistral", moving)
    done = formats.ids("mistral", "ok</s>")
    prompt = made.prompt([{"role": "system", "content": "s"}, USER])
    assert "rewrites what came before" in made.extend(prompt, done, [USER]).reason


def test_a_head_that_changes_with_what_is_said_is_a_past_that_is_rewritten():
    counting = "{{- '<|im_start|>' + (messages | length) | string }}" + formats.CHATML_WITH_TOOLS
    made = formats.with_template("chatml", counting)
    bridge = made.extend(made.prompt([USER]), formats.ids("chatml", "ok<|im_end|>"), [USER])
    assert bridge == (None, "the chat template rewrites what came before")
