"""The default policy: a session stays with its KV cache until staying costs more than moving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.routing.policies.base import Policy

if TYPE_CHECKING:
    from workbench.routing.policies.base import Candidates, Need, ReplicaView, Turn

MARGIN = 4
"""Requests by which a replica may exceed the least loaded one before anything moves: with a dozen
sessions each, differences of three or four come and go with their turns."""

TOKENS_PER_REQUEST = 1024
"""Tokens of prefill that one request of load is taken to be worth: about what an engine prefills in
the time by which one more request in its batch delays a turn."""

MAX_MOVES = 3
"""Moves per session: what three moves did not mend, a fourth would not either."""

SETTLE_TURNS = 4
"""Turns that a session stays after a move, so that the prefill it paid is used a few times."""


class StickyLeastLoaded(Policy):
    """Stays on the pinned replica; a session without one goes to the least loaded.

    A pin yields when its replica has more requests in flight, or queued for it, than the least
    loaded one plus ``margin`` plus the worth of the session's context, which would have to be
    prefilled again. A session moves at most ``max_moves`` times, and stays ``settle_turns`` turns
    after each.

    Raises:
        ConfigError: a value is out of range.
    """

    name = "sticky-least-loaded"
    needs: frozenset[Need] = frozenset()
    margin: int

    def __init__(
        self,
        *,
        margin: int = MARGIN,
        tokens_per_request: int = TOKENS_PER_REQUEST,
        max_moves: int = MAX_MOVES,
        settle_turns: int = SETTLE_TURNS,
    ) -> None:
        for field, value, lowest in (
            ("margin", margin, 0),
            ("tokens_per_request", tokens_per_request, 1),
            ("max_moves", max_moves, 0),
            ("settle_turns", settle_turns, 0),
        ):
            if value < lowest:
                raise ConfigError(field, f"{value} is too small", allowed=f"{lowest} or more")
        self.margin = margin
        self._tokens_per_request = tokens_per_request
        self._max_moves = max_moves
        self._settle_turns = settle_turns

    def choose(self, turn: Turn, pinned: ReplicaView | None, candidates: Candidates) -> ReplicaView:
        """The pinned replica, or the least loaded where that is worth its prefill."""
        if pinned is None:
            return candidates.least_loaded()
        crowd = pinned.load + pinned.queued
        # Most turns end here, without a look at the other replicas.
        if crowd <= self.margin or not self._may_move(turn):
            return pinned
        least = candidates.least_loaded()
        worth_of_context = turn.context_tokens / self._tokens_per_request
        # A margin is never negative, so the one it moves to has at most as many after the move.
        if crowd - least.load > self.margin + worth_of_context:
            return least
        return pinned

    def _may_move(self, turn: Turn) -> bool:
        settled = turn.moves == 0 or turn.turns_here >= self._settle_turns
        return settled and turn.moves < self._max_moves
