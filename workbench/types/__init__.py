"""The vocabulary: what travels between engine, replica, balancer, client and agent loop.

Frozen values without behaviour beyond what can be derived from their own fields.
Durations are seconds (``_s``), token counts end in ``_tokens``, shares lie in 0–1.
"""

from workbench.types.fields import ByFields
from workbench.types.generation import (
    FinishReason,
    GenerateRequest,
    GenerationTiming,
    SamplingParams,
    TokenDelta,
    TokenOutput,
    VersionSpan,
)
from workbench.types.replicas import (
    EngineFigures,
    PoolSnapshot,
    ReplicaSnapshot,
    ReplicaState,
    ReplicaStatus,
)
from workbench.types.routing import (
    EventKind,
    Lease,
    ReplicaLoad,
    RoutingEvent,
    RoutingSnapshot,
    SessionInfo,
)

__all__ = [
    "ByFields",
    "EngineFigures",
    "EventKind",
    "FinishReason",
    "GenerateRequest",
    "GenerationTiming",
    "Lease",
    "PoolSnapshot",
    "ReplicaLoad",
    "ReplicaSnapshot",
    "ReplicaState",
    "ReplicaStatus",
    "RoutingEvent",
    "RoutingSnapshot",
    "SamplingParams",
    "SessionInfo",
    "TokenDelta",
    "TokenOutput",
    "VersionSpan",
]
