"""Tasks, and the rollouts of them. Each agent loop says which fields of a task it needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from workbench.errors import ConfigError, TaskError
from workbench.records.plain import plain
from workbench.rollout.sources import is_file, pythonic, read_tasks, tasks_of_frame
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.rollout.loop import AgentLoopBase
    from workbench.trajectory import Trajectory

Task = Mapping[str, Any]
Tasks = str | Path | Iterable[str | Task] | pd.DataFrame


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """One rollout to play."""

    rollout_id: str
    group: str
    """Shared by the n rollouts of one task."""
    index: int
    task: Task


def as_tasks(source: Tasks) -> list[dict[str, Any]]:
    """Tasks from whatever there is at hand.

    Args:
        source: strings (prompts) and mappings; the rows of a DataFrame or of a data set of Hugging
            Face's; or the path of a file in ``.jsonl`` (an object per line) or ``.parquet``. Lists
            and numbers are Python's, also where the source has numpy's; a missing cell is None.

    Raises:
        TaskError: an item is no task, or a file cannot be read; names its position or line. Or
            there is one task instead of several.
    """
    return [task for _, task in _placed(source)]


def _placed(source: Tasks) -> list[tuple[str, dict[str, Any]]]:
    """Tasks, each with where in a file it is; empty where it is in none."""
    if is_file(source):
        return read_tasks(Path(source))
    if isinstance(source, str | Mapping):
        allowed = "a list of tasks, or a path that ends in .jsonl or .parquet"
        raise TaskError("tasks", f"{source!r} is one task", allowed=allowed)
    if isinstance(source, pd.DataFrame):
        return [("", task) for task in tasks_of_frame(source)]
    if not isinstance(source, Iterable):
        raise TaskError("tasks", f"{source!r}", allowed="a list of strings or mappings")
    return [("", _task(item, position)) for position, item in enumerate(source)]


def _task(item: Any, position: int) -> dict[str, Any]:
    if isinstance(item, str):
        return {"prompt": item}
    if isinstance(item, Mapping):
        return {name: pythonic(value) for name, value in item.items()}
    raise TaskError(f"tasks[{position}]", f"{item!r}", allowed="a string or a mapping")


def rollout_specs(
    tasks: Tasks, loop: type[AgentLoopBase], n: int, *, spare: int = 0
) -> list[RolloutSpec]:
    """``n`` rollouts of each task and ``spare`` ones, the rollouts of a task side by side.

    Raises:
        TaskError: a task lacks what the loop needs; names the task and the field.
        ConfigError: ``n`` is no whole number from 1.
    """
    if not isinstance(n, int) or n < 1:
        raise ConfigError("n", f"{n!r}", allowed="a whole number from 1")
    placed = _placed(tasks)
    for position, (place, task) in enumerate(placed):
        check_task(task, loop, f"tasks[{position}]", place)
    indices = range(n + spare)
    return [
        RolloutSpec(f"task-{position}/{index}", f"task-{position}", index, task)
        for (position, (_, task)), index in itertools.product(enumerate(placed), indices)
    ]


def check_task(task: Task, loop: type[AgentLoopBase], name: str, place: str = "") -> None:
    """Refuse a task that the loop cannot play.

    Args:
        task: what is looked at.
        loop: says which fields it needs.
        name: of the task, for the error.
        place: where it stands in a file; empty where it is in none.

    Raises:
        TaskError: it lacks a field.
    """
    try:
        _check_names(task)
        loop.check_task(task)
    except TaskError as error:
        field = name + (f".{error.field}" if error.field != "task" else "")
        problem = f"{error.problem} ({place})" if place else error.problem
        raise TaskError(field, problem, allowed=error.allowed or None) from None


def _check_names(task: Mapping[Any, Any]) -> None:
    for name in ("self", "sampling_params"):
        if name in task:
            raise TaskError(name, "is a name that the agent loop itself uses")
    for name in task:
        if not isinstance(name, str):
            raise TaskError(f"{name!r}", "is no name of a field", allowed="a string")


def unfinished(
    specs: Sequence[RolloutSpec], played: Iterable[Trajectory], *, retry_failed: bool = False
) -> list[RolloutSpec]:
    """The rollouts that an earlier run of the batch did not play to an end, in their order.

    Args:
        specs: all rollouts of the batch.
        played: what the earlier run left; where a rollout occurs several times its last one counts.
        retry_failed: play those that failed again, too.

    Raises:
        ConfigError: a trajectory is of no rollout of this batch, or of another task than the
            rollout has; names the first. Tasks are compared as JSON has them.
    """
    tasks = {plain(spec.rollout_id): spec.task for spec in specs}
    known = dict.fromkeys(tasks)
    ended = {RolloutStatus.DONE} if retry_failed else {RolloutStatus.DONE, RolloutStatus.FAILED}
    statuses: dict[str, RolloutStatus] = {}
    for trajectory in played:
        name = plain(trajectory.rollout_id)
        if name not in tasks:
            raise _refusal(f"{name!r} is no rollout of this batch")
        if known[name] is None:
            known[name] = plain(tasks[name])
        if known[name] != plain(trajectory.task):
            raise _refusal(f"{name!r} has another task there")
        statuses[name] = trajectory.status
    return [spec for spec in specs if statuses.get(plain(spec.rollout_id)) not in ended]


def _refusal(problem: str) -> ConfigError:
    return ConfigError("played", problem, allowed="trajectories of an earlier run of this batch")


def reasoning_tasks(dataset: str, *, size: int, seed: int = 0, **options: Any) -> list[Task]:
    """Tasks with checkable answers from reasoning-gym, made here and now, the same each time.

    Each has ``prompt``, ``answer``, ``dataset`` and ``entry`` (what its verifier needs).

    Raises:
        ConfigError: reasoning-gym has no such data set, or not with these options.
    """
    import reasoning_gym

    try:
        entries = reasoning_gym.create_dataset(dataset, size=size, seed=seed, **options)
    except (ValueError, TypeError, AssertionError) as error:
        raise ConfigError("dataset", f"{dataset!r} with {options}: {error}") from error
    return [
        {
            "prompt": entry["question"],
            "answer": entry["answer"],
            "dataset": dataset,
            "entry": {"answer": entry["answer"], "metadata": entry["metadata"]},
        }
        for entry in entries
    ]
