"""A cell that is run again goes on with the pool that it made, or makes room for another."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

import pytest

from workbench import Workbench
from workbench.errors import NoRoomError, PoolClosedError
from workbench.facade import cells
from workbench.facade import workbench as module
from workbench.facade.opening import pool_config


class Pool:
    """Stands for a pool that was opened, and for the way to it."""

    def __init__(self, config, log, *, attached):
        self.config, self._log, self.attached = config, log, attached
        self.reach, self.manager, self.client = self, self, None
        self.feed = SimpleNamespace(pull=lambda: None)
        self.closed = False
        self.problem = ""
        self.versions = {"replica-0": 0}

    def look(self):
        return self.problem or self

    def call(self, answer):
        return answer

    def get_weight_version(self):
        return self.versions

    def end(self):
        self._log.append(f"closed {self.config.name}")


class World:
    """A notebook's kernel, and a cluster in which pools are opened."""

    def __init__(self):
        self.log = []
        self.full = False
        self.parent = {}
        self._runs = itertools.count()

    def run(self, text, cell_id=None):
        """What follows happens in a run of this cell."""
        self.parent = {
            "header": {"msg_id": f"run {next(self._runs)}"},
            "content": {"code": text},
            "metadata": {"cellId": cell_id} if cell_id else {},
        }

    def open(self, stack, model, name, address, workers, options, *, detached, progress):
        if self.full:
            raise NoRoomError("2 cores are taken")
        attached = name == "theirs"
        pool = Pool(pool_config(model, name, options), self.log, attached=attached)
        self.log.append(f"opened {pool.config.name}")
        stack.callback(pool.end)
        return pool


@pytest.fixture
def world(monkeypatch):
    made = World()
    shell = SimpleNamespace(get_parent=lambda: made.parent)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(module, "open_pool", made.open)
    monkeypatch.setattr(cells, "_open", set())  # the shared pool of a whole run is open, too
    yield made
    made.full = False
    cells._close_all()
    assert cells.names() == []


def bench(**options):
    return Workbench(engine="simulated", **options)


def test_the_same_cell_run_again_goes_on_with_its_pool(world, capfd):
    world.run("wb = Workbench()")
    first = bench(replicas=2)
    name = first.config.name
    first._pool.versions = {"replica-0": 3, "replica-1": 4}
    world.run("wb = Workbench()")
    again = bench(replicas=2)
    assert world.log == [f"opened {name}"]
    assert again.config == first.config
    assert f"{name!r} before: it goes on, on weights of version 4" in capfd.readouterr().err
    first.close()
    with pytest.raises(PoolClosedError):
        _ = first.manager
    assert again.manager is again._pool
    assert cells.names() == [name]
    again.close()
    again.close()
    assert world.log == [f"opened {name}", f"closed {name}"]


def test_it_goes_on_as_often_as_it_is_run_and_is_silent_where_that_is_asked_for(world, capfd):
    for _ in range(4):
        world.run("a cell")
        last = bench(progress=False)
    assert len(world.log) == 1
    assert capfd.readouterr() == ("", "")
    last.close()
    assert len(world.log) == 2


@pytest.mark.parametrize("why", ["other arguments", "another name", "it is not well"])
def test_another_pool_from_the_same_cell_takes_the_place_of_the_former(world, why):
    world.run("wb = Workbench(...)", "cell-1")
    first = bench(name="a")
    first._pool.problem = "its controller died" if why == "it is not well" else ""
    world.run("wb = Workbench(... edited)", "cell-1")
    changes = {"other arguments": {"replicas": 2}, "another name": {"name": "b"}}
    second = bench(**{"name": "a", **changes.get(why, {})})
    name = second.config.name
    assert world.log == ["opened a", "closed a", f"opened {name}"]
    assert cells.names() == [name]


def test_a_pool_that_was_closed_is_made_anew(world):
    world.run("a cell")
    bench(name="a").close()
    world.run("a cell")
    again = bench(name="a")
    assert world.log == ["opened a", "closed a", "opened a"]
    assert again.manager


def test_the_pools_of_one_cell_are_told_apart_by_their_order(world):
    """Also where nobody has a name for them any more."""
    names = []
    for _ in range(2):
        world.run("a, b = Workbench(), Workbench()")
        names.append([bench().config.name for _ in range(2)])
    assert len(world.log) == 2
    assert names[0] == names[1]
    assert len(set(names[0])) == 2


def test_other_cells_have_pools_of_their_own(world):
    kept = []
    for text, cell_id in (("x", "1"), ("x", "2"), ("x", None), ("y", None)):
        world.run(text, cell_id)
        kept.append(bench())
    assert len(world.log) == 4
    world.run("changed, and the same cell all the same", "2")
    assert bench().config == kept[1].config
    assert len(world.log) == 4


def test_attached_again_it_is_attached_again_and_the_pool_is_left_alone(world):
    for _ in range(2):
        world.run("Workbench(name='theirs')")
        again = bench(name="theirs")
    assert world.log == ["opened theirs", "closed theirs", "opened theirs"]  # its own way there
    assert again.attached


@pytest.mark.parametrize(
    "shell", [None, SimpleNamespace(), SimpleNamespace(get_parent=lambda: None)]
)
def test_outside_of_a_notebook_each_is_a_pool_of_its_own(world, monkeypatch, shell):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    kept = [bench() for _ in range(3)]
    assert len({made.config.name for made in kept}) == len(world.log) == 3
    assert cells.spot() is None
    monkeypatch.delitem(sys.modules, "IPython")
    assert cells.spot() is None


def test_who_finds_no_room_is_told_which_pools_are_open_here(world):
    world.run("one")
    bench(name="one")
    world.run("two")
    world.full = True
    with pytest.raises(NoRoomError, match=r"2 cores are taken\. Open in this process: one; close"):
        bench(name="two")
    assert cells.names() == ["one"]


def test_a_cell_whose_pool_has_no_room_can_be_run_again(world):
    world.run("two")
    world.full = True
    with pytest.raises(NoRoomError) as refused:
        bench(name="two")
    assert str(refused.value) == "2 cores are taken"
    world.full = False
    world.run("two")
    assert bench(name="two").manager


def test_what_is_open_at_the_end_of_the_process_is_closed(world):
    kept = []
    for name in "ab":
        world.run(name)
        kept.append(bench(name=name))
    cells._close_all()
    assert sorted(world.log) == ["closed a", "closed b", "opened a", "opened b"]
