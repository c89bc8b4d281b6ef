"""What is asked of an engine, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

SamplingParams = Mapping[str, Any]
"""Sampling parameters by the engine's own names (``temperature``, ``max_tokens``, …)."""


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    """The model ended its turn, or a stop string or token was met."""
    LENGTH = "length"
    """The token budget or the engine's context was used up."""
    ABORT = "abort"
    """Somebody stopped it; the tokens so far are good."""
    ERROR = "error"
    """The engine failed on it."""


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens ``start`` (included) to ``end`` (excluded) were sampled under ``version``."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One attempt of one ``generate`` call, as a replica gets it."""

    request_id: str
    prompt_ids: list[int]
    sampling: dict[str, Any]
    session_id: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class GenerationTiming:
    """Where the seconds of a generation went."""

    queue_s: float | None = None
    """In the engine, from arrival to being scheduled."""
    first_token_s: float | None = None
    """In the engine, from arrival to the first token of the first attempt."""
    total_s: float = 0.0
    """At the client, from the call to its end, over all attempts."""


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """New tokens of one request; the last one of a request has a ``finish_reason`` or an ``error``.

    ``token_ids`` and ``log_probs`` are aligned 1:1.
    """

    request_id: str
    token_ids: list[int]
    log_probs: list[float]
    version: int
    """The policy version under which these tokens were sampled."""
    finish_reason: FinishReason | None = None
    num_cached_tokens: int | None = None
    num_preempted: int | None = None
    queue_s: float | None = None
    first_token_s: float | None = None
    version_spans: tuple[VersionSpan, ...] = ()
    """The engine's own spans over the attempt, on the last delta where the engine gives them."""
    error: Exception | None = None
    interrupted: bool = False
    """It ended with ``abort`` because weights changed, and not because anybody meant it to."""

    @property
    def is_last(self) -> bool:
        """Whether nothing follows for this request."""
        return self.finish_reason is not None or self.error is not None


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """What a ``generate`` call sampled, over all its attempts.

    ``token_ids`` and ``log_probs`` have the same length; ``version_spans`` cover it exactly.
    """

    token_ids: list[int]
    log_probs: list[float]
    """The log-probability with which each token was sampled, temperature included."""
    finish_reason: FinishReason
    version_spans: tuple[VersionSpan, ...]
    replica_id: str
    """The replica that produced the last token."""
    num_cached_tokens: int | None = None
    """Prompt tokens of the first attempt that its replica had in cache; None when unknown."""
    num_preempted: int | None = None
    """How often the engine had to push it out and start over; None when unknown."""
    attempts: int = 1
    timing: GenerationTiming = GenerationTiming()

    def __repr__(self) -> str:
        versions = ", ".join(str(span.version) for span in self.version_spans) or "none"
        return (
            f"TokenOutput({len(self.token_ids)} tokens, {self.finish_reason}, {self.replica_id}, "
            f"version {versions}, {self.timing.total_s:.2f} s)"
        )

    @property
    def stop_reason(self) -> str:
        """The finish reason in verl's words: ``completed``, ``aborted`` or ``error``."""
        if self.finish_reason in {FinishReason.STOP, FinishReason.LENGTH}:
            return "completed"
        return "aborted" if self.finish_reason is FinishReason.ABORT else "error"

    @property
    def extra_fields(self) -> dict[str, Any]:
        """verl's version keys: the oldest and the newest version in the tokens."""
        versions = [span.version for span in self.version_spans]
        if not versions:
            return {}
        return {
            "min_global_steps": min(versions),
            "max_global_steps": max(versions),
            "global_steps": versions[-1],
        }
