"""The README's lines do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from workbench import Workbench

pytestmark = [pytest.mark.ray, pytest.mark.vllm]

README = Path(__file__).parents[2] / "README.md"
OPENED = """\
import workbench
from workbench import Workbench as Attached

def opened(model, *, replicas):
    assert (model, replicas) == ("smollm2-135m", 2)
    return Attached(name={name!r})

workbench.Workbench = opened
"""
"""Goes before the lines: such a pool runs already. That one starts so is what the demo shows."""


def test_the_tour_runs_as_it_stands(bench: Workbench) -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", OPENED.format(name=bench.config.name) + lines],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "RAY_ADDRESS": ""},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Paris" in done.stdout
    assert "[32 rows" in done.stdout
    (reward,) = re.findall(r"tool: 32/32 ended.*reward (\d\.\d\d)", done.stderr)
    assert float(reward) > 0.5
