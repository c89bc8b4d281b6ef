"""What a pool is made from, checked before anything starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import ConfigError

_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("model", "name", "engine", "policy"), (str,)),
    **dict.fromkeys(("session_idle_s", "start_timeout_s"), (int, float)),
    "seed": (int,),
    "engine_args": (Mapping,),
}
_NAME = re.compile(r"[\w.-]+")

ENGINES = ("vllm", "simulated")
"""Engines that a replica can host; the simulated one is for tests and overhead measurements."""


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
    policy: str = "sticky-least-loaded"
    session_idle_s: float = 3600.0
    """A session without a request in flight is forgotten after this long."""
    start_timeout_s: float = 600.0
    """How long all replicas may take to start; a large model on a cold disk takes minutes."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kinds in _TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or isinstance(value, bool):
                allowed = " or ".join(kind.__name__ for kind in kinds)
                raise ConfigError(name, f"{value!r} is a {type(value).__name__}", allowed=allowed)
        if self.engine not in ENGINES:
            raise ConfigError("engine", f"unknown engine {self.engine!r}", allowed=ENGINES)
        if type(self.replicas) is not int or self.replicas < 1:
            raise ConfigError("replicas", f"{self.replicas!r}", allowed="a whole number from 1")
        if not _NAME.fullmatch(self.name):
            raise ConfigError("name", f"{self.name!r}", allowed="letters, digits and _ . -")
        for name in ("session_idle_s", "start_timeout_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, f"{getattr(self, name)!r}", allowed="seconds above 0")
        if "model" in self.engine_args:
            raise ConfigError(
                "engine_args['model']", "is given by the pool", allowed="the pool's own model="
            )
        if self.engine_args.get("data_parallel_size", 1) != 1:
            raise ConfigError(
                "engine_args['data_parallel_size']",
                "is not supported inside a replica",
                allowed="1; replicas= gives more of them",
            )
        _ = self.devices_per_replica  # refuses sizes that are none

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
