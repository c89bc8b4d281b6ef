"""Tasks come from what people have at hand, and a wrong one is named before anything runs."""

from __future__ import annotations

import datetime
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.records.made import played
from workbench.errors import ConfigError, TaskError
from workbench.rollout.agents import agent_loop
from workbench.rollout.loop import REGISTRY, AgentLoopBase, register
from workbench.rollout.single_turn import SingleTurnAgentLoop
from workbench.rollout.tasks import as_tasks, reasoning_tasks, rollout_specs, unfinished
from workbench.rollout.tool_loop import ToolAgentLoop
from workbench.trajectory import RolloutStatus


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


def pure(value):
    """Whether a value is made of Python's own types alone."""
    if isinstance(value, list):
        return type(value) is list and all(map(pure, value))
    if isinstance(value, dict):
        return all(map(pure, value.values()))
    return type(value) in {str, int, float, bool, type(None)}


MESSAGES = [{"role": "user", "content": "hi"}]


def test_values_of_a_frame_are_python_s_and_missing_cells_are_none():
    frame = pd.DataFrame(
        {
            "messages": [np.array(MESSAGES, dtype=object), None],
            "deep": [{"a": [np.array([[1], [2]]), np.float32(0.5)]}, np.nan],
            "level": pd.array([3, pd.NA], dtype="Int64"),
            "when": [pd.NaT, pd.NaT],
            "ratio": [0.5, math.nan],
        }
    )
    first, second = as_tasks(frame)
    assert first == {
        "messages": MESSAGES,
        "deep": {"a": [[[1], [2]], 0.5]},
        "level": 3,
        "when": None,
        "ratio": 0.5,
    }
    assert second == dict.fromkeys(frame.columns)
    assert pure(first)


def test_numpy_values_in_mappings_become_python_s_and_other_objects_stay():
    given, day = {"tags": np.array(["a"]), "when": np.array(["2026-01-02"], "M8[ns]")}, object()
    (task,) = as_tasks([given | {"prompt": "p", "own": day, "pair": (1, 2)}])
    assert task["own"] is day
    assert (task["tags"], task["pair"]) == (["a"], (1, 2))
    assert task["when"][0].startswith("2026-01-02")


# -- files ------------------------------------------------------------------------------------

VERL = {
    "data_source": "gsm8k",
    "prompt": MESSAGES,
    "reward_model": {"style": "rule", "ground_truth": "42"},
    "extra_info": {"index": 0, "split": "train"},
}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_files_give_a_task_per_row_with_values_of_python_s(tmp_path, suffix, kind):
    path = tmp_path / f"tasks.{suffix}"
    rows = [VERL, VERL | {"prompt": [*MESSAGES, *MESSAGES]}]
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\ufeff" + "".join(json.dumps(row) + "\r\n \r\n" for row in rows))
    assert as_tasks(kind(path)) == rows
    assert all(map(pure, as_tasks(kind(path))))
    assert len(rollout_specs(path, SingleTurnAgentLoop, 2)) == 4


def test_a_missing_cell_in_parquet_is_none(tmp_path):
    path = tmp_path / "tasks.parquet"
    pd.DataFrame({"prompt": ["a", None], "level": pd.array([1, pd.NA], dtype="Int64")}).to_parquet(
        path
    )
    assert as_tasks(path)[1] == {"prompt": None, "level": None}


@pytest.mark.parametrize("line", ["3", '"a prompt"', "[1]", "{", "\xff", "[" * 5000])
def test_a_line_that_is_no_object_is_named(tmp_path, line):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(TaskError, match="line 3 is no") as refused:
        as_tasks(path)
    assert str(path) in refused.value.problem


@pytest.mark.parametrize(
    "name", ["missing.jsonl", "missing.parquet", "text.parquet", "t.csv", "d.jsonl"]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    (tmp_path / "text.parquet").write_text("no parquet")
    (tmp_path / "t.csv").write_text("prompt\na\n")
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(TaskError) as refused:
        as_tasks(tmp_path / name)
    assert name in refused.value.problem


def test_a_missing_field_is_named_with_its_line(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"question": 1, "answer": 2}\n\n{"question": 1}\n')
    with pytest.raises(TaskError, match=r"tasks\[1\]\.answer: .*line 3 of"):
        rollout_specs(path, Needy, 1)


def test_a_data_set_gives_a_task_per_row():
    datasets = pytest.importorskip("datasets")
    assert as_tasks(datasets.Dataset.from_list([VERL, VERL])) == [VERL, VERL]


def test_an_empty_source_is_an_empty_batch(tmp_path):
    (tmp_path / "none.jsonl").write_text("")
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), tmp_path / "none.parquet")
    sources = [[], pd.DataFrame(), iter(()), tmp_path / "none.jsonl", tmp_path / "none.parquet"]
    assert [rollout_specs(source, SingleTurnAgentLoop, 2) for source in sources] == [[]] * 5


@pytest.mark.parametrize("source", [None, 3, object()])
def test_what_is_no_source_is_refused(source):
    with pytest.raises(TaskError, match="list of strings or mappings"):
        as_tasks(source)


def test_a_name_of_a_field_that_is_no_text_is_refused():
    with pytest.raises(TaskError, match=r"tasks\[0\]\.0: is no name"):
        rollout_specs(pd.DataFrame([["a"]]), SingleTurnAgentLoop, 1)


# -- going on with a batch --------------------------------------------------------------------

TASKS = ["a", {"prompt": "b", "pair": (1, 2), "on": datetime.date(2026, 1, 2)}]
BATCH = rollout_specs(TASKS, SingleTurnAgentLoop, 2)


def left(spec, status=RolloutStatus.DONE, **known):
    """What an earlier run has of it, as a file gives it back."""
    task = json.loads(json.dumps(spec.task, default=str))
    error = "E: no" if status is RolloutStatus.FAILED else ""
    return played(rollout_id=spec.rollout_id, task=task, status=status, error=error, **known)


def test_rollouts_that_are_missing_or_were_cancelled_are_still_to_be_played():
    done = left(BATCH[1])
    failed = left(BATCH[2], RolloutStatus.FAILED)
    cancelled = left(BATCH[3], RolloutStatus.CANCELLED)
    assert unfinished(BATCH, []) == BATCH
    assert unfinished(BATCH, [cancelled, failed, done]) == [BATCH[0], BATCH[3]]
    assert unfinished(BATCH, [done, failed], retry_failed=True) == [BATCH[0], *BATCH[2:]]


def test_the_last_time_that_a_rollout_was_played_counts():
    twice = [left(BATCH[0], RolloutStatus.CANCELLED), left(BATCH[0])]
    assert unfinished(BATCH, twice) == BATCH[1:]
    assert unfinished(BATCH, twice[::-1]) == BATCH


@pytest.mark.parametrize(
    "other",
    [
        {"rollout_id": "task-9/0"},
        {"task": {"prompt": "another"}},
        {"task": {"prompt": "a", "x": None}},
    ],
)
def test_what_is_left_of_another_batch_is_refused_by_its_name(other):
    foreign = played(**{"rollout_id": "task-0/1", "task": {"prompt": "a"}} | other)
    with pytest.raises(ConfigError, match=foreign.rollout_id):
        unfinished(BATCH, [left(BATCH[0]), foreign])


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
    with pytest.raises(TaskError, match=r"tasks\[1\]: has no prompt"):
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
