"""The names that vLLM's ``AsyncEngineArgs`` and ``SamplingParams`` take, without importing vLLM.

Importing vLLM costs seconds and gigabytes, which a driver should not pay to find a typing error.
The names are read from the installed source instead.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


@functools.cache
def known_engine_args() -> frozenset[str]:
    """Every field of ``AsyncEngineArgs``; empty where vLLM is not installed."""
    return _fields("engine/arg_utils.py", "EngineArgs", "AsyncEngineArgs")


@functools.cache
def known_sampling_params() -> frozenset[str]:
    """Every field of ``SamplingParams``; empty where vLLM is not installed."""
    return _fields("sampling_params.py", "SamplingParams")


def _fields(file: str, *classes: str) -> frozenset[str]:
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        return frozenset()
    source = Path(spec.origin).parent / file
    return frozenset(
        statement.target.id
        for node in ast.parse(source.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name in classes
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    )


def check_sampling_params(names: Iterable[str]) -> None:
    """Refuse sampling parameters that vLLM does not know.

    Raises:
        RequestError: names the first unknown one and those that look like it.
    """
    known = known_sampling_params()
    for name in names:
        if known and name not in known:
            close = difflib.get_close_matches(name, known, n=3)
            raise RequestError(
                f"sampling_params[{name!r}]",
                "vLLM's SamplingParams has no such parameter",
                allowed=close or "the fields of vllm.SamplingParams",
            )


def check_engine_args(
    names: Iterable[str],
    known: Collection[str] | None = None,
    taker: str = "vLLM's AsyncEngineArgs",
) -> None:
    """Refuse names that the engine does not know.

    Args:
        names: of the arguments that were given.
        known: what the engine takes; vLLM's arguments unless said otherwise. Nothing is refused
            where they cannot be known.
        taker: who takes them, for the message.

    Raises:
        ConfigError: names the first unknown one and those that look like it.
    """
    known = known_engine_args() if known is None else known
    for name in names:
        if known and name not in known:
            close = difflib.get_close_matches(name, known, n=3)
            raise ConfigError(
                f"engine_args[{name!r}]",
                f"{taker} has no such argument",
                allowed=close or f"the fields of {taker}",
            )
