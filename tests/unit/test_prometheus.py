"""A pool's jobs come into a configuration and leave it; nothing else in there changes."""

from __future__ import annotations

import json
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from workbench.errors import ConfigError
from workbench.prometheus import (
    PrometheusError,
    reload_prometheus,
    update_prometheus_config,
    write_config_file,
    write_targets,
)
from workbench.prometheus import files as files_module

THEIRS = """\
# by hand
global: {scrape_interval: 15s, external_labels: {release: 1.10, site: on, since: 2024-01-01}}
rule_files: ['rules/*.yml']
scrape_configs:
  - job_name: node   # theirs
    params: {module: ["0644", 0o17, 1_000, 10:30:00, ~, "yes"]}
    static_configs: &shared
      - targets: ['localhost:9100']
  - {job_name: "lab", static_configs: *shared}
  - job_name: lab-2/replicas
    static_configs: [{targets: ["other:1"]}]
alerting:
  alertmanagers: []
"""


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "prometheus.yml"
    path.write_text(THEIRS)
    return path


def jobs(path):
    return {job["job_name"]: job for job in yaml.safe_load(path.read_text())["scrape_configs"]}


def targets(path, job="lab/replicas"):
    return [t for group in jobs(path)[job]["static_configs"] for t in group["targets"]]


def as_written(text, own=("lab/replicas", "lab/pool")):
    """Every value as the text that it was written as, without the jobs of the pool."""

    def plain(node):
        if isinstance(node, yaml.MappingNode):
            return {key.value: plain(value) for key, value in node.value}
        if isinstance(node, yaml.SequenceNode):
            return [plain(value) for value in node.value]
        return node.value, node.tag

    whole = plain(yaml.compose(text))
    whole["scrape_configs"] = [
        job for job in whole["scrape_configs"] if job["job_name"][0] not in own
    ]
    return whole


# -- other people's configuration ----------------------------------------------------------


def test_everything_else_stays_as_it_was_written(config_file):
    update_prometheus_config(
        config_file, ["10.0.0.1:8000"], name="lab", exporter_address="http://10.0.0.9:9000"
    )
    assert list(jobs(config_file)) == [
        "node", "lab", "lab-2/replicas", "lab/replicas", "lab/pool",
    ]  # fmt: skip
    assert as_written(config_file.read_text()) == as_written(THEIRS)


def test_a_replica_that_left_is_gone_and_another_pools_stay(config_file):
    update_prometheus_config(config_file, ["a:1", "b:2"], name="lab")
    update_prometheus_config(config_file, ["c:3"], name="other")
    update_prometheus_config(config_file, ["b:2", "d:4"], name="lab")
    assert targets(config_file) == ["b:2", "d:4"]
    assert targets(config_file, "other/replicas") == ["c:3"]
    update_prometheus_config(config_file, [], name="lab")
    assert list(jobs(config_file)) == ["node", "lab", "lab-2/replicas", "other/replicas"]
    assert as_written(config_file.read_text(), ["other/replicas"]) == as_written(THEIRS)


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "---\n", "global: {}\n", "scrape_configs:\n", "scrape_configs: []\n"],
)
def test_a_configuration_without_jobs_gets_them(tmp_path, text):
    path = tmp_path / "prometheus.yml"
    path.write_text(text)
    update_prometheus_config(path, ["a:1"], name="lab")
    assert targets(path) == ["a:1"]
    assert yaml.safe_load(path.read_text()).get("global", {}) == {}


def test_a_file_that_is_not_there_is_made(tmp_path):
    update_prometheus_config(tmp_path / "new.yml", ["a:1"])
    assert targets(tmp_path / "new.yml", "workbench/replicas") == ["a:1"]
    assert [path.name for path in tmp_path.iterdir()] == ["new.yml"]


def test_comments_that_would_be_lost_are_in_a_copy(config_file):
    update_prometheus_config(config_file, ["a:1"], name="lab")
    update_prometheus_config(config_file, ["b:1"], name="lab")
    copies = {path.name: path.read_text() for path in config_file.parent.glob("*.bak*")}
    assert copies == {"prometheus.yml.bak": THEIRS}
    edited = "# more\n" + config_file.read_text()
    config_file.write_text(edited)
    update_prometheus_config(config_file, ["c:1"], name="lab")
    config_file.write_text(THEIRS)
    update_prometheus_config(config_file, ["c:1"], name="lab")
    copies = {path.name: path.read_text() for path in config_file.parent.glob("*.bak*")}
    assert copies == {"prometheus.yml.bak": THEIRS, "prometheus.yml.bak2": edited}


def test_a_file_that_already_says_so_is_not_touched(config_file):
    update_prometheus_config(config_file, ["a:1"], name="lab")
    commented = config_file.read_text() + "# mine\n"
    config_file.write_text(commented)
    update_prometheus_config(config_file, ["a:1"], name="lab")
    assert config_file.read_text() == commented


def test_pools_that_write_together_lose_nothing(config_file):
    with ThreadPoolExecutor(8) as threads:
        names = [f"pool-{number}" for number in range(16)]
        list(
            threads.map(
                lambda name: update_prometheus_config(config_file, ["a:1"], name=name), names
            )
        )
    assert {f"{name}/replicas" for name in names} < set(jobs(config_file))


# -- the file ------------------------------------------------------------------------------


def test_a_reader_never_sees_half_a_file_and_a_failure_leaves_the_old_one(config_file, monkeypatch):
    def full(_):
        assert config_file.read_text() == THEIRS
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files_module.os, "fsync", full)
    with pytest.raises(ConfigError, match=r"config_file: .*No space left"):
        update_prometheus_config(config_file, ["a:1"], name="lab")
    assert config_file.read_text() == THEIRS
    assert not [path for path in config_file.parent.iterdir() if path.name.startswith(".")]


def test_mode_and_link_stay(config_file):
    config_file.chmod(0o640)
    link = config_file.with_name("link.yml")
    link.symlink_to(config_file.name)
    update_prometheus_config(link, ["a:1"], name="lab")
    assert link.is_symlink()
    assert targets(config_file) == ["a:1"]
    assert stat.S_IMODE(config_file.stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_is_read_only_is_refused(config_file):
    config_file.chmod(0o444)
    with pytest.raises(ConfigError, match="Permission denied"):
        update_prometheus_config(config_file, ["a:1"], name="lab")
    assert config_file.read_text() == THEIRS


@pytest.mark.parametrize("place", ["no/such/prometheus.yml", "file/prometheus.yml", "folder"])
def test_a_place_that_cannot_be_written_is_named(tmp_path, place):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=f"config_file: .*{place}") as caught:
        update_prometheus_config(tmp_path / place, ["a:1"])
    assert caught.value.field == "config_file"
    with pytest.raises(ConfigError, match=place):
        write_config_file(tmp_path / place, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1\nb: 2", "not YAML.*line 2"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("- a\n", "no mapping"),
        ("scrape_configs: {}", "no list"),
        ("scrape_configs: later", "no list"),
    ],
)
def test_what_is_no_configuration_is_refused_and_stays(tmp_path, text, problem):
    path = tmp_path / "prometheus.yml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"config_file: .*{problem}"):
        update_prometheus_config(path, ["a:1"], sd_file=tmp_path / "sd.json")
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


def test_a_whole_configuration_is_written_as_yaml(tmp_path):
    config = {"global": {"scrape_interval": "10s"}, "scrape_configs": [{"job_name": "é 1.10"}]}
    write_config_file(tmp_path / "prometheus.yml", config)
    assert yaml.safe_load((tmp_path / "prometheus.yml").read_text()) == config
    for refused in (["a"], {"a": object()}):
        with pytest.raises(ConfigError, match=r"^config: "):
            write_config_file(tmp_path / "prometheus.yml", refused)
    assert yaml.safe_load((tmp_path / "prometheus.yml").read_text()) == config


# -- what is asked for ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("http://10.0.0.1:8000", "10.0.0.1:8000"),
        ("http://node-3.local:8000/", "node-3.local:8000"),
        ("[2001:db8::1]:8000", "[2001:db8::1]:8000"),
        ("http://[::1]:65535", "[::1]:65535"),
    ],
)
def test_addresses_are_taken_with_and_without_scheme(tmp_path, address, target):
    update_prometheus_config(tmp_path / "p.yml", [address, address], name="lab")
    assert targets(tmp_path / "p.yml") == [target]


@pytest.mark.parametrize(
    "address",
    ["host", "host:", "host:0", "host:99999", "https://host:1", "host:1/x", "u@host:1",
     "2001:db8::1:8000", "[::x]:1", "", ":8000", None, 8000],
)  # fmt: skip
def test_what_is_no_address_is_refused_before_anything_is_written(tmp_path, address):
    with pytest.raises(ConfigError, match=r"server_addresses: .*http://host:port"):
        update_prometheus_config(tmp_path / "p.yml", ["a:1", address])
    with pytest.raises(ConfigError, match=r"exporter_address: .*http://host:port"):
        update_prometheus_config(tmp_path / "p.yml", ["a:1"], exporter_address=address or "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("server_addresses", "a:1"),
        ("server_addresses", None),
        ("name", "a b"),
        ("name", "a/b"),
        ("sd_file", "targets.txt"),
        ("scrape_interval_s", 0),
        ("scrape_interval_s", float("inf")),
        ("scrape_interval_s", "5s"),
    ],
)
def test_other_values_that_are_refused_are_named(tmp_path, field, value):
    known = {"server_addresses": ["a:1"], field: value}
    with pytest.raises(ConfigError) as caught:
        update_prometheus_config(tmp_path / "p.yml", **known)
    assert caught.value.field == field
    assert caught.value.allowed
    assert not list(tmp_path.iterdir())


def test_replicas_by_id_carry_their_ids(tmp_path):
    addresses = {"replica-0": "http://a:1", "replica-1": "a:2"}
    update_prometheus_config(
        tmp_path / "p.yml",
        addresses,
        name="lab",
        exporter_address="a:3",
        credentials_file="/etc/token",
        scrape_interval_s=0.25,
    )
    found = jobs(tmp_path / "p.yml")
    assert found["lab/replicas"]["static_configs"] == [
        {"targets": ["a:1"], "labels": {"pool": "lab", "replica": "replica-0"}},
        {"targets": ["a:2"], "labels": {"pool": "lab", "replica": "replica-1"}},
    ]
    for job in found.values():
        assert job["authorization"] == {"credentials_file": "/etc/token"}
        assert job["scrape_interval"] == "250ms"


def test_a_file_of_targets_follows_the_pool_while_the_configuration_stays(tmp_path):
    path, sd_file = tmp_path / "p.yml", tmp_path / "targets.json"
    update_prometheus_config(path, ["a:1"], name="lab", sd_file=sd_file)
    assert json.loads(sd_file.read_text()) == [{"targets": ["a:1"], "labels": {"pool": "lab"}}]
    before = path.read_text()
    update_prometheus_config(path, ["b:1", "a:1"], name="lab", sd_file=sd_file)
    assert path.read_text() == before
    assert json.loads(sd_file.read_text())[0]["targets"] == ["b:1", "a:1"]
    assert jobs(path)["lab/replicas"]["file_sd_configs"][0]["files"] == [str(sd_file)]
    write_targets(sd_file, {}, {"pool": "lab"})
    assert json.loads(sd_file.read_text()) == []
    with pytest.raises(ConfigError, match=r"^path: .*\.json"):
        write_targets(tmp_path / "targets", ["a:1"], {})


def test_a_pool_that_tells_of_its_replicas_is_asked_with_its_key(tmp_path):
    path, known = tmp_path / "p.yml", {"sd_url": "http://[::1]:9000/targets", "name": "lab"}
    update_prometheus_config(path, [], credentials_file="/etc/token", **known)
    (asked,) = jobs(path)["lab/replicas"]["http_sd_configs"]
    assert asked["url"] == known["sd_url"]
    assert asked["authorization"] == {"credentials_file": "/etc/token"}
    for other in ({"server_addresses": ["a:1"]}, {"server_addresses": [], "sd_file": "sd.json"}):
        with pytest.raises(ConfigError, match=r"^sd_url: .*allowed: no server_addresses"):
            update_prometheus_config(path, **other, **known)
    with pytest.raises(ConfigError, match="sd_url"):
        update_prometheus_config(path, [], sd_url="a:1/targets")


# -- the server ----------------------------------------------------------------------------


class Server:
    """Answers as a Prometheus server would that runs with ``config``."""

    def __init__(self):
        self.config = ""
        self.answers = {"/-/reload": (200, "")}
        self.asked = []

    def answer(self, method, path):
        self.asked.append((method, path))
        body = json.dumps({"data": {"yaml": self.config}})
        return self.answers.get(path, (200, body if path.startswith("/api") else ""))


@contextmanager
def serving(server):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            code, body = server.answer(self.command, self.path)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}"
        finally:
            http.shutdown()
            thread.join()


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def url(server):
    with serving(server) as url:
        yield url


def test_a_reload_gives_what_the_server_runs_with(server, url, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.config = "scrape_configs: [{job_name: a}]"
    assert reload_prometheus(url + "/") == {"scrape_configs": [{"job_name": "a"}]}
    assert server.asked[0] == ("POST", "/-/reload")


@pytest.mark.parametrize(
    ("path", "answer", "problem"),
    [
        ("/-/reload", (403, "Lifecycle API is not enabled."), "--web.enable-lifecycle"),
        ("/-/reload", (401, "who are you"), "401: who are you"),
        ("/-/reload", (500, "failed to reload config: line 3"), "failed to reload config: line 3"),
        ("/metrics", (200, "a 1\nprometheus_config_last_reload_successful 0\n"), "last reload"),
        ("/api/v1/status/config", (200, "<html>"), "does not say"),
        ("/api/v1/status/config", (200, '{"data": null}'), "does not say"),
    ],
)
def test_a_reload_that_did_not_work_says_so(server, url, path, answer, problem):
    server.answers[path] = answer
    with pytest.raises(PrometheusError, match=problem) as caught:
        reload_prometheus(url)
    assert url in str(caught.value)


def test_a_server_that_is_not_there_or_no_url_says_so(url):
    with serving(Server()) as gone:
        pass
    with pytest.raises(PrometheusError, match="cannot be reached"):
        reload_prometheus(gone, timeout_s=5)
    for wrong in ("localhost:9090", "file:///etc/passwd", "http://", "http://[x", None):
        with pytest.raises(ConfigError, match="prometheus_url"):
            reload_prometheus(wrong)


def test_an_update_checks_that_the_server_runs_with_the_new_targets(config_file, server, url):
    with pytest.raises(PrometheusError, match=r"lab/replicas.*another file"):
        update_prometheus_config(config_file, ["a:1"], name="lab", prometheus_url=url)
    server.config = config_file.read_text()
    update_prometheus_config(config_file, ["a:1"], name="lab", prometheus_url=url)
    with pytest.raises(PrometheusError, match=r"\['a:1'\] and not \['b:1'\]"):
        update_prometheus_config(config_file, ["b:1"], name="lab", prometheus_url=url)
    with pytest.raises(PrometheusError, match="lab/replicas"):
        update_prometheus_config(config_file, [], name="lab", prometheus_url=url)
