"""The demonstration: two batches of real rollouts, tables, and a report to take away."""

from __future__ import annotations

import platform
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pandas as pd

from workbench.facade import Rollout, Workbench
from workbench.facade.tables import batch_row, replica_frame
from workbench.records import write_trajectories
from workbench.rollout.preambles import calculator_preamble, counting_preamble
from workbench.rollout.rewards import verified_answer
from workbench.rollout.tasks import Task, reasoning_tasks
from workbench.views import view

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.rollout.trajectory import Trajectory
    from workbench.types import PoolSnapshot

TEMPERATURE = 0.7
"""At which the small model calls its tool well most of the time, and still differs from itself."""

EXAMPLES = 4
"""Conversations shown in the report, per batch."""


@dataclass(frozen=True, slots=True)
class DemoSize:
    """How much the demonstration does."""

    model: str = "smollm2-135m"
    replicas: int = 2
    questions: int = 48
    """Single-turn tasks."""
    sums: int = 24
    """Tool tasks, each played ``rollouts`` times."""
    rollouts: int = 2


def counting_tasks(size: int, seed: int = 50_001) -> list[Task]:
    """How often a letter occurs in a few words."""
    return reasoning_tasks("letter_counting", size=size, seed=seed, min_words=3, max_words=5)


def sum_tasks(size: int, seed: int = 50_001) -> list[Task]:
    """Sums and differences of two or three numbers of one or two digits."""
    return reasoning_tasks(
        "basic_arithmetic",
        size=size,
        seed=seed,
        min_terms=2,
        max_terms=3,
        min_digits=1,
        max_digits=2,
        operators=("+", "-"),
        allow_parentheses=False,
        allow_negation=False,
    )


def play(bench: Workbench, size: DemoSize) -> dict[str, Rollout]:
    """Both batches, one after the other, by the names under which they are shown."""
    single = bench.rollout(
        counting_tasks(size.questions),
        "single_turn",
        sampling_params={"temperature": TEMPERATURE, "max_tokens": 24},
        reward=verified_answer,
        preamble=counting_preamble(),
    )
    single.result()
    with_tool = bench.rollout(
        sum_tasks(size.sums),
        "tool",
        n=size.rollouts,
        sampling_params={"temperature": TEMPERATURE, "max_tokens": 64},
        reward=verified_answer,
        preamble=calculator_preamble(),
    )
    with_tool.result()
    return {"single_turn": single, "tool": with_tool}


def run_demo(size: DemoSize, folder: Path) -> Path:
    """Play, print the tables, write everything to ``folder``; the report's path."""
    started = time.monotonic()
    with Workbench(size.model, size.replicas) as bench:
        ready_s = time.monotonic() - started
        before = bench.snapshot()
        batches = play(bench, size)
        after = bench.snapshot()
        wall_s = sum(batch.snapshot().wall_s for batch in batches.values())
        replicas = replica_frame(after, since=before, wall_s=wall_s)
        path = write_run(folder, batches, replicas, _facts(after, ready_s, wall_s))
    _print_tables(replicas, _batch_table(batches))
    return path


def write_run(
    folder: Path, batches: dict[str, Rollout], replicas: pd.DataFrame, facts: dict[str, str]
) -> Path:
    """Trajectories, batch tensors and the report; the report's path."""
    folder.mkdir(parents=True, exist_ok=True)
    played = [t for batch in batches.values() for t in batch.trajectories()]
    write_trajectories(folder / "trajectories.parquet", played)
    for name, batch in batches.items():
        batch.batch().save(folder, f"batch-{name}")
    path = folder / "report.html"
    view("report")(
        path,
        title="Rollout Workbench: two batches of rollouts",
        facts=facts,
        replicas=replicas,
        batches=_batch_table(batches),
        rollouts=pd.concat(
            [batch.to_pandas().assign(batch=name) for name, batch in batches.items()],
            ignore_index=True,
        ),
        load=_load_over_time(batches),
        examples=[t for batch in batches.values() for t in _examples(batch)],
    )
    return path


def _batch_table(batches: dict[str, Rollout]) -> pd.DataFrame:
    return pd.DataFrame(
        [batch_row(name, batch.snapshot(), batch.to_pandas()) for name, batch in batches.items()]
    )


def _load_over_time(batches: dict[str, Rollout]) -> pd.DataFrame:
    """The batches ran one after the other, so their clocks are set one after the other too."""
    frames, offset = [], 0.0
    for name, batch in batches.items():
        load = batch.load()
        frames.append(load.assign(batch=name, t_s=load["t_s"] + offset))
        offset += batch.snapshot().wall_s
    return pd.concat(frames, ignore_index=True)


def _examples(batch: Rollout) -> list[Trajectory]:
    return batch.trajectories()[:EXAMPLES]


def _facts(pool: PoolSnapshot, ready_s: float, wall_s: float) -> dict[str, str]:
    return {
        "model": pool.model,
        "replicas": f"{len(pool.replicas)} on {pool.device}",
        "started": f"in {ready_s:.1f} s, Ray included",
        "rollouts": f"in {wall_s:.1f} s",
        "temperature": f"{TEMPERATURE}",
        "versions": ", ".join(f"{name} {_version(name)}" for name in ("ray", "vllm", "torch")),
        "python": platform.python_version(),
        "finished": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def _version(package: str) -> str:
    for name in (package, f"{package}-cpu"):
        try:
            return version(name)
        except ImportError:
            continue
    return "unknown"


def _print_tables(replicas: pd.DataFrame, batches: pd.DataFrame) -> None:
    def shown(value: Any) -> str:
        return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"

    shares = [name for name in batches.columns if name.endswith("_share")]
    batches = batches.assign(
        **{n: batches[n].map("{:.0%}".format, na_action="ignore") for n in shares}
    )
    for title, frame in (("Per replica", replicas), ("Per batch", batches.set_index("batch").T)):
        text = frame.to_string(index=frame is not replicas, na_rep="–", float_format=shown)
        sys.stdout.write(f"\n{title}\n{text}\n")
