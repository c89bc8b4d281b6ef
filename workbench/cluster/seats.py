"""Seats in the cluster: what its nodes have, and one placement group for each replica.

Ray ends a group once the actor that made it has ended, and also the process that made this actor.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import time
from typing import Any

import ray
from ray import PlacementGroupID
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from workbench.aio import end_task, in_thread
from workbench.cluster.placement import Node, Seat, emptied, figures, phrase, plan
from workbench.errors import NoRoomError

RESOURCES = ("GPU", "CPU", "memory")
NODE_LABEL = "ray.io/node-id"
LOOK_S = 0.25
"""How often the cluster is looked at while something is awaited there."""


def look() -> list[Node]:
    """The live nodes, this process's own first; asks the cluster's head, which blocks."""
    untyped: Any = ray
    free = untyped._private.state.available_resources_per_node()
    own = untyped.get_runtime_context().get_node_id()
    nodes = [
        Node(
            node["NodeID"],
            node["NodeManagerAddress"],
            _known(free.get(node["NodeID"], {})),
            _known(node["Resources"]),
        )
        for node in untyped.nodes()
        if node["Alive"]
    ]
    return sorted(nodes, key=lambda node: (node.node_id != own, node.address, node.node_id))


def _known(resources: dict[str, float]) -> dict[str, float]:
    return {name: resources[name] for name in RESOURCES if name in resources}


@functools.cache
def spans_nodes() -> bool:
    """Whether the cluster had several nodes when this process, a pool's controller, first asked.

    All of a pool is reached in one way, so that this is settled once.
    """
    return len(look()) > 1


async def find_room(*, patience_s: float = 5.0, **wanted: Any) -> list[Seat]:
    """Plan over the nodes as they are; see :func:`workbench.cluster.placement.plan`.

    For seconds after a pool was closed, Ray may show its places as taken. This waits for them, if
    the nodes' totals could hold what is wanted.

    Args:
        patience_s: how long it waits, in seconds.
        wanted: the arguments of ``plan``, save the nodes.

    Raises:
        ConfigError: as ``plan`` does.
        NoRoomError: with the figures at the end of the wait.
    """
    deadline_s = time.monotonic() + patience_s
    while True:
        nodes = await in_thread(look)
        try:
            return plan(nodes, **wanted)
        except NoRoomError:
            if time.monotonic() >= deadline_s or not _could_hold(nodes, wanted):
                raise
        await asyncio.sleep(LOOK_S)


def _could_hold(nodes: list[Node], wanted: dict[str, Any]) -> bool:
    try:
        plan(emptied(nodes), **wanted)
    except NoRoomError:
        return False
    return True


async def reserve(seat: Seat, name: str, timeout_s: float) -> PlacementGroup | None:
    """Take a seat, and wait until it is this process's; ``None`` for one that takes nothing.

    If it fails or is cancelled, nothing stays taken.

    Args:
        seat: as it was planned; others may have taken it since.
        name: of the group, ``<pool>-<replica id>``; no other may have it.
        timeout_s: how long the seat may take to come free, in seconds.

    Raises:
        NoRoomError: it did not, or its node is gone; with the cluster's figures.
    """
    if not seat.bundle:
        return None
    group: PlacementGroup = placement_group(
        [seat.bundle],
        strategy="STRICT_PACK",
        name=name,
        bundle_label_selector=[{NODE_LABEL: seat.node_id}],
    )
    try:
        await _until_ready(group, seat, name, timeout_s)
    except BaseException:
        release(group)
        raise
    return group


async def _until_ready(group: PlacementGroup, seat: Seat, name: str, timeout_s: float) -> None:
    untyped: Any = group
    ready = asyncio.ensure_future(untyped.ready())
    deadline_s = time.monotonic() + timeout_s
    try:
        while True:
            left_s = deadline_s - time.monotonic()
            done, _ = await asyncio.wait({ready}, timeout=min(max(left_s, 0), 1.0))
            if done:
                ready.result()
                return
            nodes = await in_thread(look)
            if all(node.node_id != seat.node_id for node in nodes):
                raise _no_room(nodes, seat, f"{name}: the node of its place is gone")
            if left_s <= 0:
                raise _no_room(nodes, seat, f"{name}: no place came free in {timeout_s:g} s")
    finally:
        await end_task(ready)


def _no_room(nodes: list[Node], seat: Seat, problem: str) -> NoRoomError:
    told = [f"{problem}. It needs {phrase(seat.bundle)}; free of total:"]
    return NoRoomError("\n".join([*told, *figures(nodes, seat.bundle)]))


def options(group: PlacementGroup | None, seat: Seat) -> dict[str, Any]:
    """With which options an actor takes the whole seat.

    Without a group it takes nothing, and goes to the seat's node while that is there.
    """
    if group is None:
        # Not a soft node affinity, which Ray ignores for actors that take nothing.
        return {
            "num_cpus": 0,
            "label_selector": {NODE_LABEL: seat.node_id},
            "fallback_strategy": [{"label_selector": {}}],
        }
    taken: dict[str, Any] = {
        "num_cpus": seat.bundle.get("CPU", 0),
        "num_gpus": seat.bundle.get("GPU", 0),
        "scheduling_strategy": PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=0, placement_group_capture_child_tasks=False
        ),
    }
    if "memory" in seat.bundle:
        taken["memory"] = seat.bundle["memory"]
    return taken


def release(group: PlacementGroup | None) -> None:
    """Give a seat back; what runs there is killed. Idempotent, and it never raises."""
    if group is not None:
        with contextlib.suppress(Exception):  # gone with its owner, its node or the cluster
            remove_placement_group(group)


def release_all(pool: str) -> None:
    """Give back what a pool's controller held that is gone, and did not. It never raises.

    Ray itself does so only when the process that made the controller ends.
    """
    name = re.compile(rf"{re.escape(pool)}-replica-\d+")
    with contextlib.suppress(Exception):  # the cluster is gone
        for group_id, facts in placement_group_table().items():
            if name.fullmatch(facts["name"]) and facts["state"] != "REMOVED":
                release(PlacementGroup(PlacementGroupID.from_hex(group_id)))


def own_address() -> str:
    """The address at which other nodes reach this one."""
    untyped: Any = ray
    return str(untyped.util.get_node_ip_address())
