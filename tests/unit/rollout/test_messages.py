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
