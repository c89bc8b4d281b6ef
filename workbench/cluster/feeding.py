"""A pool's feed: its figures for whoever looks from this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.metrics.feed import Feed
from workbench.metrics.tables import event_frame, session_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pandas as pd

    from workbench.cluster.manager import LLMServerManager
    from workbench.metrics.history import HistoryPage
    from workbench.trajectory import Trajectory


def pool_feed(manager: LLMServerManager, call: Callable[[Coroutine[Any, Any, Any]], Any]) -> Feed:
    """What the pool records, for any thread. ``call`` runs a coroutine and returns its result."""

    def read(cursor: int) -> HistoryPage:
        page: HistoryPage = call(manager.read_history(cursor))
        return page

    def sessions(start: int, limit: int) -> pd.DataFrame:
        return session_frame(call(manager.ask_balancer("sessions", start, limit)))

    def events(cursor: int, limit: int) -> pd.DataFrame:
        page = call(manager.ask_balancer("events", cursor, limit))
        return event_frame(page.items, cursor=page.cursor, lost=page.lost)

    def rollouts(name: str) -> list[Trajectory]:
        trajectories: list[Trajectory] = call(manager.rollouts(name))
        return trajectories

    return Feed(
        manager.config.name,
        read,
        sessions=sessions,
        events=events,
        rollouts=rollouts,
        period_s=manager.config.sample_s,
    )
