"""Trajectories in files: JSON lines, which a running batch can append to, or parquet."""

from __future__ import annotations

import contextlib
import json
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import ConfigError
from workbench.records.schema import SCHEMA_VERSION, from_record, to_record
from workbench.records.table import VERSION_KEY, from_table, to_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workbench.trajectory import Trajectory

SUFFIXES = (".jsonl", ".parquet")


def write_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> None:
    """Write a file as a whole or not at all; what was there before is replaced, a folder made.

    Args:
        path: ``.jsonl``, a rollout per line, or ``.parquet``; docs/trajectories.md has both.
        trajectories: of any status.

    Raises:
        ConfigError: the path ends otherwise, or cannot be written; or a trajectory has a value
            that its column cannot hold.
    """
    path = _known(path, SUFFIXES)
    fresh = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(to_table(trajectories), fresh)
        else:
            with fresh.open("wb") as file:
                file.writelines(_line(trajectory) for trajectory in trajectories)
        fresh.replace(path)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError("path", f"{str(path)!r} cannot be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def append_trajectory(path: str | Path, trajectory: Trajectory) -> None:
    """Add a line to a JSONL file, which is made where there is none.

    A process that is killed leaves at most its last line cut. Such a half line is taken away before
    anything is added: its rollout was lost, and it would make the next one unreadable. One process
    at a time may append to a file.

    Raises:
        ConfigError: the path does not end in ``.jsonl``, or cannot be written.
    """
    path = _known(path, SUFFIXES[:1])
    line = _line(trajectory)
    try:
        with path.open("ab+") as file:
            if file.seek(0, SEEK_END) and _last_byte(file) != b"\n":
                lines = path.read_bytes().split(b"\n")
                if _is_whole(lines[-1]):
                    line = b"\n" + line
                else:
                    file.truncate(file.seek(0, SEEK_END) - len(lines[-1]))
            file.write(line)
    except OSError as error:
        raise ConfigError("path", f"{str(path)!r} cannot be written: {error}") from error


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, SEEK_END)
    return file.read()


def _is_whole(line: bytes) -> bool:
    """Whether a last line lacks nothing but its end; no part of an object is JSON."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def read_trajectories(path: str | Path, *, partial: bool = False) -> list[Trajectory]:
    """What was written to a file, to the token.

    Args:
        path: ``.jsonl`` or ``.parquet``.
        partial: leave out a last line that was cut, as a killed process leaves it.

    Raises:
        ConfigError: the file is missing, damaged, of something else or of another version of the
            schema; names the line or row.
    """
    path = _known(path, SUFFIXES)
    try:
        return _from_parquet(path) if path.suffix == ".parquet" else _from_jsonl(path, partial)
    except (OSError, ValueError, pa.ArrowException) as error:
        why = error.problem if isinstance(error, ConfigError) else str(error)
        raise ConfigError(
            "path", f"{str(path)!r} cannot be read: {why}", allowed="what write_trajectories wrote"
        ) from error


def _known(path: str | Path, suffixes: tuple[str, ...]) -> Path:
    path = Path(path)
    if path.suffix not in suffixes:
        raise ConfigError("path", f"{str(path)!r}", allowed=f"one in {' or '.join(suffixes)}")
    return path


def _line(trajectory: Trajectory) -> bytes:
    """In ASCII, for readers who take a separator of Unicode's for the end of a line."""
    return json.dumps(to_record(trajectory), allow_nan=False).encode() + b"\n"


def _from_jsonl(path: Path, partial: bool) -> list[Trajectory]:
    lines = path.read_bytes().split(b"\n")
    if lines[-1] and not _is_whole(lines[-1]):
        if not partial:
            raise ValueError(f"line {len(lines)} was cut; partial=True leaves it out")
        lines.pop()
    return [_parsed(line, number) for number, line in enumerate(lines, start=1) if line.strip()]


def _parsed(line: bytes, number: int) -> Trajectory:
    try:
        return from_record(json.loads(line))
    except (ValueError, RecursionError) as error:
        why = error.problem if isinstance(error, ConfigError) else f"it is no JSON: {error}"
        raise ValueError(f"line {number}: {why}") from error


def _from_parquet(path: Path) -> list[Trajectory]:
    with pq.ParquetFile(path) as file:
        found = (file.schema_arrow.metadata or {}).get(VERSION_KEY)
        if found is None:
            raise ValueError("it has no trajectories")
        if found != str(SCHEMA_VERSION).encode():
            raise ValueError(f"it is of schema {found.decode()}, and this is {SCHEMA_VERSION}")
        return from_table(file.read())
