"""What may be told to a pool, as blocking methods: of a workbench, of a panel, of a dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from workbench.cluster.proxy import DRAIN_S
from workbench.types import ReplicaState

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from workbench.cluster.manager import LLMServerManager
    from workbench.cluster.proxy import Weights
    from workbench.weights import PauseMode, WeightUpdate

T = TypeVar("T")


class PoolVerbs:
    """Each waits until it is done. Errors are those of the manager's method of the same name."""

    @property
    def manager(self) -> LLMServerManager:
        """The pool's manager."""
        raise NotImplementedError

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        raise NotImplementedError

    # -- replicas that come and go ----------------------------------------------------------

    def scale(self, replicas: int, *, drain_s: float = DRAIN_S) -> list[str]:
        """Have so many replicas; the newest leave first, once they have finished what they have.

        Returns:
            The ids of those that there are then.

        Raises:
            ConfigError: ``replicas`` is no whole number from 1.
            NoRoomError: the cluster cannot hold so many; says what it has.
            ReplicaStartError: one did not come up; the others did.
        """
        return self._call(self.manager.scale(replicas, drain_s=drain_s))

    def add_replicas(self, count: int = 1) -> list[str]:
        """Start so many more; their ids once they serve. Errors as :meth:`scale`."""
        return self._call(self.manager.add_replicas(count))

    def remove_replicas(
        self, replica_ids: str | Sequence[str], *, drain: bool = True, drain_s: float = DRAIN_S
    ) -> None:
        """Take replicas out of the pool; their sessions and what they have in flight move.

        Args:
            replica_ids: which.
            drain: let them finish first, without new work, for ``drain_s`` seconds at most.
            drain_s: seconds.

        Raises:
            ConfigError: one is unknown, or no other would be left; none was removed.
        """
        self._call(self.manager.remove_replicas(replica_ids, drain=drain, drain_s=drain_s))

    def restart(self, replica_id: str, *, drain: bool = False) -> None:
        """Start a replica anew under its name, also one that was given up.

        Raises:
            ConfigError: unknown replica.
            ReplicaStartError: it did not come up again.
        """
        self._call(self.manager.restart(replica_id, drain=drain))

    def drain(self, replica_id: str) -> None:
        """No new work for a replica; it finishes what it has, and its sessions move.

        Raises:
            ConfigError: unknown replica, or it does not serve.
        """
        self._call(self.manager.set_state(replica_id, ReplicaState.DRAINING))

    def readmit(self, replica_id: str) -> None:
        """Take a drained replica back into rotation."""
        self._call(self.manager.set_state(replica_id, ReplicaState.READY))

    # -- engines ----------------------------------------------------------------------------

    def pause(self, replica_id: str | None = None, *, mode: PauseMode = "keep") -> None:
        """Have engines stand still until :meth:`resume`: one, or all.

        What is sent to the pool waits in its engines; where one of several is paused, turns go
        elsewhere.

        Args:
            replica_id: None for all.
            mode: what becomes of their requests: ``keep`` freezes them, ``abort`` ends them with
                what they have, ``wait`` lets those that run end first.
        """
        self._call(self.manager.pause(replica_id, mode=mode))

    def resume(self, replica_id: str | None = None) -> None:
        """Let paused engines go on. Idempotent."""
        self._call(self.manager.resume(replica_id))

    def abort(self, session_id: str | None = None) -> int:
        """End the requests of one session, or of all, with what they have; how many those were."""
        return self._call(self.manager.abort(session_id))

    def clear_kv_cache(self, replica_id: str | None = None) -> None:
        """Drop all KV blocks of one engine, or of all; requests that run compute theirs again."""
        self._call(self.manager.clear_kv_cache(replica_id))

    def sleep(self, replica_id: str | None = None, *, level: int = 1) -> dict[str, bool]:
        """Give the devices' memory back (level 1: weights go to the host, 2: they are dropped).

        Returns:
            Replica id → whether there was any to give; on a CPU there never is.
        """
        return self._call(self.manager.sleep(replica_id, level=level))

    def wake(self, replica_id: str | None = None) -> dict[str, bool]:
        """The opposite of :meth:`sleep`."""
        return self._call(self.manager.wake(replica_id))

    def start_profile(self, replica_id: str | None = None) -> None:
        """Record what engines do, until :meth:`stop_profile`."""
        self._call(self.manager.start_profile(replica_id))

    def stop_profile(
        self, replica_id: str | None = None, *, folder: str | os.PathLike[str] = "profiles"
    ) -> list[Path]:
        """Collect the traces of all nodes into ``folder``; the files."""
        return self._call(self.manager.stop_profile(replica_id, folder=folder))

    # -- weights ----------------------------------------------------------------------------

    def update_weights(
        self,
        source: Weights,
        *,
        version: int | None = None,
        mode: PauseMode = "keep",
        recompute: bool = False,
    ) -> WeightUpdate:
        """Give all replicas new weights; no call fails because of it.

        The weights are checked before an engine sees them. Replicas that do not take them are
        replaced by ones that have them.

        Args:
            source: a checkpoint's directory that every node can read, or a state dict, which goes
                through the cluster's object store.
            version: what later tokens are stamped with; the next one by default.
            mode: what becomes of requests in the engines meanwhile; see :meth:`pause`.
            recompute: requests that go on compute their KV blocks anew, under the new weights.

        Raises:
            CheckpointError: the weights do not fit the model, or are not finite.
            ConfigError: the version does not go up.
            WeightsError: no replica took them; the pool stays on those that it has.
        """
        return self._call(
            self.manager.update_weights(source, version=version, mode=mode, recompute=recompute)
        )

    def weight_versions(self) -> dict[str, int]:
        """Replica id → the policy version that it serves."""
        return self._call(self.manager.get_weight_version())

    # -- reading ----------------------------------------------------------------------------

    def logs(self, replica_id: str, lines: int = 50) -> str:
        """The last lines of a replica's log, also of one whose process is gone.

        Raises:
            ConfigError: unknown replica, or ``lines`` is no whole number from 1.
        """
        return self._call(self.manager.log_tail(replica_id, lines))

    def configure_prometheus(
        self,
        config_file: str | os.PathLike[str],
        *,
        prometheus_url: str | None = None,
        credentials_file: str | os.PathLike[str] | None = None,
        scrape_interval_s: float = 5.0,
    ) -> None:
        """Have a Prometheus server scrape this pool; it follows by itself as the pool grows.

        Args:
            config_file: of the server; everything else that it holds stays.
            prometheus_url: of the server, to have it take the file and to check that it did.
            credentials_file: gets the pool's key, for the server to read. Needed where the
                cluster has several nodes.
            scrape_interval_s: seconds.
        """
        self._call(
            self.manager.configure_prometheus(
                config_file,
                prometheus_url=prometheus_url,
                credentials_file=credentials_file,
                scrape_interval_s=scrape_interval_s,
            )
        )

    def addresses(self) -> list[str]:
        """``http://host:port`` of each replica that is ready, with ``/health`` and ``/metrics``."""
        return self._call(self.manager.get_addresses())


class ManagerVerbs(PoolVerbs):
    """Those of a pool whose manager is at hand. ``call`` runs a coroutine and waits for it."""

    def __init__(
        self, manager: LLMServerManager, call: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._manager = manager
        self._run = call

    @property
    def manager(self) -> LLMServerManager:
        """The pool's manager."""
        return self._manager

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        answer: T = self._run(coro)
        return answer
