"""Tasks come from what people have at hand, and a wrong one is named before anything runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workbench.errors import ConfigError, TaskError
from workbench.rollout.agents import agent_loop
from workbench.rollout.loop import REGISTRY, AgentLoopBase, register
from workbench.rollout.single_turn import SingleTurnAgentLoop
from workbench.rollout.tasks import as_tasks, reasoning_tasks, rollout_specs
from workbench.rollout.tool_loop import ToolAgentLoop


class Needy(AgentLoopBase):
    requires = ("question", "answer")

    async def run(self, *_, **__):
        raise AssertionError("is not run here")


def test_strings_are_prompts_and_mappings_are_tasks():
    assert as_tasks(["a", {"prompt": "b", "answer": 1}]) == [
        {"prompt": "a"},
        {"prompt": "b", "answer": 1},
    ]


def test_a_generator_of_tasks_will_do():
    assert as_tasks(f"p{i}" for i in range(2)) == [{"prompt": "p0"}, {"prompt": "p1"}]


def test_a_frame_gives_a_task_per_row():
    frame = pd.DataFrame({"prompt": ["a", "b"], "answer": [1, 2]}, index=[7, 8])
    assert as_tasks(frame) == [{"prompt": "a", "answer": 1}, {"prompt": "b", "answer": 2}]


def test_conversations_from_parquet_are_conversations():
    """There a list is an array."""
    messages = np.array([{"role": "user", "content": "hi"}], dtype=object)
    (spec,) = rollout_specs(pd.DataFrame({"messages": [messages]}), SingleTurnAgentLoop, 1)
    assert len(spec.task["messages"]) == 1


@pytest.mark.parametrize("one", ["a single prompt", {"prompt": "a single task"}])
def test_one_task_in_place_of_many_is_refused(one):
    """As iterables they would be taken for their letters, or for their fields."""
    with pytest.raises(TaskError, match="list"):
        as_tasks(one)


def test_what_is_no_task_is_refused_by_its_position():
    with pytest.raises(TaskError, match=r"tasks\[1\]"):
        as_tasks(["a", 3])


def test_tasks_are_not_changed_by_what_is_done_to_their_copies():
    given = {"prompt": "a"}
    as_tasks([given])[0]["prompt"] = "b"
    assert given == {"prompt": "a"}


def test_the_rollouts_of_a_task_stand_side_by_side_in_one_group():
    specs = rollout_specs(["a", "b"], SingleTurnAgentLoop, 2)
    assert [(s.rollout_id, s.group, s.index) for s in specs] == [
        ("task-0/0", "task-0", 0),
        ("task-0/1", "task-0", 1),
        ("task-1/0", "task-1", 0),
        ("task-1/1", "task-1", 1),
    ]
    assert [s.task["prompt"] for s in specs] == ["a", "a", "b", "b"]


def test_a_missing_field_is_named_with_its_task():
    with pytest.raises(TaskError) as refused:
        rollout_specs([{"question": 1, "answer": 2}, {"question": 1}], Needy, 1)
    assert refused.value.field == "tasks[1].answer"
    assert "['question']" in str(refused.value)


@pytest.mark.parametrize("loop", [SingleTurnAgentLoop, ToolAgentLoop])
def test_a_task_without_a_conversation_is_named_before_anything_runs(loop):
    with pytest.raises(TaskError, match=r"tasks\[1\].*neither a prompt nor messages"):
        rollout_specs(["fine", {"question": "?"}], loop, 1)


@pytest.mark.parametrize("n", [0, -1, 1.5, "2"])
def test_a_number_of_rollouts_that_is_none_is_refused(n):
    with pytest.raises(ConfigError, match="whole number from 1"):
        rollout_specs(["a"], SingleTurnAgentLoop, n)


def test_agents_are_found_by_name_and_by_class():
    assert agent_loop("tool") == ("tool", ToolAgentLoop)
    assert agent_loop(ToolAgentLoop) == ("tool", ToolAgentLoop)
    assert agent_loop(Needy) == ("Needy", Needy)


@pytest.mark.parametrize("agent", ["tooool", 3, int])
def test_what_is_no_agent_is_refused(agent):
    with pytest.raises(ConfigError) as refused:
        agent_loop(agent)
    assert refused.value.field == "agent"
    assert agent != "tooool" or "single_turn, tool" in refused.value.allowed


def test_registering_a_name_again_replaces_it(monkeypatch):
    monkeypatch.delitem(REGISTRY, "mine", raising=False)
    register("mine")(Needy)
    again = register("mine")(type("Again", (Needy,), {}))
    assert agent_loop("mine") == ("mine", again)


def test_reasoning_tasks_are_the_same_each_time_and_carry_what_their_verifier_needs():
    one, two = (reasoning_tasks("chain_sum", size=2, seed=3) for _ in range(2))
    assert one == two
    assert {"prompt", "answer", "dataset", "entry"} <= one[0].keys()


@pytest.mark.parametrize(("dataset", "options"), [("chain_sums", {}), ("chain_sum", {"nope": 1})])
def test_an_unknown_data_set_or_option_is_refused(dataset, options):
    with pytest.raises(ConfigError) as refused:
        reasoning_tasks(dataset, size=1, **options)
    assert refused.value.field == "dataset"
