"""One ``generate`` call as it grows over its attempts: pure book-keeping.

Invariants: ids and log-probabilities have the same length, version spans cover them exactly, and
their number never exceeds the budget that the caller gave, however many attempts it takes.
"""

from __future__ import annotations

import hashlib
import time
from array import array
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import RequestError
from workbench.ids import new_id
from workbench.types import (
    FinishReason,
    GenerateRequest,
    GenerationTiming,
    SamplingParams,
    TokenDelta,
    TokenOutput,
    VersionSpan,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_PRIORITY = 2**31 - 1
"""What engines take: 32 bits."""


class Generation:
    """Accumulates deltas; says what the next attempt has to ask for."""

    def __init__(
        self,
        session_id: str,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        priority: int = 0,
        *,
        deterministic: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(session_id, str) or not session_id:
            raise RequestError("request_id", f"{session_id!r}", allowed="a text that is not empty")
        if isinstance(prompt_ids, Mapping):  # what apply_chat_template of transformers 5 returns
            problem = f"is a {type(prompt_ids).__name__}"
            allowed = "a sequence of token ids, such as its 'input_ids'"
            raise RequestError("prompt_ids", problem, allowed=allowed)
        if isinstance(prompt_ids, str | bytes) or not isinstance(prompt_ids, Iterable):
            raise RequestError("prompt_ids", f"{prompt_ids!r}", allowed="a sequence of token ids")
        if not isinstance(sampling, Mapping):
            raise RequestError("sampling_params", f"{sampling!r}", allowed="a mapping")
        self.session_id = session_id
        self.priority = checked_priority(priority)
        self.waited_for = ""
        """Why no replica could take it when its caller gave up."""
        self._prompt_ids = list(prompt_ids)
        self._sampling = normalised(sampling)
        self._deterministic = deterministic and self._sampling.get("seed") is None
        self._token_ids: list[int] = []
        self._log_probs: list[float] = []
        self._spans: list[VersionSpan] = []
        self._finish: FinishReason | None = None
        self.interrupted = False
        """Whether new weights stopped it, and nobody's wish."""
        self._replica_id = ""
        self._attempts = 0
        self._attempt_start = 0
        self._attempt_cached: int | None = None
        self._first: TokenDelta | None = None
        self._preempted: int | None = None
        self._preempted_before = 0
        self._clock = clock
        self._started_s = clock()

    @property
    def num_tokens(self) -> int:
        """Tokens delivered so far."""
        return len(self._token_ids)

    @property
    def context_ids(self) -> list[int]:
        """The prompt and what was delivered: what the next attempt starts from."""
        return self._prompt_ids + self._token_ids

    @property
    def finished(self) -> bool:
        """Whether nothing is left to ask for."""
        return self._finish is not None

    @property
    def aborted(self) -> bool:
        """Whether somebody else than the caller stopped it in the engine."""
        return self._finish is FinishReason.ABORT

    def resume(self) -> None:
        """Go on after an abort, unless it came with the last token that was asked for."""
        self._finish = FinishReason.LENGTH if self._used_up else None

    def attempt_usage(self) -> dict[str, int]:
        """Tokens of the attempt that has just ended, for the session's history."""
        if not self._attempts:
            return {}
        used = {
            "sampled_tokens": self.num_tokens - self._attempt_start,
            "context_tokens": len(self._prompt_ids) + self.num_tokens,
        }
        if self._attempt_cached is not None:
            used["cached_tokens"] = self._attempt_cached
        return used

    def begin_attempt(self, replica_id: str) -> GenerateRequest:
        """The request that continues from the tokens delivered so far."""
        self._attempts += 1
        self._attempt_start = self.num_tokens
        self._attempt_cached = None
        self._preempted_before = self._preempted or 0
        self._replica_id = replica_id
        sampling = dict(self._sampling)
        if sampling["max_tokens"] is not None:
            sampling["max_tokens"] -= self.num_tokens
        if sampling.get("min_tokens"):
            sampling["min_tokens"] = max(0, sampling["min_tokens"] - self.num_tokens)
        context_ids = self.context_ids
        if self._deterministic:
            sampling["seed"] = seed_of(self.session_id, context_ids)
        return GenerateRequest(new_id(), context_ids, sampling, self.session_id, self.priority)

    def add(self, delta: TokenDelta) -> None:
        """Take the next delta of the attempt."""
        start = self.num_tokens
        self._token_ids += delta.token_ids
        self._log_probs += delta.log_probs
        if delta.token_ids:
            self._append_span(VersionSpan(delta.version, start, self.num_tokens))
        self._first = self._first or delta
        if delta.num_cached_tokens is not None:
            self._attempt_cached = delta.num_cached_tokens
        if delta.num_preempted is not None:
            self._preempted = self._preempted_before + delta.num_preempted
        if delta.version_spans:
            self._take_engine_spans(delta.version_spans)
        self._finish = delta.finish_reason
        self.interrupted = delta.interrupted
        if self._finish is None and self._used_up:
            # All that was asked for is here, should the replica die before it says so.
            self._finish = FinishReason.LENGTH

    @property
    def _used_up(self) -> bool:
        budget = self._sampling["max_tokens"]
        return budget is not None and self.num_tokens >= budget

    def output(self) -> TokenOutput:
        """The result, once finished."""
        assert self._finish is not None
        first = self._first
        return TokenOutput(
            self._token_ids,
            self._log_probs,
            self._finish,
            tuple(self._spans),
            self._replica_id,
            num_cached_tokens=first.num_cached_tokens if first else None,
            num_preempted=self._preempted,
            attempts=self._attempts,
            timing=GenerationTiming(
                queue_s=first.queue_s if first else None,
                first_token_s=first.first_token_s if first else None,
                total_s=self._clock() - self._started_s,
            ),
        )

    def _take_engine_spans(self, spans: Sequence[VersionSpan]) -> None:
        """The engine's own spans of this attempt replace those that were stamped on its deltas."""
        offset = self._attempt_start
        kept = [s for s in self._spans if s.start < offset]
        self._spans = [VersionSpan(s.version, s.start, min(s.end, offset)) for s in kept]
        for span in spans:
            self._append_span(VersionSpan(span.version, span.start + offset, span.end + offset))

    def _append_span(self, span: VersionSpan) -> None:
        if self._spans and self._spans[-1].version == span.version:
            span = VersionSpan(span.version, self._spans.pop().start, span.end)
        self._spans.append(span)


def normalised(sampling: SamplingParams) -> dict[str, Any]:
    """The parameters with a checked ``max_tokens`` (None: as far as the context goes)."""
    params = dict(sampling)
    if "max_new_tokens" in params:
        if "max_tokens" in params:
            raise RequestError("sampling_params['max_new_tokens']", "max_tokens is there too")
        params["max_tokens"] = params.pop("max_new_tokens")
    budget = params.setdefault("max_tokens", None)
    if budget is not None and (
        not isinstance(budget, int) or isinstance(budget, bool) or budget < 1
    ):
        raise RequestError(
            "sampling_params['max_tokens']", f"{budget!r}", allowed="a whole number from 1, or None"
        )
    return params


def checked_priority(priority: int) -> int:
    """The priority, if it is one.

    Raises:
        RequestError: it is none.
    """
    if type(priority) is not int or abs(priority) > MAX_PRIORITY:
        raise RequestError(
            "priority", f"{priority!r}", allowed=f"whole numbers within ±{MAX_PRIORITY}"
        )
    return priority


def seed_of(session_id: str, context_ids: Sequence[int]) -> int:
    """A sampling seed that is the same in every process: of the session and of what is known.

    31 bits; an attempt that resumes has a longer context and thus a seed of its own.

    Raises:
        RequestError: what is known are no token ids.
    """
    digest = hashlib.blake2b(session_id.encode(), digest_size=4)
    try:
        digest.update(array("q", context_ids).tobytes())
    except (TypeError, OverflowError) as error:
        raise RequestError("prompt_ids", f"{error}", allowed="token ids") from None
    return int.from_bytes(digest.digest(), "big") >> 1
