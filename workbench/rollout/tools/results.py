"""What a tool returned or raised, as the text that the model reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from workbench.errors import DeadlineError, WorkbenchError

if TYPE_CHECKING:
    from workbench.rollout.tools.limits import Cut


class ToolError(WorkbenchError):
    """Raised by a tool that wants the model to read exactly this text."""


def as_text(result: Any) -> str:
    """A result as the model reads it: text as it is, ``None`` as ``null``, the rest as JSON.

    What JSON has no form for stands as its ``str``.
    """
    if isinstance(result, str):
        return encodable(str(result))
    return encodable(json.dumps(result, default=str, ensure_ascii=False))


def problem_of(error: BaseException) -> str:
    """Why a call failed, in words: type and message, or the message alone of our own errors."""
    try:
        told = str(error)
    except Exception:  # noqa: BLE001 - an error's own text may fail as well
        told = "(it cannot be put in words)"
    if isinstance(error, ToolError | DeadlineError):
        return encodable(told)
    return encodable(f"{type(error).__name__}: {told}")


def answer_to(error: BaseException) -> str:
    """What the model reads of a call that failed."""
    told = problem_of(error)
    return told if isinstance(error, ToolError) else f"error: {told}"


def encodable(text: str) -> str:
    """Without halves of surrogate pairs, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def shortened(text: str, limit: int, cut: Cut) -> tuple[str, int]:
    """A text with at most ``limit`` characters of its own, and how many were left out.

    Where they were, a mark says how many; the mark comes on top of the limit.
    """
    left_out = len(text) - limit
    if left_out <= 0:
        return text, 0
    before = {"end": limit, "middle": (limit + 1) // 2, "start": 0}[cut]
    mark = f"[{left_out} characters left out]"
    return text[:before] + mark + text[before + left_out :], left_out
