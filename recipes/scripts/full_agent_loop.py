"""A full agent loop without a notebook: a pool, an agent with a tool, a checked batch, tensors.

    python -m recipes.scripts.full_agent_loop

| variable | default | meaning |
|---|---|---|
| ``WORKBENCH_POOL`` | | a pool that runs: its name; else one is started, and stopped at the end |
| ``WORKBENCH_MODEL`` | ``smollm2-135m`` | packaged name, local directory or hub id |
| ``WORKBENCH_REPLICAS`` | 2 | vLLM replicas |
| ``WORKBENCH_RECIPE_SIZE`` | 16 | tasks |
| ``WORKBENCH_OUT`` | ``runs/full_agent_loop`` | where rows and tensors go |
"""

from __future__ import annotations

import os
from pathlib import Path

from workbench import Workbench, calculator, reasoning_tasks, verified_answer
from workbench.rollout.preambles import calculator_preamble

SIZE = int(os.environ.get("WORKBENCH_RECIPE_SIZE", "16"))
OUT = Path(os.environ.get("WORKBENCH_OUT", "runs/full_agent_loop"))


def open_bench() -> Workbench:
    """The pool that ``WORKBENCH_POOL`` names, or one of our own."""
    known = os.environ.get("WORKBENCH_POOL")
    if known:
        return Workbench(name=known)
    model = os.environ.get("WORKBENCH_MODEL", "smollm2-135m")
    return Workbench(model, int(os.environ.get("WORKBENCH_REPLICAS", "2")))


def main() -> None:
    """Play, look, save."""
    tasks = reasoning_tasks(
        "basic_arithmetic",
        size=SIZE,
        seed=50_001,
        min_terms=2,
        max_terms=3,
        min_digits=1,
        max_digits=2,
        operators=("+", "-"),
        allow_parentheses=False,
        allow_negation=False,
    )
    with open_bench() as bench:
        rollout = bench.rollout(
            tasks,
            "tool",
            n=2,
            tools=[calculator],
            sampling_params={"temperature": 0.7, "max_tokens": 64},
            reward=verified_answer,
            preamble=calculator_preamble(),
        )
        trajectories = rollout.result()
    for trajectory in trajectories:
        trajectory.check()

    frame = rollout.to_pandas()
    called = (frame["well_formed_calls"] > 0).mean()
    print(f"{called:.0%} of {len(frame)} rollouts made a well-formed call")
    print(f"mean reward {frame['reward'].mean():.2f}")

    batch = rollout.batch()
    for name, tensor in batch.tensors.items():
        print(f"{name:>18} {tensor.dtype} {tensor.shape}")
    OUT.mkdir(parents=True, exist_ok=True)
    batch.save(OUT, "batch")
    rollout.save(OUT / "rollouts.parquet")
    print(f"written to {OUT}")


if __name__ == "__main__":
    main()
