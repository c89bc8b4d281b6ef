"""The commands: what they refuse, and what they pass on."""

from __future__ import annotations

import dataclasses
import os
import threading
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from workbench import __version__, cli, views
from workbench.cluster.registry import PoolEntry, Registry
from workbench.errors import ConfigError


@pytest.fixture(autouse=True)
def registry(tmp_path, monkeypatch):
    """This machine's pools."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return Registry()


def entry(name):
    return PoolEntry.of_process(name, "smollm2-135m", "127.0.0.1:4000")


def invoke(*args):
    return CliRunner().invoke(cli.app, args)


def refused(*args):
    result = invoke(*args)
    assert isinstance(result.exception, ConfigError), result
    return result.exception


def test_no_pool_is_said_in_words():
    assert invoke("status").output == "no pool runs\n"
    assert invoke("version").output == f"{__version__}\n"


def test_status_lists_the_pools_of_this_machine(registry):
    registry.claim(entry("two"))
    registry.claim(entry("one"))
    registry.claim(dataclasses.replace(entry("gone"), process_start="1"))
    lines = invoke("status").output.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["one", "two"]
    assert f"owned by process {os.getpid()} on {os.uname().nodename}" in lines[0]
    assert "Ray at 127.0.0.1:4000" in lines[0]


@pytest.mark.parametrize("command", ["status", "dashboard"])
def test_an_unknown_name_is_told_those_that_there_are(registry, command):
    assert refused(command, "--name", "lab").allowed == "there is none"
    registry.claim(entry("lob"))
    error = refused(command, "--name", "lab")
    assert (error.field, error.allowed) == ("name", "lob")


def test_a_dashboard_needs_a_name_unless_there_is_one_pool(registry):
    assert "no pool runs" in str(refused("dashboard"))
    registry.claim(entry("one"))
    registry.claim(entry("two"))
    assert refused("dashboard").allowed == "one, two"


@pytest.mark.parametrize("other", [["--name", "lab"], ["--on-cluster"], ["--ray-address", "x:1"]])
def test_a_saved_feed_is_no_pool(tmp_path, other):
    assert refused("dashboard", "--from", str(tmp_path), *other).field == "from"


def test_a_folder_that_is_no_saved_feed_is_refused(tmp_path):
    assert refused("dashboard", "--from", str(tmp_path / "nothing")).field == "folder"


def test_a_saved_feed_is_served_as_asked_until_it_is_interrupted(tmp_path, monkeypatch):
    asked, closed = [], threading.Event()

    def serve(feed, **options):
        asked.append((feed, options))
        return SimpleNamespace(url="http://here/", password="secret word", close=closed.set)

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(views, "view", {"dashboard": serve}.__getitem__)
    monkeypatch.setattr("workbench.metrics.feed.Feed.open", lambda folder: f"feed of {folder}")
    monkeypatch.setattr(cli, "_until_interrupted", interrupted)
    monkeypatch.setenv("WORKBENCH_DASHBOARD_PASSWORD", "secret word")
    result = invoke("dashboard", "--from", str(tmp_path), "--port", "80", "--prefix", "lab")
    options = {"address": "127.0.0.1", "port": 80, "prefix": "lab", "password": "secret word"}
    assert asked == [(f"feed of {tmp_path}", options)]
    assert "dashboard: http://here/ (password: secret word)" in result.output
    assert closed.is_set()


def test_an_error_is_one_line_and_no_traceback(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["workbench", "status", "--name", "lab"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == ("error: name: no pool 'lab' runs (allowed: there is none)\n")
