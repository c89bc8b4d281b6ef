"""Whatever the model writes and whatever tools do: each call is answered, each state released."""

from __future__ import annotations

import asyncio
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.chat import CHATML, FORGETFUL, call
from tests.unit.rollout.playing import answers, play
from workbench.rollout.tool_loop import ToolLimits
from workbench.rollout.tools import StatefulTool, ToolError


class Ledger(StatefulTool):
    """Counts its states."""

    def __init__(self):
        self.created = self.released = 0

    def create(self, task):
        self.created += 1
        if task["prompt"] == "refuse":
            self.created -= 1
            raise OSError("no")
        return {"count": 0}

    def execute(self, state) -> int:
        """Count."""
        state["count"] += 1
        return state["count"]

    async def release(self, state):
        self.released += 1
        if state["count"] == 1:
            raise OSError("stuck")


RAISED = [ValueError("no"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()]
RAISED += [ToolError("In words."), ToolError(""), StopIteration(), RecursionError("deep")]
RETURNED = [None, 3, "x" * 50, {"a": {1}}, "\ud800", b"\xff", float("nan"), threading.Event()]


def fail(which: int) -> str:
    """Fail in some way.

    Args:
        which: The way.
    """
    raise RAISED[which % len(RAISED)]


async def fail_later(which: int) -> str:
    """Fail in some way, on the loop.

    Args:
        which: The way.
    """
    raise RAISED[which % len(RAISED)]


def give(which: int) -> str:
    """Give something.

    Args:
        which: What.
    """
    return RETURNED[which % len(RETURNED)]


async def never() -> str:
    """Hang."""
    return str(await asyncio.Event().wait())


NUMBERED = st.builds(
    lambda name, which: call(name, which=which),
    st.sampled_from(["fail", "fail_later", "give"]),
    st.integers(0, 7),
)
PLAIN = [call("ledger"), call("never"), call("nobody"), call("give"), call("give", which="x")]
PLAIN += ["<tool_call>{", "</tool_call>", "hm ", "<tool_call>3</tool_call>"]
TURN = st.lists(st.one_of(NUMBERED, st.sampled_from(PLAIN)), max_size=5).map("".join)
LIMITS = st.builds(
    ToolLimits,
    max_turns=st.integers(1, 4),
    max_response_tokens=st.integers(1, 600),
    max_calls_per_turn=st.integers(1, 3),
    tool_timeout_s=st.just(0.05),
    max_result_characters=st.integers(1, 40),
    cut=st.sampled_from(["end", "middle", "start"]),
)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(TURN, min_size=1, max_size=4),
    limits=LIMITS,
    prompt=st.sampled_from(["play", "play", "refuse"]),
    template=st.sampled_from([CHATML, FORGETFUL]),
)
def test_whatever_is_written_and_whatever_tools_do_each_call_is_answered_in_order(
    texts, limits, prompt, template
):
    ledger, tools = Ledger(), [fail, fail_later, give, never]
    trajectory = asyncio.run(
        play(
            *texts, tools=[*tools, ledger], limits=limits, prompt=prompt, template=template,
        )
    )  # fmt: skip
    assert ledger.created == ledger.released
    assert trajectory.sampled_tokens <= limits.max_response_tokens
    assert trajectory.num_turns <= limits.max_turns
    if prompt == "refuse":
        assert trajectory.error.startswith("RolloutError: the tool ledger could not be opened")
        return
    assert trajectory.status == "done", trajectory.traceback
    assert trajectory.ended_by
    assert answers(trajectory) == [c.result for c in trajectory.tool_calls]
    written = [m.get("tool_calls", []) for m in trajectory.messages if m["role"] == "assistant"]
    assert [(c.turn, c.name) for c in trajectory.tool_calls] == [
        (turn, one["function"]["name"]) for turn, calls in enumerate(written) for one in calls
    ]
    for turn in range(trajectory.num_turns):
        in_turn = [c for c in trajectory.tool_calls if c.turn == turn]
        for number, answered in enumerate(in_turn):
            assert answered.well_formed or answered.error
            if number >= limits.max_calls_per_turn:
                assert answered.error
    counts = [c.result for c in trajectory.tool_calls if c.name == "ledger" and not c.error]
    assert counts == [str(number + 1) for number in range(len(counts))]
