"""Tools of real MCP servers, over both transports, from rollouts of a scripted model."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.processes import MARK, left_behind, marked, new_mark
from tests.unit.chat import call, says
from tests.unit.rollout.playing import answers, echo, setup, spec, worker_on
from workbench.errors import ConfigError
from workbench.rollout.tool_loop import ToolLimits
from workbench.rollout.tools import McpTools
from workbench.rollout.tools.mcp import _LINES

pytestmark = pytest.mark.slow

PROGRAM = str(Path(__file__).with_name("mcp_server.py"))
LIMIT_S = 50.0
"""Of one test's rollouts; a server takes seconds to start on a busy machine."""


@pytest.fixture
def mark():
    mark = new_mark()
    yield mark
    assert not left_behind(mark, 10)


def stdio(mark, *args, **options):
    return McpTools.stdio(sys.executable, PROGRAM, *args, env={MARK: mark}, **options)


class HttpServer:
    """A server on the network, that can be started again in its place."""

    def __init__(self, mark):
        self._env = {**os.environ, MARK: mark}
        self.port = 0
        self.start()
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def start(self):
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM, "http", str(self.port)],
            stdout=subprocess.PIPE,
            env=self._env,
            text=True,
        )
        self.port = int(self._process.stdout.readline())

    def kill(self):
        with self._process:
            self._process.kill()


@pytest.fixture
def http(mark):
    server = HttpServer(mark)
    yield server
    server.kill()


async def play(*texts, tools, **limits):
    """One rollout of a model that says these texts in turn."""
    made = setup(tools=tools, limits=ToolLimits(**{"tool_timeout_s": LIMIT_S, **limits}))
    async with worker_on(says(*texts)) as (worker, _), asyncio.timeout(LIMIT_S):
        trajectory = await worker.run(made, spec())
    trajectory.check()
    return trajectory


ADD = call("add", step=2)


async def test_each_rollout_has_a_server_of_its_own(mark):
    tools = [stdio(mark), echo]
    script = [ADD, ADD, call("describe"), "ok"]
    for trajectory in await asyncio.gather(*(play(*script, tools=tools) for _ in range(2))):
        assert trajectory.status == "done", trajectory.error
        assert answers(trajectory) == ["2", "4", '{\n  "count": 4\n}']
        assert trajectory.notes == ()


async def test_what_the_server_says_of_an_error_is_what_the_model_reads(mark):
    trajectory = await play(call("fail") + call("add", step="x"), "ok", tools=[stdio(mark)])
    failed, refused = trajectory.tool_calls
    assert "it cannot be done" in failed.result
    assert failed.error == failed.result
    assert (failed.well_formed, refused.well_formed) == (True, False)
    assert refused.result == "error: add: step: 'x' is not of type 'integer'"


async def test_a_call_that_hangs_ends_at_its_limit_and_the_server_goes_on(mark):
    trajectory = await play(
        call("hang") + ADD, ADD, "ok", tools=[stdio(mark)], tool_timeout_s=1.0
    )  # fmt: skip
    assert answers(trajectory) == ["error: hang took longer than 1 s", "2", "4"]


async def test_a_server_that_dies_answers_what_is_in_flight_with_an_error(mark):
    trajectory = await play(call("hang") + call("die"), ADD, "ok", tools=[stdio(mark)])
    assert trajectory.status == "done"
    told = answers(trajectory)
    assert len(told) == 3
    assert all(text == f"error: the MCP server {stdio(mark).name} is gone" for text in told)


async def test_a_server_that_does_not_start_is_a_failed_row_that_quotes_it(mark):
    trajectory = await play("hm", tools=[stdio(mark, "broken")])
    assert trajectory.status == "failed"
    assert PROGRAM in trajectory.error
    assert "this server has a bad day" in trajectory.error


async def test_a_program_that_there_is_not_is_a_failed_row_that_names_it():
    trajectory = await play("hm", tools=[McpTools.stdio("/no/such/program")])
    assert "the MCP server /no/such/program cannot be reached: FileNotFound" in trajectory.error


async def test_a_server_that_says_nothing_is_given_up(mark):
    silent = McpTools.stdio("sleep", "60", env={MARK: mark})
    trajectory = await play("hm", tools=[silent], open_timeout_s=1.0)
    assert trajectory.error.endswith("sleep 60 could not be opened: it took longer than 1 s")


async def test_a_cancelled_rollout_leaves_no_server(mark):
    async with worker_on(says(call("hang"))) as (worker, pool), asyncio.timeout(LIMIT_S):
        limits = ToolLimits(tool_timeout_s=LIMIT_S)
        made = setup(tools=[stdio(mark)], limits=limits)
        playing = asyncio.ensure_future(worker.run(made, spec()))
        while not pool.engines[0].figures().finished:
            await asyncio.sleep(0.01)
        assert marked(mark)
        playing.cancel()
        assert (await playing).status == "cancelled"
    assert not marked(mark)


def test_a_worker_that_is_killed_leaves_no_server(mark):
    code = (
        "import asyncio, sys\n"
        "from workbench.rollout.tools import McpTools\n"
        "async def main():\n"
        "    session = await McpTools.stdio(*sys.argv[2:], env={sys.argv[1]: MARK}).open({})\n"
        "    print('open', flush=True)\n"
        "    await session.tools['hang'].call({})\n"
        f"MARK = {mark!r}\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, MARK, sys.executable, PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout.readline() == "open\n"
        assert marked(mark)
        worker.kill()
    assert not left_behind(mark, 20)


async def test_a_shared_server_serves_all_and_ends_with_the_last(mark):
    shared = stdio(mark, shared=True)
    copies = [shared, pickle.loads(pickle.dumps(shared))]
    script = [call("process"), ADD, "ok"]
    played = await asyncio.gather(*(play(*script, tools=[copies[n % 2]]) for n in range(4)))
    assert len({answers(trajectory)[0] for trajectory in played}) == 1
    assert sorted(answers(trajectory)[1] for trajectory in played) == ["2", "4", "6", "8"]
    assert not marked(mark)
    assert not any(_LINES.values())


async def test_a_shared_server_that_died_is_started_anew_for_the_next_rollout(mark):
    shared = stdio(mark, shared=True)
    keeping = await shared.open({})
    before = await keeping.tools["process"].call({})
    os.kill(int(before), signal.SIGKILL)
    script = [call("process"), "ok"]
    played = await asyncio.gather(*(play(*script, tools=[shared]) for _ in range(2)))
    others = {answers(trajectory)[0] for trajectory in played}
    assert len(others) == 1
    assert others != {before}
    await keeping.close()


async def test_a_server_on_the_network_is_spoken_to_over_http(http):
    there = McpTools.http(http.url, {"x-who": "tests"})
    trajectory = await play(
        ADD + call("fail"), call("hang"), ADD, "ok", tools=[there], tool_timeout_s=5.0
    )
    added, failed, hung, again = answers(trajectory)
    assert (added, again) == ("2", "4")
    assert "it cannot be done" in failed
    assert hung == "error: hang took longer than 5 s"
    assert trajectory.notes == ()


@pytest.mark.parametrize("shared", [False, True])
async def test_a_server_on_the_network_that_dies_is_an_error_to_the_model(http, shared):
    there = McpTools.http(http.url, shared=shared)
    trajectory = await play(call("hang") + call("die"), ADD, "ok", tools=[there])
    assert trajectory.status == "done"
    assert answers(trajectory) == [f"error: the MCP server {http.url} is gone"] * 3


async def test_a_server_on_the_network_that_is_back_serves_the_same_rollout(http):
    def restart() -> str:
        """Start it again."""
        http.kill()
        http.start()
        return "back"

    tools = [McpTools.http(http.url), restart]
    script = [ADD, call("die"), call("restart"), ADD, "ok"]
    trajectory = await play(*script, tools=tools, max_turns=9)
    gone = f"error: the MCP server {http.url} is gone"
    assert answers(trajectory) == ["2", gone, "back", "2"]


async def test_a_server_that_nobody_runs_is_a_failed_row_that_names_it():
    trajectory = await play("hm", tools=[McpTools.http("http://127.0.0.1:9/mcp")])
    assert "the MCP server http://127.0.0.1:9/mcp cannot be reached" in trajectory.error


@pytest.mark.ray
@pytest.mark.vllm
def test_rollouts_of_a_pool_reach_their_servers(bench, mark):
    """A real model, made to write well-formed calls; on workers, to which the tools travel."""
    form = r'<tool_call>\{"name": "add", "arguments": \{"step": [1-3]\}\}</tool_call>'
    sampling = {"temperature": 0, "max_tokens": 64, "structured_outputs": {"regex": form}}
    limits = ToolLimits(max_turns=2, tool_timeout_s=LIMIT_S)
    for shared in (False, True):
        rollout = bench.rollout(
            ["Count."], "tool", n=4,
            tools=[stdio(mark, shared=shared)], limits=limits, sampling_params=sampling,
        )  # fmt: skip
        for trajectory in rollout.result():
            assert trajectory.status == "done", trajectory.error
            told = [(call.name, call.error) for call in trajectory.tool_calls]
            assert told == [("add", "")] * 2
            assert all(call.result.isdigit() for call in trajectory.tool_calls)
    assert not left_behind(mark, 20)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: McpTools.stdio(""), "command"),
        (lambda: McpTools.stdio("x", 3), "command"),
        (lambda: McpTools.http("localhost:1"), "url"),
    ],
)
def test_servers_that_are_none_are_refused_by_name(make, field):
    with pytest.raises(ConfigError) as refused:
        make()
    assert refused.value.field == field
