"""The model that learns: weights as they are computed with, and float32 masters that steps change.

A step is far smaller than what bfloat16 can tell apart, so that it would be lost without masters.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import torch

    from workbench.learner.config import LearnerConfig
    from workbench.learner.rows import Row
    from workbench.learner.tree import Pack


class Network:
    """A causal language model on one device.

    Args:
        directory: of the model.
        config: dtype, device and how weights are changed.
    """

    def __init__(self, directory: Path, config: LearnerConfig) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self.device = find_device(config.device)
        if self.device == "cpu":
            torch.set_num_threads(config.threads)
        with quiet():
            model: Any = AutoModelForCausalLM.from_pretrained(
                directory, dtype=torch.float32, attn_implementation="sdpa"
            )
        self.model = model.to(self.device).eval()  # no dropout: it samples without, too
        self.names, held = zip(*self.model.named_parameters(), strict=True)
        self.masters: list[Any] = [parameter.detach() for parameter in held]
        for parameter in self.model.parameters():  # not the buffers: positions need their bits
            parameter.data = parameter.data.to(getattr(torch, config.dtype))
        self._held = [parameter for _, parameter in self.model.named_parameters()]
        for master, parameter in zip(self.masters, self._held, strict=True):
            parameter.register_post_accumulate_grad_hook(_Collector(master))
        self.optimizer = torch.optim.AdamW(
            self.masters,
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._clip_norm = config.clip_norm
        self._temperature = config.temperature

    def log_probs(self, rows: Sequence[Row], pack: Pack) -> torch.Tensor:
        """See :func:`row_log_probs`."""
        return row_log_probs(self.model, rows, pack, self._temperature)

    def forget(self) -> None:
        """Drop gradients of a step that was not taken to its end."""
        self.optimizer.zero_grad()

    def advance(self) -> float:
        """Change the weights by the gradients that came together; the norm that those had.

        Where it is not finite, nothing is changed.
        """
        import torch

        norm = float(torch.nn.utils.clip_grad_norm_(self.masters, self._clip_norm))
        if norm < float("inf"):
            self.optimizer.step()
            self.show()
        self.optimizer.zero_grad()
        return norm

    def show(self) -> None:
        """Round the masters into the weights that are computed with."""
        import torch

        with torch.no_grad():
            for master, parameter in zip(self.masters, self._held, strict=True):
                parameter.copy_(master)


class _Collector:
    """Takes a parameter's gradient over to its master, where parts of a step add up exactly."""

    def __init__(self, master: Any) -> None:
        self._master = master

    def __call__(self, parameter: Any) -> None:
        if self._master.grad is None:
            self._master.grad = parameter.grad.to(self._master.dtype)
        else:
            self._master.grad += parameter.grad
        parameter.grad = None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No bars of transformers, which would be lines in a log or below somebody's cell."""
    from transformers.utils import logging

    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            logging.enable_progress_bar()


def find_device(asked: str) -> str:
    """The device that this means here.

    Raises:
        ConfigError: there is none.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    if asked == "cuda" and not has_gpu:
        raise ConfigError("device", "'cuda': there is no GPU here", allowed=["auto", "cpu"])
    return "cuda" if asked != "cpu" and has_gpu else "cpu"


def row_log_probs(model: Any, rows: Sequence[Row], pack: Pack, temperature: float) -> torch.Tensor:
    """[T] log-probabilities of the rows' sampled tokens, row after row, in at least float32.

    Args:
        model: as transformers has it, with attention that takes a mask.
        rows: those of the pack.
        pack: their tokens, each computed once; see :mod:`workbench.learner.tree`.
        temperature: divides the logits.
    """
    import torch

    def on_device(values: Any) -> torch.Tensor:
        return torch.as_tensor(values, device=model.device)

    paths = zip(rows, pack.paths, strict=True)
    ends = on_device([path[end] for row, path in paths for end in row.ends])
    targets = on_device([target for row in rows for target in row.targets])
    nodes, which = ends.unique(return_inverse=True)
    logits = model(
        input_ids=on_device([pack.tree.ids]),
        position_ids=on_device(pack.tree.positions())[None],
        attention_mask=on_device(pack.tree.mask())[None, None],
        logits_to_keep=nodes,
        use_cache=False,
    ).logits[0]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    return logits[which, targets] - logits.logsumexp(dim=-1)[which]
