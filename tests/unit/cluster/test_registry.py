"""Pools of one machine: a name is one living owner's, and nobody else's folder is believed."""

from __future__ import annotations

import dataclasses
import json
import logging
import multiprocessing
import os
import stat
from typing import TYPE_CHECKING

import pytest

from workbench.cluster import registry as module
from workbench.cluster.registry import PoolEntry, Registry
from workbench.engines.guard import start_time
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pools"


def entry(name: str = "lab", **changes) -> PoolEntry:
    mine = PoolEntry.of_process(name, "smollm2-135m", "127.0.0.1:4000")
    return dataclasses.replace(mine, **changes)


def of_the_parent(name: str = "lab") -> PoolEntry:
    return entry(name, pid=os.getppid(), process_start=start_time(os.getppid()))


def of_nobody(name: str = "lab") -> PoolEntry:
    """Its pid is in use, by a process that began later."""
    return entry(name, process_start="1")


def test_what_is_claimed_is_found_until_it_is_released(folder):
    one, other = entry("one"), entry("other")
    Registry(folder).claim(other)
    Registry(folder).claim(one)
    assert Registry(folder).entries() == [one, other]
    assert Registry(folder).find("one") == one
    Registry(folder).release(one)
    Registry(folder).release(one)
    assert Registry(folder).find("one") is None
    assert Registry(folder).entries() == [other]


def test_a_name_that_a_living_owner_has_is_refused_with_a_way_to_it(folder):
    Registry(folder).claim(of_the_parent())
    with pytest.raises(ConfigError) as refused:
        Registry(folder).claim(entry())
    told = str(refused.value)
    assert refused.value.field == "name"
    assert f"process {os.getppid()}" in told
    assert "Workbench(name='lab')" in told
    assert "127.0.0.1:4000" in told
    assert Registry(folder).find("lab") == of_the_parent_as_claimed(folder)


def of_the_parent_as_claimed(folder: Path) -> PoolEntry:
    return PoolEntry(**json.loads((folder / "lab.json").read_text()))


def test_the_owner_itself_is_told_so():
    assert "owned by this process" in str(entry().taken())


@pytest.mark.parametrize("kind", ["head", "detached"])
def test_a_detached_pool_is_nobodys_own_and_lives_as_long_as_its_process(folder, kind):
    parent = os.getppid()
    there = PoolEntry.of_process("lab", "smollm2-135m", "127.0.0.1:4000", parent, kind)
    Registry(folder).claim(there)
    assert Registry(folder).find("lab") == there
    assert (there.pid, there.process_start) == (parent, start_time(parent))
    assert there.phrase == f"detached, on {os.uname().nodename}"
    here = dataclasses.replace(entry(), kind=kind)
    assert "detached, on" in str(here.taken()), "it outlives this process"


def test_an_entry_that_says_no_kind_is_its_processs(folder):
    Registry(folder).claim(entry())
    path = folder / "lab.json"
    told = json.loads(path.read_text())
    del told["kind"]
    path.write_text(json.dumps(told))
    found = Registry(folder).find("lab")
    assert (found.kind, found) == ("owned", entry(created_s=found.created_s))
    assert found.phrase == f"owned by process {os.getpid()} on {os.uname().nodename}"


def test_what_a_dead_owner_left_is_no_pool_and_its_name_is_free(folder):
    Registry(folder).claim(of_nobody())
    assert Registry(folder).entries() == []
    assert not (folder / "lab.json").exists()
    Registry(folder).claim(of_nobody())
    Registry(folder).claim(entry())
    assert Registry(folder).find("lab").process_start == start_time(os.getpid())


def test_releasing_leaves_a_later_pool_of_the_name_alone(folder):
    gone = of_nobody()
    Registry(folder).claim(gone)
    later = entry()
    Registry(folder).claim(later)
    Registry(folder).release(gone)
    assert Registry(folder).find("lab") == later


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "lab"}'])
def test_files_that_make_no_sense_are_no_pools(folder, text):
    Registry(folder).claim(entry("one"))
    (folder / "lab.json").write_text(text)
    assert [e.name for e in Registry(folder).entries()] == ["one"]


def test_the_folder_is_the_users_alone(folder):
    Registry(folder).claim(entry())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["open to others", "a link"])
def test_a_folder_that_others_may_write_to_is_neither_believed_nor_used(folder, kind, caplog):
    Registry(folder).claim(of_the_parent())
    if kind == "a link":
        folder.rename(folder.with_name("elsewhere"))
        folder.symlink_to(folder.with_name("elsewhere"))
    else:
        folder.chmod(0o777)
    with caplog.at_level(logging.WARNING, module.__name__):
        assert Registry(folder).entries() == []
        Registry(folder).claim(entry("mine"))  # the pool starts all the same
    assert "not a folder of this user alone" in caplog.text
    assert not (folder / "mine.json").exists()


def test_no_folder_is_no_pool(folder):
    assert Registry(folder).entries() == []
    Registry(folder).release(entry())


@pytest.mark.parametrize("given", [True, False])
def test_it_is_where_running_programs_of_the_user_keep_things(tmp_path, monkeypatch, given):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "temp").mkdir()
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("run" if given else "missing")))
    expected = tmp_path / ("run" if given else "temp") / f"workbench-{os.getuid()}"
    assert Registry().folder == expected


def _claim(folder: Path, gate, results) -> None:
    gate.wait()
    try:
        Registry(folder).claim(entry())
    except ConfigError:
        results.put("refused")
    else:
        results.put("claimed")
    gate.wait()  # it lives until all have tried


def test_of_many_who_claim_a_name_at_once_one_gets_it(folder):
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(4), context.Queue()
    claiming = [context.Process(target=_claim, args=(folder, gate, results)) for _ in range(4)]
    for process in claiming:
        process.start()
    told = sorted(results.get(timeout=50) for _ in claiming)
    for process in claiming:
        process.join()
    assert told == ["claimed", "refused", "refused", "refused"]
