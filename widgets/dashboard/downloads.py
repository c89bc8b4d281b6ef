"""What can be taken away: tables of what is on the screen, and everything at once."""

from __future__ import annotations

import io
import re
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pandas as pd
from tornado.web import HTTPError, RequestHandler

from widgets.dashboard.fields import wishes_of
from widgets.dashboard.tables import kinds_of
from widgets.dashboard.web import text_of
from widgets.pictures.asking import asked_of, found
from widgets.windows import window_of
from workbench.aio import in_thread
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from widgets.dashboard.plots import Painter
    from workbench.metrics.feed import Feed


def history(painter: Painter, asked: Mapping[str, str]) -> pd.DataFrame:
    """The figures of a window, as fine as they are kept."""
    feed = painter.feed
    window = window_of({name: _number(value) for name, value in asked.items()})
    end_s = window.end_s
    if end_s is None:
        end_s = feed.latest.time_s if feed.latest else 0.0
    return feed.to_pandas(end_s - window.length_s, end_s)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def sessions(painter: Painter, asked: Mapping[str, str]) -> pd.DataFrame:
    """All sessions that were searched for, in the order that was asked for."""
    wishes = dict(wishes_of("sessions", asked))
    return painter.sessions.found(wishes["find"], wishes["order"])


def events(painter: Painter, asked: Mapping[str, str]) -> pd.DataFrame:
    """The events of the kinds that were asked for, as many as are kept."""
    kinds = kinds_of(dict(wishes_of("events", asked))["kinds"])
    rows = painter.events.rows(kinds)
    return rows[rows["kind"].isin(kinds)] if kinds else rows


def rollouts(painter: Painter, asked: Mapping[str, str]) -> pd.DataFrame:
    """A row per rollout that was searched for, in the order that was asked for."""
    rows = [
        {
            "rollout_id": row.rollout_id, "group": row.group, "index": row.index,
            "agent": row.agent, "status": str(row.status), "ended_by": row.ended_by,
            "reward": row.reward,
            "num_turns": row.num_turns, "sampled_tokens": row.sampled_tokens,
            "tool_calls": len(row.tool_calls), "wall_s": row.wall_s, "error": row.error,
        }
        for row in found(painter.rollouts.rows(), asked_of(asked))
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(ROLLOUT_COLUMNS)).astype(ROLLOUT_COLUMNS)


ROLLOUT_COLUMNS = {
    "rollout_id": "string", "group": "string", "index": "Int64", "agent": "string",
    "status": "string", "ended_by": "string", "reward": "Float64", "num_turns": "Int64",
    "sampled_tokens": "Int64", "tool_calls": "Int64", "wall_s": "Float64", "error": "string",
}  # fmt: skip


def links(
    table: str, up: str, window: Mapping[str, Any], values: Mapping[str, Any]
) -> list[dict[str, str]]:
    """What a page offers to take away, for the browser; ``up`` leads to the dashboard's root."""
    if table == "history":
        asked = urlencode(window)
    else:
        asked = urlencode(values if table == "rollouts" else dict(wishes_of(table, values)))
    address = f"{up}download/{table}"
    return [
        {"label": f"{table} as CSV", "href": f"{address}.csv?{asked}"},
        {"label": "as Parquet", "href": f"{address}.parquet?{asked}"},
        {"label": "everything as ZIP", "href": f"{up}download/pool.zip"},
    ]


TABLES: Mapping[str, Callable[[Painter, Mapping[str, str]], pd.DataFrame]] = {
    "history": history,
    "sessions": sessions,
    "events": events,
    "rollouts": rollouts,
}

TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


class Download(RequestHandler):
    """A table as a file."""

    def initialize(self, painter: Painter) -> None:
        """See tornado."""
        self._painter = painter

    async def get(self, name: str, ending: str) -> None:
        """``download/NAME.csv`` or ``.parquet``; the query says which part."""
        if name not in TABLES:
            raise HTTPError(404)
        query = self.request.query_arguments
        asked = {key: text_of(values) for key, values in query.items()}

        def make() -> bytes:
            return as_bytes(TABLES[name](self._painter, asked), ending)

        try:
            data = await in_thread(make)
        except WorkbenchError as error:
            self.set_status(503)
            self.finish(str(error))
            return
        _attach(self, data, f"{self._painter.feed.name}-{name}", ending, TYPES[ending])


class Archive(RequestHandler):
    """Everything that is known of a pool, in one file."""

    def initialize(self, feed: Feed) -> None:
        """See tornado."""
        self._feed = feed

    async def get(self) -> None:
        """What ``Feed.open`` reads once it is unpacked."""
        data = await in_thread(lambda: zipped(self._feed))
        _attach(self, data, self._feed.name, "zip", "application/zip")


def _attach(handler: RequestHandler, data: bytes, name: str, ending: str, kind: str) -> None:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "pool"
    moment = time.strftime("%Y%m%d-%H%M%S")
    handler.set_header("Content-Type", kind)
    handler.set_header("Cache-Control", "no-store")
    handler.set_header("Content-Disposition", f'attachment; filename="{stem}-{moment}.{ending}"')
    handler.finish(data)


def as_bytes(table: pd.DataFrame, ending: str) -> bytes:
    """A table as ``csv`` or ``parquet``."""
    if ending == "csv":
        texts = {name: table[name].map(_no_formula) for name in _texts(table)}
        return table.assign(**texts).to_csv(index=False).encode(errors="backslashreplace")
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _texts(table: pd.DataFrame) -> list[str]:
    return [str(name) for name, kind in table.dtypes.items() if pd.api.types.is_string_dtype(kind)]


def _no_formula(text: Any) -> Any:
    """A text that a spreadsheet will not run."""
    is_formula = isinstance(text, str) and text.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{text}" if is_formula else text


def zipped(feed: Feed) -> bytes:
    """The folder that the feed saves, packed."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "pool"
        feed.save(root)
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(root.rglob("*")):
                archive.write(path, path.relative_to(root.parent))
    return buffer.getvalue()
