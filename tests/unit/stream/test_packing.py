"""Rollouts as bytes: they come back as they were, whatever a loop put into them."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

import pytest

from workbench.errors import StreamError
from workbench.stream.packing import pack, unpack
from workbench.trajectory import RolloutStatus, Segment, ToolCall, Trajectory
from workbench.types import VersionSpan

SEGMENT = Segment([1, 2], [3, 4], [1, 1], [-0.1, -1e-9], (VersionSpan(2, 0, 2),))
ROW = Trajectory(
    "task/0", "task", 0, "tool", {"prompt": "Add."}, (SEGMENT,), (),
    (ToolCall(0, "add", {"a": 1}, "1", True),), (), RolloutStatus.DONE, 0.5,
)  # fmt: skip


def test_rollouts_come_back_as_they_were():
    rows = (ROW, replace(ROW, index=1, status=RolloutStatus.FAILED, reward=None, error="E: no"))
    assert unpack(pack(rows)) == rows
    assert unpack(pack([])) == ()


@pytest.mark.parametrize(
    "numbers",
    [
        {"prompt_ids": [2**40, 0]},
        {"response_ids": [2**31 - 1, -(2**31)]},
        {"response_mask": [1, 300]},
        {"log_probs": [None, -0.5]},
        {"log_probs": [-5e-324, -float("inf")]},
        {"prompt_ids": [], "fork_reason": "cut", "parent": 0, "shared_tokens": 7},
    ],
)
def test_numbers_come_back_whatever_they_are(numbers):
    row = replace(ROW, segments=(SEGMENT, replace(SEGMENT, **numbers)))
    assert unpack(pack([row])) == (row,)


def test_what_cannot_be_sent_is_plain_data_and_costs_nothing_else():
    lock = threading.Lock()
    call = replace(ROW.tool_calls[0], arguments={"lock": lock})
    odd = replace(ROW, extra={"lock": lock, "count": 3}, tool_calls=(call,))
    sent, other = unpack(pack([odd, ROW]))
    assert (sent.segments, sent.reward, sent.status) == (ROW.segments, 0.5, RolloutStatus.DONE)
    assert sent.extra == {"lock": str(lock), "count": 3}
    assert sent.tool_calls[0].arguments == {"lock": str(lock)}
    assert sent.notes == ("plain data since it cannot be sent: tool_calls, extra",)
    assert other == ROW


def test_an_object_of_a_class_that_is_not_here_is_named(monkeypatch):
    notebook = sys.modules["__main__"]
    here = type("Here", (), {"__module__": "__main__"})
    monkeypatch.setattr(notebook, "Here", here, raising=False)
    blob = pack([replace(ROW, extra={"is": here()})])
    assert isinstance(unpack(blob)[0].extra["is"], here)
    monkeypatch.delattr(notebook, "Here")
    with pytest.raises(StreamError, match=r"class is not known in this process: .*'Here'"):
        unpack(blob)
