"""How far a rollout with tools may go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from workbench.errors import ConfigError

Cut = Literal["end", "middle", "start"]
"""Which part of a long text is left out."""

_COUNTS = ("max_turns", "max_response_tokens", "max_calls_per_turn", "max_result_characters")
_SECONDS = ("tool_timeout_s", "open_timeout_s")


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """How far a rollout may go. Whichever is met first ends it, in this order of checks."""

    max_turns: int = 4
    """Assistant generations."""
    max_response_tokens: int = 1024
    """Sampled tokens over all turns."""
    max_calls_per_turn: int = 4
    """Tool calls in one turn that are executed; those beyond are answered with an error."""
    tool_timeout_s: float = 10.0
    """Of one tool call."""
    wall_s: float | None = None
    """Of the whole rollout: what is sampled or executed when it is over is cancelled, and the
    rollout ends with what it has. None for no limit."""
    open_timeout_s: float = 60.0
    """Of opening one source of tools, such as a server that has to start, and of closing it."""
    max_result_characters: int = 16384
    """Of a tool's answer; what is longer is cut, and says so where it was."""
    cut: Cut = "end"
    """Which part of a long answer is left out."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _check(name, getattr(self, name), int, "a whole number above 0")
        for name in _SECONDS:
            _check(name, getattr(self, name), (int, float), "a number above 0")
        if self.wall_s is not None:
            _check("wall_s", self.wall_s, (int, float), "a number above 0, or None")
        if self.cut not in get_args(Cut):
            raise ConfigError("cut", f"{self.cut!r}", allowed=get_args(Cut))


def _check(name: str, value: Any, kind: type | tuple[type, ...], allowed: str) -> None:
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if not is_number or not value > 0:  # NaN is not
        raise ConfigError(name, f"{value!r}", allowed=allowed)


DEFAULT_LIMITS = ToolLimits()
