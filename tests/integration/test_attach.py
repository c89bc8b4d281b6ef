"""One process owns a pool, others come to it by its name, and it ends with its owner."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.pools import Owner, script, told
from tests.integration.processes import MARK, RAY_AGENTS, left_behind, new_mark
from workbench.cluster.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.ray]

WORKBENCH = str(Path(sys.executable).with_name("workbench"))


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A machine of its own, as far as names of pools go."""
    runtime = str(tmp_path_factory.mktemp("runtime"))
    return {**os.environ, "RAY_ADDRESS": "", "XDG_RUNTIME_DIR": runtime}


@pytest.fixture(scope="module")
def lab(env: dict[str, str]) -> Iterator[Owner]:
    with Owner("lab", env) as owner:
        yield owner


def registry(env: dict[str, str]) -> Registry:
    return Registry(Path(env["XDG_RUNTIME_DIR"]) / f"workbench-{os.getuid()}")


def test_all_that_a_pool_does_works_through_an_attached_object(
    lab: Owner, env: dict[str, str]
) -> None:
    seen = told(
        """
        import asyncio, json
        from workbench import Workbench

        async def through(client):
            async with client:
                output = await client.generate(
                    "s", prompt_ids=[1, 2, 3], sampling_params={"max_tokens": 2})
                return len(output.token_ids)

        with Workbench(name="lab", progress=False) as bench:
            rollout = bench.rollout(["one", "two"], sampling_params={"max_tokens": 3})
            page = bench.dashboard()
            seen = {
                "attached": bench.attached,
                "repr": repr(bench),
                "reply": len(bench.generate("Hi", session="talk", max_tokens=3).output.token_ids),
                "rollouts": [str(t.status) for t in rollout.result()],
                "client": asyncio.run(through(bench.client())),
                "replicas": [r.status.replica_id for r in bench.snapshot().replicas],
                "sessions": list(bench.routing.sessions()["session_id"]),
                "log": bench.replica("replica-1").log_tail(),
                "batch": rollout.name,
                "dashboard": page is bench.dashboard() and not page.closed,
            }
        print(json.dumps(seen | {"dashboard closed": page.closed}))
        """,
        env,
    )
    assert seen["attached"] is True
    assert "2/2 replicas ready" in seen["repr"]
    assert "attached to 'lab'" in seen["repr"]
    assert seen["reply"] <= 3
    assert seen["rollouts"] == ["done", "done"]
    assert seen["client"] == 2
    assert seen["replicas"] == ["replica-0", "replica-1"]
    assert "talk" in seen["sessions"]
    assert seen["dashboard"]
    assert seen["dashboard closed"]
    assert lab.ask("bench.attached") is False
    assert lab.ask("len(bench.generate('Still there?', max_tokens=2).output.token_ids)") == 2
    batch = seen["batch"]  # the owner saw what another process played
    assert lab.ask("bench.feed.pull()")
    assert batch in lab.ask("[run.name for run in bench.feed.latest.runs]")
    assert lab.ask(f"[str(t.status) for t in bench.feed.rollouts({batch!r})]") == ["done"] * 2


def test_a_viewer_sees_the_figures_and_loads_neither_engine_nor_tokenizer(
    lab: Owner, env: dict[str, str]
) -> None:
    batch = lab.ask("bench.rollout(['a'] * 3, sampling_params={'max_tokens': 2}).result()[0].agent")
    assert batch == "single_turn"
    seen = told(
        """
        import asyncio, json, sys
        from workbench.cluster.manager import LLMServerManager

        async def look():
            manager = await LLMServerManager.attach("lab")
            page = await manager.read_history(0)
            events = await manager.ask_balancer("events")
            await manager.close()
            return {
                "rows": len(page.seconds), "running": [r.total for r in page.latest.runs],
                "replicas": [r for r, _ in page.latest.heard_s], "events": len(events.items),
                "loaded": sorted({"vllm", "torch", "transformers"} & set(sys.modules)),
            }

        print(json.dumps(asyncio.run(look())))
        """,
        env,
    )
    assert seen["rows"] >= 1
    assert 3 in seen["running"]
    assert seen["replicas"] == ["replica-0", "replica-1"]
    assert seen["events"] > 0
    assert seen["loaded"] == []


def test_what_cannot_be_is_refused_and_starts_nothing(lab: Owner, env: dict[str, str]) -> None:
    refusals = told(
        """
        import asyncio, json, ray
        from workbench import LLMServerManager, Workbench, WorkbenchError

        def refused(make):
            try:
                make()
            except WorkbenchError as error:
                return f"{type(error).__name__}: {error}"

        async def hosted(view):
            manager = await LLMServerManager.attach("lab")
            try:
                await manager.host(view, {})
            finally:
                await manager.close()

        tried = {
            "taken": lambda: Workbench("smollm2-135m", name="lab"),
            "owner's": lambda: Workbench(name="lab", replicas=3, seed=1),
            "unknown": lambda: asyncio.run(LLMServerManager.attach("lib")),
            "nowhere": lambda: Workbench(name="lab", address="127.0.0.1:9"),
            "workers": lambda: Workbench(name="lab", workers=-1),
            "view": lambda: asyncio.run(hosted("weather")),
        }
        told = {name: refused(make) for name, make in tried.items()}
        assert not ray.is_initialized()

        ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
        told["elsewhere"] = refused(lambda: Workbench(name="lab"))
        print(json.dumps(told))
        """,
        env,
    )
    owner = lab.process.pid
    assert re.match(rf"ConfigError: name: 'lab' is .* owned by process {owner} ", refusals["taken"])
    assert "Workbench(name='lab')" in refusals["taken"]
    assert refusals["owner's"].startswith("ConfigError: replicas, seed: ")
    assert refusals["unknown"] == "ConfigError: name: no pool 'lib' runs (allowed: lab)"
    assert refusals["nowhere"].startswith("ConfigError: address: nothing answers")
    assert refusals["workers"].startswith("ConfigError: workers: -1")
    assert refusals["view"].startswith("ConfigError: view: no view 'weather' is installed")
    assert refusals["elsewhere"].startswith("ConfigError: address: this process is in the Ray ")
    assert lab.ask("repr(bench)").startswith("Workbench('smollm2-135m', 2/2 replicas ready")


def test_a_view_is_served_from_the_cluster_once_until_it_is_stopped(
    lab: Owner, env: dict[str, str]
) -> None:
    host = "bench._pool.reach.call(bench.manager.host('dashboard', {}))"
    url = lab.ask(f"{host}.url")
    with urllib.request.urlopen(url, timeout=60) as page:
        assert page.status == 200
    assert lab.ask(f"{host}.url") == url
    port = url.rstrip("/").rpartition(":")[2]
    command = [WORKBENCH, "dashboard", "--name", "lab", "--on-cluster", "--port", port]
    taken = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env=env
    )
    assert taken.returncode == 1
    assert re.fullmatch(r"error: port: \d+ on 127.0.0.1 is in use .*\n", taken.stderr)
    assert lab.ask("bench._pool.reach.call(bench.manager.stop_host('dashboard'))") is True
    assert lab.ask("bench._pool.reach.call(bench.manager.stop_host('dashboard'))") is False
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=10)


ATTACHED = """
    import json, sys, threading, time
    from workbench import Workbench
    from workbench.errors import PoolClosedError, PoolError

    bench = Workbench(name=sys.argv[1], progress=False)
    rollout = bench.rollout(["on and on"] * 2, sampling_params={"max_tokens": 4000})
    print(json.dumps("attached"), flush=True)
    sys.stdin.readline()
    error = None
    while not isinstance(error, PoolClosedError):
        try:
            bench.generate("Anybody?", max_tokens=1)
        except PoolError as told:
            error = told
    bench.feed.pull()
    rows = [str(t.status) for t in rollout.result(60)]
    bench.close()
    print(json.dumps([repr(bench), bench.feed.closed, rows]), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["kill", "close"])
def test_when_its_owner_ends_an_attached_object_says_so_soon(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    mark = new_mark()
    env = {**env, MARK: mark}
    owner = Owner("short", env)
    attached = subprocess.Popen(
        script(ATTACHED, "short"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    assert attached.stdin is not None
    assert attached.stdout is not None
    assert attached.stdout.readline() == '"attached"\n'
    assert registry(env).find("short") is not None
    getattr(owner, how)()
    attached.stdin.write("\n")
    attached.stdin.flush()
    shown, feed_closed, rows = json.loads(attached.stdout.readline())
    assert shown == "Workbench('smollm2-135m', closed, attached to 'short')"
    assert feed_closed
    assert set(rows) <= {"cancelled", "failed"}
    assert registry(env).find("short") is None
    attached.communicate("\n", timeout=120)
    assert attached.returncode == 0
    assert not left_behind(mark, ignoring=RAY_AGENTS)


def test_the_commands_show_what_runs_and_up_ends_without_a_trace(env: dict[str, str]) -> None:
    mark = new_mark()
    env = {**env, MARK: mark}

    def command(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [WORKBENCH, *args], capture_output=True, text=True, timeout=200, check=False, env=env
        )

    up = subprocess.Popen(
        [WORKBENCH, "up", "--foreground", "--name", "kept", "--engine", "simulated"],
        stdout=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    assert up.stdout is not None
    lines = [up.stdout.readline() for _ in range(5)]
    assert "1/1 replicas ready" in lines[0]
    assert "Workbench(name='kept')" in lines[1]
    assert lines[-1] == "Ctrl-C ends the pool\n"
    assert re.search(rf"^kept: .*owned by process {up.pid} ", command("status").stdout, re.M)
    one = command("status", "--name", "kept")
    assert re.search(r"^ *replica-0 +ready", one.stdout, re.M), one
    address = lines[2].partition("address='")[2].rstrip("'\n")
    assert command("status", "--ray-address", address).stdout.startswith("kept: smollm2-135m, ")
    unknown = command("dashboard", "--name", "kpet")
    assert unknown.returncode == 1
    assert re.fullmatch(r"error: name: no pool 'kpet' runs \(allowed: .*kept.*\)\n", unknown.stderr)
    up.send_signal(2)
    up.communicate(timeout=120)
    assert up.returncode == 0
    assert "kept" not in command("status").stdout
    assert not left_behind(mark)
