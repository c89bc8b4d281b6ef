"""Chats are in the form in which trainers and chat templates take them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.unit.records.made import played
from workbench.errors import ConfigError
from workbench.records import sft_chats, write_chats
from workbench.trajectory import RolloutStatus

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def called(*arguments, ids=()):
    """An assistant's message with a call per arguments."""
    calls = [{"type": "function", "function": {"name": "add", "arguments": a}} for a in arguments]
    for call, name in zip(calls, ids, strict=False):
        call["id"] = name
    return {"role": "assistant", "content": "", "tool_calls": calls}


def answer(text, **known):
    return {"role": "tool", "name": "add", "content": text, **known}


ASKED = {"role": "user", "content": "1 + 1?"}
SAID = {"role": "assistant", "content": "2"}


def chat_of(*messages, **known):
    (chat,) = sft_chats([played(messages=messages, **known)])
    return chat


def test_a_conversation_without_tools_is_its_messages():
    assert chat_of(ASKED, SAID) == {
        "messages": [ASKED, SAID],
        "rollout_id": "task-0/0",
        "reward": 1.0,
    }


def test_calls_have_ids_and_arguments_as_text_and_answers_name_their_calls():
    chat = chat_of(
        ASKED, called({"a": 1}, "{not json"), answer("1"), answer("error"),
        called({"a": np.int64(2)}), answer("2"), SAID, extra={"tools": (TOOL,)},
    )  # fmt: skip
    messages = chat["messages"]
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    assert [call["function"]["arguments"] for call in calls] == [
        '{"a": 1}',
        "{not json",
        '{"a": 2}',
    ]
    ids = [call["id"] for call in calls]
    assert len(set(ids)) == 3
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ids
    assert chat["tools"] == [TOOL]


def test_ids_that_are_there_are_kept_in_whatever_order_the_answers_are():
    chat = chat_of(called({}, {}, ids=("x", "y")), answer("y", tool_call_id="y"), answer("x"))
    _, first, second = chat["messages"]
    assert (first["tool_call_id"], second["tool_call_id"]) == ("y", "x")


def test_what_was_recorded_is_not_changed():
    message = called({"a": 1})
    chat_of(message, answer("1"))
    assert message == called({"a": 1})


def test_only_what_is_done_is_taken_unless_somebody_chooses():
    some = [
        played(0, messages=(ASKED, SAID)),
        played(1, messages=(ASKED, SAID), reward=0.0),
        played(2, messages=(ASKED,), status=RolloutStatus.FAILED, error="E: no", reward=None),
        played(3),  # nothing was said
    ]
    assert [c["rollout_id"] for c in sft_chats(some)] == ["task-0/0", "task-1/0"]
    good = sft_chats(some, keep=lambda t: bool(t.reward))
    assert [c["rollout_id"] for c in good] == ["task-0/0"]


def test_chats_are_written_a_line_each(tmp_path):
    some = [played(n, messages=({"role": "user", "content": "a\u2028b\ud800"},)) for n in range(2)]
    assert write_chats(tmp_path / "c.jsonl", some) == 2
    lines = (tmp_path / "c.jsonl").read_text().splitlines()
    assert [json.loads(line)["rollout_id"] for line in lines] == ["task-0/0", "task-1/0"]


@pytest.mark.parametrize("name", ["c.json", "none/c.jsonl"])
def test_a_path_that_cannot_be_is_refused(tmp_path, name):
    with pytest.raises(ConfigError) as refused:
        write_chats(tmp_path / name, [])
    assert refused.value.field == "path"
