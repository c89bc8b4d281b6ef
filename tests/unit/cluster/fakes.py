"""Actors in this process: what a pool's controller talks to, and how it breaks."""

from __future__ import annotations

from types import SimpleNamespace

from ray.exceptions import RayActorError

from workbench.cluster.members import Members
from workbench.supervision import RestartBudget, SupervisionConfig
from workbench.weights import ReplicaUpdate


class Method:
    """An actor's method: ``.remote(…)`` gives something to await."""

    def __init__(self, call):
        self._call = call

    def remote(self, *args, **kwargs):
        async def answer():
            result = self._call(*args, **kwargs)
            return await result if hasattr(result, "__await__") else result

        return answer()


class Actor:
    """Whose methods are those of ``behind``, until it is dead."""

    def __init__(self, behind):
        self.behind = behind
        self.dead = False

    def __getattr__(self, name):
        def call(*args, **kwargs):
            if self.dead:
                raise RayActorError
            return getattr(self.behind, name)(*args, **kwargs)

        return Method(call)


class Node:
    """What :class:`workbench.cluster.node.NodeActor` does, with parts in a dictionary."""

    def __init__(self, name):
        self.name = name
        self.parts_of = {}
        self.complete = set()
        self.stamps = {}
        self.on_check = None

    async def check(self, directory, *, values):
        if self.on_check:
            await self.on_check()
        return self.stamp(directory)

    def stamp(self, directory):
        return self.stamps.get(directory, ())

    def write(self, key, part):
        self.parts_of.setdefault(key, []).append(part)

    def finish(self, key):
        assert self.parts_of[key]
        self.complete.add(key)
        return f"/{self.name}/{key}"

    def holds(self, key):
        return f"/{self.name}/{key}" if key in self.complete else ""

    def parts(self, key):
        return list(self.parts_of[key]) if key in self.complete else []

    def forget(self, key, *, before=False):
        for known in list(self.parts_of):
            if known < key if before else known == key:
                del self.parts_of[known]
                self.complete.discard(known)


class Nodes:
    def __init__(self):
        self.actors = {}

    def on(self, node_id):
        return self.actors.setdefault(node_id, Actor(Node(node_id)))

    def all(self):
        return list(self.actors.values())


class Engine:
    """A replica's actor; remembers which directory it was told to load."""

    def __init__(self, replica_id):
        self.replica_id = replica_id
        self.loaded = []
        self.on_update = None

    async def update(self, directory, version, mode, *, recompute, limit_s):
        if self.on_update:
            await self.on_update()
        self.loaded.append((directory, version))
        return ReplicaUpdate(self.replica_id, version)

    def pause(self, mode):
        pass

    def resume(self):
        pass


class Pool:
    """Members that serve, or are about to, and a balancer that takes everything."""

    def __init__(self):
        self.members = Members()
        self.nodes = Nodes()
        self.balancer = Actor(SimpleNamespace(forget_caches=lambda ids: None))

    def make(self, node_id):
        member = self.members.make(RestartBudget(SupervisionConfig()))
        member.node_id = node_id
        member.handle = Actor(Engine(member.replica_id))
        return member
