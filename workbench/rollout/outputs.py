"""Loops that keep their rows themselves, as those written for verl do: names, and a proof.

What such a loop samples goes through ``self.server_manager`` and is recorded. The rows that it
returns are held against the record, to the token: what it returns is what was sampled, or the
rollout failed.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import asdict, dataclass, field, is_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from workbench.errors import RolloutError
from workbench.rollout.trajectory import common_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.client import LLMServerClient
    from workbench.rollout.context import ContextRules
    from workbench.rollout.rendering import Message, Renderer, ToolSpecs
    from workbench.rollout.stage import StagedRenderer
    from workbench.rollout.trajectory import Growing, TrajectoryBuilder
    from workbench.types import SamplingParams, TokenOutput

CLOSE = 1e-6
"""Log-probabilities that differ by no more are the same: they may have been float32 meanwhile."""


@dataclass(slots=True)
class AgentLoopMetrics:
    """What a loop measures itself; seconds over all turns."""

    generate_sequences: float = 0.0
    tool_calls: float = 0.0
    compute_score: float = 0.0
    num_preempted: int = -1


@dataclass(slots=True)
class AgentLoopOutput:
    """One row, as a loop returns it. ``response_*`` are aligned 1:1."""

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    response_mask: Sequence[int]
    """1 for tokens that the policy sampled, 0 for what it was told."""
    response_logprobs: Sequence[float] | None = None
    reward_score: float | None = None
    """Of the rollout; a batch's reward function, where there is one, goes before it."""
    num_turns: int = 0
    """By the loop's own count; the record's are those of the trajectory."""
    metrics: AgentLoopMetrics | Mapping[str, Any] = field(default_factory=AgentLoopMetrics)
    extra_fields: Mapping[str, Any] = field(default_factory=dict)
    multi_modal_data: None = None


class VerlNames:
    """What loops written for verl find in ``self``."""

    client: LLMServerClient
    renderer: Renderer
    render: StagedRenderer
    context: ContextRules
    trajectory: TrajectoryBuilder
    sessions: set[str]

    processor = None
    """No images, audio or video yet."""

    @property
    def server_manager(self) -> RecordingClient:
        """The token client; what is sampled through it is recorded."""
        return RecordingClient(self.client, self.trajectory, self.sessions)

    @property
    def tokenizer(self) -> Any:
        """The model's, as transformers has it."""
        return self.renderer.tokenizer

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running one."""
        return asyncio.get_running_loop()

    @property
    def rollout_config(self) -> SimpleNamespace:
        """``prompt_length`` and ``response_length`` in tokens; None where nothing bounds them."""
        rules = self.context
        return SimpleNamespace(
            prompt_length=rules.max_prompt_tokens or rules.max_tokens,
            response_length=rules.max_tokens,
            calculate_log_probs=True,
        )

    async def apply_chat_template(
        self, messages: Sequence[Message], tools: ToolSpecs | None = None
    ) -> list[int]:
        """Ids of a conversation, up to where the assistant's next turn begins."""
        return await self.render.prompt(messages, tools or ())


class RecordingClient:
    """A client as a loop for verl calls it."""

    def __init__(
        self, client: LLMServerClient, trajectory: TrajectoryBuilder, sessions: set[str]
    ) -> None:
        self._client = client
        self._trajectory = trajectory
        self._sessions = sessions

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: Sequence[int],
        sampling_params: SamplingParams,
        **more: Any,
    ) -> TokenOutput:
        """See :meth:`LLMServerClient.generate`. The session ends with the rollout."""
        self._sessions.add(request_id)
        output = await self._client.generate(
            request_id, prompt_ids=prompt_ids, sampling_params=sampling_params, **more
        )
        self._trajectory.add_turn(prompt_ids, output)
        return output


def adopt(record: TrajectoryBuilder, returned: AgentLoopOutput | Sequence[AgentLoopOutput]) -> None:
    """Take over rows that a loop returned; each is one that was recorded, or the end of one.

    A row may be cut at its end, and go on with tokens that were only told; what was sampled into
    rows that were not returned is left out, and noted.

    Raises:
        RolloutError: a row is not as it was sampled; says where.
    """
    rows = [returned] if isinstance(returned, AgentLoopOutput) else list(returned)
    kept = [_adopted(record, row, f"row {number}") for number, row in enumerate(rows)]
    if len(set(kept)) < len(kept):
        raise RolloutError("two of the returned rows are the same one")
    record.keep(kept)
    for number, row in enumerate(rows):
        if row.reward_score is not None:
            if not math.isfinite(row.reward_score):
                raise RolloutError(f"row {number}: reward_score is {row.reward_score}")
            record.reward = float(row.reward_score)
        metrics = row.metrics
        told = asdict(metrics) if is_dataclass(metrics) else dict(metrics)
        record.extra |= {"metrics": told, **row.extra_fields}


def _adopted(record: TrajectoryBuilder, row: AgentLoopOutput, name: str) -> int:
    """The number of the segment that the row is; it is made as long as the row."""
    _check_lengths(row, name)
    ids = [*row.prompt_ids, *row.response_ids]
    shared = [
        (common_prefix(segment.ids, ids), number) for number, segment in enumerate(record.growing)
    ]
    if not shared:
        raise RolloutError(f"{name}: nothing was sampled through server_manager")
    most, number = max(shared)
    segment = record.growing[number]
    if most < min(len(ids), len(segment.ids)):
        raise RolloutError(f"{name} is not what was sampled: it differs at token {most}")
    if len(row.prompt_ids) != segment.prompt_tokens:
        raise RolloutError(
            f"{name}: prompt_ids has {len(row.prompt_ids)} tokens, the first prompt that was sent "
            f"had {segment.prompt_tokens}"
        )
    _check_sampled(segment, row, name)
    record.resize(number, list(row.response_ids))
    return number


def _check_lengths(row: AgentLoopOutput, name: str) -> None:
    size = len(row.response_ids)
    for field_name in ("response_mask", "response_logprobs"):
        values = getattr(row, field_name)
        if values is not None and len(values) != size:
            raise RolloutError(
                f"{name}: {field_name} has {len(values)} entries, response_ids has {size}"
            )


def _check_sampled(segment: Growing, row: AgentLoopOutput, name: str) -> None:
    for position, mask in enumerate(row.response_mask):
        is_known = position < len(segment.response_mask)
        if mask != (segment.response_mask[position] if is_known else 0):
            what = "nobody sampled" if mask else "was sampled"
            raise RolloutError(f"{name}: response_mask is {mask} at token {position}, which {what}")
    for position, told in enumerate(row.response_logprobs or ()):
        is_known = position < len(segment.log_probs)
        sampled = segment.log_probs[position] if is_known else 0.0
        if abs(told - sampled) > CLOSE:
            raise RolloutError(
                f"{name}: response_logprobs is {told} at token {position}, the engine's {sampled}"
            )
