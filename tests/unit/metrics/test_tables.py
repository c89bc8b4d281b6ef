"""Events as a table, as the balancer tells them."""

from __future__ import annotations

import pandas as pd

from workbench.balancer import GlobalRequestLoadBalancer
from workbench.metrics.tables import EVENT_COLUMNS, event_frame


def test_events_have_their_time_in_utc_and_their_reason():
    books = GlobalRequestLoadBalancer(
        {"replica-0": 0, "replica-1": 1}, clock=lambda: 5.0, wall_clock=lambda: 1_764_453_600.25
    )
    home = books.acquire_server("s", "me").replica_id
    books.move_session("s", {"replica-0": "replica-1", "replica-1": "replica-0"}[home])
    page = books.events()
    frame = event_frame(page.items, cursor=page.cursor, lost=page.lost)
    assert list(frame.kind) == ["replica_up", "replica_up", "acquired", "moved"]
    assert list(frame.reason) == ["", "", "", "asked"]
    assert set(frame.time) == {pd.Timestamp("2025-11-29 22:00:00.25", tz="UTC")}
    assert set(frame.time_s) == {5.0}
    assert frame.attrs == {"cursor": 4, "lost": 0}


def test_a_table_of_no_event_has_the_same_columns():
    frame = event_frame([], cursor=7, lost=0)
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == EVENT_COLUMNS
