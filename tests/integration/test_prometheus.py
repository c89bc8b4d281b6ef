"""A real Prometheus server takes a pool's jobs, gets its figures and follows it as it grows."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import threading
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from tests.integration.scraping import PROMETHEUS, PROMTOOL, Server, until
from tests.unit.metrics.test_exporter import everything
from tests.unit.widgets.pictures.scenes import make_stream_run
from workbench.engines.simulated import SimulatedArgs
from workbench.grafana import dashboard
from workbench.local import LocalPool
from workbench.metrics.exporter import CONTENT_TYPE, render
from workbench.metrics.samples import RolloutSnapshot
from workbench.prometheus import PrometheusError, update_prometheus_config, write_targets
from workbench.prometheus.targets import target_groups

pytestmark = [
    pytest.mark.skipif(PROMETHEUS is None, reason="there is no program prometheus"),
    pytest.mark.slow,
]

NOT_HERE = ("vllm:", "process_start_time_seconds", "workbench_replica_startup_seconds")
"""What only replicas with processes of their own have."""


@pytest.fixture
def prometheus(tmp_path):
    server = Server(tmp_path, "--web.enable-lifecycle")
    yield server
    server.close()


async def eventually(check):
    """The same, while the pool of the test goes on."""
    return await asyncio.to_thread(until, check)


@contextmanager
def serving(page, host="127.0.0.1", targets=dict):
    """A server of ``/metrics`` and of ``/targets``, those by replica id; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            kind, body = CONTENT_TYPE, page()
            if self.path == "/targets":
                groups = target_groups(targets(), {"pool": LocalRig.name}, "targets")
                kind, body = "application/json", json.dumps(groups).encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    class Http(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    with Http((host, 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{http.server_address[1]}"
        finally:
            http.shutdown()
            thread.join()


# -- a pool ----------------------------------------------------------------------------------


class LocalRig:
    """A pool in this process, with pages for it and for each of its replicas."""

    name = "local"

    def __init__(self, pool):
        self.pool = pool
        self._pages = {}
        self._exporter = self._open(lambda: render(self._latest()), lambda: self._told)
        self.addresses()

    def _latest(self):
        return self.pool.recorder.history.latest

    def _open(self, page, targets=dict):
        context = serving(page, targets=targets)
        return context.__enter__(), context

    def _page(self, replica_id):
        """What it exports: none before its first sample."""
        latest = self._latest()
        engines = {r.status.replica_id: r.engine for r in latest.pool.replicas} if latest else {}
        if (engine := engines.get(replica_id)) is None:
            return b""
        return f'vllm:num_requests_running{{engine="0"}} {engine.running}\n'.encode()

    @property
    def exporter_address(self):
        return self._exporter[0]

    def addresses(self):
        """By replica id, of those that there are."""
        for replica_id in self.pool.replicas:
            if replica_id not in self._pages:
                self._pages[replica_id] = self._open(lambda one=replica_id: self._page(one))
        self._told = {replica_id: self._pages[replica_id][0] for replica_id in self.pool.replicas}
        return self._told

    def close(self):
        for _, context in [self._exporter, *self._pages.values()]:
            context.__exit__(None, None, None)


@asynccontextmanager
async def local_rig():
    args = SimulatedArgs(vocab_size=50, stop_token=-1, step_s=0.001)
    async with LocalPool(2, args, sample_s=0.1) as pool:
        rig = LocalRig(pool)
        try:
            yield rig
        finally:
            await asyncio.to_thread(rig.close)


open_rig = local_rig


async def turns(rig, sessions, count):
    client = rig.pool.client()
    for turn in range(count):
        prompts = {f"s{i}": [1, 2, 3] * (turn + 1) for i in range(sessions)}
        await asyncio.gather(
            *(client.generate(s, prompt_ids=p, sampling_params={"max_tokens": 2})
              for s, p in prompts.items())
        )  # fmt: skip


@pytest.mark.parametrize("way", ["sd_file", "sd_url"])
async def test_figures_arrive_and_a_pool_that_grows_is_followed_without_a_reload(
    prometheus, tmp_path, way
):
    sd_file = tmp_path / "targets.json"
    async with open_rig() as rig:

        def told():
            """The pool as it is now, to whom Prometheus asks for it."""
            addresses = rig.addresses()
            if way == "sd_file":
                write_targets(sd_file, addresses, {"pool": rig.name})

        where = {"sd_file": sd_file, "sd_url": f"{rig.exporter_address}/targets"}
        await asyncio.to_thread(
            update_prometheus_config,
            prometheus.config_file,
            rig.addresses() if way == "sd_file" else {},
            name=rig.name,
            exporter_address=rig.exporter_address,
            prometheus_url=prometheus.url,
            scrape_interval_s=0.2,
            **{way: where[way]},
        )
        await turns(rig, sessions=6, count=3)
        of_pool = f'{{pool="{rig.name}"}}'
        await eventually(lambda: prometheus.value(f"workbench_turns_total{of_pool}") == 18)
        assert prometheus.value(f"workbench_sticky_turns_total{of_pool}") == 12
        assert prometheus.value(f"sum(workbench_replica_sessions{of_pool})") == 6
        running = f"count by (replica) (vllm:num_requests_running{of_pool})"
        expected = [({"replica": "replica-0"}, 1), ({"replica": "replica-1"}, 1)]
        await eventually(lambda: sorted(prometheus.query(running), key=str) == expected)

        reloaded = "prometheus_config_last_reload_success_timestamp_seconds"
        before = await eventually(lambda: prometheus.value(reloaded))
        new = await rig.pool.add(SimulatedArgs(vocab_size=50, stop_token=-1))
        told()
        await eventually(lambda: prometheus.value(f'up{{replica="{new}"}}') == 1)
        await eventually(
            lambda: prometheus.value(f'workbench_replica_state{{replica="{new}",state="ready"}}')
        )
        await rig.pool.remove("replica-0")
        told()
        await eventually(lambda: not prometheus.query('{replica="replica-0"}'))
        assert len(prometheus.up(f"{rig.name}/replicas")) == 2
        assert prometheus.value(reloaded) == before
        assert prometheus.up("itself")


async def test_every_question_of_the_dashboard_is_understood_and_answered(prometheus):
    async with open_rig() as rig:
        await asyncio.to_thread(
            update_prometheus_config,
            prometheus.config_file,
            rig.addresses(),
            name=rig.name,
            exporter_address=rig.exporter_address,
            prometheus_url=prometheus.url,
            scrape_interval_s=0.2,
        )
        batch = RolloutSnapshot("a", 3, 1, 1, 1, 0, 20, 0.5, 1.0, "batch-1")
        for run in (batch, make_stream_run()):
            rig.pool.recorder.runs.note(run)
        await turns(rig, sessions=4, count=3)
        asked = {t["expr"] for panel in dashboard()["panels"] for t in panel.get("targets", ())}
        known = {"$pool": rig.name, "$replica": ".*", "$__rate_interval": "10s"}

        def answered(expression):
            for name, value in known.items():
                expression = expression.replace(name, value)
            return prometheus.query(expression)  # raises where it is not understood

        for expression in asked:
            if any(name in expression for name in NOT_HERE):
                answered(expression)
            else:
                await eventually(lambda expression=expression: answered(expression))
        assert Counter("vllm:" in expression for expression in asked)[False] > 40


# -- the configuration -----------------------------------------------------------------------


def page():
    return b"workbench_sessions 1\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_jobs_come_change_and_go_beside_other_peoples(prometheus, host):
    def update(addresses, **known):
        update_prometheus_config(
            prometheus.config_file, addresses, name="lab", prometheus_url=prometheus.url,
            scrape_interval_s=0.2, **known,
        )  # fmt: skip

    with serving(page, host) as a, serving(page, host) as b:
        at = {address: address.removeprefix("http://") for address in (a, b)}
        update([a, b])
        until(lambda: prometheus.up("lab/replicas") == sorted(at.values()))
        update([b], exporter_address=a)
        until(lambda: prometheus.up("lab/replicas") == [at[b]])
        until(lambda: prometheus.up("lab/pool") == [at[a]])
        update([])
        until(lambda: prometheus.jobs() == {"itself"})
        assert prometheus.up("itself")


def test_what_the_server_refuses_is_told_in_its_words_and_it_runs_on(prometheus):
    known = {"name": "lab", "prometheus_url": prometheus.url}
    update_prometheus_config(prometheus.config_file, ["a:1"], **known)
    config = yaml.safe_load(prometheus.config_file.read_text())
    prometheus.config_file.write_text(yaml.safe_dump(config | {"globl": {}}))
    with pytest.raises(PrometheusError, match=r"(?s)500: .*globl"):
        update_prometheus_config(prometheus.config_file, ["b:1"], **known)
    running = json.loads(prometheus.get("/api/v1/status/config"))["data"]["yaml"]
    assert "- a:1" in running
    assert "- b:1" not in running
    prometheus.config_file.write_text(yaml.safe_dump(config))
    update_prometheus_config(prometheus.config_file, ["b:1"], **known)


def test_a_server_without_the_lifecycle_switch_is_told_from_one_that_took_it(tmp_path):
    server = Server(tmp_path)
    try:
        with pytest.raises(PrometheusError, match=r"--web\.enable-lifecycle"):
            update_prometheus_config(server.config_file, ["a:1"], prometheus_url=server.url)
    finally:
        server.close()


def test_a_server_that_was_started_with_another_file_is_found_out(prometheus, tmp_path):
    with pytest.raises(PrometheusError, match="another file"):
        update_prometheus_config(tmp_path / "p.yml", ["a:1"], prometheus_url=prometheus.url)


@pytest.mark.skipif(PROMTOOL is None, reason="there is no program promtool")
def test_names_are_as_prometheus_wants_them():
    checked = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=render(everything()), capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
