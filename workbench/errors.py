"""Errors, named by the boundary that was crossed.

    WorkbenchError
    ├── FieldError                 a value was refused; names the field and what is allowed
    │   ├── ConfigError            … of a configuration, before anything was started
    │   ├── RequestError           … of a generation request, by us or by the engine; never retried
    │   ├── TaskError              … of a task handed to an agent loop
    │   └── CheckpointError        … of new weights, before an engine sees them
    ├── PoolError                  the pool as a whole cannot do what was asked
    │   ├── NoRoomError            the cluster cannot hold the replicas, or a node new weights
    │   ├── ReplicaStartError      a replica did not come up; carries its last log lines
    │   ├── NoReplicaError         nothing to route to
    │   ├── WeightsError           no replica took new weights; the pool stays on the old ones
    │   ├── BalancerLostError      the balancer cannot be reached just now; it comes back by itself
    │   ├── WorkerDiedError        the process that played a rollout ended
    │   └── PoolClosedError        the pool was closed
    ├── ReplicaError               one replica failed
    │   ├── ReplicaDiedError       … its process or its engine is gone
    │   ├── ReplicaLostError       … it cannot be reached just now; it may be back
    │   └── NoProgressError        … several attempts in a row brought no token
    ├── DeadlineError              a deadline passed
    ├── StreamError                a stream stopped, and not because its tasks were used up
    │   └── StreamEndedError       … it has handed out all that it had
    ├── LearnerDiedError           a learner's process ended
    └── RolloutError               a rollout cannot go on (what a failed row carries)

Every error survives pickling with its attributes, since errors cross Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class WorkbenchError(Exception):
    """Root of every error that this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    cls: type[WorkbenchError], args: tuple[Any, ...], state: dict[str, Any]
) -> WorkbenchError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class FieldError(WorkbenchError, ValueError):
    """A value was refused. ``field`` names it, ``allowed`` says what would have been taken."""

    def __init__(
        self, field: str, problem: str, *, allowed: str | Iterable[object] | None = None
    ) -> None:
        self.field = field
        self.problem = problem
        self.allowed = _phrase(allowed)
        hint = f" (allowed: {self.allowed})" if self.allowed else ""
        super().__init__(f"{field}: {problem}{hint}")


def _phrase(allowed: str | Iterable[object] | None) -> str:
    if allowed is None or isinstance(allowed, str):
        return allowed or ""
    return ", ".join(str(item) for item in allowed)


class ConfigError(FieldError):
    """A configuration was refused before anything was started."""


class RequestError(FieldError):
    """A generation request was refused. It is never retried and hurts no replica."""


class TaskError(FieldError):
    """A task lacks what its agent loop needs, or has it in the wrong form."""


class CheckpointError(FieldError):
    """New weights were refused before an engine saw them: broken, of another model, not finite."""


class PoolError(WorkbenchError):
    """The pool as a whole cannot do what was asked."""


class NoRoomError(PoolError):
    """The cluster cannot hold the replicas, or a node new weights; says what it has."""


class ReplicaStartError(PoolError):
    """A replica did not come up. ``log_tail`` holds its own last log lines."""

    def __init__(self, replica_id: str, problem: str, *, log_tail: str = "") -> None:
        self.replica_id = replica_id
        self.problem = problem
        self.log_tail = log_tail
        tail = f"\nlast log lines of {replica_id}:\n{log_tail}" if log_tail else ""
        super().__init__(f"{replica_id} did not start: {problem}{tail}")


class NoReplicaError(PoolError):
    """No replica can take a request; says the state of each.

    ``replica_id`` names the one that the request waits for, where others would not do.
    """

    def __init__(self, problem: str, *, replica_id: str | None = None) -> None:
        self.replica_id = replica_id
        super().__init__(problem)


class WeightsError(PoolError):
    """No replica took new weights; the pool stays on those that it has."""


class BalancerLostError(PoolError):
    """The balancer cannot be reached just now. It comes back by itself; calls go on then."""


class WorkerDiedError(PoolError):
    """The process that played a rollout ended."""


class PoolClosedError(PoolError):
    """The pool was closed, or the process that owned it ended."""


class ReplicaError(WorkbenchError):
    """One replica failed."""


class ReplicaDiedError(ReplicaError):
    """A replica's process or engine is gone."""

    def __init__(self, replica_id: str, cause: str = "") -> None:
        self.replica_id = replica_id
        self.cause = cause
        super().__init__(f"{replica_id} died" + (f": {cause}" if cause else ""))


class ReplicaLostError(ReplicaError):
    """A replica cannot be reached just now. It stays in rotation; the attempt is made elsewhere."""


class NoProgressError(ReplicaError):
    """Several attempts in a row ended without a single new token."""


class DeadlineError(WorkbenchError, TimeoutError):
    """A deadline passed before the work was done."""


class StreamError(WorkbenchError):
    """A stream stopped for a reason that is not its data's end; says which."""


class StreamEndedError(StreamError):
    """A stream has handed out all that it had: its tasks are used up, or it was stopped."""


class LearnerDiedError(WorkbenchError):
    """The process of a learner ended. What it had saved is there."""


class RolloutError(WorkbenchError):
    """A rollout cannot go on. It becomes a failed row, never the loss of its batch."""
