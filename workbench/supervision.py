"""When a replica that failed is replaced, and when it is given up. Pure: told what the time is."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.errors import ConfigError

MAX_BACKOFF_S = 60.0
"""Longest pause before a replacement."""

MAX_DOUBLINGS = 100
"""Beyond any use, and still a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionConfig:
    """How replicas are watched over.

    Raises:
        ConfigError: names the field and what is allowed.
    """

    hang_s: float = 30.0
    """A replica that does not answer for so long, or whose engine takes no step for so long while
    it has requests, is replaced. That an engine or a process is gone is noticed within a second."""
    max_restarts: int = 3
    """Replacements in a row after which a replica is given up; the pool goes on with the rest."""
    backoff_s: float = 1.0
    """Before the second replacement in a row; doubles each time. The first comes at once."""
    healthy_s: float = 120.0
    """A replica that ran well for so long has its earlier failures forgotten."""

    def __post_init__(self) -> None:
        for name, least in (("hang_s", 1.0), ("backoff_s", 0.0), ("healthy_s", 0.0)):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not least <= value < float("inf"):
                raise ConfigError(name, f"{value!r}", allowed=f"seconds from {least:g}")
        if type(self.max_restarts) is not int or self.max_restarts < 0:
            raise ConfigError(
                "max_restarts", f"{self.max_restarts!r}", allowed="a whole number from 0"
            )


class RestartBudget:
    """The replacements that one replica has left."""

    def __init__(self, rules: SupervisionConfig) -> None:
        self._rules = rules
        self.used = 0
        """Replacements since it last ran well for a while."""
        self._well_since_s: float | None = None

    def failed(self) -> float | None:
        """It failed: seconds until it is replaced; None when it is given up."""
        self._well_since_s = None
        if self.used >= self._rules.max_restarts:
            return None
        self.used += 1
        if self.used == 1:
            return 0.0
        doublings = min(self.used - 2, MAX_DOUBLINGS)
        return float(min(MAX_BACKOFF_S, self._rules.backoff_s * 2**doublings))

    def well(self, now_s: float) -> None:
        """It runs well at this moment."""
        if self._well_since_s is None:
            self._well_since_s = now_s
        if now_s - self._well_since_s >= self._rules.healthy_s:
            self.used = 0
