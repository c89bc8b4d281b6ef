"""The tasks of a stream, by position: read as they are needed, and found again for a replay."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from workbench.aio import in_thread
from workbench.errors import ConfigError, StreamError, TaskError
from workbench.records.plain import plain
from workbench.rollout.tasks import as_tasks, check_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.rollout.loop import AgentLoopBase
    from workbench.rollout.tasks import Task, Tasks


class TaskSource:
    """Tasks in their order, or in a new one each epoch.

    Args:
        tasks: as for a batch; or an iterator, which is read as tasks are needed, may be endless,
            and has to give the same tasks again where a stream is gone on with.
        loop: says which fields a task needs.
        epochs: times that they are played; None for no end.
        shuffle: a seed: each epoch has an order of its own, the same in every process.

    Raises:
        ConfigError: what cannot work together, or is no number.
        TaskError: a task lacks a field; of an iterator that is found out later.
    """

    def __init__(
        self,
        tasks: Tasks | Iterator[str | Task],
        loop: type[AgentLoopBase],
        *,
        epochs: int | None = 1,
        shuffle: int | None = None,
    ) -> None:
        if epochs is not None and (type(epochs) is not int or epochs < 1):
            raise ConfigError("epochs", f"{epochs!r}", allowed="a whole number from 1, or None")
        if shuffle is not None and type(shuffle) is not int:
            raise ConfigError("shuffle", f"{shuffle!r}", allowed="a whole number, or None")
        self._loop = loop
        self.epochs = epochs
        self.shuffle = shuffle
        self._orders: dict[int, list[int]] = {}
        self._reader: Iterator[str | Task] | None = None
        self._reading = asyncio.Lock()
        self._read = 0
        """Tasks that were read of the iterator."""
        self._tasks: dict[int, Task | TaskError] = {}
        self.total: int | None = None
        """Positions in all; None while nobody knows, and for no end."""
        if isinstance(tasks, Iterator):
            self._read_later(tasks)
        else:
            self._read_now(tasks)

    def _read_later(self, tasks: Iterator[str | Task]) -> None:
        for name, value, only in (("epochs", self.epochs, 1), ("shuffle", self.shuffle, None)):
            if value != only:
                problem = f"{value!r}, and the tasks come from an iterator, which is read once"
                raise ConfigError(name, problem, allowed=f"{only}, or a list of tasks")
        self._reader = tasks

    def _read_now(self, tasks: Tasks) -> None:
        self._tasks |= enumerate(as_tasks(tasks))
        for position, task in self._tasks.items():
            check_task(task, self._loop, f"tasks[{position}]")  # type: ignore[arg-type]
        if not self._tasks:
            raise TaskError("tasks", "are none", allowed="at least one task")
        if self.epochs is not None:
            self.total = len(self._tasks) * self.epochs

    async def task(self, position: int) -> Task | None:
        """The task there; None beyond the last one, and :attr:`total` is known then.

        Raises:
            StreamError: the iterator raised.
            TaskError: the task lacks a field.
        """
        if self._reader is None:
            is_beyond = self.total is not None and position >= self.total
            return None if is_beyond else self._at(self._index(position))
        async with self._reading:  # groups that begin together ask together
            while self._read <= position and self.total is None:
                await self._read_one()
        if position >= self._read:
            return None
        task = self._at(position)
        check_task(task, self._loop, f"tasks[{position}]")
        return task

    def forget(self, below: int) -> None:
        """Positions before this one are not asked for any more."""
        if self._reader is not None:
            for position in [known for known in self._tasks if known < below]:
                del self._tasks[position]

    def _at(self, index: int) -> Task:
        task = self._tasks[index]
        if isinstance(task, TaskError):
            raise task
        return task

    async def _read_one(self) -> None:
        reader, number = self._reader, self._read
        assert reader is not None
        end = object()
        try:
            item: Any = await in_thread(lambda: next(reader, end))
        except Exception as error:
            told = f"the task source raised at task {number}: {type(error).__name__}: {error}"
            raise StreamError(told) from error
        if item is end:
            self.total = number
            return
        self._read += 1
        try:
            (self._tasks[number],) = as_tasks([item])
        except TaskError as error:  # it has its position, as the others have
            known = error.allowed or None
            self._tasks[number] = TaskError(f"tasks[{number}]", error.problem, allowed=known)

    def _index(self, position: int) -> int:
        epoch, index = divmod(position, len(self._tasks))
        if self.shuffle is None:
            return index
        if epoch not in self._orders:
            order = list(range(len(self._tasks)))
            random.Random(f"{self.shuffle}-{epoch}").shuffle(order)
            self._orders[epoch] = order
            self._orders.pop(epoch - 2, None)
        return self._orders[epoch][index]


def digest(task: Task) -> str:
    """Tells a task from others, in every process: of its JSON."""
    text = json.dumps(plain(task), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


async def check_tasks(source: TaskSource, known: Mapping[int, str]) -> None:
    """Refuse to go on with a stream of other tasks.

    Args:
        source: of the tasks now.
        known: the digests of those that were played, by position.

    Raises:
        ConfigError: one of them is another one now; names the first.
        StreamError: the source cannot be read.
    """
    for position, mark in sorted(known.items()):
        task = await source.task(position)
        if task is None or digest(task) != mark:
            problem = f"is of a stream with other tasks: the one at position {position} differs"
            raise ConfigError("folder", problem, allowed="the tasks that it was begun with")
