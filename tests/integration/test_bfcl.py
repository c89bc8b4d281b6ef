"""An outside check: reference calls of a benchmark, through our loop and by its own executor."""

from __future__ import annotations

import asyncio
import json

import pytest

bfcl = pytest.importorskip("tests.integration.bfcl", exc_type=ImportError)

from tests.unit.chat import says  # noqa: E402
from tests.unit.rollout.playing import answers, setup, spec, worker_on  # noqa: E402
from workbench.models import resolve_model  # noqa: E402
from workbench.rollout.rendering import make_renderer  # noqa: E402
from workbench.rollout.tool_loop import ToolLimits  # noqa: E402
from workbench.rollout.worker import AgentLoopWorker  # noqa: E402

LIMITS = ToolLimits(
    max_turns=100, max_response_tokens=100_000, max_calls_per_turn=20, max_result_characters=10**6
)
AGAINST_ITS_DOCS = {"multi_turn_base_173"}
"""Its reference calls a tool with a string where the tool's own description says integer."""
TASKS = sorted(bfcl.tasks().keys() - AGAINST_ITS_DOCS)


async def played(task, completions):
    """One rollout of a model that writes these completions, and the objects that it changed."""
    made = {}
    fields = {"initial_config": task["initial_config"]}
    args = says(*completions, "done", max_model_len=10**7)
    async with worker_on(args) as (worker, _):
        loop = setup(tools=bfcl.sources(task, made), limits=LIMITS)
        trajectory = await worker.run(loop, spec(task["question"][0][0]["content"], **fields))
    trajectory.check()
    assert trajectory.status == "done", trajectory.traceback
    return trajectory, made


def tagged(name, arguments):
    """A call as the scripted model writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class Mpf(float):
    """A number that we show by ``str``, and the benchmark by ``repr`` with more digits."""

    def __eq__(self, shown):
        digits = len(shown.partition(".")[2])
        return abs(self - float(shown)) <= 0.51 * 10**-digits

    __hash__ = float.__hash__


def read(text):
    """An answer of either side: JSON where we answer, Python's own form in places where it does."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return eval(text, {"__builtins__": {}, "mpf": Mpf})
    except (NameError, SyntaxError):
        return text


@pytest.mark.parametrize(
    ("task_id", "at_once"),
    [*((task_id, True) for task_id in TASKS), *((task_id, False) for task_id in TASKS[::4])],
)
async def test_reference_calls_are_answered_as_by_the_benchmarks_own_executor(task_id, at_once):
    task = bfcl.tasks()[task_id]
    turns = [[bfcl.as_call(task, written) for written in turn] for turn in task["reference"]]
    written = [[tagged(name, given) for name, given in turn] for turn in turns if turn]
    completions = [
        text for turn in written for text in (["".join(turn)] if at_once else turn)
    ]  # fmt: skip
    trajectory, made = await asyncio.wait_for(played(task, completions), 60)
    calls = [written for turn in task["reference"] for written in turn]
    wanted, apis = bfcl.executed(task, calls, "reference")
    assert [read(text) for text in wanted] == [read(text) for text in answers(trajectory)]
    assert list(made) == list(apis) == task["involved_classes"]
    assert not any(bfcl.difference(made[name], api) for name, api in apis.items())


REAL = [task_id for task_id in TASKS if "_base_1" in task_id][::20]


@pytest.mark.ray
@pytest.mark.vllm
async def test_calls_of_a_real_model_are_answered_as_by_the_benchmarks_own_executor(bench):
    """It writes what a grammar makes it write, which is as well-formed as any model's calls."""
    reference = bench.config.model
    renderer = make_renderer(str(resolve_model(reference)), reference)
    async with bench.client() as client:
        worker = AgentLoopWorker(client, renderer)
        checked = await asyncio.gather(*(check_one(worker, task_id) for task_id in REAL))
    assert sum(checked) >= 4 * len(REAL), "most of what it was asked for was written"


async def check_one(worker, task_id):
    """How many calls were written, executed and answered alike."""
    task, made = bfcl.tasks()[task_id], {}
    names = sorted({bfcl.as_call(task, line)[0] for turn in task["reference"] for line in turn})
    loop = setup(
        tools=bfcl.sources(task, made),
        limits=ToolLimits(max_turns=3, max_result_characters=10**6),
        sampling={
            "temperature": 0,
            "max_tokens": 160,
            "structured_outputs": bfcl.calls_only(task, names, 2),
        },
    )
    fields = {"initial_config": task["initial_config"], "tools": names}
    played = await worker.run(loop, spec(task["question"][0][0]["content"], **fields))
    played.check()
    assert played.status == "done", played.traceback
    assert answers(played) == [call.result for call in played.tool_calls]
    run = [call for call in played.tool_calls if call.well_formed]
    lines = [bfcl.as_python(call.name, call.arguments) for call in run]
    wanted, apis = bfcl.executed(task, lines, "real")
    assert [alike(text) for text in wanted] == [alike(call.result) for call in run]
    assert not any(bfcl.difference(made[name], api) for name, api in apis.items())
    return len(run)


def alike(text):
    """An answer, without the words that either side puts before a tool's own error."""
    for before in ("Error during execution: ", "error: "):
        if text.startswith(before):
            return text.removeprefix(before).split(": ")[-1]
    return read(text)
