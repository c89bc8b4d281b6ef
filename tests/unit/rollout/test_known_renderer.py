"""Models that the renderers package knows: the same duties, done by its renderers."""

# ruff: noqa: RUF001 - DeepSeek writes its tokens with fullwidth bars

from __future__ import annotations

import functools
import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.unit.formats import trained
from tests.unit.talk import SPECS, Traits, conversations
from workbench.errors import ConfigError, RolloutError
from workbench.rollout.rendering import KnownRenderer, make_renderer

QWEN = (
    *("<|im_end|>", "<|im_start|>", "<|endoftext|>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>"),
)
PICTURES = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
DEEPSEEK = (
    *("end▁of▁sentence", "begin▁of▁sentence", "User", "Assistant", "tool▁sep"),
    *(
        f"tool▁{what}▁{end}"
        for what in ("calls", "call", "outputs", "output")
        for end in ("begin", "end")
    ),
)
MODELS = {
    "Qwen/Qwen3-8B": QWEN,
    "Qwen/Qwen3.5-4B": (*QWEN, *PICTURES),
    "meta-llama/Llama-3.2-1B-Instruct": (
        *("<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        *("<|end_of_text|>", "<|eom_id|>", "<|python_tag|>"),
    ),
    "deepseek-ai/DeepSeek-V3": (*(f"<｜{name}｜>" for name in DEEPSEEK), "<think>", "</think>"),
    "zai-org/GLM-4.5-Air": (
        *("<|observation|>", "<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|assistant|>"),
        *("<|user|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "/nothink"),
        *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        *("<tool_response>", "</tool_response>"),
    ),
}
"""With their special tokens; what ends a turn comes first."""
THOUGHTLESS = {"Qwen/Qwen3.5-4B": "</think>", "zai-org/GLM-4.5-Air": "<think></think>"}
"""What a turn begins with in formats that always think."""
END_OF_CUT = {"zai-org/GLM-4.5-Air": "<|endoftext|>"}
"""Where it is not what the model itself ends with."""
USER = {"role": "user", "content": "What is 1+1?"}
TOOL = {"role": "tool", "name": "calculator", "content": "2"}
CALL = {"name": "calculator", "arguments": {"expression": "1+1"}}


@functools.cache
def tokenizer(model: str):
    return trained(MODELS[model], MODELS[model][0], None)


@functools.cache
def known(model: str = "Qwen/Qwen3-8B") -> KnownRenderer:
    return KnownRenderer(tokenizer(model), model)


def encoded(text: str, model: str = "Qwen/Qwen3-8B") -> list[int]:
    return tokenizer(model).encode(text, add_special_tokens=False)


def traits(model: str) -> Traits:
    return Traits(thinks="Qwen" in model, several_calls="Llama" not in model)


# -- extending -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data(), tools=st.sampled_from(((), SPECS)), is_cut=st.booleans())
def test_what_is_added_is_what_a_full_render_has_there(model, data, tools, is_cut):
    made = known(model)
    said, step = data.draw(conversations(traits(model)))
    prompt = made.prompt(said, tools)
    whole = made.prompt([*said, step.reply, *step.said], tools)
    assume(whole[: len(prompt)] == prompt)
    ends = encoded(MODELS[model][0] + ("<|user|>" if "GLM" in model else ""), model)
    at = next((i for i in range(len(prompt), len(whole)) if whole[i] in ends), -1)
    assume(at >= 0)
    is_cut = is_cut and model not in END_OF_CUT
    bridge = made.extend(prompt, whole[len(prompt) : at if is_cut else at + 1], step.said, tools)
    if bridge.ids is None:
        assert "rewrites what came before" in bridge.reason
    else:
        assert bridge.ids == whole


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), tools=st.sampled_from(((), SPECS)))
def test_whatever_was_sampled_stays_a_prefix(model, data, tools):
    made = known(model)
    said, step = data.draw(conversations(traits(model)))
    prompt = made.prompt(said, tools)
    sampled = st.one_of(
        st.integers(0, 300), st.sampled_from(encoded("".join(MODELS[model]), model))
    )
    completion = data.draw(st.lists(sampled, max_size=12))
    bridge = made.extend(prompt, completion, step.said, tools)
    if bridge.ids is None:
        assert bridge.reason
    else:
        assert bridge.ids[: len(prompt) + len(completion)] == [*prompt, *completion]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("is_cut", [False, True])
def test_an_answer_extends_what_was_sampled(model, is_cut):
    made = known(model)
    prompt = made.prompt([USER], SPECS)
    completion = encoded(THOUGHTLESS.get(model, "") + "ok", model)
    ending = [] if is_cut else encoded(MODELS[model][0], model)
    bridge = made.extend(prompt, [*completion, *ending], [TOOL], SPECS)
    assert bridge.ids is not None, bridge.reason
    added = made.decode(bridge.ids[len(prompt) + len(completion) + len(ending) :])
    assert "2" in added
    assert is_cut == added.startswith(END_OF_CUT.get(model, MODELS[model][0]))


@pytest.mark.parametrize("model", MODELS)
def test_half_a_character_in_an_answer_is_no_reason_to_fail(model):
    made = known(model)
    text = made.decode(made.prompt([USER, {"role": "user", "content": "a\ud83db"}]))
    assert "a?b" in text


def test_tokens_behind_an_end_are_not_thrown_away_but_fork():
    prompt = known().prompt([USER])
    bridge = known().extend(prompt, encoded("ok<|im_end|>more"), [TOOL])
    assert bridge.ids is None
    assert "changed what was sampled" in bridge.reason


def test_a_format_that_drops_thoughts_once_a_user_speaks_forks_and_says_so():
    prompt = known().prompt([USER])
    bridge = known().extend(prompt, encoded("<think>hm</think>ok<|im_end|>"), [USER])
    assert bridge.ids is None
    assert "rewrites what came before" in bridge.reason


# -- prompts and replies ---------------------------------------------------------------------


def test_tools_stand_where_the_model_was_trained_to_find_them():
    text = known().decode(known().prompt([USER], SPECS))
    assert "<tools>" in text
    assert '"name": "calculator"' in text
    assert text.endswith("<|im_start|>assistant\n")


WRITTEN = {
    "Qwen/Qwen3-8B": f"<think>\n\n</think>\n\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>",
    "Qwen/Qwen3.5-4B": (
        "hm</think>\n\n<tool_call>\n<function=calculator>\n<parameter=expression>\n1+1\n"
        "</parameter>\n</function>\n</tool_call>"
    ),
    "meta-llama/Llama-3.2-1B-Instruct": json.dumps(CALL).replace("arguments", "parameters"),
    "deepseek-ai/DeepSeek-V3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>calculator\n```json\n"
        '{"expression": "1+1"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "zai-org/GLM-4.5-Air": (
        "<think>hm</think>\n<tool_call>calculator\n<arg_key>expression</arg_key>\n"
        "<arg_value>1+1</arg_value>\n</tool_call>"
    ),
}


@pytest.mark.parametrize("model", MODELS)
def test_a_call_is_read_in_the_form_that_the_model_writes_it(model):
    reply = known(model).parse(encoded(WRITTEN[model] + MODELS[model][0], model))
    (call,) = reply.calls
    assert (call.name, call.arguments, call.problem) == ("calculator", CALL["arguments"], "")
    assert (reply.text, reply.thoughts) == ("", "hm" if "hm" in WRITTEN[model] else "")


@pytest.mark.parametrize("model", ["Qwen/Qwen3.5-4B", "zai-org/GLM-4.5-Air"])
def test_a_bare_argument_is_what_its_tool_says_it_is(model):
    written = encoded(WRITTEN[model].replace("1+1", "12"), model)
    assert known(model).parse(written).calls[0].arguments == {"expression": 12}
    assert known(model).parse(written, SPECS).calls[0].arguments == {"expression": "12"}


def test_a_call_of_an_unknown_tool_is_read_like_any_other():
    """Which tools there are is for the loop to say."""
    model = "zai-org/GLM-4.5-Air"
    written = encoded(WRITTEN[model].replace("calculator", "other"), model)
    (call,) = known(model).parse(written, SPECS).calls
    assert (call.name, call.arguments, call.problem) == ("other", CALL["arguments"], "")


@pytest.mark.parametrize("model", ["Qwen/Qwen3.5-4B", "Qwen/Qwen3-8B", "zai-org/GLM-4.5-Air"])
def test_a_call_in_thoughts_is_none(model):
    opening = "" if "Qwen3.5" in model else "<think>"
    call = WRITTEN[model].rpartition("</think>")[2]
    reply = known(model).parse(encoded(f"{opening}{call}</think>ok", model))
    assert (reply.text, reply.calls) == ("ok", ())


@pytest.mark.parametrize("model", ["Qwen/Qwen3.5-4B", "Qwen/Qwen3-8B"])
def test_a_call_that_was_not_closed_or_cannot_be_read_has_a_problem(model):
    opening = THOUGHTLESS.get(model, "")
    for written in ("<tool_call>\n<function=", "<tool_call>{oops</tool_call>"):
        (call,) = known(model).parse(encoded(opening + written, model)).calls
        assert call.arguments is None
        assert call.problem.startswith("the call ")


def test_an_end_tag_in_an_argument_does_not_end_the_call():
    written = json.dumps({"name": "write", "arguments": {"text": "a </tool_call> b"}})
    (call,) = known().parse(encoded(f"<tool_call>{written}</tool_call>")).calls
    assert call.arguments == {"text": "a </tool_call> b"}


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_completion_can_be_read(model, data):
    pieces = [*MODELS[model], '{"name": "f"', ', "arguments": {}', "}", "\n", "f", "NaN", "[", "]"]
    texts = st.lists(st.one_of(st.sampled_from(pieces), st.text(max_size=3)), max_size=10)
    ids = [*encoded("".join(data.draw(texts)), model), *data.draw(st.lists(st.integers(0, 500)))]
    reply = known(model).parse(ids)
    assert all((call.arguments is None) == bool(call.problem) for call in reply.calls)
    json.dumps(reply.as_message(), allow_nan=False).encode()


# -- refusals --------------------------------------------------------------------------------


def test_messages_that_the_renderer_refuses_fail_the_rollout_with_its_words():
    with pytest.raises(RolloutError, match=r"Qwen/Qwen3-8B refused the messages: .*No messages"):
        known().prompt([])


def test_a_tokenizer_without_the_models_tokens_is_refused_before_anything_starts(tmp_path):
    trained(("<|im_end|>",), "<|im_end|>", None).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no renderer can be made for 'Qwen/Qwen3-8B'"):
        make_renderer(str(tmp_path), "Qwen/Qwen3-8B")
