"""A simulated engine: deterministic tokens, steps that take time, faults on demand.

It is for tests of what surrounds an engine and for measuring our own overhead, never a stand-in
for a real one in a demo or in a claim about serving. A request's tokens are a function of
``seed``, its prompt and its sampling seed alone; the n-th token of a prompt is the same whether it
comes from one attempt or after a resume.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.engines.base import EngineLimits
from workbench.errors import ReplicaDiedError, RequestError
from workbench.types import EngineFigures, FinishReason, GenerateRequest, TokenDelta, VersionSpan

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class SimulatedArgs:
    """How the simulated engine behaves."""

    step_s: float = 0.001
    """One step of the whole batch; every running request gets one token."""
    vocab_size: int = 1000
    max_model_len: int = 4096
    max_num_seqs: int = 64
    stop_token: int = 0
    """Ends a generation; sampled once in ``vocab_size`` tokens, or as ``script`` says."""
    script: tuple[tuple[int, ...], ...] = ()
    """Completions to give in turn instead of sampled ones, one per request, then from the start."""
    seed: int = 0
    die_after_tokens: int | None = None
    """Engine death once this many tokens were sampled."""


@dataclass(slots=True)
class _Running:
    request: GenerateRequest
    context: list[int]
    budget: int
    script: tuple[int, ...]
    sampled: int = 0
    pending: list[int] = field(default_factory=list)
    finish: FinishReason | None = None


class SimulatedEngine:
    """See the module. Owns one task, the step loop, while requests are in it."""

    def __init__(self, replica_id: str, args: SimulatedArgs) -> None:
        self._replica_id = replica_id
        self._args = args
        self._batch: dict[str, _Running] = {}
        self._urgent = asyncio.Event()
        self._steps: asyncio.Task[None] | None = None
        self._dead = False
        self._taken = self._prompt = self._sampled = self._finished = 0

    async def start(self) -> EngineLimits:
        """Ready at once."""
        a = self._args
        return EngineLimits(a.max_model_len, a.vocab_size, a.max_num_seqs)

    async def add(self, request: GenerateRequest) -> None:
        """Take a request, refusing what a real engine would refuse."""
        if self._dead:
            raise ReplicaDiedError(self._replica_id, "simulated engine death")
        budget = self._check(request)
        script = self._args.script
        chosen = script[self._taken % len(script)] if script else ()
        self._taken += 1
        self._prompt += len(request.prompt_ids)
        self._batch[request.request_id] = _Running(
            request, list(request.prompt_ids), budget, chosen
        )
        if self._steps is None or self._steps.done():
            self._steps = asyncio.create_task(self._step_loop())

    def _check(self, request: GenerateRequest) -> int:
        room = self._args.max_model_len - len(request.prompt_ids)
        if not request.prompt_ids:
            raise RequestError("prompt_ids", "is empty", allowed="at least one token")
        if room < 1:
            raise RequestError(
                "prompt_ids",
                f"{len(request.prompt_ids)} tokens",
                allowed=f"< {self._args.max_model_len} tokens",
            )
        vocabulary = range(self._args.vocab_size)
        for token in request.prompt_ids:
            if token not in vocabulary:
                raise RequestError("prompt_ids", f"token id {token} is out of vocabulary")
        return min(room, int(request.sampling.get("max_tokens") or room))

    async def _step_loop(self) -> None:
        while self._batch and not self._dead:
            await asyncio.sleep(self._args.step_s)
            for running in [r for r in self._batch.values() if r.finish is None]:
                self._step(running)
            limit = self._args.die_after_tokens
            if limit is not None and self._sampled >= limit:
                self._dead = True
                self._urgent.set()

    def _step(self, running: _Running) -> None:
        done = running.sampled
        if running.script:
            token = running.script[done] if done < len(running.script) else self._args.stop_token
        else:
            token = self._sample(running)
        running.context.append(token)
        running.pending.append(token)
        running.sampled += 1
        self._sampled += 1
        if token == self._args.stop_token:
            running.finish = FinishReason.STOP
        elif running.sampled >= running.budget:
            running.finish = FinishReason.LENGTH
        if running.finish or running.sampled == 1:
            self._urgent.set()

    def _sample(self, running: _Running) -> int:
        salt = f"{self._args.seed}/{running.request.sampling.get('seed', 0)}/"
        text = salt + ",".join(map(str, running.context))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self._args.vocab_size

    async def wait(self, timeout_s: float) -> None:
        """Return at the next first token or end, or after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._urgent.wait()
        except TimeoutError:
            return
        self._urgent.clear()

    def drain(self) -> list[TokenDelta]:
        """What the batch sampled since the last call."""
        if self._dead:
            raise ReplicaDiedError(self._replica_id, "simulated engine death")
        news = [r for r in self._batch.values() if r.pending or r.finish]
        return [self._delta(running) for running in news]

    def _delta(self, running: _Running) -> TokenDelta:
        ids, running.pending = running.pending, []
        if running.finish:
            self._finished += 1
            del self._batch[running.request.request_id]
        return TokenDelta(
            running.request.request_id,
            ids,
            [-(1 + token) / self._args.vocab_size for token in ids],
            version=0,
            finish_reason=running.finish,
            num_cached_tokens=0,
            num_preempted=0,
            version_spans=(
                (VersionSpan(0, 0, running.sampled),) if running.finish and running.sampled else ()
            ),
        )

    async def abort(self, request_ids: Iterable[str]) -> None:
        """Stop requests at once."""
        for request_id in request_ids:
            if running := self._batch.get(request_id):
                running.finish = running.finish or FinishReason.ABORT
        self._urgent.set()

    def figures(self) -> EngineFigures:
        """Counted by itself."""
        return EngineFigures(
            running=len(self._batch),
            prompt_tokens=self._prompt,
            generation_tokens=self._sampled,
            finished=self._finished,
        )

    async def close(self) -> None:
        """Stop the step loop."""
        self._dead = True
        if self._steps:
            self._steps.cancel()
            await asyncio.gather(self._steps, return_exceptions=True)
