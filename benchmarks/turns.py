"""The turns that both sides of the balancer benchmark play, prepared beforehand."""

from __future__ import annotations

import random

HELD = 256
"""Sessions that are going on at any time."""

NEW = 0.2
"""Chance that a turn is the first of a new session, in place of one of those held."""


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


def conversations(callers: int, each: int, seed: int = 0) -> list[list[str]]:
    """The same for callers that hold one session each: per caller the session of each turn."""
    rng = random.Random(seed)
    played = []
    for _ in range(callers):
        session, mine = session_id(rng), []
        for _ in range(each):
            if rng.random() < NEW:
                session = session_id(rng)
            mine.append(session)
        played.append(mine)
    return played
