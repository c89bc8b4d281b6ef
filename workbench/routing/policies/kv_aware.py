"""A turn goes where it costs least, counted in tokens that an engine has to work through."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from workbench.routing.policies.base import Need, Policy
from workbench.routing.policies.prefix_aware import cached_tokens, total_tokens
from workbench.routing.prefix import MAX_BLOCKS, PrefixIndex

if TYPE_CHECKING:
    import random

    from workbench.routing.policies.base import Candidates, ReplicaView, Turn
    from workbench.types import EngineFigures

FULL_CACHE_TOKENS = 8192
"""Tokens that a full KV cache weighs: about one long context, which has to be pushed out and
prefilled again for each that comes. It weighs by the square of the share in use, for room is worth
little until it runs out."""

PREEMPTION_TOKENS = 2048
"""Tokens per preemption between the engine's last two reports: a usual context, prefilled again."""

SESSION_MARGIN = 2
"""Sessions that a replica may have above the least loaded one for a new session to follow a prefix
there: its later turns will follow its first one, and idle replicas all look alike in tokens."""

MAX_REPORTS = 4096
"""Replicas whose last report is remembered: more than ever run together, since those that are gone
are not told of."""


class _Report(NamedTuple):
    figures: EngineFigures
    preemptions: int
    """Since the report before; 0 in the first."""


class KVAware(Policy):
    """The smallest cost; ties by fewest requests in flight, then fewest sessions, then chance.

    The cost is the prompt tokens that are not cached there, plus the prompt tokens of what is in
    flight, plus the pressure on the engine's KV cache. An engine that has not reported is taken to
    be under unknown pressure, and is judged by the rest.

    Args:
        rng: for ties.
        max_blocks: bound of the memory; see :class:`~workbench.routing.prefix.PrefixIndex`.
    """

    name = "kv-aware"
    needs = frozenset({Need.PROMPT_BLOCKS, Need.ENGINE_FIGURES})

    def __init__(self, rng: random.Random, *, max_blocks: int = MAX_BLOCKS) -> None:
        self._rng = rng
        self._index = PrefixIndex(max_blocks)
        self._reports: dict[str, _Report] = {}

    def forget(self, replica_id: str) -> None:
        """What it had cached is gone with it."""
        self._index.forget(replica_id)

    def choose(self, turn: Turn, pinned: ReplicaView | None, candidates: Candidates) -> ReplicaView:
        """The replica where the turn costs least."""
        held = self._index.match(turn.blocks)
        total = total_tokens(turn)
        most_sessions = candidates.least_loaded().num_sessions + SESSION_MARGIN

        def rank(view: ReplicaView) -> tuple[float, int, int, float]:
            cached = cached_tokens(turn, view, pinned, held.get(view.replica_id, 0))
            if pinned is None and view.num_sessions > most_sessions:
                cached = 0
            cost = total - cached + view.in_flight_tokens + self._pressure_tokens(view)
            return cost, view.load, view.num_sessions, self._rng.random()

        chosen = min(candidates, key=rank)
        self._index.insert(turn.blocks, chosen.replica_id)
        return chosen

    def _pressure_tokens(self, view: ReplicaView) -> float:
        figures = view.engine
        if figures is None:
            return 0.0
        report = self._reports.get(view.replica_id)
        # The same report is seen by many turns, and weighs alike on all of them.
        if report is None or report.figures is not figures:
            report = self._remember(view.replica_id, figures, report)
        usage = figures.kv_cache_usage
        return FULL_CACHE_TOKENS * usage * usage + PREEMPTION_TOKENS * report.preemptions

    def _remember(self, replica_id: str, figures: EngineFigures, before: _Report | None) -> _Report:
        if before is None:
            preemptions = 0
        elif figures.num_preempted >= before.figures.num_preempted:
            preemptions = figures.num_preempted - before.figures.num_preempted
        else:  # the engine started anew
            preemptions = figures.num_preempted
        if len(self._reports) >= MAX_REPORTS:
            self._reports.clear()
        report = self._reports[replica_id] = _Report(figures, preemptions)
        return report
