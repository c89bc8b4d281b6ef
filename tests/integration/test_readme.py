"""The README's lines do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.vllm]

README = Path(__file__).parents[2] / "README.md"


def test_the_tour_runs_as_it_stands() -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", lines],
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
