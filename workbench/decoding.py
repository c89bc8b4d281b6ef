"""Token ids in words, for whoever shows them: the decoders that this process came to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
"""Token ids to text, as a tokenizer's ``decode``."""

_known: dict[str, Decode] = {}


def remember(reference: str, decode: Decode) -> None:
    """Have a model's tokens shown in words from now on.

    Args:
        reference: the model as it was asked for, which is what a trajectory keeps of it.
        decode: of its tokenizer. It may be called from any thread.
    """
    _known[reference] = decode


def decoder(reference: str) -> Decode | None:
    """The model's ``decode``; None where this process has not loaded its tokenizer."""
    return _known.get(reference) if reference else None
