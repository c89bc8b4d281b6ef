"""Messages become tokens, completions become words, and nothing sampled is tokenised again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.chat import (
    CHATML,
    END,
    FORGETFUL,
    STRICT,
    WITH_TOOLS,
    call,
    ids,
    renderer,
    tokenizer,
)
from workbench.errors import ConfigError, RolloutError, TaskError
from workbench.rollout.rendering import (
    ParsedReply,
    TemplateRenderer,
    make_renderer,
    parse_tagged,
    task_messages,
)
from workbench.rollout.tools import calculator, tool

USER = {"role": "user", "content": "What is 1+1?"}
TOOL = {"role": "tool", "name": "calculator", "content": "2"}
SPECS = [tool(calculator).spec]


# -- reading tool calls ----------------------------------------------------------------------


def test_plain_text_has_no_calls():
    assert parse_tagged(" hello\n") == ParsedReply("hello", ())


def test_a_call_is_read_with_its_arguments_and_taken_out_of_the_text():
    reply = parse_tagged(f"I'll ask. {call('calculator', expression='1+1')}")
    (parsed,) = reply.calls
    assert reply.text == "I'll ask."
    assert (parsed.name, parsed.arguments, parsed.problem) == (
        "calculator",
        {"expression": "1+1"},
        "",
    )


def test_calls_are_read_in_the_order_in_which_they_were_written():
    reply = parse_tagged(call("a", x=1) + "\n" + call("b") + call("a", x=2))
    assert [(c.name, c.arguments) for c in reply.calls] == [
        ("a", {"x": 1}),
        ("b", {}),
        ("a", {"x": 2}),
    ]


def test_a_call_may_leave_its_arguments_out():
    (parsed,) = parse_tagged('<tool_call>{"name": "now"}</tool_call>').calls
    assert (parsed.name, parsed.arguments, parsed.problem) == ("now", {}, "")


@pytest.mark.parametrize(
    ("raw", "name", "problem"),
    [
        ("not json", "", "is not JSON"),
        ("", "", "is not JSON"),
        ("{'name': 'a'}", "", "is not JSON"),
        ('{"name": "a"', "", "is not JSON"),
        ("[" * 100_000, "", "is not JSON"),
        ('["a"]', "", 'no "name"'),
        ("null", "", 'no "name"'),
        ("{}", "", 'no "name"'),
        ('{"name": 3}', "", 'no "name"'),
        ('{"name": "a", "arguments": "x"}', "a", "not an object"),
        ('{"name": "a", "arguments": [1]}', "a", "not an object"),
        ('{"name": "a", "arguments": null}', "a", "not an object"),
    ],
)
def test_a_malformed_call_is_told_what_is_wrong_with_it(raw, name, problem):
    (parsed,) = parse_tagged(f"<tool_call>{raw}</tool_call>").calls
    assert (parsed.name, parsed.arguments, parsed.raw) == (name, None, raw)
    assert problem in parsed.problem


def test_a_call_that_was_not_closed_is_told_so():
    (parsed,) = parse_tagged('<tool_call>{"name": "a"}').calls
    assert "no closing </tool_call>" in parsed.problem


def test_a_good_call_after_a_bad_one_is_still_read():
    bad, good = parse_tagged("<tool_call>?</tool_call>" + call("a")).calls
    assert bad.problem
    assert (good.name, good.problem) == ("a", "")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["<tool_call>", "</tool_call>", '{"name":', '"a"', "}", "[", "x", "\n"]),
        max_size=12,
    ).map("".join)
)
def test_every_text_can_be_read(text):
    for parsed in parse_tagged(text).calls:
        assert (parsed.arguments is None) == bool(parsed.problem)


@pytest.mark.parametrize("arguments", [{}, {"x": 1}])
def test_a_reply_as_a_message_carries_the_arguments_of_its_calls(arguments):
    message = parse_tagged(call("now", **arguments)).as_message()
    (made,) = message["tool_calls"]
    assert made["function"] == {"name": "now", "arguments": arguments}


def test_a_reply_as_a_message_keeps_what_could_not_be_read_as_it_was():
    message = parse_tagged("<tool_call>oops</tool_call>").as_message()
    assert message["tool_calls"][0]["function"] == {"name": "", "arguments": "oops"}


def test_a_reply_without_calls_is_an_ordinary_message():
    assert parse_tagged("hi").as_message() == {"role": "assistant", "content": "hi"}


# -- messages to tokens ----------------------------------------------------------------------


def test_a_prompt_ends_where_the_assistant_begins():
    text = renderer().decode(renderer().prompt([USER]))
    assert text == "<|im_start|>user\nWhat is 1+1?<|im_end|>\n<|im_start|>assistant\n"


def test_a_completion_is_parsed_without_its_special_tokens():
    assert renderer().parse(ids(f"two{END}")) == ParsedReply("two", ())


@pytest.mark.parametrize(
    ("template", "role", "answer"),
    [
        (CHATML, "tool", "<tool_response>2</tool_response>"),
        (STRICT, "user", "<tool_response>2</tool_response>"),
        (WITH_TOOLS, "tool", "2"),
    ],
)
@pytest.mark.parametrize("ending", [END, ""])
def test_extending_keeps_every_id_and_reads_as_if_rendered_whole(template, role, answer, ending):
    made = renderer(template)
    prompt = made.prompt([USER], SPECS)
    completion = ids(f"well{ending}")
    extended = made.extend(prompt, completion, [TOOL], SPECS)
    assert extended[: len(prompt) + len(completion)] == prompt + completion
    assert made.decode(extended[len(prompt) :]) == (
        f"well{END}\n<|im_start|>{role}\n{answer}{END}\n<|im_start|>assistant\n"
    )


@settings(max_examples=60, deadline=None)
@given(
    completion=st.lists(st.integers(0, 257), max_size=30),
    said=st.lists(st.text(max_size=8), min_size=1, max_size=3),
)
def test_whatever_was_sampled_stays_a_prefix(completion, said):
    """Also ids that no text would be tokenised to."""
    made = renderer()
    prompt = made.prompt([USER])
    messages = [{"role": "tool", "name": "t", "content": text} for text in said]
    extended = made.extend(prompt, completion, messages)
    assert extended[: len(prompt) + len(completion)] == [*prompt, *completion]
    tail = made.decode(extended[len(prompt) + len(completion) :])
    assert tail.endswith("<|im_start|>assistant\n")


def test_a_template_that_drops_what_was_said_cannot_be_extended():
    made = renderer(FORGETFUL)
    prompt = made.prompt([USER])
    assert made.extend(prompt, ids(f"well{END}"), [TOOL]) is None


def test_a_template_that_does_not_close_its_turns_cannot_be_extended():
    template = (
        "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    assert renderer(template).extend([1], [2], [USER]) is None


def test_a_template_that_refuses_the_messages_fails_the_rollout_with_its_words():
    made = renderer("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(RolloutError, match="roles must alternate"):
        made.prompt([USER])


def test_tools_go_to_the_template_where_it_has_a_section_for_them():
    text = renderer(WITH_TOOLS).decode(renderer(WITH_TOOLS).prompt([USER], SPECS))
    assert text.startswith("<|im_start|>system\ntools: calculator<|im_end|>")


def test_other_models_are_told_of_tools_in_their_system_message():
    system = {"role": "system", "content": "Be brief."}
    text = renderer().decode(renderer().prompt([system, USER], SPECS))
    assert text.startswith("<|im_start|>system\nBe brief.\n\nTools:\n{")
    assert json.dumps(SPECS[0]["function"]) in text


def test_tools_are_listed_without_a_system_message_and_after_a_call_too():
    asked = parse_tagged(call("calculator", expression="1+1")).as_message()
    for messages in ([USER], [USER, asked, TOOL]):
        text = renderer().decode(renderer().prompt(messages, SPECS))
        assert json.dumps(SPECS[0]["function"]) in text.partition(END)[0]


def test_examples_of_calls_stand_for_the_list_of_tools():
    """A small model learns the form from them, and a description only gets in their way."""
    system = {"role": "system", "content": "Be brief."}
    example = parse_tagged(call("calculator", expression="1+1")).as_message()
    text = renderer().decode(renderer().prompt([system, USER, example, TOOL, USER], SPECS))
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>")


def test_calls_and_answers_are_put_in_words_where_the_template_knows_none():
    asked = parse_tagged(call("calculator", expression="1+1")).as_message()
    text = renderer().decode(renderer().prompt([USER, asked, TOOL]))
    assert call("calculator", expression="1+1") in text
    assert "<|im_start|>tool\n<tool_response>2</tool_response>" in text
    again = renderer().parse(ids(text.split("assistant\n")[1].partition(END)[0]))
    assert again.calls[0].arguments == {"expression": "1+1"}


def test_messages_are_not_changed_by_rendering():
    messages = [{"role": "system", "content": "s"}, dict(USER)]
    renderer().prompt(messages, SPECS)
    assert messages == [{"role": "system", "content": "s"}, USER]


def test_padding_falls_back_to_the_end_token():
    class Bare:
        chat_template = CHATML
        pad_token_id = None
        eos_token_id = 7

    assert TemplateRenderer(Bare()).pad_id == 7


def test_a_renderer_is_made_of_a_directory(tmp_path):
    tokenizer().save_pretrained(tmp_path)
    made = make_renderer(str(tmp_path))
    assert made.prompt([USER]) == renderer().prompt([USER])


def test_a_model_without_a_chat_template_is_refused(tmp_path):
    tokenizer("").save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no chat template"):
        make_renderer(str(tmp_path))


# -- tasks as conversations ------------------------------------------------------------------


def test_a_prompt_is_the_users_message():
    assert task_messages({"prompt": "hi"}) == [{"role": "user", "content": "hi"}]


def test_messages_win_over_a_prompt():
    assert task_messages({"prompt": "hi", "messages": [USER]}) == [USER]


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({}, "task"),
        ({"prompt": 3}, "prompt"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "no role"}]}, "messages[0]"),
        ({"messages": [{"role": "usr", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": float("nan")}, "messages"),
        ({"messages": []}, "messages"),
    ],
)
def test_a_task_without_a_conversation_is_refused_by_field(task, field):
    with pytest.raises(TaskError) as refused:
        task_messages(task)
    assert refused.value.field == field
