"""The asyncio shell of the simulated engine: it sleeps for a step, then samples for the batch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from workbench.engines.base import EngineLimits
from workbench.engines.simulated.faults import Fault, FaultBoard, FaultKind
from workbench.engines.simulated.generation import Generation
from workbench.engines.simulated.scheduler import Scheduler, Sequence, Step
from workbench.engines.simulated.tokens import TokenSource
from workbench.errors import ReplicaDiedError, RequestError
from workbench.metrics import buckets
from workbench.types import EngineFigures, FinishReason, GenerateRequest, TokenDelta
from workbench.weights import check_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from workbench.engines.simulated.args import SimulatedArgs
    from workbench.weights import PauseMode


class SimulatedEngine:
    """A request's tokens are a function of ``args.seed``, its sampling seed and its context alone.

    Owns one task, the step loop, while requests are in it. Weights, pauses and faults take effect
    between two steps; a step that has begun is ended first.
    """

    def __init__(self, replica_id: str, args: SimulatedArgs) -> None:
        self._replica_id = replica_id
        self._args = args
        self._scheduler = Scheduler(args)
        self._faults = FaultBoard(replica_id)
        self._open: dict[str, Generation] = {}
        """By request id, until the last delta was handed over."""
        self._version = 0
        self._stands_still = False
        self._pause: PauseMode | None = None
        self._stepping = False
        self._stepped_s = 0.0
        """When the last step ended, or the first one could have begun."""
        self._updates = 0
        """Calls that wait for the end of a step."""
        self._urgent = asyncio.Event()
        self._changed = asyncio.Event()
        self._steps: asyncio.Task[None] | None = None
        self._taken = self._sampled = self._finished = 0
        self._first_token_times = buckets.empty_counts()
        if args.die_after_tokens is not None:
            self.inject(Fault(FaultKind.DEATH, args.die_after_tokens))
        for fault in args.faults:
            self.inject(fault)

    async def start(self) -> EngineLimits:
        """Ready at once, or after ``start_s``."""
        a = self._args
        if a.start_s:
            await asyncio.sleep(a.start_s)
        return EngineLimits(a.context_tokens, a.vocab_size, a.max_num_seqs, a.kv_cache_tokens)

    async def add(self, request: GenerateRequest) -> None:
        """Take a request, refusing what a real engine would refuse; paused or hung, it waits."""
        self._check_alive()
        if refusal := self._faults.refusal():
            raise refusal
        budget = self._check(request)
        args, prompt = self._args, request.prompt_ids
        source = TokenSource(
            prompt,
            engine_seed=args.seed,
            request_seed=request.sampling.get("seed", 0),
            vocab_size=args.vocab_size,
            stop_token=args.stop_token,
            script=args.script[self._taken % len(args.script)] if args.script else (),
        )
        self._taken += 1
        sequence = Sequence(request.request_id, list(prompt), request.priority)
        now = asyncio.get_running_loop().time()
        self._open[request.request_id] = Generation(sequence, source, budget, args.stop_token, now)
        if not self._scheduler.busy:
            self._stepped_s = now
        self._scheduler.add(sequence)
        self._notify()
        if self._steps is None or self._steps.done():
            self._steps = asyncio.create_task(self._step_loop(), name=f"steps-{self._replica_id}")

    def _check(self, request: GenerateRequest) -> int:
        """The token budget of a request that can be served."""
        prompt, most = request.prompt_ids, self._args.context_tokens
        if not prompt:
            raise RequestError("prompt_ids", "is empty", allowed="at least one token")
        if len(prompt) >= most:
            raise RequestError("prompt_ids", f"{len(prompt)} tokens", allowed=f"< {most} tokens")
        vocabulary = range(self._args.vocab_size)
        for token in prompt:
            if token not in vocabulary:
                raise RequestError("prompt_ids", f"token id {token} is out of vocabulary")
        if type(request.priority) is not int:
            raise RequestError("priority", f"{request.priority!r}", allowed="a whole number")
        if request.request_id in self._open:
            raise RequestError("request_id", f"{request.request_id!r} is in the engine already")
        room = most - len(prompt)
        return min(room, int(request.sampling.get("max_tokens") or room))

    async def wait(self, timeout_s: float) -> None:
        """Return at the next first token or end, or after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._urgent.wait()
        except TimeoutError:
            return
        self._urgent.clear()

    def drain(self) -> list[TokenDelta]:
        """What the batch sampled since the last call.

        Tokens of two policy versions travel in two deltas; the newer ones wait for the next call,
        which :meth:`wait` lets come at once.

        Raises:
            Exception: what ended the step loop; :class:`ReplicaDiedError` unless it crashed.
        """
        if self._faults.failure:
            raise self._faults.failure
        deltas = []
        for generation in [g for g in self._open.values() if g.has_news]:
            delta = generation.take(self._version, self._args.vocab_size)
            deltas.append(delta)
            if delta.is_last:
                del self._open[delta.request_id]
            elif generation.has_news:
                self._urgent.set()
        return deltas

    async def abort(self, request_ids: Iterable[str]) -> None:
        """Stop requests at once."""
        for request_id in request_ids:
            generation = self._open.get(request_id)
            if generation and not generation.finish:
                generation.finish = FinishReason.ABORT
                self._end(generation)
        self._urgent.set()
        self._notify()

    def figures(self) -> EngineFigures:
        """Counted by itself."""
        scheduler = self._scheduler
        return EngineFigures(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            kv_cache_usage=scheduler.cache.usage,
            prompt_tokens=scheduler.prompt_tokens,
            cached_prompt_tokens=scheduler.cached_prompt_tokens,
            generation_tokens=self._sampled,
            num_preempted=scheduler.num_preempted,
            finished=self._finished,
            evicted_blocks=scheduler.cache.num_evicted,
            ttft_counts=tuple(self._first_token_times),
            stalled_s=self._stalled_s(),
        )

    def check(self) -> None:
        """Whether it lives."""
        self._check_alive()

    def _stalled_s(self) -> float:
        if not self._scheduler.busy or self._stands_still:
            return 0.0
        return asyncio.get_running_loop().time() - self._stepped_s

    async def close(self) -> None:
        """Stop the step loop. Idempotent."""
        self.die("it was closed")
        if self._steps:
            self._steps.cancel()
            await asyncio.gather(self._steps, return_exceptions=True)

    # ------------------------------------------------------------------ weights

    async def pause(self, mode: PauseMode = "keep", *, clear_cache: bool = False) -> None:
        """Stop scheduling; see :meth:`Engine.pause`.

        With ``wait`` those that wait, or were preempted, stay where they are. A cancelled pause
        stays in force until :meth:`resume`.

        Raises:
            Exception: the engine is gone; see :meth:`drain`.
        """
        self._pause = check_mode(mode)
        self._notify()
        try:  # an engine that hangs never gets there, which has to be noticed
            await self._until(
                lambda: (
                    self._pause != mode  # resumed, or paused otherwise, meanwhile
                    or (self._is_idle() and not (mode == "wait" and self._scheduler.running))
                )
            )
        finally:
            self._stands_still = self._pause is not None
        if self._pause == "abort":
            await self.abort(list(self._open))
        if clear_cache:
            await self.clear_cache()

    async def resume(self) -> None:
        """Go on scheduling. Idempotent."""
        self._pause = None
        self._stands_still = False
        self._stepped_s = asyncio.get_running_loop().time()
        self._notify()

    async def update_version(self, version: int, *, recompute: bool = False) -> None:
        """Later tokens come from the weights of this policy version.

        It happens between two steps, paused or not. Requests that run go on over the KV that they
        have, and nobody reuses blocks of another version. ``recompute`` drops the KV of all
        instead: those that run are preempted and pay for their whole context again.

        Raises:
            Exception: the engine is gone; see :meth:`drain`.
        """
        self._updates += 1  # or the next step would begin before the end of this one is heard of
        try:
            await self._until(self._is_idle)
        finally:
            self._updates -= 1
            self._notify()
        self._version = version
        self._scheduler.set_version(version, recompute=recompute)

    async def load_weights(self, directory: str, version: int) -> None:  # noqa: ARG002 - it has none
        """It has no weights: only the version changes.

        Raises:
            Exception: a fault that was injected.
        """
        if self._args.load_s:
            await asyncio.sleep(self._args.load_s)
        if failure := self._faults.load_failure():
            raise failure
        await self.update_version(version)

    async def clear_cache(self) -> None:
        """Drop all blocks; requests that run are preempted."""
        await self.update_version(self._version, recompute=True)

    async def sleep(self, level: int = 1) -> bool:  # noqa: ARG002 - it has no memory to give back
        """There is nothing to give back."""
        return False

    async def wake(self) -> bool:
        """See :meth:`sleep`."""
        return False

    async def start_profile(self) -> None:
        """There is nothing to record."""

    async def stop_profile(self) -> None:
        """See :meth:`start_profile`."""

    # ------------------------------------------------------------------ faults

    def inject(self, fault: Fault, error: Exception | None = None) -> None:
        """Let something go wrong.

        Args:
            fault: what, and after how many tokens.
            error: what ``crash``, ``death`` or ``refuse`` raises, instead of a ``RuntimeError``,
                :class:`ReplicaDiedError` or :class:`ReplicaLostError`.
        """
        self._faults.inject(fault, error, self._sampled)
        self._notify()

    def die(self, cause: str = "simulated engine death") -> None:
        """End the engine now, with every request in it."""
        self.inject(Fault(FaultKind.DEATH), ReplicaDiedError(self._replica_id, cause))

    def release(self) -> None:
        """End a hang, slowness and refusals. Faults that are not due yet stay armed."""
        self._faults.release()
        self._notify()

    # ------------------------------------------------------------------ steps

    async def _step_loop(self) -> None:
        try:
            while self._scheduler.busy and not self._faults.failure:
                await self._step()
        except Exception as error:  # noqa: BLE001 - whatever it is, drain() has to say so
            self._faults.fail(error)
            self._notify()

    async def _step(self) -> None:
        if self._is_held():
            await self._changed.wait()
            return
        step = self._scheduler.schedule(admit=self._pause is None)
        if not step.running:  # all that are here wait, and may not come in
            await self._changed.wait()
            return
        loop = asyncio.get_running_loop()
        for sequence in step.admitted:
            generation = self._open[sequence.request_id]
            if generation.queue_s is None:
                generation.queue_s = loop.time() - generation.arrived_s
        self._stepping = True
        await asyncio.sleep(step.duration_s * self._faults.factor)
        while self._is_hung():
            await self._changed.wait()
        if not self._faults.failure:
            self._sample(step, loop.time())
        self._stepping = False
        self._stepped_s = loop.time()
        self._notify()

    def _sample(self, step: Step, now: float) -> None:
        for sequence in step.running:
            if not sequence.running:
                continue  # stopped during the step
            generation = self._open[sequence.request_id]
            generation.sample(self._version)
            self._sampled += 1
            if generation.first_token_s is None:
                generation.first_token_s = now - generation.arrived_s
                buckets.count(self._first_token_times, generation.first_token_s)
                self._urgent.set()
            if generation.finish:
                self._end(generation)
                self._urgent.set()
        self._faults.advance(self._sampled)

    def _end(self, generation: Generation) -> None:
        self._finished += 1
        self._scheduler.remove(generation.sequence)

    # ------------------------------------------------------------------ waiting

    def _is_held(self) -> bool:
        """Whether no step may begin."""
        return self._is_hung() or self._updates > 0 or self._pause in {"keep", "abort"}

    def _is_hung(self) -> bool:
        return self._faults.hung and not self._faults.failure

    def _is_idle(self) -> bool:
        """Whether no step is under way; an engine that hangs never says so."""
        return not self._stepping and not self._faults.hung

    def _notify(self) -> None:
        """Wake everybody who waits for a change."""
        if self._faults.failure:
            self._urgent.set()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not self._faults.failure and not condition():
            await self._changed.wait()
        if self._faults.failure:
            raise self._faults.failure

    def _check_alive(self) -> None:
        failure = self._faults.failure
        if isinstance(failure, ReplicaDiedError):
            raise failure
        if failure:
            raise ReplicaDiedError(self._replica_id, f"{type(failure).__name__}: {failure}")
