"""A record that Ray cannot carry arrives all the same: its tokens whole, the rest as plain data."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace

import pytest

from workbench.cluster.sending import packed
from workbench.trajectory import RolloutStatus, Segment, ToolCall, Trajectory, Turn
from workbench.types import FinishReason, VersionSpan

PLAYED = Trajectory(
    "task-0/0", "task-0", 0, "test", {"prompt": "q"},
    segments=(Segment([1], [2, 3], [1, 1], [-0.5, -0.5], (VersionSpan(0, 0, 2),)),),
    turns=(Turn(0, 0, 2, FinishReason.STOP, "replica-0", 1, 0, 1, None, None, None),),
    tool_calls=(),
    messages=({"role": "user", "content": "q"},),
    status=RolloutStatus.DONE,
    reward=1.0,
    reward_parts={"right": 1.0},
)  # fmt: skip


class Stubborn:
    def __reduce__(self):
        raise RuntimeError("not me")

    def __str__(self):
        return "stubborn"


def arrived(trajectory):
    there = pickle.loads(packed(trajectory))
    there.check()
    assert (there.segments, there.turns) == (PLAYED.segments, PLAYED.turns)
    return there


def test_a_record_arrives_as_it_is():
    assert arrived(PLAYED) == PLAYED


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"extra": {"box": {"s": Stubborn()}}}, "extra['box']['s']: RuntimeError: not me"),
        ({"messages": (*PLAYED.messages, {"content": Stubborn()})}, "messages[1]['content']: "),
        ({"task": {"prompt": "q", "s": Stubborn()}}, "task['s']: RuntimeError: not me"),
        ({"tool_calls": (ToolCall(0, "t", {"s": Stubborn()}, "2", True),)}, "tool_calls[0]: "),
        ({"notes": ("a", Stubborn())}, "notes[1]: RuntimeError: not me"),
    ],
)  # fmt: skip
def test_what_cannot_be_sent_is_plain_and_the_row_failed_with_its_name(given, told):
    there = arrived(replace(PLAYED, **given))
    assert (there.status, there.reward, there.reward_parts) == ("failed", None, {})
    assert told in there.error
    (field,) = given
    assert "stubborn" in repr(getattr(there, field))


def test_what_can_be_sent_beside_it_stays_what_it_was():
    there = arrived(replace(PLAYED, extra={"lock": threading.Lock(), "numbers": [1, 2]}))
    assert there.extra["numbers"] == [1, 2]
    assert "lock" in there.extra["lock"]
    assert there.messages == PLAYED.messages


def test_a_row_that_failed_or_was_cancelled_stays_what_it_is_with_a_note():
    for status, error in ((RolloutStatus.FAILED, "E: why"), (RolloutStatus.CANCELLED, "")):
        ended = replace(PLAYED, status=status, error=error, reward=None, reward_parts={})
        there = arrived(replace(ended, extra={"s": Stubborn()}))
        assert (there.status, there.error) == (status, error)
        assert "extra['s']: RuntimeError: not me" in there.notes[0]


def test_a_record_that_contains_itself_arrives_too():
    circle = [Stubborn()]
    circle.insert(0, circle)
    assert "extra['c']" in arrived(replace(PLAYED, extra={"c": circle})).error
