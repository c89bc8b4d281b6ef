"""A state dict in parts that travel: raw bytes behind numpy arrays, pickled without a copy.

A tensor is never split. Names that are the very same memory (tied weights) come in one part and
share one array there, which a pickle holds once; written to a file they are each complete, since
the format knows no sharing and not every reader ties.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.checkpoint.words import listing
from workbench.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from numpy.typing import NDArray

PART_BYTES = 256 << 20
"""Large enough that calls cost nothing beside the copy, small enough that a node holds a few."""

_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0", "float16": "F16", "bfloat16": "BF16", "float32": "F32",
    "float64": "F64",
}  # fmt: skip
"""Names in torch and numpy → names in safetensors."""

_TAKEN = "dense torch tensors and numpy arrays of numbers, by name"


class Outline(NamedTuple):
    """One tensor without its values."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor's bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    """Flat, little-endian, in C order."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a state dict's tensors."""

    index: int
    """From 0."""
    count: int
    """How many parts there are."""
    tensors: Mapping[str, Piece]

    @property
    def size_bytes(self) -> int:
        """What it takes in a file, names that share memory counted each."""
        return sum(piece.data.nbytes for piece in self.tensors.values())


def split(state: Mapping[str, Any], part_bytes: int = PART_BYTES) -> Iterator[Part]:
    """Cut a state dict of torch tensors (on any device) or numpy arrays into parts.

    Whatever is refused is refused by this call. The parts are made as they are taken, so that
    no more than one of a device's is in host memory if the caller keeps none; those of a state
    dict in host memory are views of it, so nothing may train on it meanwhile.

    Args:
        state: a whole model's, each tensor complete on this process.
        part_bytes: what a part may take, unless a single tensor takes more.

    Raises:
        CheckpointError: names the keys whose values cannot be taken.
    """
    outline(state)
    plan = _plan(state, part_bytes)
    return (Part(index, len(plan), _pieces(state, groups)) for index, groups in enumerate(plan))


def outline(state: Mapping[str, Any]) -> dict[str, Outline]:
    """A state dict's tensors without their values.

    Raises:
        CheckpointError: names the keys whose values cannot be taken.
    """
    refused = [f"{name!r} is {why}" for name, value in state.items() if (why := _refusal(value))]
    refused += [f"{name!r} is no name" for name in state if not isinstance(name, str)]
    if refused or not state:
        raise CheckpointError("source", listing(refused) or "no tensors", allowed=_TAKEN)
    return {
        name: Outline(_DTYPES[_dtype(value)], tuple(value.shape)) for name, value in state.items()
    }


def _refusal(value: Any) -> str:
    """Why a value cannot be taken; empty if it can."""
    if _is_torch(value):
        if hasattr(value, "full_tensor"):
            return "a distributed tensor (full_tensor() gathers it)"
        if value.device.type == "meta" or str(value.layout) != "torch.strided":
            return f"a tensor without plain memory ({value.device}, {value.layout})"
    elif not isinstance(value, np.ndarray):
        return f"a {type(value).__name__}"
    elif not value.dtype.isnative:
        return f"of dtype {value.dtype.str}"
    return "" if _dtype(value) in _DTYPES else f"of dtype {_dtype(value)}"


def _is_torch(value: Any) -> bool:
    # Who hands one in has imported torch; this package does not.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _plan(state: Mapping[str, Any], part_bytes: int) -> list[list[list[str]]]:
    """Parts of groups of names; the names of a group are the very same memory."""
    groups: dict[Hashable, list[str]] = {}
    for name, value in state.items():
        groups.setdefault(_memory(value), []).append(name)
    parts: list[list[list[str]]] = []
    room = 0
    for names in groups.values():
        size = int(state[names[0]].nbytes)
        if not parts or size > room:
            parts.append([])
            room = part_bytes
        parts[-1].append(names)
        room -= size
    return parts


def _memory(value: Any) -> Hashable:
    """Equal for values that are the same bytes, read the same way."""
    if _is_torch(value):
        place = (str(value.device), value.data_ptr(), value.stride())
    else:
        place = ("numpy", value.__array_interface__["data"][0], value.strides)
    return (*place, tuple(value.shape), _dtype(value))


def _pieces(state: Mapping[str, Any], groups: list[list[str]]) -> dict[str, Piece]:
    pieces = {}
    for names in groups:
        value = state[names[0]]
        piece = Piece(_DTYPES[_dtype(value)], tuple(value.shape), _flat(value))
        pieces.update(dict.fromkeys(names, piece))
    return pieces


def _flat(value: Any) -> NDArray[np.uint8]:
    if _is_torch(value):
        torch = sys.modules["torch"]
        flat: NDArray[np.uint8] = (
            value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        )
        return flat
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
