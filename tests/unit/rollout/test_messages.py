"""A task opens with a conversation, by whichever name it has it."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.errors import TaskError
from workbench.rollout.rendering import task_messages

USER = {"role": "user", "content": "What is 1+1?"}


def test_a_prompt_is_the_users_message():
    assert task_messages({"prompt": "hi"}) == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("name", ["messages", "raw_prompt", "prompt"])
@pytest.mark.parametrize("kind", [list, tuple, lambda said: np.array(said, dtype=object)])
def test_a_conversation_is_taken_under_each_name(name, kind):
    assert task_messages({name: kind([USER, USER])}) == [USER, USER]


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
        ({"raw_prompt": []}, "raw_prompt"),
        ({"raw_prompt": [{"role": "user"}]}, "raw_prompt[0]"),
        ({"raw_prompt": "hi"}, "raw_prompt"),
        ({"prompt": [{"content": "no role"}]}, "prompt[0]"),
        ({"prompt": []}, "prompt"),
        ({"prompt": None}, "task"),
    ],
)
def test_a_task_without_a_conversation_is_refused_by_field(task, field):
    with pytest.raises(TaskError) as refused:
        task_messages(task)
    assert refused.value.field == field


def test_parts_that_are_text_are_joined():
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    said = task_messages({"prompt": [{"role": "user", "content": parts, "name": "n"}]})
    assert said == [{"role": "user", "content": "one two", "name": "n"}]


@pytest.mark.parametrize("content", [3, [{"type": "image_url", "image_url": "x"}], [1]])
def test_content_that_is_no_text_is_named(content):
    with pytest.raises(TaskError, match="a text, or parts that are text") as refused:
        task_messages({"prompt": [{"role": "user", "content": content}]})
    assert refused.value.field == "prompt[0].content"


def test_a_prompt_may_be_a_string_or_messages_and_that_is_said():
    with pytest.raises(TaskError, match="a string, or a list of"):
        task_messages({"prompt": 3})
