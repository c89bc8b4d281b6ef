"""What a pool is made from, checked before anything starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.errors import ConfigError
from workbench.supervision import SupervisionConfig

_NAME = re.compile(r"[\w.-]+")

DEFAULT_POLICY = "sticky-least-loaded"

_KINDS: dict[str, type] = {
    **dict.fromkeys(("model", "name", "engine"), str),
    "seed": int,
    **dict.fromkeys(("deterministic", "oversubscribe", "openai_routes"), bool),
    "engine_args": Mapping,
    "supervision": SupervisionConfig,
}

PLACEMENTS = ("pack", "spread")
"""Over the nodes of a cluster."""

SAMPLE_S = (0.05, 30.0)
"""Between two samples: a rate needs several in a minute."""

ENGINES = ("vllm", "simulated")
"""Engines that a replica can host; the simulated one is for tests and overhead measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingConfig:
    """How turns find their replicas.

    Raises:
        ConfigError: names the field and what is allowed.
    """

    policy: Any = DEFAULT_POLICY
    """A name, or an object or class with a method ``choose``. Which names there are is checked when
    a pool is made."""
    capacity: int | None = None
    """Requests that a replica may have in flight; further ones wait, the lowest ``priority`` first
    and then in order. With a limit every turn is asked for: nobody may start one on a pin alone."""
    report_s: float = 0.05
    """How far the balancer's view may be behind: clients report what they did this often."""
    session_idle_s: float = 3600.0
    """A session without a request in flight is forgotten after this long."""
    owner_timeout_s: float = 10.0
    """A client that was not heard of for this long has its leases taken back."""
    no_replica_s: float = 30.0
    """Once no replica was ready for this long, turns that wait are refused, until one is."""
    max_failures: int = 3
    """Failed requests in a row that take a replica out of rotation; its death does so at once."""
    probe_s: float = 1.0
    """Until a replica that is out is asked for its health; doubles up to 30 s."""
    recovery_s: float = 1.0
    """After a restart of the balancer: how long new sessions wait for clients to report pins."""
    events: int = 10_000
    """Events that are kept."""

    def __post_init__(self) -> None:
        for name in ("report_s", "session_idle_s", "owner_timeout_s", "no_replica_s", "probe_s"):
            _check_seconds(self, name)
        _check_seconds(self, "recovery_s", zero=True)
        for name in ("max_failures", "events"):
            _check_count(self, name)
        if 2 * self.report_s > self.owner_timeout_s:
            raise ConfigError(
                "report_s", f"{self.report_s!r}", allowed="at most half of owner_timeout_s"
            )
        if self.capacity is not None:
            _check_count(self, "capacity", allowed="a whole number from 1, or None")
        if not isinstance(self.policy, str) and not callable(getattr(self.policy, "choose", None)):
            raise ConfigError(
                "policy", f"{self.policy!r}", allowed="a name, or something with a method choose"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """A pool: one model on some replicas behind one balancer.

    Raises:
        ConfigError: names the field and what is allowed.
    """

    model: str
    """Packaged name, local directory or hub id."""
    replicas: int = 1
    name: str = "pool"
    """Shown everywhere."""
    engine: str = "vllm"
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    """Passed to vLLM's ``AsyncEngineArgs`` untouched (or to ``SimulatedArgs``)."""
    routing: RoutingConfig = field(default_factory=RoutingConfig)
    deterministic: bool = False
    """The same session ids get the same replicas and sampling seeds in every process. Routing is
    ``stable-hash`` then."""
    placement: str = "pack"
    """``pack`` fills one node before the next, ``spread`` puts replicas on as many as there are."""
    oversubscribe: bool = False
    """Allow more replicas than cores, where there are no GPUs; they take turns then."""
    openai_routes: bool = False
    """Each replica's HTTP address has vLLM's OpenAI routes too. What comes that way has passed the
    balancer by: it is shown, and counted by it, as ``external``."""
    supervision: SupervisionConfig = field(default_factory=SupervisionConfig)
    """How replicas that fail are noticed and replaced."""
    start_timeout_s: float = 600.0
    """How long a start may take, of all replicas together or of one that comes later; a large model
    on a cold disk takes minutes."""
    sample_s: float = 1.0
    """How often the pool is looked at for its history, which keeps 3,600 samples and a day by the
    minute."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in (_KINDS | {"routing": RoutingConfig}).items():
            value = getattr(self, name)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                problem = f"{value!r} is a {type(value).__name__}"
                raise ConfigError(name, problem, allowed=kind.__name__)
        for name, known in (("engine", ENGINES), ("placement", PLACEMENTS)):
            if getattr(self, name) not in known:
                raise ConfigError(name, f"{getattr(self, name)!r} is unknown", allowed=known)
        _check_count(self, "replicas")
        for name in ("start_timeout_s", "sample_s"):
            _check_seconds(self, name)
        if not SAMPLE_S[0] <= self.sample_s <= SAMPLE_S[1]:
            allowed = f"{SAMPLE_S[0]:g} to {SAMPLE_S[1]:g} seconds"
            raise ConfigError("sample_s", f"{self.sample_s!r}", allowed=allowed)
        if not _NAME.fullmatch(self.name):
            raise ConfigError("name", f"{self.name!r}", allowed="letters, digits and _ . -")
        self._check_engine_args()
        if self.deterministic and self.routing.policy not in ("stable-hash", DEFAULT_POLICY):
            raise ConfigError(
                "policy", "is not the same in every process", allowed="stable-hash, or the default"
            )

    def _check_engine_args(self) -> None:
        if "model" in self.engine_args:
            raise ConfigError(
                "engine_args['model']", "is given by the pool", allowed="the pool's own model="
            )
        if self.engine_args.get("data_parallel_size", 1) != 1:  # sessions could not be pinned
            raise ConfigError(
                "engine_args['data_parallel_size']",
                "is not supported inside a replica",
                allowed="1; replicas= gives more of them, each with its place in the routing",
            )
        _ = self.devices_per_replica  # refuses sizes that are none

    @property
    def routing_rules(self) -> RoutingConfig:
        """The routing as it is in force."""
        if self.deterministic:
            return replace(self.routing, policy="stable-hash")
        return self.routing

    @property
    def devices_per_replica(self) -> int:
        """GPUs of one replica: tensor parallel size × pipeline parallel size."""
        args = self.engine_args
        size = 1
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            value = args.get(name, 1)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(
                    f"engine_args[{name!r}]", f"{value!r}", allowed="a whole number from 1"
                )
            size *= value
        return size


def _check_seconds(config: Any, name: str, *, zero: bool = False) -> None:
    value = getattr(config, name)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not (0 <= value < float("inf")) or (value == 0 and not zero):
        allowed = "seconds from 0" if zero else "seconds above 0"
        raise ConfigError(name, f"{value!r}", allowed=allowed)


def _check_count(config: Any, name: str, *, allowed: str = "a whole number from 1") -> None:
    value = getattr(config, name)
    if type(value) is not int or value < 1:
        raise ConfigError(name, f"{value!r}", allowed=allowed)
