"""Pools that outlive the process that made them, and cells that are run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import KernelManager

from tests.integration.processes import MARK, left_behind, new_mark

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.ray]

WORKBENCH = str(Path(sys.executable).with_name("workbench"))
CELL_S = 120


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A machine of its own, as far as names of pools go, whose processes can be told."""
    runtime = {"RAY_ADDRESS": "", "XDG_RUNTIME_DIR": str(tmp_path), MARK: new_mark()}
    return {**os.environ, **runtime}


def command(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [WORKBENCH, *args], capture_output=True, text=True, timeout=200, check=False, env=env
    )


def script(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


USE = """
    import asyncio, json
    from workbench import Workbench

    async def turns(client):
        async with client:
            asked = {"prompt_ids": [1, 2, 3], "sampling_params": {"max_tokens": 3}}
            return [(await client.generate("shared", **asked)).replica_id for _ in range(3)]

    with Workbench(name="lab", workers=0, progress=False) as bench:
        print(json.dumps(asyncio.run(turns(bench.client()))))
"""


def test_up_leaves_a_pool_that_several_use_until_down_leaves_nothing(env: dict[str, str]) -> None:
    up = command(env, "up", "--name", "lab", "--replicas", "2", "--engine", "simulated")
    assert up.returncode == 0, up.stderr
    assert "workbench down --name lab" in up.stdout
    again = command(env, "up", "--name", "lab", "--engine", "simulated")
    assert again.returncode == 1
    assert "'lab' is a pool of 'smollm2-135m' already, detached" in again.stderr
    users = [
        subprocess.Popen(script(USE), stdout=subprocess.PIPE, text=True, env=env) for _ in range(2)
    ]
    replicas = [json.loads(user.communicate(timeout=200)[0]) for user in users]
    assert len({replica for turns in replicas for replica in turns}) == 1  # one session, one pin
    assert "lab: smollm2-135m, since " in command(env, "status").stdout
    scaled = subprocess.run(
        script("""
            from workbench import Workbench
            bench = Workbench(name="lab", workers=0, progress=False)
            print(bench.scale(3))
        """),
        capture_output=True, text=True, timeout=200, check=True, env=env,
    )  # fmt: skip
    assert scaled.stdout == "['replica-0', 'replica-1', 'replica-2']\n"
    assert "replica-2 ready" in command(env, "status", "--name", "lab").stdout
    assert command(env, "down").stdout == "lab is down\n"
    unknown = command(env, "down", "--name", "lab")
    assert (unknown.returncode, unknown.stderr) == (
        1, "error: name: no pool 'lab' runs (allowed: there is none)\n"
    )  # fmt: skip
    assert not left_behind(env[MARK])


def test_a_pool_whose_controller_was_killed_can_be_ended(env: dict[str, str]) -> None:
    assert command(env, "up", "--name", "lab", "--engine", "simulated").returncode == 0
    subprocess.run(
        script("""
            import os, signal, ray
            from workbench import Workbench
            bench = Workbench(name="lab", workers=0, progress=False)
            controller = ray.get_actor("lab", namespace="workbench")
            os.kill(ray.get(controller.pid.remote()), signal.SIGKILL)
            os._exit(0)
        """),
        timeout=200, check=True, env=env,
    )  # fmt: skip
    assert command(env, "down", "--name", "lab").stdout == "lab is down\n"
    assert not left_behind(env[MARK])


class Notebook:
    """A kernel, cell by cell."""

    def __init__(self, env: dict[str, str]) -> None:
        self._manager = KernelManager(kernel_name="python3")
        self._manager.start_kernel(env=env)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=CELL_S)

    def run(self, code: str) -> str:
        """What a cell prints."""
        printed: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            assert message["msg_type"] != "error", "\n".join(content["traceback"])
            if message["msg_type"] == "stream":
                printed.append(content["text"])

        self._client.execute_interactive(
            textwrap.dedent(code), timeout=CELL_S, output_hook=hear, stop_on_error=True
        )
        return "".join(printed)

    def close(self) -> None:
        if self._manager.has_kernel:
            self._client.stop_channels()
            self._manager.shutdown_kernel()


@pytest.fixture
def notebook(env: dict[str, str]) -> Iterator[Notebook]:
    kernel = Notebook(env)
    yield kernel
    kernel.close()


MAKE = """
    from workbench import Workbench
    args = {"vocab_size": 49_152}
    bench = Workbench("smollm2-135m", 2, engine="simulated", engine_args=args, workers=0)
"""


def test_a_cell_that_is_run_again_has_its_pool_and_leaves_no_other(
    notebook: Notebook, env: dict[str, str]
) -> None:
    pids = "print(sorted(r.status.pid for r in bench.replicas))"
    notebook.run(MAKE)
    first = notebook.run(pids)
    assert "before: it goes on" in notebook.run(MAKE)
    assert notebook.run(pids) == first
    assert len(command(env, "status").stdout.splitlines()) == 1
    assert notebook.run("print(len(bench.generate('Hi', max_tokens=2).output.token_ids))") == "2\n"
    notebook.run("bench.close()")
    notebook.run(MAKE)
    assert notebook.run(pids) != first
    assert len(command(env, "status").stdout.splitlines()) == 1
    notebook.close()
    assert not left_behind(env[MARK], ignoring=("ray::DashboardAgent", "ray::RuntimeEnvAgent"))
