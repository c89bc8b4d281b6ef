"""Frozen values as plain JSON data, and back, for files that others may have written.

What is read becomes the class that is asked for and nothing else; no file names a class.
"""

from __future__ import annotations

import functools
import types
import typing
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import workbench.types
from workbench.metrics import samples, streams

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

_NUMBERS = (int, float)
"""One for the other, as the type checker lets them be."""

to_plain = asdict
"""A value's fields, as ``json`` takes them."""


def from_plain(kind: type[T], data: Any) -> T:
    """The value that :func:`to_plain` made ``data`` of, after a journey through JSON.

    Fields that ``kind`` does not have are passed over; those that are missing get their defaults.

    Raises:
        TypeError: something in it is of another type, or a field without a default is missing.
        ValueError: an enum has no such value, or a tuple has another length.
    """
    value: T = _value(kind, data)
    return value


def _value(kind: Any, data: Any) -> Any:
    parts = typing.get_args(kind)
    if isinstance(kind, types.UnionType):  # with None, of which there is one
        (some,) = (part for part in parts if part is not types.NoneType)
        return None if data is None else _value(some, data)
    if typing.get_origin(kind) is tuple:
        items = _of_type(list, data)
        kinds = [parts[0]] * len(items) if parts[-1] is Ellipsis else parts
        return tuple(_value(part, item) for part, item in zip(kinds, items, strict=True))
    if is_dataclass(kind):
        given = _of_type(dict, data)
        hints = _hints(typing.cast("type", kind))
        names = [field.name for field in fields(kind) if field.name in given]
        return typing.cast("type", kind)(
            **{name: _value(hints[name], given[name]) for name in names}
        )
    if issubclass(kind, Enum):
        return kind(data)
    if kind in _NUMBERS and type(data) in _NUMBERS:
        return data
    return _of_type(kind, data)


def _of_type(kind: type[T], data: Any) -> T:
    if type(data) is not kind:
        raise TypeError(f"{data!r:.80} is no {kind.__name__}")
    return data


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    known = vars(workbench.types) | vars(samples) | vars(streams)
    return typing.get_type_hints(kind, localns=known)
