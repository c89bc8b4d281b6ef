"""What a simulated engine is made from."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.engines.simulated.faults import Fault
from workbench.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SimulatedArgs:
    """How the simulated engine behaves. Plain values: they can be pickled and come from JSON."""

    step_s: float = 0.001
    """One step of the whole batch; every running request gets one token."""
    step_s_per_request: float = 0.0
    """What each running request adds to a step."""
    prefill_s_per_token: float = 0.0
    """What each token adds to the step in which it is computed and not sampled: those of newly
    admitted prompts that are not in the prefix cache, and all that a preempted request lost."""
    vocab_size: int = 1000
    max_model_len: int = 4096
    max_num_seqs: int = 64
    """Requests in one batch; the others wait, by priority (the lowest first), then arrival."""
    block_tokens: int = 16
    """Tokens in one block of the KV cache; only full blocks are reused."""
    kv_blocks: int | None = None
    """Blocks in the KV cache. None: as many as it takes, so nothing is preempted or evicted, and
    memory grows with the number of different blocks."""
    prefix_caching: bool = True
    """Whether blocks of earlier requests are reused."""
    stop_token: int = 0
    """Ends a generation; sampled once in ``vocab_size`` tokens, or as ``script`` says."""
    script: tuple[tuple[int, ...], ...] = ()
    """Completions to give in turn instead of sampled ones, one per request, then from the start."""
    seed: int = 0
    start_s: float = 0.0
    """What a start takes."""
    load_s: float = 0.0
    """What taking over weights takes."""
    die_after_tokens: int | None = None
    """Engine death once this many tokens were sampled."""
    faults: tuple[Fault, ...] = ()
    """Armed from the start. From JSON: objects with the fields of :class:`Fault`."""

    def __post_init__(self) -> None:
        for name in ("block_tokens", "kv_blocks", "max_num_seqs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"engine_args[{name!r}]", f"{value}", allowed="at least 1")
        faults = tuple(f if isinstance(f, Fault) else Fault(**f) for f in self.faults)
        object.__setattr__(self, "faults", faults)

    @property
    def kv_cache_tokens(self) -> int | None:
        """Tokens that the KV cache holds; None without a limit."""
        return None if self.kv_blocks is None else self.kv_blocks * self.block_tokens

    @property
    def context_tokens(self) -> int:
        """Prompt and completion together: what the model takes, and the KV cache can hold."""
        held = self.kv_cache_tokens
        return self.max_model_len if held is None else min(self.max_model_len, held)
