"""New weights for a pool: what is asked for, and what came of it. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from workbench.errors import ConfigError

PauseMode = Literal["keep", "abort", "wait"]
"""What becomes of an engine's requests while it is paused, in vLLM's words: ``keep`` freezes them
and they go on later, ``abort`` ends them with what they have, ``wait`` lets those that run end."""


def check_mode(mode: Any) -> PauseMode:
    """The mode, if it is one.

    Raises:
        ConfigError: lists those that there are.
    """
    if mode not in get_args(PauseMode):
        raise ConfigError("mode", f"{mode!r}", allowed=get_args(PauseMode))
    checked: PauseMode = mode
    return checked


@dataclass(frozen=True, slots=True)
class ReplicaUpdate:
    """What one replica did with new weights, in seconds."""

    replica_id: str
    version: int
    """The policy version that it serves now."""
    pause_s: float = 0.0
    """Until no step was under way; in ``wait`` mode until those that ran had ended."""
    load_s: float = 0.0
    """Reading the weights into the engine."""
    resume_s: float = 0.0
    error: str = ""
    """Why it did not take them; it is replaced then."""

    @property
    def stopped_s(self) -> float:
        """From the order to pause until it went on."""
        return self.pause_s + self.load_s + self.resume_s


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """What came of new weights. The pool is on ``version`` and nothing is paused by it."""

    version: int
    mode: PauseMode
    check_s: float
    """Checking names, shapes and values, before any engine was asked to pause."""
    transfer_s: float
    """Bringing a state dict to the nodes; 0 for a directory."""
    replicas: tuple[ReplicaUpdate, ...]
    total_s: float

    @property
    def replaced(self) -> tuple[str, ...]:
        """Replicas that did not take the weights and are being replaced."""
        return tuple(update.replica_id for update in self.replicas if update.error)

    @property
    def stopped_s(self) -> float:
        """The longest that a replica that took them stood still."""
        return max((u.stopped_s for u in self.replicas if not u.error), default=0.0)
