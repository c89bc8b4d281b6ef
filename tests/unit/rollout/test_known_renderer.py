"""A model that the renderers package knows: the same duties, done by its renderer."""

from __future__ import annotations

import json

import pytest

from tests.unit.chat import END, QWEN3, tokenizer
from workbench.rollout.rendering import KnownRenderer

SPECS = [
    {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "Evaluate.",
            "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
        },
    }
]
USER = {"role": "user", "content": "What is 1+1?"}
CALL = {"name": "calculator", "arguments": {"expression": "1+1"}}


@pytest.fixture
def known() -> KnownRenderer:
    return KnownRenderer(tokenizer(more=tuple(QWEN3)), "Qwen/Qwen3-8B")


def encoded(text: str) -> list[int]:
    return tokenizer(more=tuple(QWEN3)).encode(text, add_special_tokens=False)


def test_tools_stand_where_the_model_was_trained_to_find_them(known: KnownRenderer) -> None:
    text = known.decode(known.prompt([USER], SPECS))
    assert "<tools>" in text
    assert '"name": "calculator"' in text
    assert text.endswith("<|im_start|>assistant\n")


def test_a_call_is_read_and_its_answer_extends_what_was_sampled(known: KnownRenderer) -> None:
    prompt = known.prompt([USER], SPECS)
    said = f"<think>\n\n</think>\n\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>{END}"
    completion = encoded(said)
    (call,) = known.parse(completion).calls
    assert (call.name, call.arguments, call.problem) == ("calculator", CALL["arguments"], "")
    longer = known.extend(prompt, completion, [{"role": "tool", "content": "2"}], SPECS)
    assert longer is not None
    assert longer[: len(prompt) + len(completion)] == prompt + completion
    added = known.decode(longer[len(prompt) + len(completion) :])
    assert "<tool_response>\n2\n</tool_response>" in added


def test_a_call_that_is_no_json_has_a_problem_in_words(known: KnownRenderer) -> None:
    completion = encoded(f"<think>\n\n</think>\n\n<tool_call>\n{{oops\n</tool_call>{END}")
    (call,) = known.parse(completion).calls
    assert call.arguments is None
    assert "could not be read: invalid_json" in call.problem
