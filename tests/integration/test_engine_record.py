"""Rows of a real model beside what its engine's core says that it sampled."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.vllm
@pytest.mark.timeout(300)
def test_every_token_and_log_probability_is_the_cores_own_through_updates_and_tools() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.engine_record"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["rollouts"], told["status"]) == (12, ["done"])
    assert told["turns"] > 12, "tools were called"
    assert told["calls"]
    assert told["tokens"] > 200
    assert told["resumed"], "an update ended some of its turns"
    assert len(told["versions"]) > 1
