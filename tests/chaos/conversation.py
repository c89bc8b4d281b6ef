"""Rollouts that are to survive: what they play, how far they are, what they must have become."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench import AgentLoopBase
from workbench.engines.simulated.tokens import TokenSource
from workbench.trajectory import RolloutStatus
from workbench.types import FinishReason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from workbench import Rollout, Trajectory, Workbench

ROLLOUTS = 64
TURNS = 4
TOLD = [11, 12, 13]
"""What the policy is told after each of its turns."""
PATIENCE_S = 100.0
"""After which whatever is waited for counts as never coming."""
VOCABULARY = 49_152
NO_STOP = -1
"""A stop token that is never sampled: every turn then has all of its tokens."""
WORKER_DIED = "the worker that played this rollout died"


class Talk(AgentLoopBase):
    """So many turns, each with all that was said before; a byte in ``diary`` for each one ended."""

    requires = ("number",)

    def __init__(self, *, diary: str, turns: int = TURNS, **common: Any) -> None:
        super().__init__(**common)
        self._diary = diary
        self._turns = turns

    async def run(self, sampling_params: Any, *, number: int, **_: Any) -> None:
        prompt = opening(number)
        for _turn in range(self._turns):
            output = await self.generate(prompt, sampling_params)
            written = os.open(self._diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(written, b".")
            os.close(written)
            if output.finish_reason is FinishReason.ABORT:
                return
            prompt = [*prompt, *output.token_ids, *TOLD]


def opening(number: int) -> list[int]:
    """How rollout ``number`` begins; no two share a block of it."""
    return [number + 20] * 8


def sampled(prompt: Sequence[int], tokens: int) -> list[int]:
    """What a simulated engine that nothing interrupts samples after ``prompt``."""
    source = TokenSource(
        prompt, engine_seed=0, request_seed=0, vocab_size=VOCABULARY, stop_token=NO_STOP
    )
    return [source.next() for _ in range(tokens)]


def uninterrupted(number: int, turns: int, tokens: int) -> list[int]:
    """The whole response of rollout ``number`` on such an engine."""
    prompt = opening(number)
    begin = len(prompt)
    for turn in range(turns):
        prompt += TOLD if turn else []
        prompt += sampled(prompt, tokens)
    return prompt[begin:]


@dataclass(frozen=True)
class Batch:
    """Rollouts that are being played."""

    rollout: Rollout
    diary: Path
    tokens: int
    turns: int

    @property
    def turns_done(self) -> int:
        return self.diary.stat().st_size if self.diary.exists() else 0

    def wait_for(self, turns: int) -> None:
        """Until so many turns have ended, or all that ever will."""
        deadline = time.monotonic() + PATIENCE_S
        while self.turns_done < turns and not self.rollout.done:
            assert time.monotonic() < deadline, f"{self.turns_done} turns, and no more"
            time.sleep(0.01)

    def result(self) -> list[Trajectory]:
        return self.rollout.result(PATIENCE_S)


def begin(
    bench: Workbench, diary: Path, *, tokens: int, turns: int = TURNS, rollouts: int = ROLLOUTS
) -> Batch:
    """Begin so many rollouts of so many turns with so many tokens each."""
    sampling = {"max_tokens": tokens, "temperature": 0.0, "ignore_eos": True}
    rollout = bench.rollout(
        [{"number": number} for number in range(rollouts)],
        Talk,
        sampling_params=sampling,
        diary=str(diary),
        turns=turns,
    )
    return Batch(rollout, diary, tokens, turns)


def check_rows(batch: Batch, rows: list[Trajectory], *, lost: bool = False) -> None:
    """Every row that was asked for, each whole and aligned.

    ``lost``: some may have failed with the worker that played them, and with no other reason.
    """
    assert len(rows) == ROLLOUTS
    assert [row.task["number"] for row in rows] == list(range(ROLLOUTS))
    for row in rows:
        row.check()
        if lost and row.status is RolloutStatus.FAILED:
            assert WORKER_DIED in row.error
            continue
        assert (row.status, row.error) == (RolloutStatus.DONE, "")
        check_row(row, batch)
    assert any(row.status is RolloutStatus.DONE for row in rows)


def check_row(row: Trajectory, batch: Batch) -> None:
    """One segment: each turn's prompt goes on from the one before, to the token."""
    (segment,) = row.segments
    assert row.num_turns == batch.turns
    assert segment.prompt_ids == opening(row.task["number"])
    size = len(segment.response_ids)
    assert len(segment.log_probs) == len(segment.response_mask) == size
    assert size == batch.turns * batch.tokens + (batch.turns - 1) * len(TOLD)
    for number, turn in enumerate(row.turns):
        start = number * (batch.tokens + len(TOLD))
        assert (turn.start, turn.end) == (start, start + batch.tokens)
        assert turn.finish_reason is FinishReason.LENGTH
        assert turn.prompt_tokens == len(segment.prompt_ids) + start
        assert segment.response_ids[turn.end : turn.end + len(TOLD)] in (TOLD, [])
        assert all(p < 0 for p in segment.log_probs[turn.start : turn.end])
    versions = [span.version for span in segment.version_spans]
    assert versions == sorted(versions)


def check_simulated(batch: Batch, rows: list[Trajectory]) -> None:
    """What was sampled is what an engine that nothing interrupts samples."""
    for row in rows:
        if row.status is RolloutStatus.DONE:
            expected = uninterrupted(row.task["number"], batch.turns, batch.tokens)
            assert row.segments[0].response_ids == expected


def tally(rows: list[Trajectory]) -> str:
    """The rows in a line."""
    ended = Counter(str(row.status) for row in rows)
    again = sum(turn.attempts > 1 for row in rows for turn in row.turns)
    most = max((turn.attempts for row in rows for turn in row.turns), default=0)
    spans = {s.version for row in rows for g in row.segments for s in g.version_spans}
    return (
        f"{ended['done']} done, {ended['failed']} failed, {again} turns resumed "
        f"(at most {most} attempts), versions {sorted(spans)}"
    )
