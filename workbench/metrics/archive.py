"""A pool's figures as a folder of files that any tool reads: parquet, and a little JSON.

Files are data and nothing in them is executed, so that a folder from somebody else can be opened.

    facts.json          name, newest sample (replica states, policy, batches of rollouts)
    seconds.parquet     the history, see :func:`workbench.metrics.tables.history_frame`
    minutes.parquet
    events.parquet      the balancer's log
    sessions.parquet    the first sessions with their history
    rollouts-0.parquet  trajectories, a file per batch, in the order of ``facts.json``
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from workbench.errors import ConfigError
from workbench.metrics.history import HistoryPage
from workbench.metrics.plain import from_plain, to_plain
from workbench.metrics.samples import Sample
from workbench.metrics.tables import EVENT_COLUMNS, SESSION_COLUMNS, history_block, history_frame
from workbench.records import read_trajectories, write_trajectories

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.trajectory import Trajectory

FORMAT = "rollout-workbench-feed"
VERSION = 1
"""Grows when a file changes its meaning."""

FACTS = "facts.json"


@dataclass(frozen=True, slots=True)
class Archive:
    """What a folder holds."""

    name: str
    period_s: float
    page: HistoryPage
    """All of the history."""
    sessions: pd.DataFrame
    events: pd.DataFrame
    rollouts: Mapping[str, list[Trajectory]]


def write(folder: Path, archive: Archive) -> None:
    """Write a folder as a whole or not at all; what was saved there before is replaced.

    Raises:
        ConfigError: the folder holds something else.
    """
    if folder.exists() and not _may_be_replaced(folder):
        problem = f"{str(folder)!r} is there and holds something else"
        raise ConfigError("folder", problem, allowed="a new folder, or what was saved before")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        fresh = Path(scratch, "fresh")
        fresh.mkdir()
        _write_files(fresh, archive)
        if folder.exists():
            folder.replace(Path(scratch, "stale"))
        fresh.replace(folder)


def _may_be_replaced(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    try:
        _facts(folder)
    except (OSError, ValueError):
        return not any(folder.iterdir())
    return True


def _write_files(folder: Path, archive: Archive) -> None:
    page = archive.page
    for name, block in (("seconds", page.seconds), ("minutes", page.minutes)):
        history_frame(block).to_parquet(folder / f"{name}.parquet", index=False)
    archive.sessions.to_parquet(folder / "sessions.parquet", index=False)
    archive.events.to_parquet(folder / "events.parquet", index=False)
    for number, trajectories in enumerate(archive.rollouts.values()):
        write_trajectories(folder / f"rollouts-{number}.parquet", trajectories)
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "name": archive.name,
        "period_s": archive.period_s,
        "cursor": page.cursor,
        "rollouts": list(archive.rollouts),
        "latest": to_plain(page.latest) if page.latest else None,
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=1), encoding="utf-8")


def read(folder: Path) -> Archive:
    """Read what :func:`write` wrote.

    Raises:
        ConfigError: there is no such folder, it holds something else, or a file in it is missing
            or damaged; names the folder and why.
    """
    try:
        return _read_files(folder)
    except FileNotFoundError as error:
        missing = Path(error.filename or str(error)).name
        raise _refusal(f"{str(folder)!r} has no {missing}") from error
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise _refusal(f"{str(folder)!r} cannot be read: {error}") from error


def _read_files(folder: Path) -> Archive:
    facts = _facts(folder)
    latest = facts["latest"]
    return Archive(
        str(facts["name"]),
        float(facts["period_s"]),
        HistoryPage(
            seconds=history_block(_table(folder, "seconds")),
            minutes=history_block(_table(folder, "minutes")),
            latest=None if latest is None else from_plain(Sample, latest),
            cursor=int(facts["cursor"]),
            lost=0,
        ),
        _table(folder, "sessions")[list(SESSION_COLUMNS)].astype(SESSION_COLUMNS),
        _table(folder, "events")[list(EVENT_COLUMNS)].astype(EVENT_COLUMNS),
        {
            str(name): read_trajectories(folder / f"rollouts-{number}.parquet")
            for number, name in enumerate(facts["rollouts"])
        },
    )


def _facts(folder: Path) -> dict[str, Any]:
    """What the folder says of itself, if it is one of ours."""
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(f"its {FACTS} is of something else")
    if facts.get("version") != VERSION:
        raise ValueError(f"it is of version {facts.get('version')!r}, not {VERSION}")
    return facts


def _table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(folder / f"{name}.parquet")


def _refusal(problem: str) -> ConfigError:
    return ConfigError("folder", problem, allowed="a folder that Feed.save wrote")
