"""Two tasks with checkable answers that SmolLM2-135M does not master and learns in a minute.

Both show it one example as a turn that went before: it follows examples, not instructions. With
none it does what is wanted so rarely that no rollout of a group is better than another.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.rollout.rewards import final_answer
from workbench.rollout.tools import ToolLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.rollout.rewards import Reward
    from workbench.trajectory import Trajectory

CALL_EXAMPLE = [
    {"role": "user", "content": "Calculate 12 + 7."},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": "calculator", "arguments": {"expression": "12 + 7"}},
            }
        ],
    },
]

SUM_EXAMPLE = [
    {"role": "user", "content": "What is 2 + 5? Answer with only the number."},
    {"role": "assistant", "content": "7"},
]


def call_task(draw: random.Random) -> dict[str, Any]:
    """A sum of numbers with two digits, for which the calculator is to be called."""
    one, other = draw.randint(10, 99), draw.randint(10, 99)
    return {"prompt": f"Calculate {one} + {other}.", "answer": one + other}


def call_reward(rollout: Trajectory) -> float:
    """How far it came: a tag, a call that can be read, one with the right form, the right call."""
    if not rollout.tool_calls:
        text = " ".join(str(m["content"]) for m in rollout.messages[-1:])
        return 0.1 if "<tool_call>" in text else 0.0
    call = rollout.tool_calls[0]
    if call.well_formed and call.result == str(rollout.task["answer"]):
        return 1.0
    return 0.5 if call.well_formed else 0.2 if call.name else 0.1


def sum_task(draw: random.Random) -> dict[str, Any]:
    """A sum of two digits."""
    one, other = draw.randint(0, 9), draw.randint(0, 9)
    prompt = f"What is {one} + {other}? Answer with only the number."
    return {"prompt": prompt, "answer": one + other}


def sum_reward(rollout: Trajectory) -> float:
    """Right and nothing else, or not."""
    return float(final_answer(rollout) == str(rollout.task["answer"]))


@dataclass(frozen=True, slots=True)
class LearningTask:
    """What there is to learn, and what it takes."""

    make: Callable[[random.Random], dict[str, Any]]
    reward: Reward
    agent: str
    settings: dict[str, Any]
    """Of the agent loop."""
    max_tokens: int
    steps: int
    """Of the learner, until there is little left to learn."""
    groups: int = 4
    """In a step."""
    n: int = 8
    """Rollouts in a group."""
    lr: float = 5e-5

    def tasks(self, count: int, seed: int) -> list[dict[str, Any]]:
        """So many of them."""
        draw = random.Random(seed)
        return [self.make(draw) for _ in range(count)]


TASKS = {
    "calculator_call": LearningTask(
        call_task,
        call_reward,
        "tool",
        {"preamble": CALL_EXAMPLE, "limits": ToolLimits(max_turns=1)},
        max_tokens=40,
        steps=10,
    ),
    "digit_sums": LearningTask(
        sum_task,
        sum_reward,
        "single_turn",
        {"preamble": SUM_EXAMPLE},
        max_tokens=12,
        steps=40,
        groups=8,
        lr=2e-5,
    ),
}
