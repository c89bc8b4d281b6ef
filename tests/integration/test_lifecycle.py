"""Starting, refusing, breaking and ending pools: whatever happens, nothing is left running."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
import ray

from tests.integration.processes import (
    MARK,
    RAY_AGENTS,
    left_behind,
    marked,
    new_mark,
)
from workbench import Workbench
from workbench.errors import (
    ConfigError,
    NoRoomError,
    PoolClosedError,
    ReplicaStartError,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.ray]

MODEL = "smollm2-135m"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """What all processes that a test starts carry in their environment."""
    made = new_mark()
    monkeypatch.setenv(MARK, made)
    return made


def simulated(replicas: int = 2, **options: Any) -> Workbench:
    """Quick to start: no core, no weights. The tokenizer is the real one."""
    args = {"vocab_size": 49_152, "step_s": 0.002}
    return Workbench(
        MODEL, replicas, engine="simulated", engine_args=args, progress=False, **options
    )


def script(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"model": "gpt-17"}, r"model: unknown model 'gpt-17' \(allowed: a packaged name"),
        ({"model": "/no/such/folder"}, "model: there is no directory '/no/such/folder'"),
        ({"replicas": 0}, r"replicas: 0 \(allowed: a whole number from 1\)"),
        ({"engine_args": {"max_modle_len": 9}}, r"engine_args\['max_modle_len'\].*max_model_len"),
        ({"engine_args": {"model": "x"}}, r"engine_args\['model'\]: is given by the pool"),
        ({"engine": "abacus"}, r"engine: 'abacus' is unknown \(allowed: vllm, simulated\)"),
        ({"policy": "luck"}, r"policy: unknown policy 'luck' \(allowed: kv-aware, least-loaded"),
        ({"workers": -1}, "workers: -1"),
    ],
)
def test_wrong_arguments_are_named_before_ray_is_started(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], complaint: str
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(ray, "init", never)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match=complaint):
        Workbench(**{"model": MODEL, "progress": False, **options})


def test_an_empty_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no config.json and no weights and no tokenizer"):
        Workbench(str(tmp_path), progress=False)


@pytest.mark.vllm
def test_more_replicas_than_there_is_room_for_are_refused_with_the_clusters_figures() -> None:
    with pytest.raises(NoRoomError, match=r"replicas: 64 asked for, room for \d+"):
        Workbench(MODEL, 64, progress=False)


@pytest.mark.vllm
def test_an_engine_that_does_not_start_shows_its_last_words_and_leaves_nothing(mark: str) -> None:
    with pytest.raises(ReplicaStartError) as failed:
        Workbench(MODEL, 1, engine_args={"max_model_len": 10**9}, progress=False)
    assert failed.value.replica_id == "replica-0"
    assert "max_model_len" in str(failed.value)
    assert failed.value.log_tail
    assert not left_behind(mark)


def test_a_closed_pool_says_so_and_can_be_closed_again() -> None:
    bench = simulated()
    assert repr(bench).startswith("Workbench('smollm2-135m', 2/2 replicas ready")
    bench.close()
    bench.close()
    assert repr(bench) == "Workbench('smollm2-135m', closed)"
    with pytest.raises(PoolClosedError, match="was closed"):
        bench.generate("Anybody?")


def test_closing_one_of_two_pools_leaves_the_other_at_work() -> None:
    was_there = ray.is_initialized()  # the pool that the tests share may be open
    first, second = simulated(1), simulated(1)
    first.close()
    try:
        assert second.generate("Still there?", max_tokens=2).output.token_ids
    finally:
        second.close()
    assert ray.is_initialized() is was_there


async def test_a_wait_can_be_given_up_and_a_batch_closed_in_the_middle_has_cancelled_rows() -> None:
    args = {"vocab_size": 49_152, "step_s": 0.05}
    bench = await asyncio.to_thread(
        Workbench, MODEL, 1, engine="simulated", engine_args=args, progress=False
    )
    rollout = await asyncio.to_thread(
        bench.rollout, ["Go on."] * 6, sampling_params={"max_tokens": 2000}
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await rollout
    assert not rollout.done
    await asyncio.to_thread(bench.close)
    assert {str(t.status) for t in rollout.result()} == {"cancelled"}
    rollout.cancel()


def test_rollouts_can_be_played_in_this_process() -> None:
    with simulated(workers=0) as bench:
        here = []

        def reward(_: Any) -> float:
            here.append(os.getpid())
            return 1.0

        bench.rollout(["one", "two"], sampling_params={"max_tokens": 4}, reward=reward).result()
        assert here == [os.getpid()] * 2


@pytest.mark.vllm
def test_nothing_outlives_a_killed_owner(mark: str) -> None:
    owner = subprocess.Popen(
        script("""
            from workbench import Workbench
            bench = Workbench("smollm2-135m", 1, progress=False)
            print("ready", flush=True)
            input()
        """),
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        env={**os.environ, "RAY_ADDRESS": ""},
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"ready\n"
    assert len(marked(mark)) > 4
    owner.kill()
    owner.communicate()
    assert not left_behind(mark, ignoring=RAY_AGENTS)


def test_a_script_that_forgets_to_close_ends_and_leaves_nothing(mark: str) -> None:
    done = subprocess.run(
        script("""
            from workbench import Workbench
            args = {"vocab_size": 49_152}
            bench = Workbench("smollm2-135m", engine="simulated", engine_args=args)
            print(len(bench.generate("hi", max_tokens=3).output.token_ids))
        """),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "RAY_ADDRESS": ""},
    )
    assert done.stdout.strip() in {"1", "2", "3"}
    assert not left_behind(mark)


def test_who_left_the_cluster_by_hand_can_close_and_starts_no_other(mark: str) -> None:
    done = subprocess.run(
        script("""
            import ray
            from workbench import Workbench
            from workbench.errors import PoolClosedError
            args = {"vocab_size": 49_152}
            bench = Workbench("smollm2-135m", engine="simulated", engine_args=args, progress=False)
            ray.shutdown()
            try:
                bench.snapshot()
            except PoolClosedError as error:
                print(error, ray.is_initialized())
            bench.close()
            print(bench, ray.is_initialized())
        """),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "RAY_ADDRESS": ""},
    )
    asked, closed = done.stdout.splitlines()
    assert asked.endswith("was closed False")
    assert closed == "Workbench('smollm2-135m', closed) False"
    assert not left_behind(mark)


def test_a_given_cluster_is_used_and_left_as_it_was(mark: str) -> None:
    """RAY_ADDRESS names a cluster that somebody else started."""
    ray_command = f"{os.path.dirname(sys.executable)}/ray"  # noqa: PTH120 - a command line
    head = subprocess.Popen(
        [
            *(ray_command, "start", "--head", "--block", "--port=0", "--num-cpus=3"),
            *("--node-ip-address=127.0.0.1", "--include-dashboard=false", "--disable-usage-stats"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert head.stdout is not None
        address = next(
            line.partition("address='")[2].partition("'")[0]
            for line in head.stdout
            if "address='" in line
        )
        done = subprocess.run(
            script("""
                import ray
                from workbench import Workbench
                args = {"vocab_size": 49_152}
                with Workbench("smollm2-135m", engine="simulated", engine_args=args) as bench:
                    print(int(ray.cluster_resources()["CPU"]), bench.snapshot().replicas[0]
                          .status.state)
            """),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            env={**os.environ, "RAY_ADDRESS": address},
        )
        assert done.stdout.split() == ["3", "ready"]
        assert head.poll() is None
    finally:
        head.kill()
        head.communicate(timeout=60)
    assert not left_behind(mark, ignoring=RAY_AGENTS)
