"""The turns of the balancer benchmark, prepared beforehand, and how either client plays them."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from workbench.client.desk import LeaseDesk

if TYPE_CHECKING:
    from workbench.client.desk import BalancerPort

HELD = 256
"""Sessions that are going on at any time."""

NEW = 0.2
"""Chance that a turn is the first of a new session, in place of one of those held."""

PROMPT_STEP = 64
LONGEST = 8192
"""Prompts are as many tokens as a multiple of the step, up to the longest."""


def session_id(rng: random.Random) -> str:
    """32 characters, as a uuid has in hex."""
    return f"{rng.getrandbits(128):032x}"


def turns(count: int, seed: int = 0) -> list[str]:
    """The session of each turn."""
    rng = random.Random(seed)
    held = [session_id(rng) for _ in range(HELD)]
    sequence = []
    for _ in range(count):
        place = rng.randrange(HELD)
        if rng.random() < NEW:
            held[place] = session_id(rng)
        sequence.append(held[place])
    return sequence


class Used(TypedDict):
    """By the names under which it is given back."""

    sampled_tokens: int
    cached_tokens: int
    context_tokens: int


class Turn(NamedTuple):
    """What a client knows when a turn begins, and what it says of it when it is over."""

    session_id: str
    prompt_ids: list[int]
    """Shared with other turns: only its length says something."""
    usage: Used


class Caller(NamedTuple):
    """One conversation after the other."""

    warm_up: Turn
    """The first turn of its first session, to be played before the clock starts."""
    turns: list[Turn]
    """Of these, :data:`NEW` are the first of a session, however many there are."""


def callers(count: int, each: int, seed: int = 0) -> list[Caller]:
    """With the same seed, a smaller ``each`` gives the beginning of the same turns."""
    prompts = [[7] * (PROMPT_STEP * number) for number in range(LONGEST // PROMPT_STEP + 1)]
    seeds = range(seed * 10_000, seed * 10_000 + count)
    return [_caller(random.Random(one), each, prompts) for one in seeds]


def _caller(rng: random.Random, each: int, prompts: list[list[int]]) -> Caller:
    session, context = session_id(rng), 0
    played = []
    for number in range(each + 1):
        if number and rng.random() < NEW:
            session, context = session_id(rng), 0
        steps = (context + rng.randrange(100, 500)) // PROMPT_STEP + 1
        prompt_ids = prompts[min(steps, len(prompts) - 1)]
        sampled = rng.randrange(50, 400)
        cached = min(context, len(prompt_ids))
        context = len(prompt_ids) + sampled
        usage = Used(sampled_tokens=sampled, cached_tokens=cached, context_tokens=context)
        played.append(Turn(session, prompt_ids, usage))
    return Caller(played[0], played[1:])


def first_turns(callers_: list[Caller], played: list[int]) -> float:
    """The share of first turns of a session in what each caller played of its turns."""
    first = 0
    for (warm_up, turns_), count in zip(callers_, played, strict=True):
        sessions = [warm_up.session_id, *(turn.session_id for turn in turns_[:count])]
        first += sum(one != other for one, other in itertools.pairwise(sessions))
    return first / sum(played)


class VerlPlayer:
    """One client process's turns at verl's balancer."""

    def __init__(self, balancer: Any) -> None:
        self._balancer = balancer

    async def warm_up(self, turn: Turn) -> None:
        """One turn, outside the measurement."""
        server_id, _ = await self._balancer.acquire_server.remote(request_id=turn.session_id)
        await self._balancer.release_server.remote(server_id=server_id)

    async def play(self, turns: list[Turn], hold_s: float, until_s: float) -> int:
        """One caller's turns; how many were begun in time."""
        acquire, release = self._balancer.acquire_server, self._balancer.release_server
        now = asyncio.get_running_loop().time
        for number, turn in enumerate(turns):
            if now() >= until_s:
                return number
            server_id, _ = await acquire.remote(request_id=turn.session_id)
            await asyncio.sleep(hold_s)
            release.remote(server_id=server_id)
        return len(turns)

    async def settle(self) -> None:
        """Return when the balancer has taken in everything: it answers calls in their order."""
        await self._balancer.get_total_inflight.remote()

    async def aclose(self) -> None:
        """Nothing is held."""


class OurPlayer:
    """The same at ours."""

    def __init__(self, port: BalancerPort) -> None:
        self._desk = LeaseDesk(port, uuid.uuid4().hex)

    async def warm_up(self, turn: Turn) -> None:
        """One turn, outside the measurement."""
        lease = await self._desk.acquire(turn.session_id, turn.prompt_ids)
        self._desk.give_back(lease, **turn.usage)

    async def play(self, turns: list[Turn], hold_s: float, until_s: float) -> int:
        """One caller's turns; how many were begun in time."""
        desk, now = self._desk, asyncio.get_running_loop().time
        for number, turn in enumerate(turns):
            if now() >= until_s:
                return number
            lease = desk.take(turn.session_id, len(turn.prompt_ids))
            if lease is None:
                lease = await desk.acquire(turn.session_id, turn.prompt_ids)
            await asyncio.sleep(hold_s)
            desk.give_back(lease, **turn.usage)
        return len(turns)

    async def settle(self) -> None:
        """Return when the balancer has taken in everything."""
        await self._desk.flush()

    async def aclose(self) -> None:
        """Leave the balancer."""
        await self._desk.aclose()
