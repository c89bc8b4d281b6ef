"""What a directory's safetensors files say they hold, read from their headers alone.

A file begins with the length of a small JSON object (8 bytes, little-endian) that gives each
tensor's dtype, shape and place in the bytes behind it. The places must cover those bytes without
a gap, which is also what tells a file that was cut off.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from workbench.checkpoint.words import listing
from workbench.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

INDEX = "model.safetensors.index.json"

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
"""Every dtype of the format, with the bits of one element."""

MAX_HEADER = 100_000_000
"""Bytes; the format allows no more, and a length beyond it is not a length."""


class Described(Protocol):
    """What can be told of a tensor without its values."""

    @property
    def dtype(self) -> str:
        """As the format spells it: ``BF16``, ``F32`` and so on."""
        ...

    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as a header describes it."""

    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    """Of its bytes in the file."""
    size_bytes: int


def headers(directory: Path) -> dict[str, TensorInfo]:
    """Every tensor that an engine would load from ``directory``, by name.

    With an index, these are the files that it names. Without one, all ``*.safetensors``, except
    ``consolidated*`` (the same weights in another layout) beside others.

    Raises:
        CheckpointError: no directory, no such files, or one that is broken.
    """
    found: dict[str, TensorInfo] = {}
    for file in _files(directory):
        for name, info in _header(file).items():
            if name in found:
                raise CheckpointError(
                    "source", f"{name} is in {found[name].file.name} and again in {file.name}"
                )
            found[name] = info
    return found


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise CheckpointError("source", f"there is no directory {str(directory)!r}")
    index = directory / INDEX
    if index.is_file():
        return _indexed(index)
    files = sorted(directory.glob("[!.]*.safetensors"))
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    if not files:
        raise CheckpointError(
            "source",
            f"{str(directory)!r} has no *.safetensors",
            allowed="a directory with a model's weights as safetensors",
        )
    return files


def _indexed(index: Path) -> list[Path]:
    try:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise CheckpointError("source", f"{index} cannot be read: {error!r}") from error
    # A name with a folder in it would leave the directory; an engine finds no such file either.
    there = {file.name for file in index.parent.glob("*.safetensors")}
    if missing := sorted(str(name) for name in named if name not in there):
        raise CheckpointError(
            "source", f"{index.name} names files that are not there: {listing(missing)}"
        )
    if not named:
        raise CheckpointError("source", f"{index} names no file")
    return [index.parent / name for name in sorted(named)]


def _header(file: Path) -> dict[str, TensorInfo]:
    try:
        with file.open("rb") as source:
            size = file.stat().st_size
            length = _length(source.read(8), size)
            described = json.loads(source.read(length).decode(), object_pairs_hook=_unique)
        described.pop("__metadata__", None)
        begin = 8 + length
        found = {name: _tensor(file, begin, entry) for name, entry in described.items()}
        _check_cover(found, begin, size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise CheckpointError("source", f"{file} is broken or cut off: {error}") from error
    return found


def _length(first: bytes, size: int) -> int:
    length = int.from_bytes(first, "little")
    if not 2 <= length <= min(MAX_HEADER, size - 8):
        raise ValueError(f"no header in its {size:,} bytes")
    return length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name twice in its header")
    return entries


def _tensor(file: Path, begin: int, entry: dict[str, Any]) -> TensorInfo:
    dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, start, end)):
        raise ValueError(f"a header entry that makes no sense: {entry}")
    if math.prod(shape) * BITS[dtype] != (end - start) * 8:
        raise ValueError(f"{end - start} bytes for a {dtype} tensor of shape {shape}")
    return TensorInfo(dtype, shape, file, begin + start, end - start)


def _check_cover(found: dict[str, TensorInfo], begin: int, size: int) -> None:
    at = begin
    for info in sorted(found.values(), key=lambda info: (info.start, info.size_bytes)):
        if info.start != at:
            raise ValueError("its tensors overlap or leave a gap")
        at += info.size_bytes
    if at != size:
        raise ValueError(f"{size:,} bytes where its header says {at:,}")
