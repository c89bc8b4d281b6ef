"""What an agent loop costs beside its engine.

Per turn: CPU of rendering, parsing and book-keeping of the tool loop with SmolLM2's own tokenizer
and an engine that answers at once and costs nothing, behind a history of so many tokens; what the
first prompt costs is told apart. Lag: 1,000 rollouts of 8 turns at once on simulated replicas
(other processes), all played by one worker process, whose event loop is asked all the time how
late it is. Assembly: the batch tensors of 1,024 rows of 4,096 tokens.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.report import arguments, emit
from workbench import AgentLoopBase, Workbench, calculator
from workbench.models import resolve_model
from workbench.rollout.batch import make_batch
from workbench.rollout.rendering import make_renderer
from workbench.rollout.tool_loop import ToolAgentLoop, ToolLimits
from workbench.rollout.trajectory import RolloutStatus, TrajectoryBuilder
from workbench.types import FinishReason, TokenOutput, VersionSpan

if TYPE_CHECKING:
    from workbench.rollout.rendering import Renderer

MODEL = "smollm2-135m"
CALL = (
    '<tool_call>{"name": "calculator", "arguments": {"expression": "12 + 7"}}</tool_call><|im_end|>'
)
TURNS = 24
ROLLOUTS, LAG_TURNS = 1_000, 8
ROWS, ROW_TOKENS = 1_024, 4_096
BEAT_S = 0.002


class Instant:
    """A client whose engine answers at once, always the same."""

    def __init__(self, ids: list[int]) -> None:
        spans = (VersionSpan(0, 0, len(ids)),)
        self._output = TokenOutput(ids, [-0.5] * len(ids), FinishReason.STOP, spans, "replica-0")
        self.after_first: list[float] = []
        """CPU seconds at each turn."""

    async def generate(self, *_: Any, **__: Any) -> TokenOutput:
        self.after_first.append(time.process_time())
        return self._output

    def end_session(self, session_id: str) -> None:
        """Nothing is kept."""


async def turn_cost(renderer: Renderer, history_tokens: int) -> tuple[float, float]:
    """CPU milliseconds of a turn and of the first prompt."""
    ids = renderer.tokenizer.encode(CALL, add_special_tokens=False)
    client = Instant(ids)
    text = "word " * (history_tokens - 40)
    limits = ToolLimits(max_turns=TURNS, max_response_tokens=1_000_000)
    loop = ToolAgentLoop(
        client=client,
        renderer=renderer,
        tools=[calculator],
        limits=limits,
    )
    began_s = time.process_time()
    await loop.play({}, {"prompt": text})
    marks = client.after_first
    assert len(marks) == TURNS
    costs = [later - earlier for earlier, later in itertools.pairwise(marks)]
    return 1e3 * statistics.median(costs), 1e3 * (marks[0] - began_s)


async def turn_costs(rounds: int) -> dict[str, float]:
    """With 2k and with 16k tokens of history, in turns."""
    renderer = make_renderer(str(resolve_model(MODEL)), MODEL)
    await turn_cost(renderer, 256)  # what is loaded when it is first used
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, tokens in (("2k", 2_048), ("16k", 16_384)):
            turn, first = await turn_cost(renderer, tokens)
            found.setdefault(f"cpu_ms_per_turn_{name}", []).append(turn)
            found.setdefault(f"cpu_ms_first_prompt_{name}", []).append(first)
    return {name: round(statistics.median(values), 3) for name, values in found.items()}


class Beat(AgentLoopBase):
    """Asks the event loop of its worker, all the time, how late it is."""

    async def run(self, sampling_params: Any, **task: Any) -> None:  # noqa: ARG002 - not used
        late: list[float] = []
        stop = Path(task["stop"])
        while len(late) % 25 or not stop.exists():  # noqa: ASYNC240 - it takes microseconds
            due_s = time.perf_counter() + BEAT_S
            await asyncio.sleep(BEAT_S)
            late.append(time.perf_counter() - due_s)
        self.trajectory.extra["late_s"] = late


def loop_lag() -> dict[str, float]:
    """One worker process, and two replicas in others."""
    renderer = make_renderer(str(resolve_model(MODEL)), MODEL)
    ids = renderer.tokenizer.encode(CALL, add_special_tokens=False)
    args = {
        "step_s": 0.02, "vocab_size": 49_152, "max_num_seqs": ROLLOUTS, "stop_token": ids[-1],
        "script": [ids],
    }  # fmt: skip
    options: dict[str, Any] = {"engine": "simulated", "engine_args": args, "workers": 1}
    limits = ToolLimits(max_turns=LAG_TURNS, max_response_tokens=100_000)
    with Workbench(MODEL, 2, progress=False, **options) as bench, TemporaryDirectory() as folder:
        bench.rollout(["warm up"], "tool").result()
        stop = Path(folder, "stop")
        beat = bench.rollout([{"stop": str(stop)}], Beat)
        began_s = time.perf_counter()
        tasks = [f"Task {number}." for number in range(ROLLOUTS)]
        rows = bench.rollout(tasks, "tool", limits=limits).result()
        wall_s = time.perf_counter() - began_s
        stop.touch()
        late = sorted(beat.result()[0].extra["late_s"])
    assert all(row.status is RolloutStatus.DONE and row.num_turns == LAG_TURNS for row in rows)
    return {
        "loop_lag_p50_s": round(late[len(late) // 2], 4),
        "loop_lag_p99_s": round(late[int(0.99 * len(late))], 4),
        "loop_lag_max_s": round(late[-1], 4),
        "loop_lag_beats": len(late),
        "loop_lag_wall_s": round(wall_s, 2),
    }


def assembly(rounds: int) -> float:
    """Seconds."""
    builder = TrajectoryBuilder()
    half = ROW_TOKENS // 2
    ids = list(range(half))
    builder.add_turn(
        ids, TokenOutput(ids, [-0.5] * half, FinishReason.STOP, (VersionSpan(0, 0, half),), "r")
    )
    rows = [
        builder.build(
            rollout_id=f"{i}", group=f"{i}", index=0, agent="a", task={}, reward=1.0,
            status=RolloutStatus.DONE,
        )
        for i in range(ROWS)
    ]  # fmt: skip
    found = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        make_batch(rows, pad_id=0)
        found.append(time.perf_counter() - began_s)
    return round(statistics.median(found), 3)


def main() -> None:
    """Command line."""
    options = arguments(__doc__).parse_args()
    figures: dict[str, Any] = asyncio.run(turn_costs(options.rounds))
    figures["batch_assembly_s"] = assembly(options.rounds)
    figures |= loop_lag()
    emit(
        {
            **figures,
            "rollouts": ROLLOUTS,
            "turns": LAG_TURNS,
            "rows": ROWS,
            "row_tokens": ROW_TOKENS,
        }
    )


if __name__ == "__main__":
    main()
