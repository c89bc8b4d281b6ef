"""Tasks by position: in an order, again and again, from lists and from iterators."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from workbench.errors import ConfigError, StreamError, TaskError
from workbench.rollout.single_turn import SingleTurnAgentLoop
from workbench.stream.source import TaskSource, check_tasks, digest


def source(tasks, **options):
    return TaskSource(tasks, SingleTurnAgentLoop, **options)


async def prompts(made, positions):
    tasks = [await made.task(position) for position in positions]
    return [None if task is None else task["prompt"] for task in tasks]


async def test_a_list_is_played_once_and_its_end_is_known_before():
    made = source(["a", "b"])
    assert made.total == 2
    assert await prompts(made, range(3)) == ["a", "b", None]


async def test_epochs_go_on_counting_and_without_a_number_of_them_there_is_no_end():
    assert await prompts(source(["a", "b"], epochs=2), range(5)) == ["a", "b", "a", "b", None]
    endless = source(["a", "b"], epochs=None)
    assert endless.total is None
    assert await prompts(endless, [10**9 + 1]) == ["b"]


async def test_each_epoch_has_an_order_of_its_own_that_is_the_same_in_every_process():
    tasks = [str(number) for number in range(30)]
    order = await prompts(source(tasks, epochs=3, shuffle=7), range(90))
    epochs = [order[start : start + 30] for start in (0, 30, 60)]
    assert all(sorted(epoch, key=int) == tasks for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0][:4] == ["15", "2", "24", "7"]
    assert await prompts(source(tasks, epochs=3, shuffle=7), [61, 2, 60]) == [
        epochs[2][1], epochs[0][2], epochs[2][0],
    ]  # fmt: skip


async def test_an_iterator_is_read_as_far_as_asked_and_its_tasks_are_found_again():
    read = []

    def endless():
        for number in itertools.count():
            read.append(number)
            yield f"task {number}"

    made = source(endless())
    assert await prompts(made, [2, 0]) == ["task 2", "task 0"]
    assert read == [0, 1, 2]
    assert made.total is None


async def test_tasks_that_are_asked_for_together_are_read_one_after_the_other():
    made = source(f"task {number}" for number in range(3))
    asked = await asyncio.gather(*(made.task(position) for position in (4, 1, 0, 3, 2)))
    assert [task and task["prompt"] for task in asked] == [None, "task 1", "task 0", None, "task 2"]
    assert made.total == 3


async def test_the_end_of_an_iterator_is_known_once_it_was_reached():
    made = source(iter(["a", {"prompt": "b"}]))
    assert await prompts(made, [0, 5, 1, 2]) == ["a", None, "b", None]
    assert made.total == 2


async def test_an_iterator_that_raises_stops_the_stream_with_its_error():
    def breaking():
        yield "a"
        raise OSError("the disk is gone")

    made = source(breaking())
    assert await prompts(made, [0]) == ["a"]
    with pytest.raises(StreamError, match="raised at task 1: OSError: the disk is gone"):
        await made.task(1)


async def test_an_item_that_is_no_task_keeps_its_position_and_the_others_theirs():
    made = source(iter(["a", 3, "b"]))
    with pytest.raises(TaskError, match=r"tasks\[1\]"):
        await made.task(1)
    assert await prompts(made, [0, 2, 3]) == ["a", "b", None]
    assert made.total == 3


async def test_what_is_settled_is_forgotten_so_that_an_iterator_may_be_endless():
    made = source(f"task {number}" for number in itertools.count())
    await prompts(made, range(50))
    made.forget(48)
    assert await prompts(made, [48, 50]) == ["task 48", "task 50"]
    assert len(made._tasks) == 3


async def test_a_task_that_lacks_a_field_is_named_by_its_place():
    with pytest.raises(TaskError, match=r"tasks\[1\]"):
        source(["a", {"question": "b"}])
    later = source(iter(["a", {"question": "b"}]))
    with pytest.raises(TaskError, match=r"tasks\[1\]"):
        await later.task(1)


@pytest.mark.parametrize(
    ("tasks", "options", "told"),
    [
        (["a"], {"epochs": 0}, "epochs"),
        (["a"], {"epochs": True}, "epochs"),
        (["a"], {"shuffle": "yes"}, "shuffle"),
        ([], {}, "at least one"),
        (iter(["a"]), {"epochs": None}, "read once"),
        (iter(["a"]), {"shuffle": 1}, "read once"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tasks, options, told):
    with pytest.raises((ConfigError, TaskError), match=told):
        source(tasks, **options)


async def test_a_stream_of_other_tasks_is_not_gone_on_with():
    known = {position: digest({"prompt": text}) for position, text in enumerate("abc")}
    await check_tasks(source(["a", "b", "c", "d"]), known)
    await check_tasks(source(iter("abc")), known)
    for tasks in (["a", "x", "c"], ["b", "a", "c"]):
        with pytest.raises(ConfigError, match=r"^folder.*position [01] differs"):
            await check_tasks(source(tasks), known)
    with pytest.raises(ConfigError, match="position 2 differs"):
        await check_tasks(source(["a", "b"]), known)


def test_a_digest_tells_tasks_apart_whatever_the_order_of_their_fields():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
