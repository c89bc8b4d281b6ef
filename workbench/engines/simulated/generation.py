"""One request's way out of the engine: tokens by policy version, cut into deltas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.types import FinishReason, TokenDelta, VersionSpan

if TYPE_CHECKING:
    from workbench.engines.simulated.scheduler import Sequence
    from workbench.engines.simulated.tokens import TokenSource


@dataclass(slots=True)
class Generation:
    """What was sampled for a request, and how much of it was handed over."""

    sequence: Sequence
    source: TokenSource
    budget: int
    stop_token: int
    arrived_s: float
    queue_s: float | None = None
    first_token_s: float | None = None
    finish: FinishReason | None = None
    _sampled: int = 0
    _starts: list[tuple[int, int]] = field(default_factory=list)
    """(version, number of its first token)."""
    _pending: list[tuple[int, list[int]]] = field(default_factory=list)
    """(version, tokens), the oldest first."""

    def sample(self, version: int) -> None:
        """One more token, under this policy version."""
        token = self.source.next()
        self.sequence.tokens.append(token)
        if not self._starts or self._starts[-1][0] != version:
            self._starts.append((version, self._sampled))
        if not self._pending or self._pending[-1][0] != version:
            self._pending.append((version, []))
        self._pending[-1][1].append(token)
        self._sampled += 1
        if token == self.stop_token:
            self.finish = FinishReason.STOP
        elif self._sampled >= self.budget:
            self.finish = FinishReason.LENGTH

    @property
    def has_news(self) -> bool:
        """Whether there is anything to hand over."""
        return bool(self._pending or self.finish)

    def take(self, version: int, vocab_size: int) -> TokenDelta:
        """The oldest tokens that are of one version; the last of all say how it ended.

        Args:
            version: for a delta without tokens.
            vocab_size: which the log-probabilities depend on.
        """
        ids: list[int] = []
        if self._pending:
            version, ids = self._pending.pop(0)
        finish = None if self._pending else self.finish
        return TokenDelta(
            self.sequence.request_id,
            ids,
            [-(1 + token) / vocab_size for token in ids],
            version=version,
            finish_reason=finish,
            num_cached_tokens=self.sequence.cached_tokens,
            num_preempted=self.sequence.num_preempted,
            queue_s=self.queue_s,
            first_token_s=self.first_token_s,
            version_spans=self._spans() if finish else (),
        )

    def _spans(self) -> tuple[VersionSpan, ...]:
        if not self._starts:
            return ()
        ends = [start for _, start in self._starts[1:]] + [self._sampled]
        return tuple(
            VersionSpan(version, start, end)
            for (version, start), end in zip(self._starts, ends, strict=True)
        )
