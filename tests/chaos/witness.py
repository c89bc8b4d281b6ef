"""Calls that are watched token by token while a pool is harmed."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tests.chaos.conversation import PATIENCE_S, opening, sampled

if TYPE_CHECKING:
    from workbench import Workbench

MANY_TOKENS = 3000
"""More than a witness gets to see."""


@dataclass
class Seen:
    """What one call brought."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    attempts: list[tuple[float, str]] = field(default_factory=list)
    """When the first token of an attempt came, and its request's id."""


class Witnesses:
    """One session per number, each in one long call; ends with the block."""

    def __init__(self, bench: Workbench, count: int = 4) -> None:
        self._bench = bench
        self.seen = {f"{uuid.uuid4()}": Seen(opening(100 + n)) for n in range(count)}
        self.error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while not all(seen.tokens for seen in self.seen.values()):
            assert self.error is None, self.error
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _serve(self) -> None:
        try:
            self._loop.run_until_complete(self._watch())
        except BaseException as error:  # noqa: BLE001 - raised where somebody can hear it
            self.error = error
        finally:
            self._loop.close()

    async def _watch(self) -> None:
        async with self._bench.client() as client:
            calls = [asyncio.ensure_future(self._call(client, s)) for s in self.seen]
            over = asyncio.ensure_future(self._over.wait())
            done, _ = await asyncio.wait({over, *calls}, return_when=asyncio.FIRST_COMPLETED)
            for call in [over, *calls]:
                call.cancel()
            await asyncio.gather(over, *calls, return_exceptions=True)
            for session in self.seen:
                client.end_session(session)
            for call in done - {over}:
                call.result()  # whatever it raised

    async def _call(self, client: Any, session: str) -> None:
        seen = self.seen[session]
        sampling = {"max_tokens": MANY_TOKENS, "temperature": 0.0, "ignore_eos": True}
        stream = client.stream(session, prompt_ids=seen.prompt, sampling_params=sampling)
        async for delta in stream:
            if delta.token_ids and delta.request_id not in [name for _, name in seen.attempts]:
                seen.attempts.append((time.monotonic(), delta.request_id))
            seen.tokens += delta.token_ids
        await self._over.wait()

    def until_elsewhere(self, struck_s: float) -> float | None:
        """Seconds from then until the last witness that lost its replica had a token elsewhere."""
        later = [[t for t, _ in s.attempts if t > struck_s] for s in self.seen.values()]
        return max((times[0] - struck_s for times in later if times), default=None)

    def check_simulated(self) -> None:
        """Each saw what an engine that nothing interrupts samples."""
        for seen in self.seen.values():
            assert seen.tokens == sampled(seen.prompt, len(seen.tokens))
