"""NaN and infinities, found by their bits: a float is neither unless its exponent is all ones.

That is one AND and one maximum per element, for bfloat16 too, which numpy does not know. Files
are read through one small buffer: a mapped file that somebody cuts off meanwhile would end this
process with a signal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.words import listing, plural
from workbench.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import BufferedReader

    from numpy.typing import NDArray

    from workbench.checkpoint.headers import TensorInfo
    from workbench.checkpoint.parts import Part

_EXPONENTS: dict[str, np.unsignedinteger[Any]] = {
    "F16": np.uint16(0x7C00),
    "BF16": np.uint16(0x7F80),
    "F32": np.uint32(0x7F80_0000),
    "F64": np.uint64(0x7FF0_0000_0000_0000),
}

FLOATS = frozenset(_EXPONENTS)
"""Dtypes that may stand for each other in a checkpoint, and whose values are checked."""

CHUNK = 1 << 20
"""Bytes that are looked at together; they stay in the processor's cache."""


def check_values(part: Part) -> None:
    """Refuse a part of a state dict with NaN or infinite values, before it is sent anywhere.

    Raises:
        CheckpointError: names the tensors.
    """
    refuse([name for name, piece in part.tensors.items() if not _finite(piece.dtype, piece.data)])


def check_file_values(tensors: Mapping[str, TensorInfo]) -> None:
    """Refuse files with NaN or infinite values.

    Raises:
        CheckpointError: names the tensors, or the file that ended early.
    """
    bad: list[str] = []
    for file in dict.fromkeys(info.file for info in tensors.values()):
        own = {name: info for name, info in tensors.items() if info.file == file}
        try:
            with file.open("rb") as source:
                bad += _not_finite(source, own)
        except OSError as error:
            raise CheckpointError("source", f"{file} cannot be read: {error}") from error
    refuse(bad)


def _not_finite(source: BufferedReader, tensors: Mapping[str, TensorInfo]) -> list[str]:
    buffer = np.empty(CHUNK, np.uint8)
    return [
        name
        for name, info in sorted(tensors.items(), key=lambda item: item[1].start)
        if info.dtype in FLOATS
        and not all(_finite(info.dtype, chunk) for chunk in _chunks(source, info, buffer))
    ]


def _chunks(
    source: BufferedReader, info: TensorInfo, buffer: NDArray[np.uint8]
) -> Iterator[NDArray[np.uint8]]:
    at, end = info.start, info.start + info.size_bytes
    while at < end:
        wanted = min(len(buffer), end - at)
        source.seek(at)
        if source.readinto(buffer.data[:wanted]) < wanted:
            raise CheckpointError("source", f"{info.file} changed while it was read")
        yield buffer[:wanted]
        at += wanted


def _finite(dtype: str, data: NDArray[np.uint8]) -> bool:
    exponent = _EXPONENTS.get(dtype)
    if exponent is None:
        return True
    words = data.view(exponent.dtype)
    step = CHUNK // words.itemsize
    return all(
        np.bitwise_and(words[at : at + step], exponent).max() != exponent
        for at in range(0, len(words), step)
    )


def refuse(names: list[str]) -> None:
    """Raise if there are any."""
    if names:
        raise CheckpointError(
            "source",
            f"NaN or infinite values in {plural(len(names), 'tensor')}: {listing(names)}",
        )
