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
from workbench.rollout.rows import assigned, plain_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.client import LLMServerClient
    from workbench.rollout.context import ContextRules
    from workbench.rollout.rendering import Message, Renderer, ToolSpecs
    from workbench.rollout.stage import StagedRenderer
    from workbench.rollout.trajectory import TrajectoryBuilder
    from workbench.types import SamplingParams, TokenOutput


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
        fork: str = "",
        **more: Any,
    ) -> TokenOutput:
        """See :meth:`LLMServerClient.generate`. The session ends with the rollout.

        ``fork``: why the prompt does not continue any turn, where the loop knows.
        """
        self._sessions.add(request_id)
        output = await self._client.generate(
            request_id, prompt_ids=prompt_ids, sampling_params=sampling_params, **more
        )
        self._trajectory.add_turn(prompt_ids, output, fork)
        return output


def adopt(record: TrajectoryBuilder, returned: AgentLoopOutput | Sequence[AgentLoopOutput]) -> None:
    """Take over rows that a loop returned; each is one that was recorded, or the end of one.

    A row may be cut at its end, and go on with tokens that were only told; what was sampled into
    rows that were not returned is left out, and noted. What rows say besides becomes the record's
    ``extra``; of several rows it is under ``rows``, in the order of the segments.

    Raises:
        RolloutError: a row is not as it was sampled; says where. The record is as it was.
    """
    outputs = [returned] if isinstance(returned, AgentLoopOutput) else list(returned)
    if not outputs:
        raise RolloutError("the loop returned an empty list of rows")
    rows = [plain_row(output, f"row {place}") for place, output in enumerate(outputs)]
    numbers = assigned(record.growing, rows)
    reward = _reward(outputs)
    told = [_told(outputs[place]) for place in sorted(range(len(rows)), key=numbers.__getitem__)]
    # All is well: from here on the record changes.
    for number, row in zip(numbers, rows, strict=True):
        record.resize(number, row.response_ids)
    record.keep(numbers)
    if reward is not None:
        record.reward = reward
    record.extra |= told[0] if len(told) == 1 else {"rows": told}


def _told(row: AgentLoopOutput) -> dict[str, Any]:
    metrics = row.metrics
    told = asdict(metrics) if is_dataclass(metrics) else dict(metrics)
    return {"metrics": told, **row.extra_fields}


def _reward(rows: Sequence[AgentLoopOutput]) -> float | None:
    """The rollout's, which is that of all rows that give one."""
    found: tuple[int, float] | None = None
    for place, row in enumerate(rows):
        if row.reward_score is None:
            continue
        score = float(row.reward_score)
        if not math.isfinite(score):
            raise RolloutError(f"row {place}: reward_score is {score}")
        if found is not None and found[1] != score:
            raise RolloutError(
                f"row {place}: reward_score is {score}, that of row {found[0]} is {found[1]}; "
                "a rollout has one"
            )
        found = found or (place, score)
    return found[1] if found else None
