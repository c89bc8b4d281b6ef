"""The token client that outlives interruptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.client.client import LLMServerClient

if TYPE_CHECKING:
    from workbench.client.desk import BalancerPort
    from workbench.client.generation import Generation

MAX_STALLED_RESUMES = 12
"""Attempts in a row without a new token after which a call gives up. More than elsewhere, since
aborts are expected here; with the pauses between them about half a minute."""


class FullyAsyncLLMServerClient(LLMServerClient):
    """Goes on when somebody else than the caller stops a generation, as a weight update does.

    Tokens, log-probabilities and version spans of all attempts are one output; the budget holds
    over all of them.

    Args:
        partial_rollout: False gives the caller what there is when it is stopped, with finish
            reason ``abort``.
    """

    def __init__(
        self, balancer: BalancerPort, *, partial_rollout: bool = True, **settings: Any
    ) -> None:
        settings.setdefault("max_stalled_attempts", MAX_STALLED_RESUMES)
        super().__init__(balancer, **settings)
        self._partial_rollout = partial_rollout

    def _goes_on(self, generation: Generation) -> bool:
        if not (generation.aborted and self._partial_rollout):
            return False
        generation.resume()
        return True
