"""The protocol between an engine and its host.

An engine takes requests and is then *drained*: it hands over what it sampled since the last time,
merged per request. Nobody is woken per token, so that a host with hundreds of requests in flight
does a fixed amount of work per flush.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workbench.types import EngineFigures, GenerateRequest, TokenDelta


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the engine can take at all."""

    max_model_len: int
    """Prompt and completion together, in tokens."""
    vocab_size: int
    max_num_seqs: int
    """Requests in one batch."""
    kv_cache_tokens: int | None = None
    """Tokens that the KV cache holds; None when unknown."""


class Engine(Protocol):
    """Token ids in, token ids out."""

    async def start(self) -> EngineLimits:
        """Load the model; returns what the engine can take."""
        ...

    async def add(self, request: GenerateRequest) -> None:
        """Take a request.

        Raises:
            RequestError: it cannot be served as it is; the engine is unharmed.
            ReplicaDiedError: the engine is gone.
        """
        ...

    async def wait(self, timeout_s: float) -> None:
        """Return when something urgent happened (a first token, an end), or after ``timeout_s``."""
        ...

    def drain(self) -> list[TokenDelta]:
        """What was sampled since the last call, at most one delta per request.

        Raises:
            ReplicaDiedError: the engine is gone, and with it every request in it.
        """
        ...

    async def abort(self, request_ids: Iterable[str]) -> None:
        """Stop requests; each still gets a last delta with finish reason ``abort``."""
        ...

    def figures(self) -> EngineFigures:
        """What the engine reports of itself."""
        ...

    async def close(self) -> None:
        """Stop everything, child processes too. Idempotent."""
        ...
