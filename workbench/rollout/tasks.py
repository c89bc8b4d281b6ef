"""Where tasks come from. A task is a mapping; each agent loop says which fields it needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from workbench.errors import ConfigError, TaskError

if TYPE_CHECKING:
    import pandas as pd

    from workbench.rollout.loop import AgentLoopBase

Task = Mapping[str, Any]
Tasks = Union[Iterable[str | Task], "pd.DataFrame"]


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """One rollout to play."""

    rollout_id: str
    group: str
    """Shared by the n rollouts of one task."""
    index: int
    task: Task


def as_tasks(source: Tasks) -> list[dict[str, Any]]:
    """Tasks from strings (prompts), mappings or a DataFrame (a row each).

    Raises:
        TaskError: one is neither; names its position. Or there is one task instead of several.
    """
    if isinstance(source, str | Mapping):
        raise TaskError("tasks", f"{source!r} is one task", allowed="a list of tasks")
    if hasattr(source, "to_dict") and hasattr(source, "columns"):
        return list(source.to_dict(orient="records"))
    tasks: list[dict[str, Any]] = []
    for position, item in enumerate(source):
        if isinstance(item, str):
            tasks.append({"prompt": item})
        elif isinstance(item, Mapping):
            tasks.append(dict(item))
        else:
            raise TaskError(f"tasks[{position}]", f"{item!r}", allowed="a string or a mapping")
    return tasks


def rollout_specs(tasks: Tasks, loop: type[AgentLoopBase], n: int) -> list[RolloutSpec]:
    """``n`` rollouts of each task, the rollouts of a task side by side.

    Raises:
        TaskError: a task lacks what the loop needs; names the task and the field.
        ConfigError: ``n`` is no whole number from 1.
    """
    if not isinstance(n, int) or n < 1:
        raise ConfigError("n", f"{n!r}", allowed="a whole number from 1")
    checked = as_tasks(tasks)
    for position, task in enumerate(checked):
        try:
            _check_names(task)
            loop.check_task(task)
        except TaskError as error:
            raise TaskError(
                f"tasks[{position}].{error.field}", error.problem, allowed=error.allowed or None
            ) from None
    return [
        RolloutSpec(f"task-{position}/{index}", f"task-{position}", index, task)
        for (position, task), index in itertools.product(enumerate(checked), range(n))
    ]


def _check_names(task: Task) -> None:
    for name in ("self", "sampling_params"):
        if name in task:
            raise TaskError(name, "is a name that the agent loop itself uses")


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
