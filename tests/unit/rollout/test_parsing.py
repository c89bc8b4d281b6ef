"""What a model wrote becomes words, thoughts and calls, whatever it wrote."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit import formats
from tests.unit.chat import call
from workbench.rollout.rendering import ParsedReply, parse_tagged
from workbench.rollout.rendering.parsing import parse_bare, parse_listed

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
        ('{"name": "a", "arguments": "[1]"}', "a", "not an object"),
        ('{"name": "a", "arguments": {"x": NaN}}', "", "is not JSON"),
        ('{"name": "a", "arguments": {"x": "\\ud83d"}}', "", "half a character"),
        ('{"name": "a"} and so on', "", "something follows"),
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


def test_an_end_tag_in_an_argument_does_not_end_the_call():
    (parsed,) = parse_tagged(call("write", text="a </tool_call> b <tool_call> c")).calls
    assert parsed.arguments == {"text": "a </tool_call> b <tool_call> c"}


def test_a_call_that_is_not_closed_is_told_so_and_the_next_one_is_still_read():
    for first in ('{"name": "a"}', '{"name": "a'):
        bad, good = parse_tagged(f"<tool_call>{first}\n{call('b')}").calls
        assert "no closing </tool_call>" in bad.problem
        assert (bad.raw, good.name, good.problem) == (first, "b", "")


@pytest.mark.parametrize("field", ["arguments", "parameters"])
@pytest.mark.parametrize("written", ['{"x": "é"}', json.dumps('{"x": "é"}')])
def test_arguments_are_read_under_either_name_and_also_as_a_string(field, written):
    (parsed,) = parse_tagged(f'<tool_call>{{"name": "a", "{field}": {written}}}</tool_call>').calls
    assert (parsed.arguments, parsed.problem) == ({"x": "é"}, "")


# -- thoughts --------------------------------------------------------------------------------


def test_a_call_in_thoughts_is_none():
    reply = parse_tagged(f"<think>\nMaybe {call('a')}\n</think>\n\nNo. {call('b')}")
    assert (reply.text, [c.name for c in reply.calls]) == ("No.", ["b"])
    assert reply.thoughts == f"Maybe {call('a')}"


@pytest.mark.parametrize("opening", ["<think>", ""])
def test_thoughts_that_were_cut_are_all_there_is(opening):
    reply = parse_tagged(f"{opening}Maybe {call('a')}", in_thoughts=not opening)
    assert reply == ParsedReply("", (), f"Maybe {call('a')}")


def test_thoughts_that_the_prompt_opened_end_at_the_first_tag():
    reply = parse_tagged("hm</think>yes </think>", in_thoughts=True)
    assert reply == ParsedReply("yes </think>", (), "hm")


def test_thoughts_in_the_middle_are_taken_out_and_a_mention_is_not():
    assert parse_tagged("So <think>b</think>be it") == ParsedReply("So be it", (), "b")
    assert parse_tagged("The <think> tag") == ParsedReply("The <think> tag", ())
    assert parse_tagged("The </think> tag") == ParsedReply("The </think> tag", ())


def test_a_reply_as_a_message_carries_its_thoughts():
    message = parse_tagged("<think>hm</think>hi").as_message()
    assert message == {"role": "assistant", "content": "hi", "reasoning_content": "hm"}


# -- other formats ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('[TOOL_CALLS] [{"name": "a", "arguments": {"x": "]"}}]', [("a", {"x": "]"})]),
        ('[TOOL_CALLS][{"name": "a"}, {"name": "b"}]', [("a", {}), ("b", {})]),
        ('[TOOL_CALLS]{"name": "a", "arguments": {}}', [("a", {})]),
        ('[TOOL_CALLS]a{"x": 1}[TOOL_CALLS]b{}', [("a", {"x": 1}), ("b", {})]),
        ('[TOOL_CALLS]a[CALL_ID]abc[ARGS]{"x": 1}', [("a", {"x": 1})]),
        ('[TOOL_CALLS] [{"name": "a", "arguments": {}}, {"name": "b', [("a", {}), ("", None)]),
        ('[TOOL_CALLS]a{"x": ', [("a", None)]),
        ("[TOOL_CALLS] []", [("", None)]),
        ("[TOOL_CALLS]", []),
        ('[{"name": "a", "arguments": {}}]', []),
    ],
)
def test_calls_in_a_list_are_read(text, read):
    reply = parse_listed(f"Well. {text}")
    assert [(c.name, c.arguments) for c in reply.calls] == read
    assert all((c.arguments is None) == bool(c.problem) for c in reply.calls)
    assert reply.text.startswith("Well.")


def test_a_call_keeps_the_name_that_the_model_gave_it():
    text = '[TOOL_CALLS] [{"name": "a", "arguments": {}, "id": "VvvODy9mT"}]'
    (made,) = parse_listed(text).as_message()["tool_calls"]
    assert made["id"] == "VvvODy9mT"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"name": "a", "parameters": {"x": 1}}', [("a", {"x": 1})]),
        ('<|python_tag|>{"name": "a", "parameters": {}}', [("a", {})]),
        (
            '{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}',
            [("a", {}), ("b", {})],
        ),
        ('[{"name": "a", "parameters": {}}]', [("a", {})]),
        ('{"type": "function", "name": "a", "parameters": {}}', [("a", {})]),
        ('{"name": "a", "parameters": {"x": 1}', [("", None)]),
        ('<|python_tag|>search.call(query="x")', [("", None)]),
        ('{"name": "a", "parameters": null}', [("a", None)]),
    ],
)
def test_a_reply_that_is_nothing_but_a_call_is_read(text, read):
    reply = parse_bare(f"\n{text}")
    assert [(c.name, c.arguments) for c in reply.calls] == read
    assert all((c.arguments is None) == bool(c.problem) for c in reply.calls)
    assert reply.text == ""


def test_words_before_a_mark_are_kept_and_a_mark_in_thoughts_is_none():
    marked = '<|python_tag|>{"name": "a", "parameters": {}}'
    assert [c.name for c in parse_bare(f"Well. {marked}").calls] == ["a"]
    assert parse_bare(f"Well. {marked}").text == "Well."
    assert parse_bare(f"<think>{marked}</think>no") == ParsedReply("no", (), marked)


@pytest.mark.parametrize(
    "text", ['{"name": "Bob", "age": 3}', '{"answer": 3}', '{"type": "circle"}', "a {}", "{", ""]
)
def test_an_answer_that_happens_to_be_json_is_no_call(text):
    assert parse_bare(text) == ParsedReply(text, ())


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("chatml", '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call><|im_end|>'),
        ("thinking always", '</think><tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'),
        ("llama", '{"name": "f", "parameters": {"x": 1}}<|eot_id|>'),
        ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}}]</s>'),
        ("gemma", '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call><end_of_turn>'),
        ("deepseek", '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call><|eos|>'),
    ],
)
def test_each_format_has_its_calls_read(name, written):
    """Also where what marks them is a special token, which is no word otherwise."""
    reply = formats.renderer(name).parse(formats.ids(name, written))
    assert [(c.name, c.arguments, c.problem) for c in reply.calls] == [("f", {"x": 1}, "")]
    assert reply.text == ""


BITS = [
    *("<tool_call>", "</tool_call>", '{"name":', '"a"', "}", "[", "x", "\n", "<think>"),
    *("</think>", "[TOOL_CALLS]", "<|python_tag|>", '"parameters":', "{", "{}", "]", ",", "[ARGS]"),
]


@pytest.mark.parametrize("parse", [parse_tagged, parse_listed, parse_bare])
@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(st.one_of(st.sampled_from(BITS), st.text(max_size=3)), max_size=12).map("".join),
    in_thoughts=st.booleans(),
)
def test_every_text_can_be_read(parse, text, in_thoughts):
    reply = parse(text, in_thoughts=in_thoughts)
    for parsed in reply.calls:
        assert (parsed.arguments is None) == bool(parsed.problem)
    json.dumps(reply.as_message())


@pytest.mark.parametrize("name", formats.FORMATS)
@settings(max_examples=60, deadline=None)
@given(ids=st.lists(st.integers(0, 440), max_size=20))
def test_every_completion_can_be_read(name, ids):
    """Half characters, ids beyond the vocabulary, ends in the middle."""
    reply = formats.renderer(name).parse(ids)
    assert all((c.arguments is None) == bool(c.problem) for c in reply.calls)


# -- as messages -----------------------------------------------------------------------------


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
