"""Weights reach every node, and replicas that start find them where they are."""

from __future__ import annotations

from types import SimpleNamespace

from workbench.cluster.members import Members
from workbench.cluster.rollover import Rollover
from workbench.supervision import RestartBudget, SupervisionConfig
from workbench.weights import ReplicaUpdate


class Remote:
    def __init__(self, call):
        self._call = call

    def remote(self, *a, **k):
        async def answer():
            return self._call(*a, **k)

        return answer()


class Nodes:
    def __init__(self):
        self.all = {}

    def on(self, node):
        return SimpleNamespace(
            finish=Remote(lambda v: f"/{node}/v{v}"),
            check=Remote(lambda *a, **k: None),
            write=Remote(lambda *a: None),
            parts=Remote(lambda v: ["part"]),
            forget_before=Remote(lambda v: None),
        )


def member(members, node, told):
    m = members.make(RestartBudget(SupervisionConfig()))
    m.node_id = node

    def update(directory, version, mode, recompute):
        told.append((m.replica_id, directory))
        return ReplicaUpdate(m.replica_id, version)

    m.handle = SimpleNamespace(update=Remote(update))
    return m


async def test_each_node_reads_its_own_folder():
    told, members = [], Members()
    roll = Rollover(
        members, Nodes(), SimpleNamespace(forget_caches=Remote(lambda ids: None)), 5.0, checks=True
    )
    for node in ("n1", "n2"):
        await roll.admit(member(members, node, told))
    await roll.update(None, 1, "keep", recompute=False)
    assert told == [("replica-0", "/n1/v1"), ("replica-1", "/n2/v1")]
    told.clear()
    await roll.admit(member(members, "n2", told))
    await roll.admit(member(members, "n3", told))
    assert told == [("replica-2", "/n2/v1"), ("replica-3", "/n3/v1")]
