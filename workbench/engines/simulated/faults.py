"""Injected faults: which are armed, and which are in force. Pure; the engine asks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from workbench.errors import ReplicaDiedError, ReplicaLostError


class FaultKind(StrEnum):
    """What goes wrong."""

    CRASH = "crash"
    """The step loop raises an exception of any kind; the engine is gone."""
    DEATH = "death"
    """The engine ends with :class:`ReplicaDiedError`."""
    HANG = "hang"
    """No step until released. Requests are still taken, and the engine answers for its figures."""
    SLOW = "slow"
    """Steps take ``factor`` times as long, from the next step on, until released."""
    REFUSE = "refuse"
    """The next ``requests`` requests are refused."""
    LOAD = "load"
    """The next weights cannot be loaded."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Plain values; what it raises is given where it is injected."""

    kind: FaultKind
    after_tokens: int | None = None
    """Tokens that the engine samples before it happens, counted from the injection and looked at
    after each step; None: at once."""
    factor: float = 1.0
    """For ``slow``."""
    requests: int = 1
    """For ``refuse``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", FaultKind(self.kind))


class FaultBoard:
    """The faults of one engine."""

    def __init__(self, replica_id: str) -> None:
        self._replica_id = replica_id
        self._armed: list[tuple[int, Fault, Exception | None]] = []
        self._refusals: list[Exception] = []
        self._load_failures: list[Exception] = []
        self.factor = 1.0
        self.hung = False
        self.failure: Exception | None = None
        """Why the engine is gone. The first reason stays."""

    def inject(self, fault: Fault, error: Exception | None, sampled: int) -> None:
        """Arm a fault, or put it in force where nothing has to be waited for.

        Args:
            fault: what happens.
            error: what it raises, instead of the usual one of its kind.
            sampled: tokens that the engine has sampled so far.
        """
        if fault.after_tokens is None:
            self._happen(fault, error)
        else:
            self._armed.append((sampled + fault.after_tokens, fault, error))

    def advance(self, sampled: int) -> None:
        """Put in force what was armed for this number of tokens."""
        due = [armed for armed in self._armed if armed[0] <= sampled]
        self._armed = [armed for armed in self._armed if armed[0] > sampled]
        for _, fault, error in sorted(due, key=lambda armed: armed[0]):
            self._happen(fault, error)

    def _happen(self, fault: Fault, error: Exception | None) -> None:
        if fault.kind is FaultKind.HANG:
            self.hung = True
        elif fault.kind is FaultKind.SLOW:
            self.factor = fault.factor
        elif fault.kind is FaultKind.REFUSE:
            refusal = error or ReplicaLostError(f"{self._replica_id}: simulated refusal")
            self._refusals += [refusal] * fault.requests
        elif fault.kind is FaultKind.LOAD:
            self._load_failures.append(error or RuntimeError("simulated broken weights"))
        elif fault.kind is FaultKind.CRASH:
            self.fail(error or RuntimeError("simulated crash"))
        else:
            self.fail(error or ReplicaDiedError(self._replica_id, "simulated engine death"))

    def fail(self, error: Exception) -> None:
        """The engine is gone, unless it already is."""
        self.failure = self.failure or error

    def refusal(self) -> Exception | None:
        """What the request that just came is refused with, if it is."""
        return self._refusals.pop(0) if self._refusals else None

    def load_failure(self) -> Exception | None:
        """What the weights that just came break on, if they do."""
        return self._load_failures.pop(0) if self._load_failures else None

    def release(self) -> None:
        """End what can end: a hang, slowness, refusals. Faults that are not due stay armed."""
        self.hung, self.factor = False, 1.0
        self._refusals.clear()
