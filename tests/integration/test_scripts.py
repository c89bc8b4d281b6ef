"""The recipes as scripts, run as somebody would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from tests.integration.processes import MARK, left_behind, new_mark
from workbench import RolloutBatch
from workbench.records import read_trajectories

if TYPE_CHECKING:
    from workbench import Workbench

pytestmark = [pytest.mark.ray, pytest.mark.vllm]

ROOT = Path(__file__).parents[2]


def run(name: str, **env: str) -> str:
    """What the script prints."""
    mark = new_mark()
    done = subprocess.run(
        [sys.executable, "-m", f"recipes.scripts.{name}"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=ROOT,
        env={**os.environ, "RAY_ADDRESS": "", MARK: mark, **env},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not left_behind(mark)
    return done.stdout


def test_the_agent_loop_plays_on_a_pool_that_runs(bench: Workbench, tmp_path: Path) -> None:
    shown = run(
        "full_agent_loop",
        WORKBENCH_POOL=bench.config.name,
        WORKBENCH_RECIPE_SIZE="4",
        WORKBENCH_OUT=str(tmp_path),
    )
    assert "of 8 rollouts made a well-formed call" in shown
    rows = read_trajectories(tmp_path / "rollouts.parquet")
    assert [row.status for row in rows] == ["done"] * 8
    assert len(RolloutBatch.load(tmp_path, "batch")) == 8
    assert len(bench.snapshot().replicas) == 2  # and leaves it alone


def test_the_stream_learns_publishes_and_keeps_its_books(tmp_path: Path) -> None:
    shown = run(
        "fully_async_agent_loop",
        WORKBENCH_MODEL="smollm2-135m",
        WORKBENCH_REPLICAS="1",
        WORKBENCH_STEPS="3",
        WORKBENCH_OUT=str(tmp_path),
    )
    steps = re.findall(r"step (\d+): reward .* staleness up to (\d+); version (\d+),", shown)
    assert [(int(step), int(version)) for step, _, version in steps] == [(1, 1), (2, 2), (3, 3)]
    assert max(int(staleness) for _, staleness, _ in steps) <= 1
    assert re.search(r"right calls: \d+% before, \d+% after 3 steps", shown)
    batches = pd.read_parquet(tmp_path / "batches.parquet")
    assert batches["number"].tolist() == [1, 2, 3]
    assert batches["committed"].all()
