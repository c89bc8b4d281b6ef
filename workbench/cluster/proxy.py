"""A pool from outside: what may be asked of it and told to it. Holds none of its state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import ray

from workbench.aio import in_thread
from workbench.checkpoint.check import check_state
from workbench.checkpoint.parts import split
from workbench.checkpoint.values import check_values
from workbench.client import LLMServerClient
from workbench.cluster.looking import PoolPort
from workbench.cluster.ports import RayBalancer
from workbench.errors import ConfigError, PoolError
from workbench.models import PACKAGED, resolve_model
from workbench.prometheus import update_prometheus_config
from workbench.types import ReplicaState
from workbench.weights import check_mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench.checkpoint.parts import Part
    from workbench.weights import PauseMode, WeightUpdate

ClientT = TypeVar("ClientT", bound=LLMServerClient)

SERVING = {ReplicaState.READY, ReplicaState.PAUSED}

DRAIN_S = 60.0
"""How long a replica that leaves may take to finish what it has."""

Weights = str | os.PathLike[str] | Mapping[str, Any]
"""A checkpoint's directory, or a state dict of torch tensors or numpy arrays by name."""


class PoolProxy(PoolPort):
    """Everything about a pool but how it begins and ends."""

    # -- serving ----------------------------------------------------------------------------

    async def get_client(
        self, client_cls: type[ClientT] | None = None, **kwargs: Any
    ) -> ClientT | LLMServerClient:
        """A token client; ``client_cls(balancer, **kwargs)`` for a class of one's own."""
        balancer = RayBalancer(await self._ask("balancer"))
        if self.config.deterministic:
            kwargs.setdefault("deterministic", True)
        return (client_cls or LLMServerClient)(balancer, **kwargs)

    async def get_replicas(self) -> dict[str, Any]:
        """Replica id → actor handle, of those that are ready."""
        replicas: dict[str, Any] = await self._ask("handles")
        return replicas

    async def get_addresses(self) -> list[str]:
        """``http://host:port`` of each replica that is ready, with ``/health`` and ``/metrics``.

        vLLM's own OpenAI routes are there too where the pool was made with ``openai_routes=True``.
        """
        return [s.address for s in await self.statuses() if s.address and s.state in SERVING]

    async def get_metrics_address(self) -> tuple[str, str]:
        """``http://host:port`` of the pool's own ``/metrics`` and ``/targets``, and a key.

        These and the replicas' routes ask for it where the cluster has several nodes.
        """
        address, key = await self._ask("scraped")
        return address, key

    async def configure_prometheus(
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

        Raises:
            ConfigError: the file is no configuration, cannot be written, or a key file is needed.
            PrometheusError: the server did not take it.
        """
        address, key = await self.get_metrics_address()
        if credentials_file is not None:
            await in_thread(lambda: _write_key(Path(credentials_file), key))
        elif not address.startswith("http://127.0.0.1:"):
            problem = "is needed: the pool's figures can be reached from other machines"
            raise ConfigError("credentials_file", problem, allowed="a file that the server reads")
        await in_thread(
            lambda: update_prometheus_config(
                config_file,
                [],
                name=self.config.name,
                exporter_address=address,
                sd_url=f"{address}/targets",
                credentials_file=credentials_file,
                prometheus_url=prometheus_url,
                scrape_interval_s=scrape_interval_s,
            )
        )

    # -- replicas that come and go ----------------------------------------------------------

    async def scale(self, replicas: int, *, drain_s: float = DRAIN_S) -> list[str]:
        """Have so many replicas; the newest leave first, once they have finished what they have.

        Returns:
            The ids of those that there are then.

        Raises:
            ConfigError: ``replicas`` is no whole number from 1.
            NoRoomError: the cluster cannot hold so many; says what it has.
            ReplicaStartError: one did not come up; the others did.
        """
        ids: list[str] = await self._ask("scale", replicas, drain_s=drain_s)
        return ids

    async def add_replicas(self, count: int = 1) -> list[str]:
        """Start so many more; their ids once they serve. Errors as :meth:`scale`."""
        ids: list[str] = await self._ask("add_replicas", count)
        return ids

    async def remove_replicas(
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
        ids = [replica_ids] if isinstance(replica_ids, str) else list(replica_ids)
        await self._ask("remove_replicas", ids, drain_s=drain_s if drain else 0.0)

    async def restart(self, replica_id: str, *, drain: bool = False) -> None:
        """Start a replica anew under its name, also one that was given up.

        Raises:
            ConfigError: unknown replica.
            ReplicaStartError: it did not come up again.
        """
        await self._ask("restart", replica_id, drain_s=DRAIN_S if drain else 0.0)

    async def set_state(self, replica_id: str, state: ReplicaState) -> None:
        """Drain a replica, or take it back.

        Raises:
            ConfigError: unknown replica, or it does not serve.
        """
        await self._ask("set_state", replica_id, state)

    async def pause(self, replica_id: str | None = None, *, mode: PauseMode = "keep") -> None:
        """Have engines stand still until :meth:`resume`: one, or all.

        What is sent to the pool waits in its engines; where one of several is paused, turns go
        elsewhere.

        Raises:
            ConfigError: unknown replica or mode.
        """
        await self._tell("pause", replica_id, mode)

    async def resume(self, replica_id: str | None = None) -> None:
        """Let paused engines go on. Idempotent."""
        await self._tell("resume", replica_id)

    async def abort(self, session_id: str | None = None) -> int:
        """End the requests of one session, or of all, with what they have: reason ``abort``.

        Returns:
            How many those were.
        """
        return int(await self._tell("abort", session_id))

    async def clear_kv_cache(self, replica_id: str | None = None) -> None:
        """Drop all KV blocks of one engine, or of all; requests that run compute theirs again."""
        await self._tell("clear_kv_cache", replica_id)

    async def sleep(self, replica_id: str | None = None, *, level: int = 1) -> dict[str, bool]:
        """Give the devices' memory back (level 1: weights go to the host, 2: they are dropped).

        Returns:
            Replica id → whether there was any to give; on a CPU there never is.
        """
        slept: dict[str, bool] = await self._tell("sleep", replica_id, level)
        return slept

    async def wake(self, replica_id: str | None = None) -> dict[str, bool]:
        """The opposite of :meth:`sleep`."""
        woke: dict[str, bool] = await self._tell("wake", replica_id)
        return woke

    async def start_profile(self, replica_id: str | None = None) -> None:
        """Record what engines do, until :meth:`stop_profile`."""
        await self._tell("start_profile", replica_id)

    async def stop_profile(
        self, replica_id: str | None = None, *, folder: str | os.PathLike[str] = "profiles"
    ) -> list[Path]:
        """Collect the traces of all nodes.

        Args:
            replica_id: None for all.
            folder: on this machine; gets a folder for each replica.

        Returns:
            The files, which TensorBoard and Perfetto open.
        """
        traces: dict[str, dict[str, bytes]] = await self._tell("stop_profile", replica_id)
        written = []
        for name, files in traces.items():
            target = Path(folder) / name
            target.mkdir(parents=True, exist_ok=True)
            for file, content in files.items():
                (target / file).write_bytes(content)
                written.append(target / file)
        return written

    # -- weights ----------------------------------------------------------------------------

    async def update_weights(
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
                through the cluster's object store: each node pulls it once.
            version: what later tokens are stamped with; the next one by default.
            mode: what becomes of requests in the engines meanwhile.
            recompute: requests that go on compute their KV blocks anew, under the new weights.

        Raises:
            CheckpointError: the weights do not fit the model, or are not finite.
            ConfigError: the version does not go up.
            WeightsError: no replica took them; the pool stays on those that it has.
        """
        check_mode(mode)
        if isinstance(source, Mapping):
            return await self._update_from_state(source, version, mode, recompute=recompute)
        update: WeightUpdate = await self._ask(
            "update_weights",
            _absolute(source),
            None,
            version,
            mode,
            recompute=recompute,
            transfer_s=0.0,
        )
        return update

    async def _update_from_state(
        self, state: Mapping[str, Any], version: int | None, mode: PauseMode, *, recompute: bool
    ) -> WeightUpdate:
        began_s = time.perf_counter()
        await in_thread(lambda: self._check_state(state))
        version, key = await self._ask("begin_weights", version)
        try:
            await self._send(state, key)
            transfer_s = time.perf_counter() - began_s
            update: WeightUpdate = await self._ask(
                "update_weights",
                None,
                key,
                version,
                mode,
                recompute=recompute,
                transfer_s=transfer_s,
            )
        except BaseException:
            with contextlib.suppress(PoolError):
                await self._ask("discard_weights", key)
            raise
        return update

    def _check_state(self, state: Mapping[str, Any]) -> None:
        """Names and shapes, before anything is sent; where the model is at hand."""
        model = self.config.model
        if self.config.engine != "simulated" and (model in PACKAGED or Path(model).is_dir()):
            check_state(state, resolve_model(model))

    async def _send(self, state: Mapping[str, Any], key: int) -> None:
        """Part by part, the next one being made while the last one travels."""
        parts = split(state)
        travelling: asyncio.Future[Any] | None = None
        while (part := await in_thread(lambda: _next_checked(parts))) is not None:
            stored = [ray.put(part)]  # in a list: whoever passes it on need not read it
            if travelling is not None:
                await travelling
            travelling = asyncio.ensure_future(self._ask("receive_weights", key, stored))
        if travelling is not None:
            await travelling

    async def get_weight_version(self) -> dict[str, int]:
        """Replica id → the policy version that it serves."""
        return {s.replica_id: s.version for s in await self.statuses() if s.state in SERVING}

    async def _tell(self, verb: str, *args: Any) -> Any:
        return await self._ask("tell", verb, *args)


def _write_key(path: Path, key: str) -> None:
    """Readable by this user alone from its first moment, and as a whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(key)
        fresh.replace(path)
    except OSError as error:
        raise ConfigError("credentials_file", f"cannot be written: {error}") from error


def _absolute(path: str | os.PathLike[str]) -> str:
    return str(Path(path).expanduser().absolute())


def _next_checked(parts: Iterator[Part]) -> Part | None:
    part = next(parts, None)
    if part is not None:
        check_values(part)
    return part
