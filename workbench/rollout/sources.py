"""Tasks out of files and frames, with values as Python has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import TaskError

if TYPE_CHECKING:
    from typing import TypeGuard

SUFFIXES = (".jsonl", ".parquet")

Placed = list[tuple[str, dict[str, Any]]]
"""Tasks, each with the line or row of the file that it is from."""


def is_file(source: object) -> TypeGuard[str | Path]:
    """Whether it is the path of a file with tasks: any Path, and a text that ends like one."""
    return isinstance(source, Path) or (isinstance(source, str) and source.endswith(SUFFIXES))


def read_tasks(path: Path) -> Placed:
    """The tasks in a file: a JSON object per line, or a row each of parquet.

    Raises:
        TaskError: the file is missing or damaged, or a line is no object; names path and line.
    """
    try:
        if path.suffix == ".jsonl":
            return _lines(path)
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                rows = file.read().to_pylist()
            return [(f"row {row} of {str(path)!r}", task) for row, task in enumerate(rows)]
    except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
        why = error.problem if isinstance(error, TaskError) else f"cannot be read: {error}"
        raise TaskError("tasks", f"{str(path)!r} {why}") from error
    raise TaskError("tasks", f"{str(path)!r}", allowed=f"a path in {' or '.join(SUFFIXES)}")


def _lines(path: Path) -> Placed:
    tasks = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            task = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TaskError("tasks", f"line {number} is no JSON: {error}") from error
        if not isinstance(task, dict):
            raise TaskError("tasks", f"line {number} is no object: {task!r:.80}")
        tasks.append((f"line {number} of {str(path)!r}", task))
    return tasks


def tasks_of_frame(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A task per row; a missing cell is None."""
    rows: list[dict[Any, Any]] = frame.to_dict(orient="records")
    return [
        {name: None if _is_missing(value) else pythonic(value) for name, value in row.items()}
        for row in rows
    ]


def _is_missing(value: Any) -> bool:
    return value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def pythonic(value: Any) -> Any:
    """The value with lists and numbers of Python's in place of numpy's, however deep they are."""
    if isinstance(value, np.ndarray | np.generic):
        # as texts, since numpy makes nanoseconds of the times that it has
        value = (value.astype(str) if value.dtype.kind in "mM" else value).tolist()
    if isinstance(value, dict):
        return {name: pythonic(item) for name, item in value.items()}
    if isinstance(value, list):
        return [pythonic(item) for item in value]
    return value
