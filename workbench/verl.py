"""What agent loops written for verl import.

Such a loop runs here after its import is changed to ``from workbench.verl import …``; see
``docs/verl.md``.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from workbench.rollout.loop import AgentLoopBase, register
from workbench.rollout.outputs import AgentLoopMetrics, AgentLoopOutput

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

__all__ = ["AgentLoopBase", "AgentLoopMetrics", "AgentLoopOutput", "register", "simple_timer"]


@contextmanager
def simple_timer(name: str, timings: MutableMapping[str, Any]) -> Iterator[None]:
    """Add the seconds that the block takes to ``timings[name]``."""
    began_s = time.perf_counter()
    try:
        yield
    finally:
        timings[name] = timings.get(name, 0.0) + time.perf_counter() - began_s
