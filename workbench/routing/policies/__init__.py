"""Routing policies: given a turn and the replicas that may take it, name one.

A policy is a small object with one method. It keeps no books (the routing table does) and does
no I/O, so that the same object runs in a Ray actor, in a test and in a simulation.
"""

from __future__ import annotations

from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, cast

from workbench.errors import ConfigError
from workbench.routing.policies.base import Candidates, Need, Policy, ReplicaView, Turn
from workbench.routing.policies.kv_aware import KVAware
from workbench.routing.policies.prefix_aware import PrefixAware
from workbench.routing.policies.simple import LeastLoaded, PowerOfTwo, Random, RoundRobin
from workbench.routing.policies.stable_hash import StableHash
from workbench.routing.policies.sticky import StickyLeastLoaded

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["POLICIES", "Candidates", "Need", "Policy", "ReplicaView", "Turn", "make_policy"]


def make_policy(policy: str | object, rng: random.Random) -> Policy:
    """The policy that is meant.

    Args:
        policy: a name, an object with a method ``choose``, or a class of such objects, which is
            made without arguments, or with ``rng`` where it takes one of that name.
        rng: where the policy's chances come from.

    Raises:
        ConfigError: there is none of that name, or it is not a policy.
    """
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise ConfigError("policy", f"unknown policy {policy!r}", allowed=sorted(POLICIES))
        return POLICIES[policy](rng)
    if not callable(getattr(policy, "choose", None)):
        raise ConfigError(
            "policy",
            f"{policy!r} has no method choose",
            allowed="a name, or an object or class with choose(turn, pinned, candidates)",
        )
    return _checked(_made(policy, rng) if isinstance(policy, type) else cast("Policy", policy))


def _checked(policy: Policy) -> Policy:
    margin = getattr(policy, "margin", None)
    if margin is not None and (type(margin) is not int or margin < 0):
        raise ConfigError(
            "policy", f"its margin is {margin!r}", allowed="a count of requests, None"
        )
    if unknown := [need for need in getattr(policy, "needs", ()) if need not in list(Need)]:
        raise ConfigError("policy", f"it needs {unknown[0]!r}", allowed=list(Need))
    return policy


def _made(kind: type, rng: random.Random) -> Policy:
    takes = signature(kind)
    arguments = {"rng": rng} if "rng" in takes.parameters else {}
    try:
        takes.bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            "policy", f"{kind.__name__}: {error}", allowed="an object of it"
        ) from error
    return cast("Policy", kind(**arguments))


_KINDS: tuple[type[Policy], ...] = (
    StickyLeastLoaded,
    LeastLoaded,
    RoundRobin,
    Random,
    PowerOfTwo,
    StableHash,
    PrefixAware,
    KVAware,
)

POLICIES: dict[str, Callable[[random.Random], Policy]] = {
    kind.name: partial(_made, kind) for kind in _KINDS
}
"""The policies that can be chosen by name; the first is the default."""
