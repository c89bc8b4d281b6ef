"""Rollouts on a real engine in this process, beside what its core says that it sampled.

The record is taken where the core's output arrives, before vLLM or anything of ours has merged, cut
or moved it. ``stream_record`` is the program that plays them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.client import FullyAsyncLLMServerClient
from workbench.engines.vllm import VLLMEngine
from workbench.models import resolve_model
from workbench.rollout.manager import AgentLoopManager
from workbench.rollout.preambles import calculator_preamble
from workbench.rollout.rendering import make_renderer
from workbench.rollout.tool_loop import ToolAgentLoop, ToolLimits
from workbench.rollout.worker import AgentLoopWorker

if TYPE_CHECKING:
    from workbench.trajectory import Segment, Trajectory
    from workbench.types import GenerateRequest, SamplingParams

MODEL = "smollm2-135m"
ROLLOUTS = 12
SUMS = ("12 + 7", "40 - 15", "9 + 33", "81 - 60", "5 + 5", "77 - 11")


@dataclass
class Sampled:
    """What the core sampled for one request."""

    request: GenerateRequest
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    """Of each token, as the core stamped the step that sampled it."""


class RecordedEngine(VLLMEngine):
    """vLLM, and a record of what its core sends."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sampled: dict[str, Sampled] = {}
        self.of_session: defaultdict[str, list[Sampled]] = defaultdict(list)

    async def start(self) -> Any:
        limits = await super().start()
        processor = self._running().output_processor
        process = processor.process_outputs

        def recorded(outputs: Any, *args: Any, **options: Any) -> Any:
            for output in outputs:
                self._note(output, options["weight_version"])
            return process(outputs, *args, **options)

        processor.process_outputs = recorded  # type: ignore[method-assign]
        return limits

    async def add(self, request: GenerateRequest) -> None:
        made = self.sampled[request.request_id] = Sampled(request)
        self.of_session[request.session_id].append(made)
        await super().add(request)

    def _note(self, output: Any, version: str) -> None:
        (made,) = [s for name, s in self.sampled.items() if output.request_id.startswith(name)]
        ids = list(output.new_token_ids)
        made.token_ids += ids
        if ids:
            made.versions += [int(version)] * len(ids)
            rows = output.new_logprobs.logprobs  # the sampled token comes first in each
            made.log_probs += [float(row[0]) for row in rows]


class Known(ToolAgentLoop):
    """Leaves word of the session under which it sampled."""

    async def run(self, sampling_params: SamplingParams, **task: Any) -> None:
        self.trajectory.extra["session"] = self.session_id
        await super().run(sampling_params, **task)


def compared(row: Trajectory, made: list[Sampled]) -> int:
    """Hold a row against the record; how many tokens were compared."""
    row.check()
    left, count = list(made), 0
    for turn in row.turns:
        attempts, left = left[: turn.attempts], left[turn.attempts :]
        ids, log_probs, versions = delivered(attempts)
        segment = row.segments[turn.segment]
        assert segment.prompt_ids + segment.response_ids[: turn.start] == (
            attempts[0].request.prompt_ids
        )
        assert segment.response_ids[turn.start : turn.end] == ids
        assert segment.log_probs[turn.start : turn.end] == log_probs
        assert stamped(segment)[turn.start : turn.end] == versions
        count += len(ids)
    assert not left
    return count


def stamped(segment: Segment) -> list[int | None]:
    """The version of each token of a row's response; None where it was not sampled."""
    versions: list[int | None] = [None] * len(segment.response_ids)
    for span in segment.version_spans:
        versions[span.start : span.end] = [span.version] * (span.end - span.start)
    return versions


def delivered(attempts: list[Sampled]) -> tuple[list[int], list[float], list[int]]:
    """A turn by the core's record: of an attempt that was resumed, what the next begins with."""
    ids: list[int] = []
    log_probs: list[float] = []
    versions: list[int] = []
    for number, attempt in enumerate(attempts):
        size = len(attempt.token_ids)
        if number + 1 < len(attempts):
            following = attempts[number + 1].request.prompt_ids
            size = len(following) - len(attempt.request.prompt_ids)
            assert following[len(attempt.request.prompt_ids) :] == attempt.token_ids[:size]
        ids += attempt.token_ids[:size]
        log_probs += attempt.log_probs[:size]
        versions += attempt.versions[:size]
    return ids, log_probs, versions


async def update_when_busy(engine: RecordedEngine, pool: Any, version: int, mode: Any) -> None:
    """New weights (the same ones) in the middle of turns."""
    tokens = sum(len(made.token_ids) for made in engine.sampled.values())
    while sum(len(made.token_ids) for made in engine.sampled.values()) < tokens + 60:
        await asyncio.sleep(0.01)
    (replica,) = pool.replicas.values()
    await replica.host.control.update(str(resolve_model(MODEL)), version, mode)


async def play_rollouts(engine: RecordedEngine, pool: Any) -> dict[str, Any]:
    """Rollouts with a tool, under two updates; fails where a row is not what the core sampled."""
    renderer = make_renderer(str(resolve_model(MODEL)), MODEL)
    worker = AgentLoopWorker(pool.client(FullyAsyncLLMServerClient), renderer)
    run = AgentLoopManager([worker], concurrency=8, pad_id=0).start(
        [f"Calculate {SUMS[number % len(SUMS)]}." for number in range(ROLLOUTS)],
        agent=Known,
        preamble=calculator_preamble(),
        limits=ToolLimits(max_turns=3, max_response_tokens=160),
        sampling_params={"temperature": 0.9, "max_tokens": 64},
    )
    for version, mode in ((1, "keep"), (2, "abort")):
        await update_when_busy(engine, pool, version, mode)
    rows = await run
    return {
        "rollouts": len(rows),
        "status": sorted({str(row.status) for row in rows}),
        "tokens": sum(compared(row, engine.of_session[row.extra["session"]]) for row in rows),
        "turns": sum(row.num_turns for row in rows),
        "calls": sum(len(row.tool_calls) for row in rows),
        "resumed": sum(turn.attempts > 1 for row in rows for turn in row.turns),
        "versions": sorted({v for row in rows if row.versions for v in row.versions}),
    }
