"""Messages become tokens, completions become words, and nothing sampled is tokenised again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit import formats
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
from workbench.errors import ConfigError, RolloutError
from workbench.rollout.rendering import (
    ParsedReply,
    TemplateRenderer,
    make_renderer,
    parse_tagged,
)
from workbench.rollout.rendering.forms import pad_id
from workbench.rollout.tools import calculator, tool

USER = {"role": "user", "content": "What is 1+1?"}
TOOL = {"role": "tool", "name": "calculator", "content": "2"}
SPECS = [tool(calculator).spec]


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
    extended = made.extend(prompt, completion, [TOOL], SPECS).ids
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
    extended = made.extend(prompt, completion, messages).ids
    assert extended[: len(prompt) + len(completion)] == [*prompt, *completion]
    tail = made.decode(extended[len(prompt) + len(completion) :])
    assert tail.endswith("<|im_start|>assistant\n")


def test_a_template_that_drops_what_was_said_cannot_be_extended():
    made = renderer(FORGETFUL)
    prompt = made.prompt([USER])
    assert made.extend(prompt, ids(f"well{END}"), [TOOL]).ids is None


def test_a_template_that_does_not_close_its_turns_cannot_be_extended():
    template = (
        "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    assert renderer(template).extend([1], [2], [USER]).ids is None


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


def test_half_a_character_in_an_answer_is_no_reason_to_fail():
    text = renderer().decode(renderer().prompt([{"role": "user", "content": "a\ud83db"}]))
    assert "a?b" in text


def test_a_tokenizer_with_a_template_for_tools_beside_its_own_uses_it_for_them():
    tokens = tokenizer.__wrapped__()
    tokens.chat_template = {"default": CHATML, "tool_use": WITH_TOOLS}
    made = TemplateRenderer(tokens)
    assert made.decode(made.prompt([USER], SPECS)).startswith("<|im_start|>system\ntools:")
    assert made.prompt([USER]) == renderer().prompt([USER])


def test_what_may_end_a_turn_is_read_from_the_models_generation_configuration(tmp_path):
    tokenizer(more=("<|eom|>",)).save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [257, 258]}')
    made = make_renderer(str(tmp_path))
    prompt = made.prompt([USER])
    assert made.extend(prompt, [258], [USER]).ids[len(prompt) + 1 :] == ids("\n") + prompt


def test_a_system_message_is_said_by_the_user_where_a_template_has_none():
    made = formats.renderer("gemma")
    text = made.decode(made.prompt([{"role": "system", "content": "Be brief."}, USER]))
    assert text.startswith("<bos><start_of_turn>user\nBe brief.\n\nWhat is 1+1?<end_of_turn>")


def test_thoughts_stand_where_the_model_had_put_them_if_a_template_knows_none():
    thought = parse_tagged("<think>hm</think>ok").as_message()
    text = renderer().decode(renderer().prompt([USER, thought, USER]))
    assert "<|im_start|>assistant\n<think>\nhm\n</think>\n\nok<|im_end|>" in text


def test_messages_are_not_changed_by_rendering():
    messages = [{"role": "system", "content": "s"}, dict(USER)]
    renderer().prompt(messages, SPECS)
    assert messages == [{"role": "system", "content": "s"}, USER]


def test_padding_falls_back_to_the_end_token():
    class Bare:
        chat_template = CHATML
        pad_token_id = None
        eos_token_id = 7

    assert pad_id(Bare()) == 7


def test_a_renderer_is_made_of_a_directory(tmp_path):
    tokenizer().save_pretrained(tmp_path)
    made = make_renderer(str(tmp_path))
    assert made.prompt([USER]) == renderer().prompt([USER])


def test_a_model_without_a_chat_template_is_refused(tmp_path):
    tokenizer("").save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no chat template"):
        make_renderer(str(tmp_path))
