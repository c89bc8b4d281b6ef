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
from workbench.models import resolve_model
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


def test_the_stream_learns_publishes_and_keeps_its_books(bench: Workbench, tmp_path: Path) -> None:
    before = max(bench.weight_versions().values())
    try:
        shown = run(
            "fully_async_agent_loop",
            WORKBENCH_POOL=bench.config.name,
            WORKBENCH_STEPS="2",
            WORKBENCH_OUT=str(tmp_path),
        )
        assert set(bench.weight_versions().values()) == {before + 3}  # its own first
    finally:
        bench.update_weights(resolve_model("smollm2-135m"))  # as the others of this pool expect it
    steps = re.findall(r"step (\d+): reward .* staleness up to (\d+); version (\d+),", shown)
    assert [(int(step), int(version) - before) for step, _, version in steps] == [(1, 2), (2, 3)]
    assert max(int(staleness) for _, staleness, _ in steps) <= 1
    assert re.search(r"right calls: \d+% before, \d+% after 2 steps", shown)
    batches = pd.read_parquet(tmp_path / "batches.parquet")
    assert batches["number"].tolist() == [1, 2]
    assert batches["committed"].all()
