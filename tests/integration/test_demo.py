"""The command that a newcomer runs first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.processes import MARK, left_behind, new_mark
from workbench import RolloutBatch
from workbench.records import read_trajectories

if TYPE_CHECKING:
    from workbench.trajectory import Trajectory

pytestmark = [pytest.mark.ray, pytest.mark.vllm]

COMMAND = str(Path(sys.executable).with_name("workbench"))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo")
    mark = new_mark()
    done = subprocess.run(
        [COMMAND, "demo", "--out", str(folder)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "RAY_ADDRESS": "", MARK: mark},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not left_behind(mark)
    return folder, done.stdout


def played(demo: tuple[Path, str]) -> list[Trajectory]:
    return read_trajectories(demo[0] / "trajectories.parquet")


def test_the_tables_count_every_request_and_rollout(demo: tuple[Path, str]) -> None:
    _, shown = demo
    requests = re.findall(r"replica-\d\s+ready\s+(\d+)", shown)
    assert sum(map(int, requests)) == sum(t.num_turns for t in played(demo))
    assert re.search(r"rollouts\s+48\s+48", shown)
    assert re.search(r"rollouts_that_called_share\s+–\s+\d+%", shown)


def test_the_trajectories_keep_every_token(demo: tuple[Path, str]) -> None:
    trajectories = played(demo)
    assert len(trajectories) == 96
    for trajectory in trajectories:
        trajectory.check()
        (segment,) = trajectory.segments
        assert len(segment.sampled_ids) == trajectory.sampled_tokens


def test_the_model_calls_its_tool_in_most_rollouts(demo: tuple[Path, str]) -> None:
    with_tool = [t for t in played(demo) if t.agent == "tool"]
    called = [t for t in with_tool if any(call.well_formed for call in t.tool_calls)]
    assert len(called) / len(with_tool) > 0.6


def test_the_batches_can_be_read_back(demo: tuple[Path, str]) -> None:
    batch = RolloutBatch.load(demo[0], "batch-tool")
    assert len(batch) == 48
    assert batch.tensors["input_ids"].shape == batch.tensors["attention_mask"].shape


def test_the_report_is_one_file_that_asks_nobody_for_anything(demo: tuple[Path, str]) -> None:
    page = (demo[0] / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 3
    assert "<script" not in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:|#)""", page)


def test_the_command_says_what_it_can_do_and_names_what_is_wrong() -> None:
    helped = subprocess.run([COMMAND, "--help"], capture_output=True, text=True, check=True)
    assert "demo" in helped.stdout
    told = subprocess.run([COMMAND, "version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", told.stdout)
    wrong = subprocess.run(
        [COMMAND, "demo", "--model", "gpt-17"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: model: unknown model 'gpt-17'")
