"""Where replicas go: pure arithmetic over what the cluster's nodes have.

A replica stays on one node. It takes GPUs when the cluster has any, and CPU cores of its own
otherwise. More replicas than that holds are refused with the cluster's figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from workbench.errors import ConfigError, NoRoomError

GIB = 2**30
ANY = 2**31
"""How many replicas fit that take nothing."""

MAX_FIGURES = 5
"""Lines of a refusal about nodes; clusters may have thousands."""

Resources = Mapping[str, float]
"""Ray's resource names → amounts (``memory`` in bytes)."""
Strategy = Literal["pack", "spread"]


@dataclass(frozen=True, slots=True)
class Node:
    """A live node of the cluster."""

    node_id: str
    address: str
    free: Resources
    total: Resources


@dataclass(frozen=True, slots=True)
class Seat:
    """One replica's place."""

    node_id: str
    bundle: dict[str, float]
    """What it takes there; empty where it takes nothing."""
    device: Literal["cpu", "gpu"]
    threads: int
    """OpenMP threads of the replica, on the CPU."""


def plan(
    nodes: Sequence[Node],
    *,
    on_gpu: bool,
    replicas: int,
    devices: int,
    memory_bytes: int,
    strategy: Strategy = "pack",
    oversubscribe: bool = False,
    taken: Sequence[str] = (),
) -> list[Seat]:
    """Find a place for each of ``replicas``.

    Args:
        nodes: the live ones, those to be preferred among equals first.
        on_gpu: whether the cluster has GPUs at all. Where all of them are taken, replicas are
            refused and not put on cores.
        replicas: how many are asked for, besides those that run.
        devices: GPUs of one replica, or cores where there are no GPUs. 0 for replicas that take
            nothing (simulated engines): any node holds any number of them.
        memory_bytes: host memory of one replica on the CPU; ignored on GPUs.
        strategy: ``pack`` puts them on as few nodes as possible, and on those that they fill best;
            ``spread`` puts as many on each node as on any other.
        oversubscribe: book memory only and let replicas share cores. On the CPU.
        taken: the node of each replica of the same pool that runs already; for ``spread``.

    Raises:
        ConfigError: ``oversubscribe`` on GPUs.
        NoRoomError: says what is needed and what the nodes have.
    """
    if on_gpu and oversubscribe and devices:
        raise ConfigError(
            "oversubscribe", "replicas do not share GPUs", allowed="False in a cluster with GPUs"
        )
    bundle = _bundle(on_gpu, devices, memory_bytes, oversubscribe)
    room = {node.node_id: fits(node.free, bundle) for node in nodes}
    if sum(room.values()) < replicas:
        shareable = not on_gpu and not oversubscribe
        raise NoRoomError(_refusal(nodes, bundle, replicas, shareable, is_more=bool(taken)))
    if strategy == "spread":
        hosts = _spread(room, replicas, Counter(taken))
    else:
        hosts = _pack(room, replicas, {node.node_id: _rest(node, bundle) for node in nodes})
    device: Literal["cpu", "gpu"] = "gpu" if on_gpu and devices else "cpu"
    return [Seat(host, dict(bundle), device, max(devices, 1)) for host in hosts]


def emptied(nodes: Sequence[Node]) -> list[Node]:
    """The nodes as they were if nothing ran there."""
    return [replace(node, free=node.total) for node in nodes]


def fits(resources: Resources, bundle: Resources) -> int:
    """How many replicas that take ``bundle`` the resources hold."""
    return min((int(resources.get(name, 0) // n) for name, n in bundle.items()), default=ANY)


def phrase(resources: Resources) -> str:
    """Resources as a user reads them."""
    return ", ".join(f"{_amount(n, v)} {n}" for n, v in resources.items()) or "nothing"


def figures(nodes: Sequence[Node], bundle: Resources) -> list[str]:
    """What the nodes have of a bundle's resources, free and in all, in a few lines.

    Nodes with the same figures share a line, those with the most room come first.
    """
    alike: dict[str, list[Node]] = {}
    for node in nodes:
        parts = (
            f"{_amount(n, node.free.get(n, 0))} of {_amount(n, node.total.get(n, 0))} {n}"
            for n in bundle
        )
        alike.setdefault(", ".join(parts), []).append(node)
    groups = sorted(
        alike.items(),
        key=lambda group: (_share(group[1][0].free, bundle), _share(group[1][0].total, bundle)),
        reverse=True,
    )
    shown = len(groups) if len(groups) <= MAX_FIGURES else MAX_FIGURES - 1
    lines = []
    for told, same in groups[:shown]:
        who = same[0].address if len(same) == 1 else f"{len(same)} nodes, each"
        lines.append(f"  {who}: {told} (room for {fits(same[0].free, bundle)})")
    rest = [node for _, same in groups[shown:] for node in same]
    if rest:
        lines.append(f"  {len(rest)} more nodes (room for {_room(rest, bundle)} on all of them)")
    return lines or ["  no node"]


def _bundle(on_gpu: bool, devices: int, memory_bytes: int, oversubscribe: bool) -> dict[str, float]:
    if not devices:
        return {}
    if on_gpu:
        return {"GPU": devices, "CPU": 1}
    if oversubscribe:
        return {"memory": memory_bytes}
    return {"CPU": devices, "memory": memory_bytes}


def _spread(room: Mapping[str, int], replicas: int, counts: Counter[str]) -> list[str]:
    """Hosts, each the one with the fewest replicas so far; ties to the one with the most room."""
    left = dict(room)
    hosts: list[str] = []
    for _ in range(replicas):
        host = min((h for h, n in left.items() if n), key=lambda h: (counts[h], -left[h]))
        left[host] -= 1
        counts[host] += 1
        hosts.append(host)
    return hosts


def _pack(room: Mapping[str, int], replicas: int, rest: Mapping[str, float]) -> list[str]:
    """Hosts: the roomiest are filled, and what remains goes to the one where it fits best."""
    left = dict(room)
    hosts: list[str] = []
    while remaining := replicas - len(hosts):
        for_all = [h for h, n in left.items() if n >= remaining]
        if for_all:
            host = min(for_all, key=lambda h: (left[h], rest[h]))
        else:
            host = max(left, key=lambda h: left[h])
        hosts += [host] * min(left.pop(host), remaining)
    return hosts


def _rest(node: Node, bundle: Resources) -> float:
    """Devices that stay unused on a node that holds as many replicas as it can."""
    name = next(iter(bundle), "")
    return node.free.get(name, 0) - fits(node.free, bundle) * bundle.get(name, 0)


def _room(nodes: Sequence[Node], bundle: Resources) -> int:
    return sum(fits(node.free, bundle) for node in nodes)


def _refusal(
    nodes: Sequence[Node], bundle: Resources, replicas: int, shareable: bool, *, is_more: bool
) -> str:
    in_all = _room(emptied(nodes), bundle)
    lines = [
        f"replicas: {replicas}{' more' if is_more else ''} asked for, room for "
        f"{_room(nodes, bundle)} ({in_all} if nothing else ran here). "
        f"One replica needs {phrase(bundle)} on one node; free of total:",
        *figures(nodes, bundle),
    ]
    if nodes and not in_all:
        largest = max(nodes, key=lambda node: _share(node.total, bundle))
        has = {name: largest.total.get(name, 0) for name in bundle}
        lines.append(
            "It can never fit: a replica is larger than any node, the largest of which "
            f"has {phrase(has)}"
        )
    memory = {name: n for name, n in bundle.items() if name != "CPU"}
    if shareable and _room(nodes, memory) >= replicas and nodes:
        lines.append("Cores are what lacks: with oversubscribe=True replicas share them, and fit")
    return "\n".join(lines)


def _share(resources: Resources, bundle: Resources) -> float:
    """Of what is scarcest, how much there is for each that a replica needs."""
    return min((resources.get(name, 0) / n for name, n in bundle.items()), default=1.0)


def _amount(name: str, value: float) -> str:
    return f"{value / GIB:.1f} GiB" if name == "memory" else f"{value:g}"
