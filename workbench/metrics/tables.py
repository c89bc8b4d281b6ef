"""Figures, sessions and events as tables with fixed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from workbench.metrics.block import Block
from workbench.metrics.columns import POOL_COLUMNS, REPLICA_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from workbench.types import RoutingEvent, SessionInfo

TIME = "datetime64[ns, UTC]"
SESSION_COLUMNS = {
    "session_id": "string", "replica_id": "string", "in_flight": "Int64", "turns": "Int64",
    "prompt_tokens": "Int64", "sampled_tokens": "Int64", "cached_tokens": "Int64",
    "moves": "Int64", "idle_s": "Float64",
}  # fmt: skip
EVENT_COLUMNS = {
    "number": "Int64", "time": TIME, "time_s": "Float64", "kind": "string",
    "session_id": "string", "replica_id": "string", "owner": "string", "count": "Int64",
    "reason": "string",
}  # fmt: skip

OF_REPLICAS = [column.name for column in REPLICA_COLUMNS]
OF_POOL = [column.name for column in POOL_COLUMNS]
FIGURES = list(dict.fromkeys(OF_REPLICAS + OF_POOL))


def history_frame(block: Block) -> pd.DataFrame:
    """Per moment a row for the pool, whose ``replica_id`` is missing, and one for each replica.

    Columns: ``time`` (UTC), ``replica_id``, and all figures; those without a value are missing, and
    so are rows of replicas that have none.
    """
    rows, replicas = len(block), len(block.replica_ids)
    values = np.full((rows, 1 + replicas, len(FIGURES)), np.nan, np.float32)
    values[:, 0, [FIGURES.index(name) for name in OF_POOL]] = block.pool
    values[:, 1:, [FIGURES.index(name) for name in OF_REPLICAS]] = block.replicas
    is_there: Any = np.isfinite(values).any(axis=2)
    is_there[:, 0] = True
    at, who = np.nonzero(is_there)
    frame = pd.DataFrame(values[is_there], columns=FIGURES)
    ids = pd.Series([None, *block.replica_ids], dtype="string")
    frame.insert(0, "replica_id", ids.take(who).reset_index(drop=True))
    frame.insert(0, "time", _utc(block.times_s[at]))
    return frame


def history_block(frame: pd.DataFrame) -> Block:
    """What :func:`history_frame` made a table of.

    Raises:
        KeyError: a column is missing.
        TypeError: one is not of its kind.
        ValueError: one is not of its kind.
    """
    figures = frame[FIGURES].to_numpy(np.float32)
    nanoseconds, at = np.unique(
        pd.DatetimeIndex(frame["time"]).as_unit("ns").asi8, return_inverse=True
    )
    who, names = pd.factorize(frame["replica_id"].astype("string"))  # -1: the pool
    replicas = np.full((len(nanoseconds), len(names), len(OF_REPLICAS)), np.nan, np.float32)
    pool = np.full((len(nanoseconds), len(OF_POOL)), np.nan, np.float32)
    of_pool = who < 0
    pool[at[of_pool]] = figures[of_pool][:, [FIGURES.index(name) for name in OF_POOL]]
    of_replicas = figures[~of_pool][:, [FIGURES.index(name) for name in OF_REPLICAS]]
    replicas[at[~of_pool], who[~of_pool]] = of_replicas
    times_s = nanoseconds // 10**9 + nanoseconds % 10**9 / 1e9  # in parts: a float has no room
    return Block(times_s, tuple(names), replicas, pool)


def session_frame(sessions: Iterable[SessionInfo]) -> pd.DataFrame:
    """A row per session with its pin and its history."""
    return _frame(list(sessions), SESSION_COLUMNS)


def event_frame(events: Sequence[RoutingEvent], *, cursor: int, lost: int) -> pd.DataFrame:
    """A row per event: ``time_s`` by the balancer's clock, ``time`` the same moment in UTC.

    ``attrs["cursor"]`` is where the next read goes on; ``attrs["lost"]`` counts events before these
    that had to make room.
    """
    frame = _frame(events, EVENT_COLUMNS, time=_utc([event.unix_s for event in events]))
    frame.attrs.update(cursor=cursor, lost=lost)
    return frame


def _utc(times_s: Any) -> pd.DatetimeIndex:
    return pd.to_datetime(np.asarray(times_s, np.float64), unit="s", utc=True).as_unit("ns")


def _frame(rows: Sequence[Any], columns: dict[str, str], **known: Any) -> pd.DataFrame:
    """Column by column, each of its kind at once: there may be very many rows."""
    values = {
        name: known[name] if name in known else [getattr(row, name) for row in rows]
        for name in columns
    }
    return pd.DataFrame({name: pd.Series(values[name], dtype=columns[name]) for name in columns})
