"""What replicas serve over HTTP, and a real Prometheus server that reads it and follows a pool."""

from __future__ import annotations

import json
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.scraping import PROMETHEUS, Server, until

if TYPE_CHECKING:
    from pathlib import Path

    from workbench import Workbench

pytestmark = [pytest.mark.ray, pytest.mark.vllm]


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def chat(address: str, **asked: Any) -> dict[str, Any]:
    """vLLM's own chat completions."""
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    body = {"model": "smollm2-135m", "messages": messages, "temperature": 0, **asked}
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_each_replica_says_how_it_is_and_what_its_engine_counts(bench: Workbench) -> None:
    addresses = bench.addresses()
    assert len(set(addresses)) == 2
    for address in addresses:
        assert address.startswith("http://127.0.0.1:")
        get(f"{address}/health")
        assert "vllm:num_requests_running{" in get(f"{address}/metrics")


def test_what_comes_past_the_balancer_is_answered_and_seen_by_it(bench: Workbench) -> None:
    (crowded, _) = bench.addresses()
    assert "Paris" in chat(crowded, max_tokens=12)["choices"][0]["message"]["content"]
    asked = {"max_tokens": 400, "ignore_eos": True}
    threads = [threading.Thread(target=chat, args=(crowded,), kwargs=asked) for _ in range(6)]
    for thread in threads:
        thread.start()

    def external() -> int:
        engine = bench.replica("replica-0").engine
        return engine.external if engine else 0

    until(lambda: external() == 6)
    until(lambda: placed(bench) == {"replica-1"})  # the balancer asks twice a second
    for thread in threads:
        thread.join()
    until(lambda: external() == 0)


def placed(bench: Workbench) -> set[str]:
    """Where four new sessions go."""
    return {bench.generate("Hi", max_tokens=1).output.replica_id for _ in range(4)}


def test_traces_of_all_replicas_are_collected(bench: Workbench, tmp_path: Path) -> None:
    bench.start_profile()
    bench.generate("Hi", max_tokens=4)
    files = bench.stop_profile(folder=tmp_path)
    assert {file.parent.name for file in files} == {"replica-0", "replica-1"}
    assert all(file.stat().st_size for file in files)
    assert bench.sleep() == bench.wake() == {"replica-0": False, "replica-1": False}


@pytest.mark.skipif(PROMETHEUS is None, reason="there is no program prometheus")
def test_a_prometheus_server_reads_a_pool_and_follows_it_as_it_grows(
    bench: Workbench, tmp_path: Path
) -> None:
    server = Server(tmp_path, "--web.enable-lifecycle")
    name = bench.config.name
    try:
        others = server.config_file.read_text()
        bench.configure_prometheus(
            server.config_file, prometheus_url=server.url, scrape_interval_s=1
        )
        assert "job_name: itself" in others
        assert "job_name: itself" in server.config_file.read_text()
        until(lambda: ups(server, name) == {"replica-0", "replica-1"})
        bench.generate("Hi", session="scraped", max_tokens=8)
        sampled = f'sum(vllm:generation_tokens_total{{pool="{name}"}}) > 0'
        leases = f'sum(workbench_turns_total{{pool="{name}"}}) > 0'
        for expression in (sampled, leases):
            until(lambda expression=expression: server.query(expression))
        assert len(bench.scale(3)) == 3
        until(lambda: len(ups(server, name)) == 3)
        assert len(bench.scale(2)) == 2
        until(lambda: len(ups(server, name)) == 2)
    finally:
        server.process.terminate()
        server.process.wait()


def ups(server: Server, pool: str) -> set[str]:
    """Replicas of the pool that answered the last scrape."""
    return {labels["replica"] for labels, value in found(server, pool) if value == 1}


def found(server: Server, pool: str) -> list[tuple[dict[str, str], float]]:
    return [(dict(k), float(v)) for k, v in server.query(f'up{{job="{pool}/replicas"}}')]
