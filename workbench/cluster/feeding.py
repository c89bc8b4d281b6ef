"""A pool's feed: its figures for whoever looks from this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from workbench.errors import PoolError
from workbench.metrics.feed import Feed
from workbench.metrics.tables import event_frame, session_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pandas as pd

    from workbench.cluster.manager import LLMServerManager
    from workbench.metrics.history import HistoryPage
    from workbench.trajectory import Trajectory


ANSWER_S = 10.0
"""How long whoever looks waits for the pool."""


def pool_feed(manager: LLMServerManager, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Feed:
    """What the pool records, for any thread. ``run`` runs a coroutine and returns its result."""

    def call(ask: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        return run(_in_time(ask, *args))

    def read(cursor: int) -> HistoryPage:
        page: HistoryPage = call(manager.read_history, cursor)
        return page

    def sessions(start: int, limit: int) -> pd.DataFrame:
        return session_frame(call(manager.ask_balancer, "sessions", start, limit))

    def events(cursor: int, limit: int) -> pd.DataFrame:
        page = call(manager.ask_balancer, "events", cursor, limit)
        return event_frame(page.items, cursor=page.cursor, lost=page.lost)

    def rollouts(name: str) -> list[Trajectory]:
        trajectories: list[Trajectory] = call(manager.rollouts, name)
        return trajectories

    return Feed(
        manager.config.name,
        read,
        sessions=sessions,
        events=events,
        rollouts=rollouts,
        period_s=manager.config.sample_s,
    )


async def _in_time(ask: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await ask(*args)
    except TimeoutError as error:
        raise PoolError(f"the pool does not answer within {ANSWER_S:g} s") from error
