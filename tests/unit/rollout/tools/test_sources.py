"""What is opened for a rollout is closed when it is over, however it ends."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import ClassVar

import pytest

from tests.unit.chat import call, says
from tests.unit.inprocess import WAIT_S, until, virtually
from tests.unit.rollout.playing import answers, echo, play, setup, spec, worker_on
from workbench.errors import ConfigError
from workbench.rollout.tool_loop import ToolAgentLoop, ToolLimits
from workbench.rollout.tools import StatefulTool, ToolBox, tool, tools_of


class Counter(StatefulTool):
    """Counts what it is told."""

    def __init__(self):
        self.created, self.released = [], []

    def create(self, task):
        state = {"count": 0, "of": task["prompt"]}
        self.created.append(state)
        return state

    async def execute(self, state, step: int = 1) -> int:
        """Count on.

        Args:
            step: By how much.
        """
        state["count"] += step
        return state["count"]

    async def release(self, state):
        self.released.append(state)


class Broken(Counter):
    name = "broken"

    def create(self, task):
        raise OSError("no room")


class Keeping(Counter):
    name = "keeping"

    def release(self, state):
        raise OSError("it is stuck")


COUNT = call("counter", step=2)


async def test_a_rollout_has_one_state_for_all_its_calls():
    counter = Counter()
    trajectory = await play(COUNT + COUNT, COUNT, "done", tools=[counter])
    assert answers(trajectory) == ["2", "4", "6"]
    assert counter.created == counter.released == [{"count": 6, "of": "1+1?"}]


async def test_rollouts_share_no_state():
    counter = Counter()
    for _ in range(2):
        assert answers(await play(COUNT, "done", tools=[counter])) == ["2"]
    assert counter.created == counter.released
    assert len(counter.created) == 2


async def test_calls_of_one_turn_reach_a_state_in_the_order_in_which_they_were_written():
    """The first takes the longest: side by side, the last would be the first to arrive."""

    class Slow(Counter):
        async def execute(self, state, step: int = 1) -> int:
            """Count on.

            Args:
                step: By how much.
            """
            for _ in range(20 - step):
                await asyncio.sleep(0)
            return await super().execute(state, step)

    class Log:
        def __init__(self, task):
            self.lines = []

        async def write(self, number: int) -> list[int]:
            """Write it down.

            Args:
                number: What.
            """
            for _ in range(20 - number):
                await asyncio.sleep(0)
            self.lines.append(number)
            return self.lines

    written = "".join(call("slow", step=n) + call("write", number=n) for n in (1, 9, 17))
    trajectory = await play(
        written, "ok", tools=[Slow, tools_of(Log)], limits=ToolLimits(max_calls_per_turn=6)
    )
    assert answers(trajectory) == ["1", "[1]", "10", "[1, 9]", "27", "[1, 9, 17]"]


def test_the_model_sees_no_state():
    made = Counter()
    function = made.spec["function"]
    assert (made.tool_name, function["name"]) == ("counter", "counter")
    assert function["description"] == "Count on."
    assert list(function["parameters"]["properties"]) == ["step"]


def test_a_class_is_called_by_its_name_in_snake_case():
    class HTTPGetPage(Counter):
        pass

    assert HTTPGetPage().tool_name == "http_get_page"


def test_a_stateful_tool_without_hints_is_refused():
    class Vague(Counter):
        def execute(self, state, step):
            """Count on.

            Args:
                step: By how much.
            """

    with pytest.raises(ConfigError, match="'step'"):
        ToolBox.of([Vague])


async def test_a_class_of_a_stateful_tool_is_as_good_as_an_object():
    class Once(Counter):
        pass

    trajectory = await play(call("once") + call("once"), "done", tools=[Once, echo])
    assert answers(trajectory) == ["1", "2"]


async def test_a_state_that_cannot_be_made_is_a_failed_row_and_the_others_are_released():
    first, last = Counter(), Counter()
    last.name = "last"
    trajectory = await play("hm", tools=[first, Broken(), last])
    assert trajectory.status == "failed"
    assert trajectory.error == (
        "RolloutError: the tool broken could not be opened: OSError: no room"
    )
    assert first.created == first.released != []
    assert last.created == []


async def test_a_release_that_fails_is_a_note_and_the_others_are_released():
    counter = Counter()
    trajectory = await play(COUNT, "done", tools=[counter, Keeping()])
    assert trajectory.status == "done"
    assert trajectory.notes == ("the tool keeping was not closed: OSError: it is stuck",)
    assert counter.created == counter.released != []


@virtually
async def test_a_state_that_takes_too_long_is_a_failed_row():
    class Slow(Counter):
        async def create(self, task):
            await asyncio.Event().wait()

    trajectory = await play("hm", tools=[Slow()], limits=ToolLimits(open_timeout_s=3), limit_s=30)
    assert trajectory.error.endswith("slow could not be opened: it took longer than 3 s")


async def test_a_cancelled_rollout_releases_its_state():
    running = asyncio.Event()

    class Hanging(Counter):
        async def execute(self, state) -> str:
            """Hang."""
            running.set()
            return str(await asyncio.Event().wait())

    counter = Hanging()
    async with worker_on(says(call("hanging"))) as (worker, _):
        playing = asyncio.ensure_future(worker.run(setup(tools=[counter]), spec()))
        async with asyncio.timeout(WAIT_S):
            await running.wait()
        playing.cancel()
        trajectory = await playing
    assert trajectory.status == "cancelled"
    assert counter.created == counter.released != []


async def test_a_release_that_is_under_way_is_not_cancelled():
    releasing, go_on = asyncio.Event(), asyncio.Event()

    class Thorough(Counter):
        async def release(self, state):
            releasing.set()
            await go_on.wait()
            await super().release(state)

    counter = Thorough()
    async with worker_on(says("hm")) as (worker, _), asyncio.timeout(WAIT_S):
        playing = asyncio.ensure_future(worker.run(setup(tools=[counter]), spec()))
        await releasing.wait()
        playing.cancel()
        await asyncio.sleep(0)
        go_on.set()
        assert (await playing).status == "cancelled"
    assert counter.created == counter.released != []


async def test_a_state_that_is_there_too_late_is_released_by_its_own_thread():
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Counter):
        def create(self, task):
            begun.set()
            go_on.wait(WAIT_S)
            return super().create(task)

    counter = Slow()
    async with worker_on(says("hm")) as (worker, _):
        playing = asyncio.ensure_future(worker.run(setup(tools=[counter]), spec()))
        await until(begun.is_set)
        playing.cancel()
        assert (await playing).status == "cancelled"
    assert counter.created == []
    go_on.set()
    await until(lambda: counter.created == counter.released != [])


def test_two_tools_of_one_name_are_refused_at_once():
    class Echo(Counter):
        pass

    with pytest.raises(ConfigError, match="'echo'"):
        ToolBox.of([echo, Echo])


@pytest.mark.parametrize("tools", ["echo", echo, [3], None])
def test_what_are_no_tools_are_refused(tools):
    with pytest.raises(ConfigError) as refused:
        ToolAgentLoop(client=None, renderer=None, tools=tools)
    assert refused.value.field == "tools"


# -- objects ---------------------------------------------------------------------------------


class Shelf:
    """An environment."""

    ended: ClassVar[list] = []

    def __init__(self, task):
        self.things = list(task.get("things", ()))

    def put(self, thing: str) -> str:
        """Put something on it.

        Args:
            thing: What.
        """
        self.things.append(thing)
        return f"{len(self.things)} things"

    async def look(self) -> list[str]:
        """See what is there."""
        return self.things

    def secret(self):
        return "no docstring, no tool"

    def _inner(self):
        """Not public."""

    def close(self):
        """End it."""
        self.ended.append(self.things)


async def test_an_objects_methods_are_tools_over_one_object_per_rollout():
    Shelf.ended.clear()
    written = call("put", thing="a") + call("look")
    trajectory = await play(written, "done", tools=[tools_of(Shelf)], task={"things": ["z"]})
    assert answers(trajectory) == ["2 things", '["z", "a"]']
    assert Shelf.ended == [["z", "a"]]


async def opened(source, task=None):
    session = await source.open(task or {})
    await session.close()
    return list(session.tools)


async def test_public_methods_with_docstrings_are_tools_unless_they_are_named():
    assert await opened(tools_of(Shelf)) == ["put", "look"]
    assert await opened(tools_of(Shelf, names=["look"])) == ["look"]


async def test_specs_stand_in_for_hints_and_docstrings():
    bare = {"name": "secret", "description": "Tell.", "parameters": {"type": "object"}}
    source = tools_of(Shelf, specs={"secret": bare})
    session = await source.open({})
    assert session.tools["secret"].spec == {"type": "function", "function": bare}
    assert await session.tools["secret"].call({}) == "no docstring, no tool"
    await session.close()


async def test_a_method_that_there_is_not_is_refused_and_the_object_is_closed():
    Shelf.ended.clear()
    trajectory = await play("hm", tools=[tools_of(Shelf, names=["take"])])
    assert trajectory.error == (
        "ConfigError: tool 'take': Shelf has no such method (allowed: put, look)"
    )
    assert Shelf.ended == [[]]


async def test_two_sources_with_a_tool_of_one_name_are_a_failed_row_that_says_so():
    Shelf.ended.clear()
    trajectory = await play("hm", tools=[tools_of(Shelf), tools_of(Shelf)])
    assert trajectory.error == "ConfigError: tools: two tools are called 'put'"
    assert Shelf.ended == [[], []]


async def test_an_async_end_is_awaited():
    ended = []

    class Session:
        async def aclose(self):
            await asyncio.sleep(0)
            ended.append(self)

        def close(self):
            raise AssertionError

    async def make(task):
        return Session()

    assert await opened(tools_of(make)) == []
    assert len(ended) == 1


def test_what_makes_nothing_is_refused():
    with pytest.raises(ConfigError) as refused:
        tools_of(Shelf({}))
    assert refused.value.field == "make"


def test_sources_travel_to_other_processes():
    assert pickle.loads(pickle.dumps(tools_of(Shelf))).name == "Shelf"
    assert pickle.loads(pickle.dumps(Counter())).tool_name == "counter"


# -- a source of one's own -------------------------------------------------------------------


async def test_whatever_opens_is_a_source():
    class Session:
        def __init__(self):
            self.tools = {"echo": tool(echo)}
            self.closed = False

        async def close(self):
            self.closed = True

    session = Session()

    class Source:
        async def open(self, task):
            return session

    trajectory = await play(call("echo", text="x"), "done", tools=[Source()])
    assert answers(trajectory) == ["x"]
    assert session.closed
