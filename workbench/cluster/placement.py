"""Where replicas go: pure arithmetic over what the cluster's nodes have.

One placement bundle per replica. GPUs are used when the cluster has any; otherwise each replica
gets CPU cores of its own. More replicas than that holds are refused with the cluster's figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.errors import NoRoomError

GIB = 2**30
Resources = Mapping[str, float]
"""Ray's resource names → amounts (``memory`` in bytes)."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What each replica gets."""

    device: str
    """``cpu`` or ``gpu``."""
    bundle: dict[str, float]
    threads: int
    """OpenMP threads of one replica, on the CPU."""


def plan(
    nodes: Sequence[Resources], *, on_gpu: bool, replicas: int, devices: int, memory_bytes: int
) -> Placement:
    """Place ``replicas`` that take ``devices`` GPUs (or cores) and ``memory_bytes`` each.

    Args:
        nodes: what is free on each node.
        on_gpu: whether the cluster has GPUs at all. Where all of them are taken, replicas are
            refused and not put on cores.
        replicas: how many are asked for.
        devices: GPUs of one replica, or cores where there are no GPUs.
        memory_bytes: host memory of one replica on the CPU; ignored on GPUs.

    Raises:
        NoRoomError: says what is needed and what the nodes have.
    """
    bundle: dict[str, float] = (
        {"GPU": devices, "CPU": 1} if on_gpu else {"CPU": devices, "memory": memory_bytes}
    )
    room = sum(_fits(node, bundle) for node in nodes)
    if room < replicas:
        raise NoRoomError(
            f"replicas: {replicas} asked for, room for {room}. One replica needs "
            f"{_phrase(bundle)}; free: "
            + ("; ".join(f"node {i}: {_phrase(n)}" for i, n in enumerate(nodes)) or "no node")
        )
    return Placement("gpu" if on_gpu else "cpu", bundle, threads=devices)


def _fits(node: Resources, bundle: Resources) -> int:
    return int(min(node.get(name, 0) // amount for name, amount in bundle.items()))


def _phrase(resources: Resources) -> str:
    parts = [f"{resources[name]:g} {name}" for name in ("GPU", "CPU") if name in resources]
    if "memory" in resources:
        parts.append(f"{resources['memory'] / GIB:.1f} GiB memory")
    return ", ".join(parts) or "nothing"
