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
    from workbench.weights import PauseMode


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

    def check(self) -> None:
        """Whether it lives, also while nobody asks it for anything.

        Raises:
            ReplicaDiedError: it is gone.
        """
        ...

    async def pause(self, mode: PauseMode = "keep", *, clear_cache: bool = False) -> None:
        """Stop scheduling; returns once no step is under way. Requests are still taken, and wait.

        Args:
            mode: what becomes of the requests that are here.
            clear_cache: drop all KV blocks; kept requests compute theirs again.
        """
        ...

    async def resume(self) -> None:
        """Go on scheduling. Idempotent."""
        ...

    async def load_weights(self, directory: str, version: int) -> None:
        """Take the weights in ``directory`` over; later tokens are of policy version ``version``.

        To be called while paused. Requests that were taken before go on over the KV blocks that
        they have; those taken later reuse none of another version.

        Raises:
            Exception: the engine has no usable weights any more.
        """
        ...

    async def clear_cache(self) -> None:
        """Drop all KV blocks; requests that run compute theirs again."""
        ...

    async def sleep(self, level: int = 1) -> bool:
        """Give the device's memory back (1: weights go to the host, 2: they are dropped).

        Whether there was something to give back.
        """
        ...

    async def wake(self) -> bool:
        """The opposite of :meth:`sleep`."""
        ...

    async def start_profile(self) -> None:
        """Record what the engine does, until :meth:`stop_profile`."""
        ...

    async def stop_profile(self) -> None:
        """Write what was recorded to the folder that the engine was made with."""
        ...

    async def close(self) -> None:
        """Stop everything, child processes too. Idempotent."""
        ...
