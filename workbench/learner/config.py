"""How a learner changes a model. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from workbench.errors import ConfigError

Average = Literal["rollout", "token"]
"""What weighs the same in a step: each rollout, however long it is, or each sampled token."""

Device = Literal["auto", "cpu", "cuda"]

DType = Literal["bfloat16", "float32"]

_CHOICES = {"average": Average, "device": Device, "dtype": DType}

_POSITIVE = ("lr", "clip_norm", "temperature")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """Everything about a step but its rollouts.

    Raises:
        ConfigError: names the field and what is allowed.
    """

    lr: float = 2e-5
    betas: tuple[float, float] = (0.9, 0.95)
    """Of AdamW."""
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    """Largest norm of a step's gradient, over all weights; a larger one is scaled down to it."""
    importance_cap: float = 2.0
    """Largest weight of a token. From 1: below, tokens of the current policy would be cut."""
    average: Average = "rollout"
    """With ``token``, a rollout weighs as much as it is long."""
    scale_advantages: bool = True
    """Whether differences from a group's mean reward are divided by their standard deviation."""
    temperature: float = 1.0
    """What the rollouts were sampled with: the engine's log-probabilities are after it."""
    dtype: DType = "bfloat16"
    """What is computed in, and written. The weights that are learned are float32 either way."""
    device: Device = "auto"
    """``auto``: a GPU where there is one."""
    threads: int = 1
    """Of the CPU. More take cores from engines on the same machine."""
    tokens_per_pass: int = 512
    """Tokens computed at once, tokens that rollouts share counted once; bounds the memory. The cost
    of attention rises with it, that of everything else falls. A longer row is computed alone."""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            _check(name, getattr(self, name), above=0.0, allowed="a number above 0")
        cap = "a number from 1"
        _check("importance_cap", self.importance_cap, least=1.0, allowed=cap)
        _check("weight_decay", self.weight_decay, least=0.0, allowed="a number from 0")
        if not (isinstance(self.betas, tuple) and len(self.betas) == 2):
            raise ConfigError("betas", f"{self.betas!r}", allowed="two numbers from 0, below 1")
        for beta in self.betas:
            allowed = "two numbers from 0, below 1"
            _check("betas", beta, least=0.0, below=1.0, allowed=allowed)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                raise ConfigError(name, f"{getattr(self, name)!r}", allowed=get_args(choices))
        for name in ("threads", "tokens_per_pass"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(name, f"{value!r}", allowed="a whole number from 1")
        if not isinstance(self.scale_advantages, bool):
            raise ConfigError("scale_advantages", f"{self.scale_advantages!r}", allowed="a bool")


def _check(
    name: str,
    value: Any,
    *,
    allowed: str,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and above < value < below and value >= least):
        raise ConfigError(name, f"{value!r}", allowed=allowed)
