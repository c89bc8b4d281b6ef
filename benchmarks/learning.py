"""Does anything learn? Two tasks, three seeds each, fully async on real replicas.

Rollouts go on while the learner computes and while weights change: mode ``keep``, ``max_staleness``
1. ``sync`` is the control: the same with ``max_staleness`` 0, the first seed of each task. Each run
begins with the model as it is packaged. ``reward_first`` and ``reward_last`` are means over the
first and the last quarter of the steps, ``greedy_before`` and ``greedy_after`` the share of right
answers at temperature 0 to 32 tasks of another seed. There are only 100 sums of two digits, so that
these are seen in training.

The learner has one thread and shares the cores with the replicas: seconds are of this machine.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from statistics import fmean
from typing import Any

from benchmarks.learning_tasks import TASKS, LearningTask
from benchmarks.report import arguments, emit
from workbench import Workbench
from workbench.models import resolve_model

MODEL = "smollm2-135m"
ENGINE = {"max_num_seqs": 64, "max_model_len": 512}
EVALUATED = 32
HELD_OUT = 10_000
"""Seeds of tasks for evaluation begin here."""


def greedy(bench: Workbench, task: LearningTask, seed: int) -> float:
    """The share of right answers."""
    rows = bench.rollout(
        task.tasks(EVALUATED, HELD_OUT + seed),
        task.agent,
        reward=task.reward,
        sampling_params={"temperature": 0.0, "max_tokens": task.max_tokens},
        **task.settings,
    ).result()
    return sum(row.reward == 1.0 for row in rows) / len(rows)


def learn(bench: Workbench, task: LearningTask, seed: int, max_staleness: int) -> dict[str, Any]:
    """One run, from the packaged weights."""
    bench.update_weights(resolve_model(MODEL))
    before = greedy(bench, task, seed)
    learner = bench.learner(lr=task.lr)
    began_s = time.perf_counter()
    stream = bench.stream(
        task.tasks(task.steps * task.groups, seed),
        task.agent,
        n=task.n,
        reward=task.reward,
        sampling_params={"temperature": 1.0, "max_tokens": task.max_tokens},
        required_samples=task.groups,
        max_staleness=max_staleness,
        update_mode="keep",
        **task.settings,
    )
    rewards, ages, stopped_s = [], Counter[int](), []
    for batch in stream:
        rewards.append(learner.step(batch).reward or 0.0)
        stopped_s.append(stream.publish(learner).stopped_s)
        ages.update(group.staleness for group in batch.groups)
    wall_s = time.perf_counter() - began_s
    quarter = max(1, len(rewards) // 4)
    history = learner.history()
    figures = {
        "seed": seed,
        "reward_first": round(fmean(rewards[:quarter]), 3),
        "reward_last": round(fmean(rewards[-quarter:]), 3),
        "steps": len(rewards),
        "wall_s": round(wall_s, 1),
        "greedy_before": before,
        "greedy_after": greedy(bench, task, seed),
        "rewards": [round(reward, 3) for reward in rewards],
        "staleness": dict(sorted(ages.items())),
        "learn_s": round(float(history["wall_s"].sum()), 1),
        "stopped_s": round(fmean(stopped_s), 3),
        "largest_weight": round(float(history["largest_weight"].max()), 2),
    }
    stream.close()
    learner.close()
    return figures


def main() -> None:
    """Command line."""
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each task")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    options = parser.parse_args()
    tasks: dict[str, Any] = {name: {"seeds": []} for name in options.tasks}
    sync: dict[str, Any] = {}
    with Workbench(MODEL, 1, engine_args=ENGINE, progress=False) as bench:
        for name in options.tasks:
            for seed in range(options.seeds):
                tasks[name]["seeds"].append(_told(name, learn(bench, TASKS[name], seed, 1)))
            sync[name] = _told(f"{name}, sync", learn(bench, TASKS[name], 0, 0))
    emit({"tasks": tasks, "sync": sync})


def _told(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    print(name, figures, file=sys.stderr, flush=True)
    return figures


if __name__ == "__main__":
    main()
