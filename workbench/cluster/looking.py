"""A pool as somebody sees it who only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.cluster.ports import balancer_errors, our_errors
from workbench.cluster.remote import Remote
from workbench.errors import ConfigError, PoolClosedError, PoolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.cluster.host import HostedView
    from workbench.config import PoolConfig
    from workbench.metrics.history import HistoryPage
    from workbench.metrics.samples import RolloutSnapshot
    from workbench.trajectory import Trajectory
    from workbench.types import PoolSnapshot, ReplicaStatus


class PoolPort:
    """The way to a pool's controller and balancer."""

    def __init__(self, controller: Remote, config: PoolConfig) -> None:
        self._controller = controller
        self.config = config
        self._balancer: Remote | None = None
        self._closed = False

    async def get_balancer(self) -> Any:
        """The balancer actor: :class:`GlobalRequestLoadBalancer` by ``.remote`` calls."""
        return await self._ask("balancer")

    async def ask_balancer(self, method: str, *args: Any) -> Any:
        """Call a method of the balancer.

        Raises:
            BalancerLostError: it cannot be reached just now.
        """
        if self._balancer is None or self._closed:
            self._balancer = Remote(await self.get_balancer())
        with balancer_errors():
            return await self._balancer.ask(method, *args)

    async def statuses(self) -> list[ReplicaStatus]:
        """Each replica's state."""
        statuses: list[ReplicaStatus] = await self._ask("statuses")
        return statuses

    async def snapshot(self) -> PoolSnapshot:
        """The pool at this moment."""
        snapshot: PoolSnapshot = await self._ask("snapshot")
        return snapshot

    async def read_history(self, cursor: int) -> HistoryPage:
        """What was recorded after ``cursor``; see :class:`workbench.metrics.history.History`."""
        page: HistoryPage = await self._ask("read_history", cursor)
        return page

    async def note_rollouts(
        self, snapshot: RolloutSnapshot, trajectories: Sequence[Trajectory]
    ) -> None:
        """Tell the pool where a batch stands, and what ended in it since it was told last."""
        await self._ask("note_rollouts", snapshot, list(trajectories))

    async def rollouts(self, name: str) -> list[Trajectory]:
        """Of one batch: the last that ended, in that order, as far as they are kept."""
        trajectories: list[Trajectory] = await self._ask("rollouts", name)
        return trajectories

    async def log_tail(self, replica_id: str, lines: int) -> str:
        """The last lines of a replica's log, also of one whose process is gone.

        Raises:
            ConfigError: unknown replica.
        """
        check_lines(lines)
        return str(await self._ask("log_tail", replica_id, lines))

    async def host(self, name: str, options: Mapping[str, Any]) -> HostedView:
        """Serve a view of the pool from its cluster, where it ends with the pool.

        One that is served with these options already is found again.

        Raises:
            ConfigError: there is no such view, or it refuses the options.
        """
        hosted: HostedView = await self._ask("host", name, dict(options))
        return hosted

    async def stop_host(self, name: str) -> bool:
        """Take a view down, whatever its options; whether it was there."""
        return bool(await self._ask("stop_host", name))

    async def _ask(self, method: str, *args: Any, **options: Any) -> Any:
        gone = PoolClosedError(f"the pool {self.config.name!r} was closed")
        if self._closed:
            raise gone
        away = PoolError(f"the pool {self.config.name!r} cannot be reached just now")
        with our_errors(gone, away):
            return await self._controller.ask(method, *args, **options)


def check_lines(lines: int) -> None:
    """Refuse a number of log lines that is none.

    Raises:
        ConfigError: it is no whole number from 1.
    """
    if type(lines) is not int or lines < 1:
        raise ConfigError("lines", f"{lines!r}", allowed="a whole number from 1")
