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
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


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


NUMBERS = {
    "temperature": (0.0, None), "top_p": (0.0, 1.0), "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0), "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.0, None),
}  # fmt: skip
"""Sampling parameters that are numbers, and the least and the greatest that vLLM takes."""


def check_sampling_values(sampling: Mapping[str, Any]) -> None:
    """Refuse common sampling parameters whose values every engine would refuse, one by one.

    Raises:
        RequestError: names the parameter and what is allowed.
    """
    for name in NUMBERS.keys() & sampling.keys():
        value, (least, most) = sampling[name], NUMBERS[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or value < least or (most is not None and value > most):
            allowed = f"a number from {least:g}" + (f" to {most:g}" if most is not None else "")
            raise RequestError(f"sampling_params[{name!r}]", f"{value!r}", allowed=allowed)
    stop = sampling.get("stop") or []
    if not isinstance(stop, str) and not (
        isinstance(stop, list) and all(isinstance(text, str) for text in stop)
    ):
        raise RequestError(
            "sampling_params['stop']", f"{stop!r}", allowed="a text, or a list of them"
        )
    if sampling.get("n", 1) != 1:
        allowed = "n=… of the batch, for several rollouts of a task"
        raise RequestError("sampling_params['n']", f"{sampling['n']!r}", allowed=allowed)


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
