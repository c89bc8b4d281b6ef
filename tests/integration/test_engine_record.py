"""Rows of a real model beside what its engine's core says that it sampled."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def played() -> Any:
    """What a program of its own, with one engine, tells of all that it played."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.stream_record"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_every_token_and_log_probability_is_the_cores_own_through_updates_and_tools(
    played: Any,
) -> None:
    told = played["rollouts"]
    assert (told["rollouts"], told["status"]) == (12, ["done"])
    assert told["turns"] > 12, "tools were called"
    assert told["calls"]
    assert told["tokens"] > 200
    assert told["resumed"], "an update ended some of its turns"
    assert len(told["versions"]) > 1


def test_a_publish_in_the_middle_of_32_rollouts_is_in_them_as_the_core_has_it(
    played: Any,
) -> None:
    assert set(played["streams"]) == {"keep", "abort", "wait"}
    for mode, told in played["streams"].items():
        assert (told["rollouts"], told["status"]) == (32, ["done"])
        assert told["tokens"] == 32 * 48
        assert told["crossed"] == (0 if mode == "wait" else 32)
        assert told["attempts"] == ([2] if mode == "abort" else [1])
        assert told["ages"] == [1, 1, 1, 1]
