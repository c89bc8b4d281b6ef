"""Fully-async training without a notebook: a pool, a stream, a learner beside it.

    python -m recipes.scripts.fully_async_agent_loop

A small model learns to call a calculator: the call has to be well-formed, and to be the right one.

| variable | default | meaning |
|---|---|---|
| ``WORKBENCH_POOL`` | | a pool that runs, whose weights change; else one is started, and stopped |
| ``WORKBENCH_MODEL`` | ``smollm2-135m`` | packaged name, local directory or hub id |
| ``WORKBENCH_REPLICAS`` | 1 | vLLM replicas; a learner wants a core, or a GPU, of its own |
| ``WORKBENCH_STEPS`` | 12 | of the learner |
| ``WORKBENCH_OUT`` | ``runs/fully_async`` | where the tables go |
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import ToolLimits, Workbench, calculator

if TYPE_CHECKING:
    from workbench import Learner, Trajectory

STEPS = int(os.environ.get("WORKBENCH_STEPS", "12"))
OUT = Path(os.environ.get("WORKBENCH_OUT", "runs/fully_async"))

CALL = {"name": "calculator", "arguments": {"expression": "12 + 7"}}
EXAMPLE = [
    {"role": "user", "content": "Calculate 12 + 7."},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": CALL}]},
]
"""Goes before each task: a small model follows examples, and learns nothing from a description."""


def sums() -> list[dict[str, Any]]:
    """All sums of two numbers of two digits, each once."""
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    random.Random(1).shuffle(pairs)
    return [{"prompt": f"Calculate {a} + {b}.", "answer": a + b} for a, b in pairs]


HELD_OUT, LEARNED = sums()[:32], sums()[32:]


def score(trajectory: Trajectory) -> float:
    """Nothing, a tag, a name that can be read, the form of a call, the right call."""
    if not trajectory.tool_calls:
        said = trajectory.messages[-1]["content"]
        return 0.1 if "<tool_call>" in said else 0.0
    call = trajectory.tool_calls[0]
    if call.well_formed and call.result == str(trajectory.task["answer"]):
        return 1.0
    return 0.5 if call.well_formed else 0.2 if call.name else 0.1


AGENT: dict[str, Any] = {
    "agent": "tool",
    "tools": [calculator],
    "preamble": EXAMPLE,
    "limits": ToolLimits(max_turns=1),
    "reward": score,
}


def open_bench() -> Workbench:
    """The pool that ``WORKBENCH_POOL`` names, or one of our own."""
    known = os.environ.get("WORKBENCH_POOL")
    if known:
        return Workbench(name=known)
    model = os.environ.get("WORKBENCH_MODEL", "smollm2-135m")
    return Workbench(model, int(os.environ.get("WORKBENCH_REPLICAS", "1")))


def right_share(bench: Workbench) -> float:
    """Of the sums that are held out, with greedy sampling."""
    greedy = {"temperature": 0, "max_tokens": 40}
    rows = bench.rollout(HELD_OUT, sampling_params=greedy, **AGENT).result()
    return sum(row.reward == 1.0 for row in rows) / len(rows)


def train(bench: Workbench, learner: Learner) -> None:
    """Take batches, learn, publish."""
    stream = bench.stream(
        LEARNED,
        n=8,
        sampling_params={"temperature": 1.0, "max_tokens": 40},
        required_samples=4,
        max_staleness=1,
        **AGENT,
    )
    for batch in stream:
        figures = learner.step(batch)
        update = stream.publish(learner)
        stream.commit()
        print(
            f"step {batch.number}: reward {batch.mean_reward:.2f}, {figures.differing} of "
            f"{len(batch)} groups to learn from, staleness up to {batch.max_staleness}; "
            f"version {update.version}, replicas stood still for {update.stopped_s:.2f} s"
        )
        if batch.number >= STEPS:
            break
    stream.stop()
    stream.history().to_parquet(OUT / "batches.parquet")
    stream.drops().to_parquet(OUT / "drops.parquet")


def main() -> None:
    """Before, the stream, after."""
    OUT.mkdir(parents=True, exist_ok=True)
    with open_bench() as bench:
        learner = bench.learner(lr=5e-5)
        bench.update_weights(learner)  # a pool that runs may be on others
        before = right_share(bench)
        train(bench, learner)
        after = right_share(bench)
    print(f"right calls: {before:.0%} before, {after:.0%} after {STEPS} steps")


if __name__ == "__main__":
    main()
