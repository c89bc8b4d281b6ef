"""Opening a pool: starting one, or attaching to one that runs."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.aio import LoopThread
from workbench.cluster.connection import cluster_address, connect, is_in_cluster
from workbench.cluster.head import start_head, stop_head
from workbench.cluster.lookup import find_pool, unknown_pool
from workbench.cluster.manager import LLMServerManager, check_config
from workbench.cluster.registry import PoolEntry
from workbench.config import DEFAULT_POLICY, PoolConfig, RoutingConfig
from workbench.errors import ConfigError
from workbench.facade.players import Players
from workbench.facade.progress import Progress
from workbench.facade.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from workbench.client import LLMServerClient
    from workbench.cluster.lookup import Found

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class Opened:
    """A pool that is ready."""

    reach: Reach
    client: LLMServerClient
    """For the reach's own loop."""
    players: Players


def open_pool(
    stack: ExitStack,
    model: str | None,
    name: str | None,
    address: str | None,
    workers: int,
    options: dict[str, Any],
    *,
    detached: bool,
    progress: bool,
) -> Opened:
    """Attach to the pool of this name, or start one.

    Args:
        stack: gets what has to be done to close it again, also where this fails.
        model: None for the default one, or to attach.
        name: None for one that nobody has.
        address: of a Ray cluster.
        workers: processes that play rollouts.
        options: of the pool's configuration, those that were given.
        detached: it outlives this process.
        progress: show how far replicas are.

    Raises:
        ConfigError: an argument is wrong, or the name is taken.
        NoRoomError: the cluster cannot hold the replicas.
        ReplicaStartError: a replica did not come up.
    """
    is_new = model is not None or name is None
    if is_new:
        pool_config(model, name, options)  # what is wrong is told before anything is joined
    found = None if name is None else find_pool(name, address)
    if found is not None:
        stack.callback(found.connection.close)
        is_again = is_new and detached and found.entry.kind != "owned"
        if not is_again:
            asked = options | ({"detached": True} if detached else {})
            _check_attaching(found, asked, is_new=is_new)
        players = Players(found.entry.model, workers)
        loop = _own_loop(stack, players)
        manager = loop.run(LLMServerManager.of(found.entry, found.controller))
        if is_again:
            if manager.config != pool_config(model, name, options):
                raise found.entry.taken()
            Progress(enabled=progress).show(f"the pool {name!r} runs already: attached", last=True)
        return _opened(stack, loop, manager, players)
    config = pool_config(model, name, options)
    players = Players(config.model, workers)
    with _place(stack, config, address, detached=detached) as entry:
        loop = _own_loop(stack, players)
        manager = loop.run(_start(config, players, entry, Progress(enabled=progress)))
    opened = _opened(stack, loop, manager, players)
    loop.run(players.ready(opened.client))
    return opened


def reach_pool(stack: ExitStack, name: str, address: str | None) -> Reach:
    """A pool that runs, for somebody who only looks: loads neither tokenizer nor engine.

    Raises:
        ConfigError: no such pool; says which there are.
        PoolClosedError: it ended just now.
    """
    found = find_pool(name, address)
    if found is None:
        raise unknown_pool(name, address)
    stack.callback(found.connection.close)
    loop = LoopThread()
    stack.callback(loop.close)
    return Reach(loop.run(LLMServerManager.of(found.entry, found.controller)), loop)


def pool_config(model: str | None, name: str | None, options: dict[str, Any]) -> PoolConfig:
    """What a pool is to be made from, checked as far as that needs no cluster.

    Raises:
        ConfigError: names the field and what is allowed.
    """
    given = dict(options)
    rules, policy = given.pop("routing", None), given.pop("policy", None)
    if policy is not None and rules is not None and rules.policy != DEFAULT_POLICY:
        raise ConfigError("policy", "is given twice", allowed="policy=, or routing=, not both")
    rules = rules or RoutingConfig()
    config = PoolConfig(
        model=DEFAULT_MODEL if model is None else model,
        name=f"pool-{secrets.token_hex(3)}" if name is None else name,
        routing=rules if policy is None else replace(rules, policy=policy),
        **given,
    )
    check_config(config)
    return config


def _check_attaching(found: Found, options: dict[str, Any], *, is_new: bool) -> None:
    if is_new:
        raise found.entry.taken()
    if options:
        problem = f"is for who starts a pool, and {found.entry.name!r} runs already"
        allowed = "name, address, workers and progress, to attach to it"
        raise ConfigError(", ".join(options), problem, allowed=allowed)


def _own_loop(stack: ExitStack, players: Players) -> LoopThread:
    loop = LoopThread()
    stack.callback(loop.close)
    stack.callback(players.close)
    return loop


@contextmanager
def _place(
    stack: ExitStack, config: PoolConfig, address: str | None, *, detached: bool
) -> Iterator[PoolEntry]:
    """Join a cluster, or start Ray here; a head that was started for a pool ends if that fails."""
    if not detached:
        stack.callback(connect(address).close)
        yield PoolEntry.of_process(config.name, config.model, cluster_address())
        return
    if is_in_cluster(address):
        stack.callback(connect(address).close)
        yield PoolEntry.of_process(config.name, config.model, cluster_address(), kind="detached")
        return
    pid, head = start_head()
    entry = PoolEntry.of_process(config.name, config.model, head, pid, "head")
    try:
        stack.callback(connect(head).close)
        yield entry
    except BaseException:
        stop_head(entry.pid, entry.process_start)
        raise


async def _start(
    config: PoolConfig, players: Players, entry: PoolEntry, shown: Progress
) -> LLMServerManager:
    """The pool; the players read the tokenizer meanwhile."""
    players.load()
    return await LLMServerManager.create(config, entry=entry, on_progress=shown.replicas)


def _opened(
    stack: ExitStack, loop: LoopThread, manager: LLMServerManager, players: Players
) -> Opened:
    stack.callback(lambda: loop.run(manager.close()))
    client = loop.run(manager.get_client())
    stack.callback(lambda: loop.run(client.aclose()))
    return Opened(Reach(manager, loop), client, players)
